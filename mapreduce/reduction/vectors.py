"""Sparse vectors, and sums of sparse and dense ones.

A gradient on sparse rows has an element for each column that some row has. It stays sparse through
the shuffle and the tree while few of its elements are there. Whichever kind a sum is of, its
elements have the bits of a sum of dense vectors.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import dispatch

Array = npt.NDArray[Any]

_add_into = dispatch.get("add_into")

#: Sums with more than this share of their elements are dense.
DENSITY = 0.25


@dataclass(frozen=True)
class SparseVector:
    """The elements of a vector that are stored; the others are zero.

    Attributes
    ----------
    indices : array (n,), int32
        Ascending.
    values : array (n,), float32 or float64
    size : int
        Number of elements of the whole vector.
    """

    indices: Array
    values: Array
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> "SparseVector":
        """Consecutive elements, counted from 0; their values are not copied."""
        start, stop, _ = part.indices(self.size)
        first, last = np.searchsorted(self.indices, (start, stop))
        indices = self.indices[first:last]
        return SparseVector(
            indices - np.int32(start) if start else indices, self.values[first:last], stop - start
        )

    def to_dense(self) -> Array:
        """All elements, (size,)."""
        dense = np.zeros(self.size, self.values.dtype)
        dense[self.indices] = self.values
        return dense


Vector = Array | SparseVector


def dense(vector: Vector) -> Array:
    """All elements of a vector of either kind, (size,)."""
    return vector.to_dense() if isinstance(vector, SparseVector) else vector


def add(left: Vector, right: Vector) -> Vector:
    """The sum of two vectors of one size, in the memory of a dense one.

    The sum of two sparse vectors is dense beyond :data:`DENSITY`.
    """
    if isinstance(left, SparseVector) and isinstance(right, SparseVector):
        return _merge(left, right)
    if isinstance(left, SparseVector):
        # Addition of two numbers is commutative.
        left, right = right, left
    assert not isinstance(left, SparseVector)
    if not left.flags.writeable:
        # A view of a message that was read; the sum needs other memory.
        if not isinstance(right, SparseVector) and right.flags.writeable:
            left, right = right, left
        else:
            left = left.copy()
    if isinstance(right, SparseVector):
        with np.errstate(all="ignore"):
            left[right.indices] += right.values
        return left
    total: Array = _add_into(left, right)
    return total


def _merge(left: SparseVector, right: SparseVector) -> Vector:
    ordered = np.sort(np.concatenate([left.indices, right.indices]))
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    indices = ordered[is_new]
    if len(indices) > DENSITY * left.size:
        return add(left.to_dense(), right)
    # Only the entries that are looked up are written.
    table = np.empty(left.size, np.int32)
    table[indices] = np.arange(len(indices), dtype=np.int32)
    values = np.zeros(len(indices), left.values.dtype)
    values[table[left.indices]] = left.values
    # The sum of all is checked for values that are not finite.
    with np.errstate(all="ignore"):
        values[table[right.indices]] += right.values
    return SparseVector(indices, values, left.size)
