"""Gradient boosting in scikit-learn's shape."""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mapreduce.algorithms import lanes
from mapreduce.algorithms.boosting import Boosting, trees_of
from mapreduce.algorithms.trees import Trees, arrays_of
from mapreduce.data.batch import Array, Batch
from mapreduce.data.readers import opening
from mapreduce.data.shards import Dataset
from mapreduce.estimators.base import (
    Classifier,
    Estimator,
    FitError,
    ParameterError,
    RegressorMixin,
    Rows,
)

#: From so many rows on, early stopping is the default, as scikit-learn's.
_MANY_ROWS = 10_000


class _Boosting(Estimator):
    """What both have in common."""

    kind = "trees"
    # As the cuts.
    computes_in = "float32"
    takes_codes = True
    # NaN stands for a missing number.
    arrays: ClassVar = {"dtype": (np.float64, np.float32), "ensure_all_finite": "allow-nan"}

    def __init__(
        self,
        learning_rate: float = 0.1,
        max_iter: int = 100,
        *,
        max_leaf_nodes: int = 31,
        min_samples_leaf: int = 20,
        l2_regularization: float = 0.0,
        categorical_features: Any = "from_dtype",
        early_stopping: Any = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-7,
        random_state: int | None = None,
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.learning_rate, self.max_iter = learning_rate, max_iter
        self.max_leaf_nodes, self.min_samples_leaf = max_leaf_nodes, min_samples_leaf
        self.l2_regularization, self.early_stopping = l2_regularization, early_stopping
        self.categorical_features = categorical_features
        self.validation_fraction, self.n_iter_no_change = validation_fraction, n_iter_no_change
        self.tol, self.random_state = tol, random_state
        self.runner, self.workers, self.run = runner, workers, run

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Grow trees for arrays ``X`` and ``y``, or for the dataset in a folder."""
        self._check()
        with self._reading(X, y, sample_weight, labelled=True) as rows:
            source = rows.source
            _check_numbers(rows)
            target = source.manifest.target if isinstance(source, Dataset) else None
            if target == "class" and not self.has_classes:
                raise ParameterError("X: expected a dataset whose labels are numbers")
            count = source.rows if isinstance(source, Batch) else source.manifest.rows
            classes = self._classes(rows)
            stops = count > _MANY_ROWS if self.early_stopping == "auto" else self.early_stopping
            blocks = self._advance(
                Boosting,
                rows,
                features=_width(source),
                classes=len(classes),
                trees=int(self.max_iter),
                leaves=int(self.max_leaf_nodes),
                rate=float(self.learning_rate),
                least_rows=int(self.min_samples_leaf),
                l2=float(self.l2_regularization),
                patience=int(self.n_iter_no_change) if stops else 0,
                tolerance=float(self.tol),
                held_out=float(self.validation_fraction),
                seed=int(self.random_state or 0),
                categories=self._categories(rows),
            )
            first = blocks[0].arrays
            trees, base = trees_of(first), first["base"]
            self._keep(rows, arrays_of(trees, base), classes)
        self.n_iter_ = len(trees) // len(base)
        return self

    def _classes(self, rows: Rows) -> tuple[int | str, ...]:
        return ()

    def _categories(self, rows: Rows) -> tuple[tuple[int, int], ...]:
        """The features that are codes, and how many codes they have."""
        if rows.features is None:
            assert isinstance(rows.source, Dataset)
            folder, manifest = rows.source.folder, rows.source.manifest
            recipe = opening.fitted_of(folder, manifest) if manifest.is_for_trees else None
            return recipe.categories if recipe else ()
        found = []
        for feature in self._categorical(getattr(self, "feature_names_in_", None)):
            column = rows.features[:, feature]
            most = np.nanmax(column, initial=0.0)
            codes = lanes.codes_of(column, lanes.MOST_CODES)
            if (odd := (codes < 0) & (column >= 0)).any():
                raise FitError(
                    f"column {feature}: expected codes of a category, whole numbers below "
                    f"{lanes.MOST_CODES}, found {column[odd.argmax()]}. Pass a table instead, "
                    f"whose categories have no such limit"
                )
            found.append((feature, int(most) + 1))
        return tuple(found)

    def _has_words(self, table: Any) -> bool:
        names_categories = not isinstance(self.categorical_features, str | None)
        return names_categories or super()._has_words(table)

    def _named_categories(self, names: Sequence[str]) -> list[str]:
        self.n_features_in_ = len(names)
        return [names[number] for number in self._categorical(names)]

    def _categorical(self, names: Any) -> list[int]:
        """The numbers of the columns that ``categorical_features`` names."""
        wanted, count = self.categorical_features, self.n_features_in_
        if wanted is None or (isinstance(wanted, str) and wanted == "from_dtype"):
            return []
        found = np.asarray(wanted)
        if found.dtype.kind == "b" and found.shape == (count,):
            return np.flatnonzero(found).tolist()
        if found.dtype.kind in "OU" and found.ndim == 1 and names is not None:
            if unknown := sorted({*found.tolist()} - {*names}):
                raise ParameterError(f"categorical_features: X has no column {unknown[0]!r}")
            return sorted([*names].index(name) for name in found.tolist())
        if found.dtype.kind in "iu" and found.ndim == 1 and (abs(found + 0.5) < count).all():
            return sorted({*(found % count).tolist()})
        if not found.size:
            return []
        raise ParameterError(
            f"categorical_features: expected 'from_dtype', None, a mask of {count} columns, "
            f"numbers of columns, or names of those of a table, found {wanted!r:.80}"
        )

    def _raw(self, X: Any) -> Array:
        """The raw scores (rows, columns) of rows."""
        batch = self._batch(X)
        return Trees(self.fitted_).raw(batch)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check(self) -> None:
        for name, least in (
            *(("max_iter", 1), ("max_leaf_nodes", 2), ("min_samples_leaf", 1)),
            ("n_iter_no_change", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise ParameterError(f"{name}: expected {least} or more, found {value!r}")
        for name, most in (
            *(("learning_rate", np.inf), ("l2_regularization", np.inf), ("tol", np.inf)),
            ("validation_fraction", 1),
        ):
            value = getattr(self, name)
            is_number = isinstance(value, int | float | np.number) and 0 <= value < most
            if not is_number or (value == 0 and name in ("learning_rate", "validation_fraction")):
                below = f" and below {most}" if most == 1 else ""
                raise ParameterError(f"{name}: expected a number above 0{below}, found {value!r}")
        if self.early_stopping not in ("auto", True, False):
            raise ParameterError(
                f"early_stopping: expected 'auto', True or False, found {self.early_stopping!r}"
            )


def _width(source: Dataset | Batch) -> int:
    """How many features rows have."""
    return source.manifest.features if isinstance(source, Dataset) else source.features.shape[1]


def _check_numbers(rows: Rows) -> None:
    """Refuse numbers beyond float32, and warn of columns that float32 hardly tells apart."""
    features = rows.features
    if features is None or features.dtype == np.float32:
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # A column may have missing numbers alone.
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = np.nanmin(features, axis=0), np.nanmax(features, axis=0)
    largest = np.maximum(abs(low), abs(high))
    if (odd := np.flatnonzero(largest > np.finfo(np.float32).max)).size:
        raise FitError(
            f"column {odd[0]}: expected numbers of float32, found up to {largest[odd[0]]}"
        )
    # Of 24 bits, fewer than 12 differ.
    if (odd := np.flatnonzero((high > low) & ((high - low) < largest * 2.0**-12))).size:
        warnings.warn(
            f"column {odd[0]}: its numbers are between {low[odd[0]]} and {high[odd[0]]}, which "
            f"trees, in float32, hardly tell apart. Subtract its least number from it",
            stacklevel=3,
        )


class HistGradientBoostingClassifier(Classifier, _Boosting):
    """Boosted trees, as :class:`sklearn.ensemble.HistGradientBoostingClassifier`.

    For ``runner``, ``workers`` and ``run`` see :class:`mapreduce.estimators.base.Estimator`. The
    trees are the same for any workers and any order of the rows. Missing numbers are NaN.

    Parameters
    ----------
    learning_rate : float
    max_iter : int
        Trees of a class; two classes have one tree for both.
    max_leaf_nodes : int
        Leaves of a tree. A tree grows best first.
    min_samples_leaf : int
        Rows of a leaf, at least.
    l2_regularization : float
    categorical_features : "from_dtype", array or None
        Columns that are categories: a mask, numbers, or names of columns of a table. "from_dtype":
        those that a table declares, and its columns of texts. In arrays they have codes, whole
        numbers below 4,096.
    early_stopping : "auto" or bool
        Whether trees are grown only as long as they help with rows that are held out; "auto": if
        there are more than 10,000 rows.
    validation_fraction : float
        Share of the rows that are then held out: which ones follows from their content.
    n_iter_no_change : int
        Trees that do not help, after which no other is grown.
    tol : float
        A mean loss that is lower by less does not help.
    random_state : int, optional
        Seed of the choice of the rows that are held out.

    Attributes
    ----------
    n_iter_ : int
        Trees of a class that were grown.
    classes_ : array (classes,)

    Examples
    --------
    >>> from mapreduce.estimators import HistGradientBoostingClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> round(HistGradientBoostingClassifier(max_iter=20).fit(X[:400], y[:400]).score(X, y), 3)
    0.979
    """

    def _classes(self, rows: Rows) -> tuple[int | str, ...]:
        return self._class_names(rows)

    def decision_function(self, X: Any) -> Array:
        """Raw scores (rows,) of the second of two classes, or (rows, classes)."""
        found = self._raw(X)
        return found[:, 0] if found.shape[1] == 1 else found


class HistGradientBoostingRegressor(RegressorMixin, _Boosting):
    """Boosted trees, as :class:`sklearn.ensemble.HistGradientBoostingRegressor`.

    For ``runner``, ``workers`` and ``run`` see :class:`mapreduce.estimators.base.Estimator`. The
    trees are the same for any workers and any order of the rows. Missing numbers are NaN.

    Parameters
    ----------
    learning_rate : float
    max_iter : int
        Trees.
    max_leaf_nodes : int
        Leaves of a tree. A tree grows best first.
    min_samples_leaf : int
        Rows of a leaf, at least.
    l2_regularization : float
    categorical_features : "from_dtype", array or None
        Columns that are categories: a mask, numbers, or names of columns of a table. "from_dtype":
        those that a table declares, and its columns of texts. In arrays they have codes, whole
        numbers below 4,096.
    early_stopping : "auto" or bool
        Whether trees are grown only as long as they help with rows that are held out; "auto": if
        there are more than 10,000 rows.
    validation_fraction : float
        Share of the rows that are then held out: which ones follows from their content.
    n_iter_no_change : int
        Trees that do not help, after which no other is grown.
    tol : float
        A mean loss that is lower by less does not help.
    random_state : int, optional
        Seed of the choice of the rows that are held out.

    Attributes
    ----------
    n_iter_ : int
        Trees that were grown.

    Examples
    --------
    >>> from mapreduce.estimators import HistGradientBoostingRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(HistGradientBoostingRegressor(max_iter=30).fit(X, y).score(X, y), 2)
    0.76
    """

    def predict(self, X: Any) -> Array:
        """A number (rows,) for each row."""
        return self._raw(X)[:, 0]
