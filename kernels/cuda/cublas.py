"""Matrix products by cuBLAS, through nvmath-python's bindings, where both are installed."""

import ctypes
import threading
from importlib import import_module
from typing import Any

import numpy as np
from numba import cuda

from kernels.cuda import SIMULATED
from kernels.cuda.memory import Array

_REAL = {"float32": ("sgemm", ctypes.c_float), "float64": ("dgemm", ctypes.c_double)}

#: What cuBLAS calls the types of matrices, CUDA_R_16F and CUDA_R_32F.
HALF, SINGLE = 2, 0


class _Handles(threading.local):
    """A thread's handle, which cuBLAS asks for in every call."""

    handle: int | None = None


_handles = _Handles()
_bindings: Any = None
_missing: str | None = "the simulator has none" if SIMULATED else None


def available() -> bool:
    """Whether products can be taken by cuBLAS here."""
    return missing() is None


def missing() -> str | None:
    """The reason why cuBLAS cannot be used, or None if it can."""
    global _bindings, _missing
    if _bindings is None and _missing is None:
        try:
            bindings = import_module("nvmath.bindings.cublas")
            cuda.current_context()
            _handles.handle = bindings.create()
            _bindings = bindings
        # Without the library the bindings raise errors of several kinds.
        except Exception as error:
            _missing = f"{type(error).__name__}: {error}"
    return _missing


def product(a: Array, b: Array, out: Array, transpose_a: bool, transpose_b: bool) -> None:
    """``out = op(a) @ op(b)``, where ``op`` transposes if asked.

    cuBLAS reads arrays column by column: to it each of ours is its own transpose. So it is asked
    for ``out.T = op(b).T @ op(a).T``. A float32 product is one of float32 numbers: no TF32. Arrays
    are C-contiguous, of one dtype, but ``out`` is float32 also if the others are float16: then
    tensor cores multiply them, and add in float32.
    """
    rows, columns = out.shape
    depth = a.shape[0] if transpose_a else a.shape[1]
    if not rows or not columns:
        return
    if _handles.handle is None:
        _handles.handle = _bindings.create()
    name, real = _REAL[str(out.dtype)]
    factors: tuple[int, ...] = ()
    result: tuple[int, ...] = ()
    if a.dtype == np.float16:
        name, factors, result = "sgemm_ex", (HALF,), (SINGLE,)
    one, zero = real(1), real(0)
    getattr(_bindings, name)(
        _handles.handle,
        int(transpose_b),
        int(transpose_a),
        columns,
        rows,
        depth,
        ctypes.addressof(one),
        _address(b),
        *factors,
        max(1, b.shape[1]),
        _address(a),
        *factors,
        max(1, a.shape[1]),
        ctypes.addressof(zero),
        _address(out),
        *result,
        columns,
    )


def _address(array: Array) -> int:
    address: int = array.address
    return address
