"""Models by the name that ``--model`` takes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mapreduce.errors import UsageError
from mapreduce.hints import did_you_mean
from mapreduce.jsonfiles import MEMORY

if TYPE_CHECKING:
    from mapreduce.models.base import Model

#: Name, where the class is, and how to write the specification.
MODELS = {
    "softmax": ("mapreduce.models.softmax:Softmax", "softmax"),
    "linear": ("mapreduce.models.linear:Linear", "linear"),
    "logistic": ("mapreduce.models.linear:Logistic", "logistic"),
    "svm": ("mapreduce.models.linear:LinearSvm", "svm"),
    "hinge-svm": ("mapreduce.models.linear:HingeSvm", "hinge-svm"),
    "mlp": ("mapreduce.models.mlp:MLP", "mlp:WIDTH[,WIDTH...]"),
}


def parse(spec: str) -> tuple[str, tuple[int, ...]]:
    """Name and arguments of a specification like ``mlp:256,128``.

    Raises
    ------
    UsageError
        The model is unknown or its arguments are malformed.
    """
    name, separator, rest = spec.partition(":")
    if name not in MODELS:
        forms = ", ".join(form for _, form in MODELS.values())
        raise UsageError(
            f"unknown model {spec!r}: expected one of {forms}.{did_you_mean(name, MODELS)}"
        )
    form = MODELS[name][1]
    try:
        arguments = tuple(int(part) for part in rest.split(",")) if separator else ()
    except ValueError:
        arguments = (0,)
    if any(argument < 1 for argument in arguments) or (":" in form) != bool(arguments):
        raise UsageError(f"model {spec!r}: expected {form}, with positive integers")
    return name, arguments


def find(spec: str) -> "type[Model]":
    """The class of a specification.

    Raises
    ------
    UsageError
        The specification is unknown or malformed.
    """
    return load(parse(spec)[0])


def load(name: str) -> "type[Model]":
    """The class of one of :data:`MODELS`."""
    module, _, class_name = MODELS[name][0].partition(":")
    kind: type[Model] = getattr(import_module(module), class_name)
    return kind


def create(spec: str, features: int, classes: int, dtype: str, device: str = "cpu") -> "Model":
    """The model of a specification, for data of a given shape.

    Parameters
    ----------
    spec : str
        ``softmax`` or ``mlp:256,128``.
    features, classes : int
        A model that predicts numbers has no use for classes.
    dtype : {"float32", "float64"}
    device : {"cpu", "cuda"}
        Where its kernels run.

    Raises
    ------
    UsageError
        The specification is unknown or malformed, or the machine's memory is too small for it.
    """
    arguments = parse(spec)[1]
    options: dict[str, Any] = {"hidden": arguments} if arguments else {}
    model = find(spec)(features, classes, dtype, device, **options)
    # While it is read from a checkpoint it is there three times.
    if 3 * model.size * model.dtype.itemsize > MEMORY:
        raise UsageError(f"model {spec[:60]!r}: {MEMORY >> 30} GiB of memory are too small for it")
    return model
