"""Products with sparse rows: twins of :mod:`kernels.cpu.sparse`.

Arrays are on the host or on the device; ``indptr`` and ``indices`` are also looked at on the host.

Many rows add to one column of a gradient. Atomic additions would take them in any order, so the
host sorts the entries by column, and one thread adds up a column, row after row as the CPU does.
"""

import numpy as np
import numpy.typing as npt
from numba import cuda

from kernels.cpu.sparse import _check
from kernels.cuda import THREADS, blocks, jit
from kernels.cuda.memory import Array, Call, is_on_device, to_host

Integers = npt.NDArray[np.integer]


def csr_scores(
    indptr: Array, indices: Array, values: Array, weight: Array, bias: float, out: Array
) -> Array:
    """Scores of sparse rows: ``out = x @ weight + bias``."""
    _check("csr_scores", to_host(indptr), to_host(indices), values, out.size, weight.size)
    with Call("csr_scores") as call:
        _csr_scores[blocks(out.size), THREADS](
            call.read(indptr),
            call.read(indices),
            call.read(values),
            call.read(weight),
            out.dtype.type(bias),
            call.write(out),
        )
    return out


@jit
def _csr_scores(indptr, indices, values, weight, bias, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        total = bias
        for k in range(indptr[i], indptr[i + 1]):
            total += values[k] * weight[indices[k]]
        out[i] = total


def csr_gradient(indptr: Array, indices: Array, values: Array, delta: Array, out: Array) -> Array:
    """Gradient of the weights: ``out = x.T @ delta``."""
    indptr, indices = to_host(indptr), to_host(indices)
    _check("csr_gradient", indptr, indices, values, delta.size, out.size)
    columns = indices[indptr[0] : indptr[-1]]
    with Call("csr_gradient") as call:
        _add_columns(call, indptr, columns, values, delta, call.write(out))
    return out


def csr_gradient_sparse(
    indptr: Array, indices: Array, values: Array, delta: Array, columns: int
) -> tuple[npt.NDArray[np.int32], Array]:
    """Gradient of the weights, but only of columns that some row has.

    The columns are on the host, the sums on the device if ``delta`` is there.
    """
    indptr, indices = to_host(indptr), to_host(indices)
    _check("csr_gradient_sparse", indptr, indices, values, delta.size, columns)
    touched, places = np.unique(indices[indptr[0] : indptr[-1]], return_inverse=True)
    with Call("csr_gradient_sparse") as call:
        size = len(touched)
        kept = call.scratch(size, delta.dtype) if is_on_device(delta) else None
        sums = np.empty(size, delta.dtype) if kept is None else kept
        _add_columns(call, indptr, places, values, delta, call.write(sums))
    return touched.astype(np.int32, copy=False), sums


def _add_columns(
    call: Call, indptr: Integers, columns: Integers, values: Array, delta: Array, out: Array
) -> None:
    # A stable sort keeps the rows of a column in their order.
    order = np.argsort(columns, kind="stable")
    starts = np.zeros(out.size + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=out.size), out=starts[1:])
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))[order]
    _sum_columns[blocks(out.size), THREADS](
        call.read(starts),
        call.read(rows),
        call.read(order + indptr[0]),
        call.read(values),
        call.read(delta),
        out,
    )


@jit
def _sum_columns(starts, rows, entries, values, delta, out):
    for j in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        total = out.dtype.type(0)
        for k in range(starts[j], starts[j + 1]):
            total += values[entries[k]] * delta[rows[k]]
        out[j] = total
