"""What a model is: a shape of its parameters, and pure functions of a flat vector of them."""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels import arrays, dispatch
from mapreduce.collect.vectors import Vector
from mapreduce.data.batch import Batch, Csr
from mapreduce.errors import DeviceError, UsageError

Array = npt.NDArray[Any]


@contextlib.contextmanager
def device_errors(device: str) -> Iterator[None]:
    """Have what is wrong with a device told as an error of ours, in one line.

    Raises
    ------
    DeviceError
        In the place of :class:`kernels.cuda.errors.CudaError`.
    """
    if device == "cpu":
        yield
        return
    # Here, since no job on the CPU needs it.
    from kernels.cuda.errors import CudaError

    try:
        yield
    except CudaError as error:
        raise DeviceError(f"--device {device}: {error}") from error


class Parameter(NamedTuple):
    """A named array within the flat vector."""

    name: str
    shape: tuple[int, ...]


class Workspace:
    """Arrays that one thread uses again for every slice.

    Parameters
    ----------
    device : str
        Where they are.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
        """An uninitialised C-contiguous array, valid until the name is asked for again."""
        size = shape[0] * shape[1]
        array = self._arrays.get(name)
        if array is None or array.size < size or array.dtype != dtype:
            array = self._arrays[name] = arrays.empty(size, dtype, self._device)
        return array[:size].reshape(shape)


class Model(ABC):
    """A model with its parameters in one flat vector.

    Parameters
    ----------
    features : int
        Columns of a batch.
    classes : int
    dtype : {"float32", "float64"}
        Of the parameters. What is computed from parameters stored as float16 is stored so too.
    device : str
        Where the kernels run.

    Attributes
    ----------
    parameters : list of Parameter
        In the order in which they lie in the flat vector.
    size : int
        Length of the flat vector.
    takes_sparse : bool
        Whether a batch's features may be :class:`mapreduce.data.batch.Csr`.
    binary : bool
        Whether it knows exactly two classes.
    regression : bool
        Whether it predicts a number, not a class.
    stays_on_device : bool
        Whether :meth:`gradient` takes parameters, result and workspace on the model's device.
    """

    takes_sparse: ClassVar[bool] = False
    binary: ClassVar[bool] = False
    regression: ClassVar[bool] = False
    stays_on_device: ClassVar[bool] = True

    def __init__(self, features: int, classes: int, dtype: str, device: str = "cpu") -> None:
        self.features = features
        self.classes = classes
        self.dtype = np.dtype(dtype)
        self.device = device
        self.parameters = self._parameters()
        self.size = sum(math.prod(parameter.shape) for parameter in self.parameters)
        self._kernels: dict[str, Any] = {}

    def _kernel(self, name: str) -> Any:
        # Not before it is called: a process that has started CUDA cannot hand it on.
        if name not in self._kernels:
            self._kernels[name] = dispatch.get(name, self.device)
        return self._kernels[name]

    @abstractmethod
    def _parameters(self) -> list[Parameter]:
        """Names and shapes, in order."""

    @abstractmethod
    def init(self, seed: int) -> Array:
        """Initial parameters (size,), from a seed."""

    @abstractmethod
    def gradient(
        self,
        params: Array,
        batch: Batch,
        out: Array,
        workspace: Workspace,
        loss_scale: float = 1.0,
    ) -> float:
        """Gradient and loss of a batch, summed over its rows.

        Parameters
        ----------
        params : array (size,), of the model's dtype or float16
            With float16, the rows, activations and their gradients are stored as float16 as well;
            sums, the outputs and the loss are not.
        batch : Batch
            With labels.
        out : array (size,), of the dtype of ``params``
            Overwritten by the sum of the rows' gradients, times ``loss_scale``.
        workspace : Workspace
            Of the calling thread.
        loss_scale : float
            For float16, in which small gradients would vanish; 1 for others.

        Returns
        -------
        float
            Sum of the rows' losses, in nats.
        """

    def sparse_gradient(
        self, params: Array, batch: Batch, workspace: Workspace
    ) -> tuple[float, Vector] | None:
        """Loss and gradient as :meth:`gradient` gives them, the gradient sparse.

        None, and nothing computed, if a dense one takes less memory.
        """
        return None

    def curvature(self, batch: Batch) -> Array | None:
        """Second derivatives of the loss by each parameter, at the initial ones, summed over rows.

        Returns
        -------
        array (size,), or None
            None if the model has no estimate.
        """
        return None

    @abstractmethod
    def logits(self, params: Array, batch: Batch, workspace: Workspace) -> Array:
        """Logits (rows, classes) of a batch, in the workspace's memory."""

    def score(self, params: Array, batch: Batch, workspace: Workspace) -> tuple[float, int]:
        """Sum of the losses, in nats, and number of rows that are classified correctly."""
        logits = self.logits(params, batch, workspace)
        result: tuple[float, int] = self._kernel("score")(logits, batch.labels, batch.weights)
        return result

    def probabilities(self, params: Array, batch: Batch, workspace: Workspace) -> Array:
        """Probabilities (rows, classes) of a batch, in the workspace's memory."""
        result: Array = self._kernel("softmax")(self.logits(params, batch, workspace))
        return result

    def views(self, flat: Array) -> list[Array]:
        """The flat vector's parts as arrays of the parameters' shapes, in order; no copies."""
        arrays = []
        offset = 0
        for _, shape in self.parameters:
            size = math.prod(shape)
            arrays.append(flat[offset : offset + size].reshape(shape))
            offset += size
        return arrays

    def named(self, flat: Array) -> dict[str, Array]:
        """The flat vector's parts by name; no copies."""
        names = (parameter.name for parameter in self.parameters)
        return dict(zip(names, self.views(flat), strict=True))

    def parameter_at(self, index: int) -> str:
        """Name of the parameter that holds an element of the flat vector."""
        for name, shape in self.parameters:
            index -= math.prod(shape)
            if index < 0:
                return name
        raise IndexError("beyond the last parameter")

    def feature_at(self, index: int) -> int | None:
        """The feature that an element of the flat vector weighs; None for any other parameter."""
        # In all models the first parameter has a row for each feature.
        first = self.parameters[0].shape
        return index // math.prod(first[1:]) if index < math.prod(first) else None

    def penalised(self, start: int, stop: int) -> Array:
        """Which elements of a part of the flat vector an L1 or L2 penalty applies to.

        Weights, but not biases.

        Returns
        -------
        array (stop - start,), of the parameters' dtype
            1 or 0.
        """
        mask = np.ones(stop - start, self.dtype)
        offset = 0
        for name, shape in self.parameters:
            end = offset + math.prod(shape)
            if name.rpartition(".")[2] == "bias":
                mask[max(offset - start, 0) : max(end - start, 0)] = 0
            offset = end
        return mask

    def _inputs(self, params: Array, batch: Batch, workspace: Workspace) -> Array:
        """The features in the parameters' dtype, scaled; not copied if that changes nothing."""
        features = batch.features
        if isinstance(features, Csr):
            raise UsageError(f"{type(self).__name__.lower()} takes no sparse features")
        if features.dtype == params.dtype and batch.scale == 1.0:
            return features
        out = workspace.array("inputs", features.shape, params.dtype)
        result: Array = self._kernel("scale")(features, batch.scale, out)
        return result

    def _stored(
        self, delta: Array, params: Array, loss_scale: float, workspace: Workspace
    ) -> Array:
        """The loss's gradient by the outputs (rows, outputs), as the layers below them take it."""
        if delta.dtype == params.dtype:
            return delta
        out = workspace.array("delta", delta.shape, params.dtype)
        result: Array = self._kernel("scale")(delta, loss_scale, out)
        return result
