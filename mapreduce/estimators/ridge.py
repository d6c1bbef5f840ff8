"""Ridge regression in scikit-learn's shape."""

from typing import Any

import numpy as np

from mapreduce.algorithms.gram import Moments, RidgeNumbers, ridge
from mapreduce.data.batch import Array
from mapreduce.estimators.base import ParameterError, RegressorMixin, Rows
from mapreduce.estimators.gram import GramEstimator


class Ridge(RegressorMixin, GramEstimator):
    """Least squares with an L2 penalty, as :class:`sklearn.linear_model.Ridge`.

    For ``runner``, ``workers`` and ``run`` see :class:`mapreduce.estimators.base.Estimator`.

    Parameters
    ----------
    alpha : float
        Factor of the sum of the squared coefficients; 0 for least squares alone.
    fit_intercept : bool
    sums : {"exact", "float"}
        "float": as floats along one tree, which is faster; bits then depend on the order of the
        rows and on the processor. Rows of :meth:`partial_fit` are added exactly in any case.

    Attributes
    ----------
    coef_ : array (features,)
    intercept_ : float

    Examples
    --------
    >>> from mapreduce.estimators import Ridge
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(Ridge(alpha=0.1).fit(X, y).score(X, y), 3)
    0.513
    """

    kind = "ridge"

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        sums: str = "exact",
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.alpha, self.fit_intercept = alpha, fit_intercept
        self.sums, self.runner, self.workers, self.run = sums, runner, workers, run

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "Ridge":
        """Find the coefficients for arrays ``X`` and ``y``, or for the dataset in a folder."""
        self._check()
        with self._reading(X, y, sample_weight, labelled=True) as rows:
            self._learn(rows, self._moments(rows, target=True))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Ridge":
        """Add rows in memory: any cut of the rows, in any order, gives the bits of one call.

        Without an ``alpha``, coefficients follow once there are more rows than columns.
        """
        self._check()
        with self._adding(X, y, sample_weight, target=True) as (rows, found):
            if self.alpha or found.rows >= len(found.mean):
                self._learn(rows, found)
        return self

    def _check(self) -> None:
        if not (isinstance(self.alpha, int | float | np.number) and 0 <= self.alpha < np.inf):
            raise ParameterError(f"alpha: expected 0 or more, found {self.alpha!r}")

    def _learn(self, rows: Rows, found: Moments) -> None:
        self.coef_, self.intercept_ = ridge(found, float(self.alpha), bool(self.fit_intercept))
        arrays = {"coefficients": self.coef_, "intercept": np.array([self.intercept_])}
        self._keep(rows, arrays)

    def predict(self, X: Any) -> Array:
        """A number (rows,) for each row."""
        batch = self._batch(X)
        return RidgeNumbers(self.fitted_).logits(batch)[:, 0]
