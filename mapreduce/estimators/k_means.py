"""k-means in scikit-learn's shape."""

from typing import Any

import numpy as np

from mapreduce.algorithms import k_means
from mapreduce.algorithms.k_means import Clusters
from mapreduce.data.batch import Array
from mapreduce.estimators.base import (
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    Estimator,
    ParameterError,
    TransformerMixin,
)


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, Estimator):
    """Clusters of rows around the means of each, as :class:`sklearn.cluster.KMeans`.

    The first centres are drawn by k-means||, by hashes of the rows' content. For ``runner``,
    ``workers`` and ``run`` see :class:`mapreduce.estimators.base.Estimator`.

    Parameters
    ----------
    n_clusters : int
    n_init : int
        How many seeds are tried: the fit of least inertia is taken.
    max_iter, tol : int, float
        When it ends: after so many moves of the centres, or when these are small.
    random_state : int, optional
        The seed; by default 0.

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, features)
    labels_ : array (rows,)
        Of the rows, if these were in memory.
    inertia_ : float
    n_iter_ : int

    Examples
    --------
    >>> from mapreduce.estimators import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = KMeans(3).fit(X)
    >>> round(model.inertia_, 2)
    78.85
    """

    kind = "k-means"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: int | None = None,
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.n_clusters, self.n_init = n_clusters, n_init
        self.max_iter, self.tol, self.random_state = max_iter, tol, random_state
        self.runner, self.workers, self.run = runner, workers, run

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "KMeans":
        """Find the centres of arrays, of a table, or of the dataset in a folder."""
        for name in ("n_clusters", "n_init", "max_iter"):
            if not isinstance(getattr(self, name), int | np.integer) or getattr(self, name) < 1:
                raise ParameterError(f"{name}: expected 1 or more, found {getattr(self, name)!r}")
        if self.run is not None and self.n_init > 1:
            raise ParameterError("run: expected n_init=1, since its rounds are of one seed")
        with self._reading(X, weights=sample_weight) as rows:
            fields = {"clusters": int(self.n_clusters), "limit": int(self.max_iter)}
            seeds = range(int(self.random_state or 0), int(self.random_state or 0) + self.n_init)
            fits = [
                self._advance(k_means.KMeans, rows, seed=seed, tolerance=float(self.tol), **fields)
                for seed in seeds
            ]
            arrays = min((blocks[0].arrays for blocks in fits), key=lambda one: one["inertia"])
            self._keep(rows, {"centres": arrays["centres"]}, tuple(range(self.n_clusters)))
        self.cluster_centers_ = arrays["centres"]
        self.inertia_, self.n_iter_ = float(arrays["inertia"]), int(arrays["moves"])
        if rows.features is not None:
            self.labels_ = self._clusters.labels(rows.features)
        return self

    @property
    def _clusters(self) -> Clusters:
        return Clusters(self.fitted_)

    def predict(self, X: Any) -> Array:
        """The cluster (rows,) of each row."""
        rows: Any = self._batch(X).features
        return self._clusters.labels(rows)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def transform(self, X: Any) -> Array:
        """Distances (rows, n_clusters) from the centres."""
        batch = self._batch(X)
        return self._clusters.layer_outputs(batch, "distances")

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the sum of the squared distances from the nearest centres."""
        squares = self.transform(X).min(axis=1) ** 2
        return -float((squares if sample_weight is None else squares * sample_weight).sum())
