"""Rows of a dataset as a model takes them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Csr:
    """Rows with few entries that are not zero: compressed sparse rows, as SciPy's ``csr_array``.

    Row ``i`` has the entries ``indptr[i]`` to ``indptr[i + 1] - 1`` of the other two arrays.

    Attributes
    ----------
    indptr : array (rows + 1,), int32
        Ascending; need not begin with 0, so that rows of a larger matrix are views of it.
    indices : array (entries,), int32
        Columns, strictly ascending within a row.
    values : array (entries,), float32 or float64
    columns : int
    """

    indptr: Array
    indices: Array
    values: Array
    columns: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def __getitem__(self, rows: slice) -> "Csr":
        """Consecutive rows; no copies."""
        start, stop, _ = rows.indices(len(self))
        return Csr(
            self.indptr[start : max(start, stop) + 1], self.indices, self.values, self.columns
        )

    def to_dense(self) -> Array:
        """The rows with all their zeros, (rows, columns)."""
        dense = np.zeros(self.shape, self.dtype)
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        entries = slice(self.indptr[0], self.indptr[-1])
        dense[rows, self.indices[entries]] = self.values[entries]
        return dense


class Block(NamedTuple):
    """Some rows of a table, as they were read.

    Attributes
    ----------
    numbers : array (rows, n), float64
        The columns of numbers, booleans and dates; NaN where a field is missing.
    texts : dict of str to pyarrow.StringArray
        The other columns, trimmed; null where a field is missing.
    """

    numbers: Array
    texts: dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Rows of a dataset.

    Attributes
    ----------
    features : array (rows, features), uint8, float32 or float64, or Csr
        An array is C-contiguous, and may be read-only, memory-mapped.
    labels : array (rows,), int32 or float64, or None
        Index of the class in the list ``classes`` of the dataset's ``manifest.json``, or the number
        to be predicted. None if the dataset has no labels.
    scale : float
        The model sees ``features * scale``.
    weights : array (rows,), float64, or None
        How much each row counts; None if each row counts 1.
    """

    features: Array | Csr
    labels: Array | None
    scale: float = 1.0
    weights: Array | None = None

    @property
    def rows(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: slice) -> "Batch":
        """Consecutive rows; no copies."""
        labels = None if self.labels is None else self.labels[rows]
        weights = None if self.weights is None else self.weights[rows]
        return Batch(self.features[rows], labels, self.scale, weights)

    @property
    def weight(self) -> float:
        """Sum of the rows' weights."""
        return float(self.rows if self.weights is None else self.weights.sum())
