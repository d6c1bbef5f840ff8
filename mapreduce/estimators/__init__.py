"""Estimators in scikit-learn's shape: its names, parameters, methods and attributes.

Trees, k-means, PCA and ridge are fitted by sums of whole numbers, and so have the same bits for any
workers, any order of the rows and any processor. Those that a gradient trains have the bits of
:func:`mapreduce.train`. Each loads its module when it is asked for.
"""

from typing import TYPE_CHECKING, Any

from mapreduce.support.suggest import unknown_name

if TYPE_CHECKING:
    from mapreduce.estimators.boosting import (
        HistGradientBoostingClassifier as HistGradientBoostingClassifier,
    )
    from mapreduce.estimators.boosting import (
        HistGradientBoostingRegressor as HistGradientBoostingRegressor,
    )
    from mapreduce.estimators.gradient import LinearRegression as LinearRegression
    from mapreduce.estimators.gradient import LogisticRegression as LogisticRegression
    from mapreduce.estimators.gradient import MLPClassifier as MLPClassifier
    from mapreduce.estimators.gradient import MLPRegressor as MLPRegressor
    from mapreduce.estimators.k_means import KMeans as KMeans
    from mapreduce.estimators.pca import PCA as PCA
    from mapreduce.estimators.ridge import Ridge as Ridge

__all__ = [
    "PCA",
    "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "MLPClassifier",
    "MLPRegressor",
    "Ridge",
]

_PLACES = {
    "HistGradientBoostingClassifier": "boosting",
    "HistGradientBoostingRegressor": "boosting",
    "KMeans": "k_means",
    "LinearRegression": "gradient",
    "LogisticRegression": "gradient",
    "MLPClassifier": "gradient",
    "MLPRegressor": "gradient",
    "PCA": "pca",
    "Ridge": "ridge",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _PLACES:
            raise unknown_name(__name__, name, __all__)
        return getattr(import_module(f"mapreduce.estimators.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
