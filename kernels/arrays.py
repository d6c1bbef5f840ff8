"""Arrays on a device, by its name: for those who keep arrays between calls of kernels."""

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt


def empty(size: int, dtype: npt.DTypeLike, device: str) -> Any:
    """An uninitialised array (size,) on a device: NumPy's, or Numba's for CUDA."""
    if device == "cpu":
        return np.empty(size, dtype)
    return import_module("numba.cuda").device_array(size, np.dtype(dtype))


def to_device(array: Any, device: str) -> Any:
    """An array on a device; not copied if it is there."""
    return array if device == "cpu" else import_module("kernels.cuda.memory").to_device(array)


def to_host(array: Any, out: Any) -> Any:
    """The values of a device's array in one of the host's, which is returned."""
    array.copy_to_host(out)
    return out
