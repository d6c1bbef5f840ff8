"""Random numbers by a key and a place, and dropout: twins of :mod:`kernels.cpu.random`.

Arrays are on the host or on the device; the numbers have the same bits as on the CPU.
"""

import numpy as np
from numba import cuda

from kernels import scalar
from kernels.cpu.random import _threshold
from kernels.cuda import THREADS, blocks, inline, jit
from kernels.cuda.memory import Array, Call

_philox = inline(scalar.philox)
_BITS, _WORD = scalar.WORD_BITS, scalar.WORD


def uniform(key: int, row: int, out: Array) -> Array:
    """Numbers in [0, 1), multiples of 2**-32."""
    with Call("uniform") as call:
        arguments = np.uint64(key), np.uint64(row), call.write(out)
        _uniform[_grid(out), THREADS](*arguments)
    return out


@jit
def _uniform(key, row, out):
    # A thread makes four numbers, those of one counter.
    rows, n = out.shape
    counters = (n + 3) // 4
    for place in range(cuda.grid(1), rows * counters, cuda.gridsize(1)):
        i, j = place // counters, 4 * (place % counters)
        a, b, c, d = _draw(key, row, i, j)
        _store(a, out, i, j)
        _store(b, out, i, j + 1)
        _store(c, out, i, j + 2)
        _store(d, out, i, j + 3)


@inline
def _store(word, out, i, j):
    if j < out.shape[1]:
        out[i, j] = word * 2.0**-32


def dropout(x: Array, key: int, row: int, rate: float, out: Array) -> Array:
    """Zero a share of the numbers and scale the others, so that the mean stays."""
    threshold = np.uint64(_threshold(x, rate, out))
    factor = out.dtype.type(1 / (1 - rate))
    with Call("dropout") as call:
        arguments = call.read(x), np.uint64(key), np.uint64(row), threshold, factor, call.write(out)
        _dropout[_grid(out), THREADS](*arguments)
    return out


@jit
def _dropout(x, key, row, threshold, factor, out):
    rows, n = x.shape
    counters = (n + 3) // 4
    for place in range(cuda.grid(1), rows * counters, cuda.gridsize(1)):
        i, j = place // counters, 4 * (place % counters)
        a, b, c, d = _draw(key, row, i, j)
        _keep(a >= threshold, x, factor, out, i, j)
        _keep(b >= threshold, x, factor, out, i, j + 1)
        _keep(c >= threshold, x, factor, out, i, j + 2)
        _keep(d >= threshold, x, factor, out, i, j + 3)


@inline
def _keep(is_kept, x, factor, out, i, j):
    if j < out.shape[1]:
        out[i, j] = x[i, j] * factor if is_kept else out.dtype.type(0)


@inline
def _draw(key, row, i, j):
    place, line = np.uint64(j // 4), row + np.uint64(i)
    counter = place & _WORD, place >> _BITS, line & _WORD, line >> _BITS
    return _philox(*counter, key & _WORD, key >> _BITS)


def _grid(out: Array) -> int:
    rows, n = out.shape
    return blocks(rows * -(-n // 4))
