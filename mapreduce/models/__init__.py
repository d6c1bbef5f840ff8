"""Models by the names that ``--model`` takes."""

from inspect import Parameter, signature
from typing import TYPE_CHECKING

from mapreduce.errors import UsageError
from mapreduce.support.jsonfiles import MEMORY
from mapreduce.support.registry import Registry

if TYPE_CHECKING:
    from mapreduce.models.base import Model

MODELS = Registry(
    "model",
    "gradreduce.models",
    {
        "softmax": "mapreduce.models.softmax:Softmax",
        "linear": "mapreduce.models.linear:Linear",
        "logistic": "mapreduce.models.linear:Logistic",
        "svm": "mapreduce.models.linear:LinearSvm",
        "hinge-svm": "mapreduce.models.linear:HingeSvm",
        "mlp": "mapreduce.models.mlp:MLP",
    },
    {"mlp": "mlp:WIDTH[,WIDTH...]"},
    base="mapreduce.models.base:Model",
)


def parse(spec: str) -> tuple[str, tuple[int, ...]]:
    """Name and arguments of a specification like ``mlp:256,128``, or a UsageError."""
    name, rest = MODELS.split(spec)
    try:
        arguments = () if rest is None else tuple(int(part) for part in rest.split(","))
    except ValueError:
        arguments = (0,)
    if any(argument < 1 for argument in arguments):
        raise _malformed(spec, name)
    return name, arguments


def _malformed(spec: str, name: str) -> UsageError:
    form = name if name in MODELS else f"{name}[:NUMBER,...]"
    return UsageError(
        f"model {spec!r}: expected {MODELS.forms.get(name, form)}, with positive integers"
    )


def find(spec: str) -> "type[Model]":
    """The class of a specification; errors are those of :func:`parse` and of the registry."""
    kind: type[Model] = MODELS.find(parse(spec)[0])
    return kind


def create(
    spec: str, shape: int | tuple[int, ...], classes: int, dtype: str, device: str = "cpu"
) -> "Model":
    """The model of a specification, for data of a given shape.

    Parameters
    ----------
    spec : str
        ``softmax`` or ``mlp:256,128``; the constructor gets the numbers as a tuple, by its
        keyword-only parameter.
    shape : int or tuple of int
        Shape of a row, or the number of features.
    classes : int
        Not used by a model that predicts numbers.
    dtype, device : str

    Raises
    ------
    UsageError
        The specification is unknown or malformed, or the machine's memory is too small for it.

    Examples
    --------
    >>> model = create("mlp:16", shape=64, classes=10, dtype="float32")
    >>> model.size
    1210
    >>> {one.name: one.shape for one in model.parameters}["layers.0.weight"]
    (64, 16)
    """
    name, arguments = parse(spec)
    kind = find(spec)
    # A constructor with such a parameter takes arguments.
    named = [one for one in signature(kind).parameters.values() if one.kind is one.KEYWORD_ONLY]
    needed = [one for one in named if one.default is Parameter.empty]
    if (arguments and not named) or (needed and not arguments):
        raise _malformed(spec, name)
    options = {named[0].name: arguments} if arguments else {}
    shape = (shape,) if isinstance(shape, int) else shape
    model = kind(shape, classes, dtype, device, **options)
    # Memory holds it three times while it is read from a checkpoint.
    if 3 * model.size * model.dtype.itemsize > MEMORY:
        raise UsageError(f"model {spec[:60]!r}: it does not fit into {MEMORY >> 30} GiB of memory")
    return model
