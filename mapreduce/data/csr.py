"""Making sparse rows of others: from lengths, one after the other, and in another order."""

from collections.abc import Sequence

import numpy as np

from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.errors import DataError

#: Offsets and columns are int32.
MOST = 2**31 - 1


def from_lengths(lengths: Array, indices: Array, values: Array, columns: int) -> Csr:
    """Sparse rows of less than 2**31 entries, from the number in each, (rows,), and all of them."""
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    if indptr[-1] > MOST:
        raise DataError(
            f"{len(lengths)} rows hold {indptr[-1]} entries: expected at most {MOST} in rows that "
            f"are read at once"
        )
    return Csr(indptr.astype(np.int32), indices, values, columns)


def concatenate(parts: Sequence[Csr]) -> Csr:
    """The rows of one or more matrices with equal numbers of columns, one after the other."""
    entries = [slice(part.indptr[0], part.indptr[-1]) for part in parts]
    return from_lengths(
        np.concatenate([np.diff(part.indptr) for part in parts]),
        np.concatenate([part.indices[piece] for part, piece in zip(parts, entries, strict=True)]),
        np.concatenate([part.values[piece] for part, piece in zip(parts, entries, strict=True)]),
        parts[0].columns,
    )


def join(parts: Sequence[Batch]) -> Batch:
    """The rows of several batches of one dataset, dense or sparse, copied."""
    sparse = [part.features for part in parts if isinstance(part.features, Csr)]
    dense = [part.features for part in parts if not isinstance(part.features, Csr)]
    labels = [part.labels for part in parts if part.labels is not None]
    weights = [part.weights for part in parts if part.weights is not None]
    return Batch(
        concatenate(sparse) if sparse else np.concatenate(dense),
        np.concatenate(labels) if labels else None,
        parts[0].scale,
        np.concatenate(weights) if weights else None,
    )


def pick(rows: Batch, places: Array) -> Batch:
    """The rows of a batch at the places (n,), in that order, copied."""
    found = rows.features
    return Batch(
        take(found, places) if isinstance(found, Csr) else found[places],
        None if rows.labels is None else rows.labels[places],
        rows.scale,
        None if rows.weights is None else rows.weights[places],
    )


def take(rows: Csr, order: Array) -> Csr:
    """The rows with the numbers ``order`` (n,), in that order."""
    lengths = np.diff(rows.indptr)[order].astype(np.int64)
    ends = np.cumsum(lengths)
    shift = rows.indptr[:-1][order] - (ends - lengths)
    places = np.arange(lengths.sum()) + np.repeat(shift, lengths)
    return from_lengths(lengths, rows.indices[places], rows.values[places], rows.columns)


def exchanged(rows: Csr, partners: Array, start: int, stop: int) -> Csr:
    """Rows with the features ``start`` to ``stop - 1`` of their partners (rows,), by number."""
    own, others = take(rows, np.arange(len(rows))), take(rows, partners)
    parts = []
    for part, is_other in ((own, False), (others, True)):
        row = np.repeat(np.arange(len(part)), np.diff(part.indptr))
        used = ((part.indices >= start) & (part.indices < stop)) == is_other
        parts.append((row[used], part.indices[used], part.values[used]))
    row, indices, values = (np.concatenate(some) for some in zip(*parts, strict=True))
    ordered = np.lexsort((indices, row))
    lengths = np.bincount(row, minlength=len(rows))
    return from_lengths(lengths, indices[ordered], values[ordered], rows.columns)


def check(rows: Csr) -> str | None:
    """Describe the fault that makes rows unsafe for a kernel, which follows every index.

    None if columns are in range and ascending within each row, and offsets ascend and end within
    the entries.
    """
    indptr, indices = rows.indptr, rows.indices
    # Not by differences, which could overflow.
    if indptr[0] < 0 or (indptr[1:] < indptr[:-1]).any() or indptr[-1] > len(indices):
        return "offsets of rows that do not ascend, or lead beyond the entries"
    used = indices[indptr[0] : indptr[-1]]
    if not len(used):
        return None
    if used.min() < 0 or used.max() >= rows.columns:
        return f"columns {used.min()} to {used.max()}"
    falls = np.flatnonzero(used[1:] <= used[:-1]) + 1 + indptr[0]
    if (indptr[np.searchsorted(indptr, falls)] != falls).any():
        return "columns that do not ascend within a row"
    return None
