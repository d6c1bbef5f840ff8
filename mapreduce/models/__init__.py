"""Models by the name that ``--model`` takes."""

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
    """Name and arguments of a specification like ``mlp:256,128``.

    Raises
    ------
    UsageError
        The model is unknown or its arguments are malformed.
    """
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
    """The class of a specification.

    Raises
    ------
    UsageError, MemberError
        The specification is unknown or malformed, or what it names cannot be used.
    """
    kind: type[Model] = MODELS.find(parse(spec)[0])
    return kind


def create(
    spec: str, shape: int | tuple[int, ...], classes: int, dtype: str, device: str = "cpu"
) -> "Model":
    """The model of a specification, for data of a given shape.

    Parameters
    ----------
    spec : str
        ``softmax`` or ``mlp:256,128``; the numbers are given to the constructor, as a tuple by its
        parameter that is keyword-only.
    shape : int or tuple of int
        Of a row; the number of features, if it is flat.
    classes : int
        A model that predicts numbers has no use for classes.
    dtype : {"float32", "float64"}
    device : {"cpu", "cuda"}
        Where its kernels run.

    Raises
    ------
    UsageError
        The specification is unknown or malformed, or the machine's memory is too small for it.
    """
    name, arguments = parse(spec)
    kind = find(spec)
    # A model says by such a parameter of its constructor that it takes arguments.
    named = [one for one in signature(kind).parameters.values() if one.kind is one.KEYWORD_ONLY]
    needed = [one for one in named if one.default is Parameter.empty]
    if (arguments and not named) or (needed and not arguments):
        raise _malformed(spec, name)
    options = {named[0].name: arguments} if arguments else {}
    shape = (shape,) if isinstance(shape, int) else shape
    model = kind(shape, classes, dtype, device, **options)
    # While it is read from a checkpoint it is there three times.
    if 3 * model.size * model.dtype.itemsize > MEMORY:
        raise UsageError(f"model {spec[:60]!r}: {MEMORY >> 30} GiB of memory are too small for it")
    return model
