"""What estimators have in common that are fitted by the sums of the products of all columns."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from mapreduce.algorithms.gram import FloatGram, Gram, Moments, ProductSums, float_moments, moments
from mapreduce.data.batch import Batch
from mapreduce.estimators.base import Estimator, ParameterError, Rows, errors_of_fits
from mapreduce.training.api.calls import PATHS


class GramEstimator(Estimator):
    """Fits a model by the moments of its rows."""

    sums: Any
    #: Those of :meth:`partial_fit`.
    _sums: ProductSums

    def _moments(self, rows: Rows, *, target: bool = False) -> Moments:
        """Those of the rows of a whole fit."""
        if self.sums not in ("exact", "float"):
            raise ParameterError(f"sums: expected 'exact' or 'float', found {self.sums!r}")
        if hasattr(self, "_sums"):
            del self._sums
        if self.sums == "exact":
            return moments(self._advance(Gram, rows, target=target))
        return float_moments(self._advance(FloatGram, rows, target=target))

    @contextlib.contextmanager
    def _adding(
        self, X: Any, y: Any = None, weights: Any = None, *, target: bool = False
    ) -> Iterator[tuple[Rows, Moments]]:
        """Rows that :meth:`partial_fit` adds, and the moments of all that were added."""
        if isinstance(X, PATHS):
            raise ParameterError("X: expected rows, found a path. Fit a folder by fit")
        if hasattr(self, "fitted_") and not hasattr(self, "_sums"):
            warnings.warn(
                "partial_fit begins anew: fit has rounded its sums by the range of its rows, so "
                "that no row can be added to them. Pass all parts to partial_fit",
                stacklevel=4,
            )
        with errors_of_fits():
            is_first = not hasattr(self, "_sums")
            rows, y, weights = self._arrays(X, y, weights, target, reset=is_first)
            if is_first:
                self._sums = ProductSums()
            self._sums.add(rows if y is None else np.column_stack([rows, y]), weights)
            yield Rows(Batch(rows, y), rows), self._sums.moments()
