"""The contract of a model: named parameters, and pure functions of a flat vector of them."""

import contextlib
import copy
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kernels import dispatch
from mapreduce.data.batch import Batch, Csr
from mapreduce.errors import DataError, DeviceError, UsageError
from mapreduce.models.context import Context
from mapreduce.reduction.vectors import Vector

if TYPE_CHECKING:
    from kernels.cpu.invariant import Invariant

Array = npt.NDArray[Any]


_NO_ERRORS = contextlib.nullcontext()


def device_errors(device: str) -> contextlib.AbstractContextManager[None]:
    """Raise a :class:`DeviceError` instead of a :class:`kernels.cuda.errors.CudaError`."""
    return _NO_ERRORS if device == "cpu" else _translated(device)


@contextlib.contextmanager
def _translated(device: str) -> Iterator[None]:
    from kernels.cuda.errors import CudaError

    try:
        yield
    except CudaError as error:
        raise DeviceError(f"--device {device}: {error}") from error


def model_sha256(params: Mapping[str, Array]) -> str:
    """Digest of a model's parameters, and of nothing else.

    It covers the list of (name, dtype, shape), sorted by name, as JSON, and then the arrays' bytes
    in that order, little-endian and C-contiguous.
    """
    arrays = dict(sorted(params.items()))
    entries = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    digest = hashlib.sha256(json.dumps(entries).encode())
    for array in arrays.values():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(little.data if little.size else b"")
    return digest.hexdigest()


class Parameter(NamedTuple):
    """A named array within the flat vector.

    Attributes
    ----------
    name : str
    shape : tuple of int
    role : {"weight", "bias", "buffer"}
        Weights get the L1 and L2 penalties, biases do not. A buffer is not trained: no penalty and
        no optimizer sees it, its gradient is 0, and :meth:`Model.update_buffer` changes it.
    """

    name: str
    shape: tuple[int, ...]
    role: Literal["weight", "bias", "buffer"] = "weight"


class Model(ABC):
    """A model with its parameters in one flat vector.

    Parameters
    ----------
    shape : tuple of int
        Shape of a row, whose elements are the columns of a batch.
    classes : int
    dtype : {"float32", "float64"}
        The dtype of the parameters.
    device : str
        Where the kernels run.
    options : object, optional
        An instance of :attr:`Options`.

    Attributes
    ----------
    Options : type or None
        A frozen dataclass of :func:`mapreduce.support.options.option`, if the model has options of
        its own; ``options`` has their values.
    features : int
        Columns of a batch.
    parameters : list of Parameter
        The parts of the flat vector, in order.
    size : int
        Length of the flat vector.
    takes_shape : bool
        Whether the model uses the shape of a row; else rows are flat.
    takes_sparse : bool
        Whether a batch's features may be :class:`mapreduce.data.batch.Csr`.
    binary : bool
        Whether the model knows exactly two classes.
    regression : bool
        Whether the model predicts a number, not a class.
    for_numbers : type or None
        The class that learns numbers instead of classes, if there is one.
    takes_mixed : bool
        Whether parameters may be float16.
    is_random : bool
        Whether a row's gradient depends on chance, and so on the round, as with dropout. Such a
        model draws random numbers only if ``context.training`` is true, and only by
        ``context.key.uniform(batch.rows, n)``: see :meth:`mapreduce.models.context.Key.uniform`.
    mixes_rows : bool
        Whether a row's gradient depends on the other rows of its slice, as with batch norm.
    steps : int or None
        Number of elements of a row that the model predicts: all after the first, and then the
        label. The classes must then be the values of elements. None if the model predicts the label
        alone.
    forks_after_gradient : bool
        Whether a process may be forked after :meth:`gradient` was called in it.
    row_bytes : int
        Bytes that a row takes in :meth:`gradient`, about; 0 if nobody knows.
    stays_on_device : bool
        Whether :meth:`gradient` takes parameters, result and workspace on the model's device. A
        model that uses NumPy between its kernels sets it to False.

    Notes
    -----
    **Sums.** Losses and gradients are sums over the rows, not means. The loss and the gradient of a
    row are multiplied by the row's weight.

    **A check.** Before the first round, a training compares :meth:`gradient`, :meth:`score` and
    differences of the loss. The training refuses a model whose :meth:`gradient` returns another
    loss, leaves a part of ``out`` unwritten, or writes a multiple of the derivative, such as a
    mean. If the gradient is wrong in another way, a warning names the parameters.

    **Integers.** A model without :attr:`Options` can take positive integers: ``mine:Net:3,4``
    passes the tuple ``(3, 4)`` to the constructor's keyword-only parameter, whatever its name is.

    **Kernels.** ``self._kernel(name)`` returns a kernel for the model's device. The file
    ``kernels/dispatch.py`` lists the names, and ``help(kernels.dispatch.get("affine"))`` shows the
    arguments of the kernel ``affine``. Call ``self._kernel`` whenever you need a kernel, and
    multiply matrices with the kernels ``affine`` or ``recurrent``. Predictions then replace these
    two by batch-invariant kernels, so that the prediction of a row has the same bits in any batch.
    Products of NumPy do not promise this. The last bits of ``np.exp`` and ``np.log`` depend on the
    processor: use kernels instead.

    **Inputs.** ``self._inputs(params, batch, context)`` returns the scaled rows in the dtype of the
    parameters. In mixed precision, ``self._stored(delta, params, context)`` multiplies the
    derivatives by the loss scale and stores them as float16; otherwise it returns them unchanged.
    """

    Options: ClassVar[type[Any] | None] = None
    takes_shape: ClassVar[bool] = False
    takes_sparse: ClassVar[bool] = False
    binary: ClassVar[bool] = False
    regression: bool = False
    for_numbers: ClassVar["type[Model] | None"] = None
    takes_mixed: ClassVar[bool] = True
    is_random: bool = False
    mixes_rows: bool = False
    steps: int | None = None
    row_bytes: int = 0
    forks_after_gradient: bool = True
    stays_on_device: ClassVar[bool] = True
    _invariant: "Invariant | None" = None
    #: The parameters of :meth:`hold`, and their :meth:`views`.
    _held: tuple[Any, Sequence[Array]] = None, ()

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        dtype: str,
        device: str = "cpu",
        options: Any = None,
    ) -> None:
        if options is None and self.Options is not None:
            options = self.Options()
        self.options = options
        self.shape = shape
        self.features = math.prod(shape)
        self.classes = classes
        self.dtype = np.dtype(dtype)
        self.device = device
        self._kernels: dict[str, Any] = {}
        self._lay_out()

    def _lay_out(self) -> None:
        """Give each parameter its place in the flat vector."""
        self.parameters = self._parameters()
        name = type(self).__name__
        for one in self.parameters:
            if not isinstance(one, Parameter) or one.role not in ("weight", "bias", "buffer"):
                raise UsageError(
                    f"{name}._parameters: expected each a Parameter, a weight, bias or buffer, "
                    f"found {one!r:.80}"
                )
            if not isinstance(one.shape, tuple | list):
                raise UsageError(
                    f"{name}._parameters: expected a tuple as the shape of {one.name!r}, such as "
                    f"(3,), found {one.shape!r:.80}"
                )
        names = [one.name for one in self.parameters]
        if not names or len({*names}) < len(names):
            raise UsageError(f"{name}._parameters: expected different names, found {names!r:.200}")
        sizes = [math.prod(parameter.shape) for parameter in self.parameters]
        self._ends = list(accumulate(sizes, initial=0))
        self.size = self._ends[-1]
        self._places = [
            (slice(*ends), one.shape)
            for one, ends in zip(self.parameters, pairwise(self._ends), strict=True)
        ]
        self.has_buffers = any(parameter.role == "buffer" for parameter in self.parameters)

    def _kernel(self, name: str) -> Any:
        # Found when it is called: a process that has started CUDA cannot be forked.
        if name not in self._kernels:
            self._kernels[name] = dispatch.get(name, self.device)
        return self._kernels[name]

    def batch_invariant(self) -> Self:
        """The model for use, not for training: a row has the same bits in any batch.

        It belongs to one thread, and takes the parameters that it was told last to :meth:`hold`. On
        another device than the CPU it is the model itself.
        """
        if self.device != "cpu":
            return self
        found = copy.copy(self)
        found._invariant = kernels = dispatch.batch_invariant()
        found._kernels = {"affine": kernels.affine, "recurrent": kernels.recurrent}
        return found

    def hold(self, params: Array) -> None:
        """Take parameters (size,) for the next calls, in which they do not change."""
        self._held = params, self._cut(params)
        if self._invariant is not None:
            self._invariant.hold(params)

    @abstractmethod
    def _parameters(self) -> list[Parameter]:
        """Names, shapes and roles, in order."""

    @abstractmethod
    def init(self, seed: int) -> Array:
        """Initial parameters (size,), from a seed."""

    @abstractmethod
    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        """Gradient and loss of a batch, summed over its rows, each times its weight.

        Parameters
        ----------
        params : array (size,), of the model's dtype or float16
            With float16, rows, activations and their gradients are stored as float16 too; sums,
            the outputs and the loss are not.
        batch : Batch
            With labels.
        out : array (size,), of the dtype of ``params``
            Every element is overwritten: by the sum of the rows' gradients times the context's
            ``loss_scale``, and by 0 in the place of buffers.
        context : Context

        Returns
        -------
        float
            Sum of the rows' losses, in nats.
        """

    def sparse_gradient(
        self, params: Array, batch: Batch, context: Context
    ) -> tuple[float, Vector] | None:
        """Loss and sparse gradient of a batch; None if a dense gradient takes less memory."""
        return None

    def curvature(self, batch: Batch) -> Array | None:
        """Second derivatives of the loss by each of the initial parameters, summed over the rows.

        An array (size,), or None if the model has no estimate.
        """
        return None

    def extras(self, completed: int) -> tuple[str, ...]:
        """Names of the extra sums over rows that :meth:`gradient` computes in a round.

        They are added up along the same tree, and :meth:`update_buffer` gets their means. Those
        whose names begin with ``moments.`` are merged instead, and it gets them as they are: see
        :data:`mapreduce.reduction.aggregator.MOMENTS`.
        """
        return ()

    def update_buffer(
        self, name: str, part: slice, values: Array, means: Mapping[str, Array]
    ) -> Array:
        """New values of a part of a buffer, after a round that was not skipped.

        Parameters
        ----------
        name : str
            Name of the buffer.
        part : slice
            Its elements, flattened, that are in one block of the parameters.
        values : array (n,)
            Values of this part, which must not be changed.
        means : dict of str to array
            Weighted means of :meth:`extras` over all rows of the round, or merged moments.
        """
        return values

    @abstractmethod
    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        """Logits (rows, classes) of a batch, in the workspace's memory."""

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        """Weighted sum of the losses, in nats, and number of rows that are classified correctly.

        Evaluations call this method. By default, the loss is cross-entropy after a softmax: a model
        with another loss has its own method. The predicted class is the first class with the
        largest logit. For a model that predicts numbers, the second number is 0.

        Raises UsageError (a model that predicts numbers has none of its own).
        """
        if self.regression:
            raise UsageError(
                f"{type(self).__name__} predicts numbers: expected a method score of its own, "
                f"which returns the sum of the losses, and 0"
            )
        logits = self.logits(params, batch, context)
        result: tuple[float, int] = self._kernel("score")(logits, batch.labels, batch.weights)
        return result

    def probabilities(self, params: Array, batch: Batch, context: Context) -> Array:
        """Probabilities (rows, classes) of a batch, in the workspace's memory."""
        result: Array = self._kernel("softmax")(self.logits(params, batch, context))
        return result

    def of_logits(self) -> Self | None:
        """The same model of rows whose features are their logits; None if a score needs more."""
        if self.steps is not None:
            return None
        found = copy.copy(self)
        vars(found)["logits"] = lambda params, batch, context: np.array(batch.features)
        return found

    def named_layers(self) -> dict[str, str]:
        """The layers whose outputs :meth:`layer_outputs` gives, in order: by name, what each is."""
        return {}

    def layer_outputs(self, params: Array, batch: Batch, context: Context, layer: str) -> Array:
        """Outputs of one of :meth:`named_layers` for a batch, in the workspace's memory.

        ``predict --layer`` calls this method.

        An array (rows, n), in which the elements of a row's output are in the order of its axes.
        """
        raise NotImplementedError(f"{type(self).__name__} has no layer {layer}")

    @property
    def libraries(self) -> dict[str, str]:
        """What the model's numbers depend on beside :func:`mapreduce.support.numeric.describe`."""
        return {}

    def state(self, flat: Array) -> dict[str, Array]:
        """Arrays by name for other programs, from the parameters (size,)."""
        return self.named(flat)

    def of_state(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """The parameters among arrays by name, which may be those of :meth:`state`."""
        return dict(state)

    def views(self, flat: Array) -> list[Array]:
        """The flat vector's parts as arrays of the parameters' shapes, in order; no copies."""
        held, views = self._held
        return [*views] if flat is held else self._cut(flat)

    def _cut(self, flat: Array) -> list[Array]:
        return [flat[part].reshape(shape) for part, shape in self._places]

    def named(self, flat: Array) -> dict[str, Array]:
        """The flat vector's parts by name; no copies."""
        names = (parameter.name for parameter in self.parameters)
        return dict(zip(names, self.views(flat), strict=True))

    def flat(self, named: Mapping[str, Array], source: object) -> Array:
        """Named parameters as a flat vector (size,), in the model's dtype.

        Raises
        ------
        DataError
            Names or shapes of ``source`` are not those of the model, or a number is not finite.
        """
        params = np.empty(self.size, self.dtype)
        views = self.named(params)
        expected = {name: view.shape for name, view in views.items()}
        found = {name: array.shape for name, array in named.items()}
        if found != expected:
            raise DataError(
                f"{source} does not hold the parameters of the model: expected "
                f"{dict(sorted(expected.items() - found.items()))}, found "
                f"{dict(sorted(found.items() - expected.items()))}. Take the model, and data with "
                f"the features, that they were trained with"
            )
        for name, view in views.items():
            with np.errstate(over="ignore"):
                view[...] = named[name]
            if not np.isfinite(view).all():
                raise DataError(
                    f"{source}: {name} has elements that are not finite as {self.dtype}"
                )
        return params

    def parts(self, start: int, stop: int) -> Iterator[tuple[Parameter, slice, slice]]:
        """The parameters in a part of the flat vector.

        Yields
        ------
        parameter : Parameter
        elements : slice
            Its elements, flattened, that are in the part.
        place : slice
            Their place in the part.
        """
        for parameter, (first, last) in zip(self.parameters, pairwise(self._ends), strict=True):
            low, high = max(start, first), min(stop, last)
            if low < high:
                yield parameter, slice(low - first, high - first), slice(low - start, high - start)

    def parameter_at(self, index: int) -> str:
        """Name of the parameter that holds an element of the flat vector."""
        for parameter, _, _ in self.parts(index, index + 1):
            return parameter.name
        raise IndexError("beyond the last parameter")

    def feature_at(self, index: int) -> int | None:
        """The feature that an element of the flat vector weighs, or None."""
        # The first parameter of all models has a row for each feature.
        first = self.parameters[0].shape
        return index // math.prod(first[1:]) if index < math.prod(first) else None

    def penalised(self, start: int, stop: int) -> Array:
        """The mask of a part of the flat vector, (stop - start,): 1 for weights, else 0."""
        mask = np.zeros(stop - start, self.dtype)
        for parameter, _, place in self.parts(start, stop):
            mask[place] = parameter.role == "weight"
        return mask

    def _inputs(self, params: Array, batch: Batch, context: Context) -> Array:
        """The features in the parameters' dtype, scaled; not copied if that changes nothing."""
        features = batch.features
        if isinstance(features, Csr):
            raise UsageError(f"{type(self).__name__.lower()} does not take sparse features")
        if features.dtype == params.dtype and batch.scale == 1.0:
            return features
        out = context.workspace.array("inputs", features.shape, params.dtype)
        result: Array = self._kernel("scale")(features, batch.scale, out)
        return result

    def _stored(self, delta: Array, params: Array, context: Context) -> Array:
        """The loss's gradient by the outputs (rows, outputs), in the dtype of the parameters."""
        if delta.dtype == params.dtype:
            return delta
        out = context.workspace.array("delta", delta.shape, params.dtype)
        result: Array = self._kernel("scale")(delta, context.loss_scale, out)
        return result
