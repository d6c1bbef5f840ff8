"""The models that ``gradreduce train`` fits without gradients, and their options."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from mapreduce import estimators
from mapreduce.data.manifest import Manifest
from mapreduce.support.options import POSITIVE, Bound, between, option, up_to

_FROM_0 = Bound("a finite, non-negative number", lambda number: 0 <= number < math.inf)
_COUNT = up_to(1_000_000)
_SUMS = "exact, or float: faster, but another order of the rows gives other bits"


@dataclass(frozen=True)
class Spec:
    """Options of a model.

    ``has_seed``: Whether a seed changes what is fitted. ``needs_labels``: Whether it learns from
    labels, and ``task`` what these are for; None if they are classes or numbers, as they look.
    ``dtype``: In which it computes with features. ``takes_codes``: Whether categories may be codes,
    and numbers missing.
    """

    has_seed: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = True
    task: ClassVar[str | None] = None
    dtype: ClassVar[str] = "float64"
    takes_codes: ClassVar[bool] = False

    def estimator(self, data: Manifest, seed: int) -> Any:
        """The estimator that these options make for data."""
        raise NotImplementedError


@dataclass(frozen=True)
class KMeans(Spec):
    """Clusters of rows."""

    has_seed = True
    needs_labels = False
    clusters: int = option(8, "number of clusters", _COUNT)
    moves: int = option(300, "largest number of moves of the centres", _COUNT)
    tolerance: float = option(1e-4, "share of the variance, below which moves end", _FROM_0)

    def estimator(self, data: Manifest, seed: int) -> Any:
        return estimators.KMeans(
            self.clusters, max_iter=self.moves, tol=self.tolerance, random_state=seed
        )


@dataclass(frozen=True)
class PCA(Spec):
    """Principal components."""

    needs_labels = False
    components: int | None = option(None, "number of components; None for all", up_to(1000))
    whiten: bool = option(False, "whether scores have the variance 1")
    sums: str = option("exact", _SUMS, choices=("exact", "float"))

    def estimator(self, data: Manifest, seed: int) -> Any:
        return estimators.PCA(self.components, whiten=self.whiten, sums=self.sums)


@dataclass(frozen=True)
class Ridge(Spec):
    """Least squares with an L2 penalty."""

    task = "regression"
    alpha: float = option(1.0, "factor of the sum of the squared coefficients", _FROM_0)
    intercept: bool = option(True, "whether there is an intercept")
    sums: str = option("exact", _SUMS, choices=("exact", "float"))

    def estimator(self, data: Manifest, seed: int) -> Any:
        return estimators.Ridge(self.alpha, fit_intercept=self.intercept, sums=self.sums)


@dataclass(frozen=True)
class Boosting(Spec):
    """Boosted trees, for labels that are classes or numbers."""

    has_seed = takes_codes = True
    dtype = "float32"
    trees: int = option(100, "largest number of trees of a class", _COUNT)
    leaves: int = option(
        31, "leaves of a tree", Bound("a number from 2 on", lambda number: number >= 2)
    )
    rate: float = option(0.1, "how much of a tree's values is added", POSITIVE)
    least_rows: int = option(20, "rows of a leaf, at least", _COUNT)
    l2: float = option(0.0, "strength of the L2 penalty on the values of leaves", _FROM_0)
    early_stopping: str = option(
        "auto",
        "whether trees end that do not help with held-out rows; auto: of more than 10,000 rows",
        choices=("auto", "true", "false"),
    )
    held_out: float = option(0.1, "share of the rows that are then held out", between(1e-9, 1))
    patience: int = option(10, "trees that do not help, after which they end", _COUNT)
    tolerance: float = option(1e-7, "a loss that is lower by less does not help", _FROM_0)

    def estimator(self, data: Manifest, seed: int) -> Any:
        kind: Any = estimators.HistGradientBoostingRegressor
        if data.target == "class":
            kind = estimators.HistGradientBoostingClassifier
        return kind(
            learning_rate=self.rate,
            max_iter=self.trees,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.least_rows,
            l2_regularization=self.l2,
            early_stopping={"true": True, "false": False}.get(self.early_stopping, "auto"),
            validation_fraction=self.held_out,
            n_iter_no_change=self.patience,
            tol=self.tolerance,
            random_state=seed,
        )
