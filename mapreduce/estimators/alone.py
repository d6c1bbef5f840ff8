"""What estimators take of scikit-learn, where it is not installed."""

from inspect import signature
from typing import Any

import numpy as np

from mapreduce.data.readers import memory
from mapreduce.errors import DataError, UsageError


class BaseEstimator:
    """Parameters are the arguments of the constructor."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Any:
        for name, value in params.items():
            if name not in self.get_params():
                raise UsageError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        known = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({known})"


class ConvergenceWarning(UserWarning):
    pass


class ClassNamePrefixFeaturesOutMixin:
    pass


class TransformerMixin:
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        return self.fit(X).transform(X)  # type: ignore[attr-defined]


class ClusterMixin:
    pass


class ClassifierMixin:
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the rows whose class is predicted."""
        is_right = self.predict(X) == np.asarray(y)  # type: ignore[attr-defined]
        return float(np.average(is_right, weights=sample_weight))


class RegressorMixin:
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the variance of ``y`` that predictions explain."""
        y, weights = np.asarray(y), np.ones(len(y)) if sample_weight is None else sample_weight
        left = weights * (y - self.predict(X)) ** 2  # type: ignore[attr-defined]
        return float(1 - left.sum() / (weights * (y - np.average(y, weights=weights)) ** 2).sum())


def check_classification_targets(y: Any) -> None:
    kind = np.asarray(y).dtype.kind
    if kind == "f" and (np.rint(y) != y).any():
        raise DataError("y: expected classes, found numbers with fractions")


def check_is_fitted(estimator: Any) -> None:
    if not hasattr(estimator, "fitted_"):
        raise UsageError(f"this {type(estimator).__name__} is not fitted yet: call fit first")


def validate_data(
    estimator: Any, X: Any, y: Any = None, *, reset: bool = True, dtype: Any = (), **_: Any
) -> Any:
    memory.table(X if y is None else (X, y))
    X = np.ascontiguousarray(X)
    X = X if X.dtype in dtype else X.astype(np.float64)
    if reset:
        estimator.n_features_in_ = X.shape[1]
    elif X.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"X has {X.shape[1]} features, expected {estimator.n_features_in_}, as the model was "
            f"fitted to"
        )
    return X if y is None else (X, np.asarray(y))


def _check_sample_weight(weights: Any, X: Any, dtype: Any, **_: Any) -> Any:
    found = np.asarray(weights, dtype)
    if found.shape != X.shape[:1]:
        raise DataError(f"sample_weight has shape {found.shape}, expected {X.shape[:1]}")
    return found
