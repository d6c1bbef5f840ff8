"""Arrays on a device, by its name: for code that keeps arrays between calls of kernels."""

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt


def empty(size: int, dtype: npt.DTypeLike, device: str) -> Any:
    """An uninitialised array (size,) on a device: one of NumPy, or of Numba for CUDA."""
    if device == "cpu":
        return np.empty(size, dtype)
    with import_module("kernels.cuda.memory").Call("an array") as call:
        return call.scratch(size, np.dtype(dtype))


def to_device(array: Any, device: str) -> Any:
    """An array on a device; not copied if it is there."""
    if device == "cpu":
        return array
    with import_module("kernels.cuda.memory").Call("an array") as call:
        return call.read(array)


def to_host(array: Any, out: Any) -> Any:
    """Copy the values of a device's array into one of the host, and return the latter."""
    array.copy_to_host(out)
    return out


def values(array: Any) -> Any:
    """The values of an array of a device or of the host, for NumPy; not copied on the host."""
    return array if isinstance(array, np.ndarray) else array.copy_to_host()
