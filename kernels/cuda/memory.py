"""Arrays of one call: those of the host are copied to the device, and results back."""

import math
import threading
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from kernels.cuda import SIMULATED
from kernels.cuda.device_array import DeviceArray
from kernels.cuda.errors import explained

Array = Any
"""A NumPy array, or one on the device: ours or any with ``__cuda_array_interface__``."""


def is_on_device(array: Array) -> bool:
    """Whether an array is in the device's memory already."""
    # The last is what the simulator's arrays have.
    return (
        isinstance(array, DeviceArray)
        or hasattr(array, "__cuda_array_interface__")
        or hasattr(array, "__cuda_ndarray__")
    )


def to_device(array: Array) -> Array:
    """An array as kernels take it. One on the device is not copied, and must be C-contiguous."""
    if isinstance(array, DeviceArray):
        return array
    if not is_on_device(array):
        return DeviceArray.of_host(array)
    # Numba waits for what another library has queued.
    known = array if SIMULATED else cuda.as_cuda_array(array)
    if known.size and not known.is_c_contiguous():
        raise ValueError(
            f"expected a C-contiguous array on the device, found strides {known.strides} for the "
            f"shape {tuple(known.shape)}"
        )
    return DeviceArray.of(known)


def to_host(array: Array) -> Array:
    """An array's values as NumPy has them; an array on the host is not copied."""
    return to_device(array).copy_to_host() if is_on_device(array) else array


def flat(array: Array) -> Array:
    """A device array as one of a single dimension; no copy."""
    return array.reshape(array.size)


class _Kept(threading.local):
    """A thread's arrays for sums in between, by name and dtype."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[str, np.dtype[Any]], Array] = {}


_kept = _Kept()


class Call:
    """The arrays of a call of a kernel, as a context: at its end results are on the host.

    ``kernel`` is its name, for the CudaError that is raised instead of Numba's errors, for example
    without enough memory or without a device.
    """

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._results: list[tuple[Array, Array]] = []

    def __enter__(self) -> "Call":
        return self

    def read(self, array: Array) -> Array:
        """An argument that is only read."""
        return to_device(array)

    def write(self, array: Array) -> Array:
        """An argument that is overwritten: its values do not go to the device."""
        if is_on_device(array):
            return to_device(array)
        return self._result(array, DeviceArray.empty(array.shape, array.dtype))

    def update(self, array: Array) -> Array:
        """An argument that is read and overwritten."""
        if is_on_device(array):
            return to_device(array)
        return self._result(array, to_device(array))

    def scratch(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array on the device, not initialised."""
        return DeviceArray.empty(shape, dtype)

    def kept(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array on the device, not initialised, until the thread asks for the name again.

        Its memory is used again, since a device takes long to give and to take back some: what is
        queued on it is done in turn.
        """
        key, size = (name, np.dtype(dtype)), math.prod(shape)
        found = _kept.arrays.get(key)
        if found is None or found.size < size:
            found = _kept.arrays[key] = DeviceArray.empty(size, dtype)
        return found[:size].reshape(shape)

    def _result(self, host: Array, device: Array) -> Array:
        self._results.append((host, device))
        return device

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._explain(error)
            return
        try:
            for host, device in self._results:
                device.copy_to_host(host)
        except Exception as failed:
            self._explain(failed)
            raise

    def _explain(self, error: BaseException) -> None:
        known = explained(error, self._kernel)
        if known is not None:
            raise known from error
