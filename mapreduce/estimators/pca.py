"""Principal components in scikit-learn's shape."""

import math
from typing import Any

import numpy as np

from mapreduce.algorithms.gram import Moments, PrincipalComponents, components
from mapreduce.data.batch import Array
from mapreduce.estimators.base import (
    ClassNamePrefixFeaturesOutMixin,
    FitError,
    ParameterError,
    Rows,
    TransformerMixin,
)
from mapreduce.estimators.gram import GramEstimator


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GramEstimator):
    """Principal components, as :class:`sklearn.decomposition.PCA`, up to 1,000 columns.

    The largest loading of each is positive. For ``runner``, ``workers`` and ``run`` see
    :class:`mapreduce.estimators.base.Estimator`.

    Parameters
    ----------
    n_components : int, float or None
        How many; or the share of the variance that they are to explain; by default all.
    whiten : bool
        Whether scores have the variance 1.
    sums : {"exact", "float"}
        "float": as floats along one tree, which is faster; bits then depend on the order of the
        rows and on the processor. Rows of :meth:`partial_fit` are added exactly in any case.

    Attributes
    ----------
    components_ : array (components, features)
    explained_variance_, explained_variance_ratio_, singular_values_ : array (components,)
    mean_ : array (features,)
    n_components_, n_samples_ : int
    noise_variance_ : float

    Examples
    --------
    >>> from mapreduce.estimators import PCA
    >>> from sklearn.datasets import load_iris
    >>> PCA(2).fit(load_iris().data).explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    """

    kind = "pca"

    def __init__(
        self,
        n_components: float | None = None,
        *,
        whiten: bool = False,
        sums: str = "exact",
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.n_components, self.whiten = n_components, whiten
        self.sums, self.runner, self.workers, self.run = sums, runner, workers, run

    def fit(self, X: Any, y: Any = None) -> "PCA":
        """Find the components of arrays, of a table, or of the dataset in a folder."""
        with self._reading(X) as rows:
            self._learn(rows, self._moments(rows), lapack=self.sums == "float")
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "PCA":
        """Add rows in memory: any cut of the rows, in any order, gives the bits of one call.

        The components follow once there are more rows than components.
        """
        with self._adding(X) as (rows, found):
            wanted = self.n_components
            if found.rows > (wanted if isinstance(wanted, int | np.integer) else 1):
                self._learn(rows, found)
        return self

    def _learn(self, rows: Rows, found: Moments, *, lapack: bool = False) -> None:
        if found.rows < 2:
            raise FitError("n_samples=1: expected at least 2 rows, found 1 sample")
        every = components(found, lapack=lapack)
        count = self._count(every.variances, every.rank, min(found.rows, len(found.mean)))
        variances = every.variances
        self.components_, self.mean_ = every.vectors[:count].copy(), every.mean
        self.explained_variance_, total = variances[:count], math.fsum(variances)
        self.explained_variance_ratio_ = self.explained_variance_ / (total or 1.0)
        self.singular_values_ = np.sqrt(self.explained_variance_ * (found.rows - 1))
        left = variances[count : min(found.rows, len(variances))]
        self.noise_variance_ = math.fsum(left) / len(left) if len(left) else 0.0
        self.n_components_, self.n_samples_ = count, found.rows
        spread = np.sqrt(self.explained_variance_) if self.whiten else np.ones(count)
        # A component without variance has scores of 0.
        spread[spread == 0] = 1.0
        arrays = {"mean": self.mean_, "vectors": self.components_, "spread": spread}
        self._keep(rows, arrays)

    def _count(self, variances: Array, rank: int, most: int) -> int:
        wanted = self.n_components
        if wanted is None:
            return most
        if isinstance(wanted, float) and 0 < wanted < 1:
            shares = np.cumsum(variances) / (math.fsum(variances) or 1.0)
            return min(int(np.searchsorted(shares, wanted, "right")) + 1, most)
        if not isinstance(wanted, int | np.integer) or wanted < 1:
            raise ParameterError(
                f"n_components: expected 1 or more, a share between 0 and 1, or None, found "
                f"{wanted!r}"
            )
        if wanted > max(rank, 1):
            raise FitError(
                f"n_components={wanted}: the rows have only {rank} directions. Take at most "
                f"{rank}, or None"
            )
        return int(wanted)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> Array:
        """Scores (rows, components) along the components."""
        batch = self._batch(X)
        return PrincipalComponents(self.fitted_).layer_outputs(batch, "components")

    def inverse_transform(self, X: Any) -> Array:
        """The rows (rows, features) of scores."""
        spread = self.fitted_.arrays["spread"]
        found: Array = (np.asarray(X) * spread) @ self.components_ + self.mean_
        return found
