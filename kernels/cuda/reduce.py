"""Sums of flat vectors, the twins of :mod:`kernels.cpu.reduce`.

Arrays are on the host or on the device.
"""

import numpy as np
from numba import cuda

from kernels.cpu.reduce import _check
from kernels.cuda import THREADS, blocks, jit
from kernels.cuda.memory import Array, Call, flat


def add_into(left: Array, right: Array) -> Array:
    """``left += right``, in place; returns ``left``. The same bits as on the CPU."""
    _check(left, right)
    with Call("add_into") as call:
        _add[blocks(left.size), THREADS](flat(call.update(left)), flat(call.read(right)))
    return left


@jit
def _add(left, right):
    for i in range(cuda.grid(1), left.size, cuda.gridsize(1)):
        left[i] += right[i]


def first_non_finite(a: Array) -> int:
    """Index of the first NaN or infinity of a flat array, or -1."""
    first = np.array([a.size], np.int64)
    with Call("first_non_finite") as call:
        _first_non_finite[blocks(a.size), THREADS](call.read(a), call.update(first))
    return int(first[0]) if first[0] < a.size else -1


@jit
def _first_non_finite(a, first):
    for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        # x - x is 0 for finite x and NaN otherwise. The minimum of integers has no order.
        if (a[i] - a[i]) != 0:
            cuda.atomic.min(first, 0, i)
            break
