"""Rows of a dataset as a model takes them."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """Rows of a dataset.

    Attributes
    ----------
    features : array (rows, features), uint8, float32 or float64
        C-contiguous; may be read-only, memory-mapped.
    labels : array (rows,), int32, or None
        Index of the class. None if the dataset has no labels.
    scale : float
        The model sees ``features * scale``.
    """

    features: Array
    labels: Array | None
    scale: float = 1.0

    @property
    def rows(self) -> int:
        return len(self.features)
