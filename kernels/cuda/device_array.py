"""Arrays on the device as kernels are given them: an address, a shape and a dtype.

Numba allocates the memory and frees it. Its own arrays are not used beyond that: to take a part of
one lasts 26 µs and to copy a small one to the device 100 µs, where most kernels run for less (Numba
0.68, numba-cuda 0.30, on the machine of ``docs/cuda.md``).
"""

import ctypes
import math
import threading
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda
from numba.core import config as _config
from numba.cuda.cudadrv.driver import CudaAPIError

Host = npt.NDArray[Any]

_settings: Any = _config
SIMULATED = bool(_settings.ENABLE_CUDASIM)


class _Thread(threading.local):
    """Gives a thread the device's context, which calls of the driver need."""

    def __init__(self) -> None:
        cuda.current_context()
        self.is_ready = True


@cache
def _thread() -> _Thread:
    return _Thread()


@cache
def driver(call: str) -> Callable[..., Any]:
    """A function of the driver, from NVIDIA's bindings, which numba-cuda brings.

    Where it fails it raises CudaAPIError, with the text that Numba has for it. The simulator's
    memory is the host's, so that all that it needs is to copy.
    """
    if SIMULATED:
        return ctypes.memmove
    function = getattr(import_module("cuda.bindings.driver"), call)

    thread = _thread()

    def checked(*arguments: Any) -> None:
        assert thread.is_ready
        (code,) = function(*arguments)
        if code:
            raise CudaAPIError(int(code), f"Call to {call} results in {code.name}")

    return checked


class DeviceArray:
    """A C-contiguous array, whose ``owner`` keeps the memory while it is there."""

    def __init__(
        self, owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.owner, self.address, self.shape, self.dtype = owner, address, shape, dtype
        self.size = math.prod(shape)

    @classmethod
    def empty(cls, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> "DeviceArray":
        """An array that is not initialised."""
        shape, dtype = (shape,) if isinstance(shape, int) else shape, np.dtype(dtype)
        if not math.prod(shape):
            return cls(None, 0, shape, dtype)
        return cls.of(cuda.device_array(shape, dtype))

    @classmethod
    def of_host(cls, array: Host) -> "DeviceArray":
        """A copy of an array of the host."""
        found = cls.empty(array.shape, array.dtype)
        found[:] = array
        return found

    @classmethod
    def of(cls, array: Any) -> "DeviceArray":
        """One of Numba's arrays, which is C-contiguous; no copy."""
        place = array.ctypes if SIMULATED else array.device_ctypes_pointer
        address = place.data if SIMULATED else place.value
        return cls(array, address or 0, tuple(array.shape), array.dtype)

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """What a kernel of Numba's is given for an array: see :mod:`kernels.cuda.launch`."""
        strides, step = [], self.dtype.itemsize
        for length in reversed(self.shape):
            strides.append(step)
            step *= length
        return 0, 0, self.size, self.dtype.itemsize, self.address, *self.shape, *reversed(strides)

    @cached_property
    def kind(self) -> tuple[np.dtype[Any], int]:
        """What a kernel is compiled for."""
        return self.dtype, self.ndim

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    def __len__(self) -> int:
        return self.shape[0]

    def reshape(self, *shape: Any) -> "DeviceArray":
        """The same numbers in another shape; no copy. Raises ValueError (they do not fill it)."""
        new: tuple[int, ...] = shape[0] if isinstance(shape[0], tuple) else shape
        if math.prod(new) != self.size:
            raise ValueError(f"an array of the shape {self.shape} does not fill {new}")
        return DeviceArray(self.owner, self.address, new, self.dtype)

    def __getitem__(self, index: int | slice) -> "DeviceArray":
        """Some elements of the first dimension, side by side, or one; no copy."""
        length, rest = self.shape[0], self.shape[1:]
        if isinstance(index, slice):
            first, stop, step = index.indices(length)
            if step != 1:
                raise ValueError(f"expected elements side by side, found a step of {step}")
            shape = (max(0, stop - first), *rest)
        else:
            first, shape = range(length)[index], rest
        address = self.address + first * math.prod(rest) * self.dtype.itemsize
        return DeviceArray(self.owner, address, shape, self.dtype)

    def __setitem__(self, index: int | slice, values: Host) -> None:
        """Copy values of the host."""
        place = self[index]
        values = np.ascontiguousarray(values, self.dtype)
        if values.shape != place.shape:
            raise ValueError(f"values of the shape {values.shape} for {place.shape}")
        if place.size:
            driver("cuMemcpyHtoD")(place.address, values.ctypes.data, place.nbytes)

    def copy_to_host(self, out: Host | None = None) -> Host:
        """The values, in ``out`` if it is given; what is queued on the device ends first."""
        if out is None:
            out = np.empty(self.shape, self.dtype)
        if out.shape != self.shape or out.dtype != self.dtype:
            found = f"{out.dtype} of the shape {out.shape}"
            raise ValueError(f"expected {self.dtype} of the shape {self.shape}, found {found}")
        target = out if out.flags.c_contiguous else np.empty(self.shape, self.dtype)
        if self.size:
            driver("cuMemcpyDtoH")(target.ctypes.data, self.address, self.nbytes)
        if target is not out:
            out[:] = target
        return out
