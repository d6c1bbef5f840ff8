"""Models by the names that ``--model`` takes."""

import re
from dataclasses import fields
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from mapreduce.errors import UsageError
from mapreduce.support import options
from mapreduce.support.jsonfiles import MEMORY
from mapreduce.support.registry import Registry

if TYPE_CHECKING:
    from mapreduce.models.base import Model

#: The layers of networks: only the toolkit's own, whose code is not part of a plan.
LAYERS = Registry(
    "layer",
    "",
    {
        "dense": "mapreduce.models.layers.dense:Dense",
        "conv": "mapreduce.models.layers.convolution:Conv",
        "batchnorm": "mapreduce.models.layers.normalisation:BatchNorm",
        "relu": "mapreduce.models.layers.activation:ReLU",
        "leaky-relu": "mapreduce.models.layers.activation:LeakyReLU",
        "tanh": "mapreduce.models.layers.activation:Tanh",
        "sigmoid": "mapreduce.models.layers.activation:Sigmoid",
        "gelu": "mapreduce.models.layers.activation:GELU",
        "pool": "mapreduce.models.layers.pooling:MaxPool",
        "average-pool": "mapreduce.models.layers.pooling:AveragePool",
        "global-average-pool": "mapreduce.models.layers.pooling:GlobalAveragePool",
        "dropout": "mapreduce.models.layers.dropout:Dropout",
        "layernorm": "mapreduce.models.layers.normalisation:LayerNorm",
        "embedding": "mapreduce.models.layers.embedding:Embedding",
        "rnn": "mapreduce.models.layers.recurrent:RNN",
        "lstm": "mapreduce.models.layers.recurrent:LSTM",
        "gru": "mapreduce.models.layers.recurrent:GRU",
        "last": "mapreduce.models.layers.recurrent:Last",
        "residual": "mapreduce.models.layers.residual:Residual",
    },
    base="mapreduce.models.layers.base:Layer",
)

#: Networks that have names.
NETWORKS = {
    "lenet5": "conv:6x5:padding=2,relu,pool:2,conv:16x5,relu,pool:2,dense:120,relu,dense:84,relu",
    "cifar-cnn": (
        "conv:32x3:padding=1,batchnorm,relu,conv:32x3:padding=1,batchnorm,relu,pool:2,"
        "conv:64x3:padding=1,batchnorm,relu,conv:64x3:padding=1,batchnorm,relu,pool:2,"
        "dropout:0.25,dense:104,batchnorm,relu,dropout:0.5"
    ),
    "resnet8": (
        "conv:16x3:padding=1,batchnorm,relu,"
        "residual(conv:16x3:padding=1,batchnorm,relu,conv:16x3:padding=1,batchnorm),relu,"
        "residual(conv:32x3:stride=2:padding=1,batchnorm,relu,conv:32x3:padding=1,batchnorm),relu,"
        "residual(conv:64x3:stride=2:padding=1,batchnorm,relu,conv:64x3:padding=1,batchnorm),relu,"
        "global-average-pool"
    ),
    "char-gru": "embedding:32,gru:256",
}

#: The member that a list of layers is; its argument is the list.
_NETWORK = "sequential"
#: The member that a module of PyTorch is; its argument is the code that makes it.
_TORCH = "torch"


class _Models(Registry):
    """The family of models: also lists of layers, and the names of networks."""

    @property
    def names(self) -> list[str]:
        return [*super().names, *NETWORKS, *LAYERS, *FITS]

    @property
    def known(self) -> str:
        named, _, own = super().known.rpartition(", or ")
        return f"{named}, {', '.join(FITS.forms.values())}, or {own}"

    def split(self, spec: str) -> tuple[str, str | None]:
        first = re.match(r"[\w-]*", spec.strip())
        assert first is not None
        if first[0] in FITS:
            raise UsageError(
                f"--model {spec}: {first[0]} is fitted without gradients: expected a model that "
                f"learns by them. 'gradreduce train' and mapreduce.train take either"
            )
        if first[0] in LAYERS.builtin:
            return _NETWORK, spec
        named = NETWORKS.get(spec.strip())
        return (_NETWORK, named) if named else super().split(spec)


class _Fits(Registry):
    """The family of models that are fitted by exact sums, without gradients."""

    def fits(self, model: str) -> bool:
        """Whether a model, as ``--model`` names it, is one of them."""
        return model.partition(":")[0] in self

    def parse(self, model: str) -> Any:
        """The options of ``k-means:8`` or ``k-means:clusters=8,moves=20``.

        Raises UsageError (they are wrong, or the name is unknown).
        """
        name, values = self.split(model)
        kind = self.find(name)
        if values and "=" not in values.partition(",")[0]:
            values = f"{fields(kind)[0].name}={values}"
        return options.parse(kind, values, f"--model {name}")


FITS = _Fits(
    "model",
    "",
    {
        "k-means": "mapreduce.estimators.specs:KMeans",
        "pca": "mapreduce.estimators.specs:PCA",
        "ridge": "mapreduce.estimators.specs:Ridge",
        "boosting": "mapreduce.estimators.specs:Boosting",
    },
    {
        "k-means": "k-means:CLUSTERS",
        "pca": "pca[:COMPONENTS]",
        "ridge": "ridge[:ALPHA]",
        "boosting": "boosting[:TREES]",
    },
)

MODELS = _Models(
    "model",
    "gradreduce.models",
    {
        "softmax": "mapreduce.models.softmax:Softmax",
        "linear": "mapreduce.models.linear:Linear",
        "logistic": "mapreduce.models.linear:Logistic",
        "svm": "mapreduce.models.linear:LinearSvm",
        "hinge-svm": "mapreduce.models.linear:HingeSvm",
        "mlp": "mapreduce.models.mlp:MLP",
        _NETWORK: "mapreduce.models.layers.sequential:Sequential",
        _TORCH: "mapreduce.models.torch_module:TorchModule",
    },
    {
        "mlp": "mlp:WIDTH[,WIDTH...]",
        _NETWORK: f"{', '.join(NETWORKS)}, LAYER[,LAYER...] (see gradreduce models list)",
        _TORCH: "torch:MODULE:NAME",
    },
    base="mapreduce.models.base:Model",
    carriers=(_TORCH,),
)

#: The kinds of fitted models: what computes with the arrays of each.
ESTIMATORS = Registry(
    "model",
    "gradreduce.estimators",
    {
        "gradient": "mapreduce.models.gradient:GradientModel",
        "k-means": "mapreduce.algorithms.k_means:Clusters",
        "pca": "mapreduce.algorithms.gram:PrincipalComponents",
        "ridge": "mapreduce.algorithms.gram:RidgeNumbers",
        "trees": "mapreduce.algorithms.trees:Trees",
    },
    base="mapreduce.models.fitted:Estimator",
)


def parse(spec: str) -> tuple[str, tuple[int, ...] | str]:
    """Name and arguments of a specification like ``mlp:256,128``, or a UsageError.

    The argument of a network is the text of its layers, that of ``torch`` is ``MODULE:NAME``, and
    that of a model with options of its own is their text.
    """
    name, rest = MODELS.split(spec)
    if name == _TORCH:
        return name, MODELS.code(spec)
    if rest is not None and "=" in rest and name not in MODELS:
        return name, rest
    if name == _NETWORK:
        if not rest:
            raise UsageError(f"--model {spec}: expected {MODELS.forms[_NETWORK]}")
        return name, rest
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


def find(spec: str, target: str = "class") -> "type[Model]":
    """The class of a specification, for labels that are a ``class`` or a ``number``."""
    kind: type[Model] = MODELS.find(parse(spec)[0])
    return kind.for_numbers or kind if target == "number" else kind


def create(
    spec: str, shape: int | tuple[int, ...], classes: int, dtype: str, device: str = "cpu"
) -> "Model":
    """The model of a specification, for data of a given shape; 0 classes if labels are numbers.

    Of ``mlp:256,128`` the constructor gets the numbers as a tuple, by its keyword-only parameter.

    >>> model = create("mlp:16", shape=64, classes=10, dtype="float32")
    >>> model.size
    1210
    >>> {one.name: one.shape for one in model.parameters}["layers.0.weight"]
    (64, 16)
    """
    name, arguments = parse(spec)
    # Code that is not trusted is refused before PyTorch is loaded for it.
    MODELS.target(MODELS.code(spec))
    kind = find(spec, "class" if classes else "number")
    shape = (shape,) if isinstance(shape, int) else shape
    if kind.Options is not None or (isinstance(arguments, str) and name not in MODELS):
        own = options.parse(kind.Options, MODELS.split(spec)[1], f"--model {name}")
        return _fitting(kind(shape, classes, dtype, device, options=own), spec)
    # A constructor with such a parameter takes arguments.
    named = [one for one in signature(kind).parameters.values() if one.kind is one.KEYWORD_ONLY]
    needed = [one for one in named if one.default is Parameter.empty]
    if (arguments and not named) or (needed and not arguments):
        raise _malformed(spec, name)
    given = {named[0].name: arguments} if arguments else {}
    return _fitting(kind(shape, classes, dtype, device, **given), spec)


def _fitting(model: "Model", spec: str) -> "Model":
    # Memory holds it three times while it is read from a checkpoint.
    if max(3 * model.size * model.dtype.itemsize, model.row_bytes) > MEMORY:
        raise UsageError(f"model {spec[:60]!r}: it does not fit into {MEMORY >> 30} GiB of memory")
    return model
