"""Matrices whose columns are channels: how a block's threads lie on them, and sums of columns.

A block's threads are ``width`` neighbouring columns wide, a power of two, and its other threads
take other rows: so neighbours read neighbouring numbers, and a thread's column stays the same.
"""

import numpy as np
from numba import cuda

from kernels.cuda import MOST_BLOCKS, SIMULATED, THREADS, inline, jit
from kernels.cuda.memory import Array, Call

#: The most columns side by side; a warp has as many threads.
WIDEST = 4 if SIMULATED else 32

#: Rows that a thread at least adds up before there is another part, and the most parts.
LEAST_ROWS, MOST_PARTS = (2, 3) if SIMULATED else (16, 512)

#: What :func:`sum_columns` adds up.
VALUES, SQUARES, PRODUCTS, KEPT = range(4)


def width_of(columns: int) -> int:
    """Columns that a block's threads lie on."""
    width = 1
    while width < min(columns, WIDEST):
        width *= 2
    return width


def blocks_of(rows: int, columns: int) -> int:
    """The number of blocks for independent elements of a matrix."""
    return max(1, min(-(-rows * width_of(columns) // THREADS), MOST_BLOCKS))


@inline
def first_row(width):
    return cuda.blockIdx.x * (THREADS // width) + cuda.threadIdx.x // width


@inline
def row_step(width):
    return cuda.gridDim.x * (THREADS // width)


def sum_columns(
    call: Call,
    kind: int,
    a: Array,
    out: Array,
    b: Array | None = None,
    mean: Array | None = None,
    inverse: Array | None = None,
    divisor: float = 1.0,
) -> None:
    """Sums over the rows of ``a``, in float64 and in an order that depends on the shape alone.

    ``kind`` is ``VALUES`` for ``a``, ``SQUARES`` for ``(a - mean)**2``, ``PRODUCTS`` for
    ``a * (b - mean) * inverse``, ``KEPT`` for ``a`` where ``b`` is not 0 or less. ``mean`` and
    ``inverse`` are (columns,), float64; the sums are divided by ``divisor``.
    """
    rows, columns = a.shape
    width = width_of(columns)
    lanes = THREADS // width
    parts = max(1, min(rows // (lanes * LEAST_ROWS), MOST_PARTS))
    partial = call.kept("sums of columns", (parts, columns), np.float64)
    none = partial.reshape(parts * columns)
    given = [none if each is None else each for each in (mean, inverse)]
    groups = max(1, -(-columns // width))
    _sum_parts[(parts, groups), THREADS](
        kind, a, a if b is None else b, *given, width, 1.0, partial
    )
    _sum_parts[(1, groups), THREADS](
        VALUES, partial, partial, none, none, width, divisor, out.reshape((1, columns))
    )


@jit
def _sum_parts(kind, a, b, mean, inverse, width, divisor, out):
    shared = cuda.shared.array(THREADS, np.float64)
    rows, columns = a.shape
    thread = cuda.threadIdx.x
    for first in range(cuda.blockIdx.y * width, columns, cuda.gridDim.y * width):
        j = first + thread % width
        total = 0.0
        if j < columns:
            for i in range(first_row(width), rows, row_step(width)):
                total += _term(kind, a, b, mean, inverse, i, j)
        shared[thread] = total
        cuda.syncthreads()
        step = THREADS // 2
        while step >= width:
            if thread < step:
                shared[thread] += shared[thread + step]
            cuda.syncthreads()
            step //= 2
        if thread < width and j < columns:
            out[cuda.blockIdx.x, j] = shared[thread] / divisor
        # No thread may write before all have read.
        cuda.syncthreads()


@inline
def _term(kind, a, b, mean, inverse, i, j):
    value = np.float64(a[i, j])
    if kind == SQUARES:
        difference = value - mean[j]
        value = difference * difference
    elif kind == PRODUCTS:
        value *= (np.float64(b[i, j]) - mean[j]) * inverse[j]
    elif kind == KEPT and b[i, j] <= 0:
        value = np.float64(0)
    return value
