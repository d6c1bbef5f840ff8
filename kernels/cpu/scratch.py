"""Memory that a thread's kernels keep: fresh megabytes cost a page fault for every 4 KiB."""

import threading

import numpy as np
import numpy.typing as npt

_kept = threading.local()


def scratch(name: str, size: int, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    """An array (size,) of anything, which the thread's next call with this name gets too."""
    arrays = _kept.__dict__.setdefault("arrays", {})
    key = name, np.dtype(dtype)
    if key not in arrays or arrays[key].size < size:
        arrays[key] = np.empty(size, dtype)
    found: npt.NDArray[np.floating] = arrays[key][:size]
    return found
