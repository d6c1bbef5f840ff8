"""Products with sparse rows: scores of a linear model, and its gradient.

``indptr``, ``indices`` and ``values`` are compressed sparse rows: row ``i`` has the entries
``indptr[i]`` to ``indptr[i + 1] - 1`` of the other two. Columns are strictly ascending within a
row. Sums run over a row's entries, or over the rows, in their order.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import Array

Integers = npt.NDArray[np.integer]


def csr_scores(
    indptr: Integers, indices: Integers, values: Array, weight: Array, bias: float, out: Array
) -> Array:
    """Scores of sparse rows: ``out = x @ weight + bias``.

    ``indptr`` is (rows + 1,), ``indices`` and ``values`` (entries,), ``weight`` (columns,). Arrays
    that do not belong together, or a column that is out of range, are a ValueError.
    """
    _check("csr_scores", indptr, indices, values, out.size, weight.size)
    _csr_scores(indptr, indices, values, weight, out.dtype.type(bias), out)
    return out


@jit
def _csr_scores(indptr, indices, values, weight, bias, out):
    for i in range(out.size):
        total = bias
        for k in range(indptr[i], indptr[i + 1]):
            total += values[k] * weight[indices[k]]
        out[i] = total


def csr_gradient(
    indptr: Integers, indices: Integers, values: Array, delta: Array, out: Array
) -> Array:
    """Gradient of the weights: ``out = x.T @ delta``. Rows and errors are as in :func:`csr_scores`.

    ``delta``, (rows,), is the derivative of the loss by each score.
    """
    _check("csr_gradient", indptr, indices, values, delta.size, out.size)
    _csr_gradient(indptr, indices, values, delta, out)
    return out


@jit
def _csr_gradient(indptr, indices, values, delta, out):
    for j in range(out.size):
        out[j] = 0
    for i in range(delta.size):
        for k in range(indptr[i], indptr[i + 1]):
            out[indices[k]] += values[k] * delta[i]


def csr_gradient_sparse(
    indptr: Integers, indices: Integers, values: Array, delta: Array, columns: int
) -> tuple[npt.NDArray[np.int32], Array]:
    """:func:`csr_gradient`, but only for columns that some row has, with the same bits.

    Returns these columns, ascending, int32, and their sums, of the dtype of ``delta``.
    """
    _check("csr_gradient_sparse", indptr, indices, values, delta.size, columns)
    entries = slice(indptr[0], indptr[-1])
    found = indices[entries]
    ordered = np.sort(found)
    touched = ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(found) else ordered
    # Only those entries of the table that are looked up are ever written.
    table = np.empty(columns, np.int32)
    table[touched] = np.arange(len(touched), dtype=np.int32)
    sums = np.empty(len(touched), delta.dtype)
    _csr_gradient(indptr - indptr[0], table[found], values[entries], delta, sums)
    return touched.astype(np.int32, copy=False), sums


def _check(
    kernel: str,
    indptr: Integers,
    indices: Integers,
    values: npt.NDArray[np.generic],
    rows: int,
    columns: int,
) -> None:
    # A compiled loop would read, or write, wherever an index leads it.
    if indptr.shape != (rows + 1,) or indices.shape != values.shape:
        raise ValueError(
            f"{kernel}: indptr has shape {indptr.shape}, indices {indices.shape} and values "
            f"{values.shape}: expected ({rows + 1},) and twice the same"
        )
    first, last = int(indptr[0]), int(indptr[-1])
    if first < 0 or last > indices.size or (np.diff(indptr) < 0).any():
        raise ValueError(
            f"{kernel}: indptr from {first} to {last} does not ascend within {indices.size} entries"
        )
    found = indices[first:last]
    if found.size and (found.min() < 0 or found.max() >= columns):
        raise ValueError(
            f"{kernel}: columns {found.min()} to {found.max()}, expected 0 to {columns - 1}"
        )
