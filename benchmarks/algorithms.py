"""Fits of classic algorithms beside scikit-learn's and LightGBM's: processor time of a whole fit.

All compute in one thread. LightGBM takes part where it is installed: ``pip install lightgbm``.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.decomposition
import sklearn.ensemble
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from benchmarks.common import OURS, Bench, case, processor
from benchmarks.paired import Timed
from mapreduce import estimators
from mapreduce.data.batch import Array

_HIST, _LIGHTGBM = "scikit-learn", "LightGBM"


def _fits(
    bench: Bench, note: str, fits: dict[str, Callable[[], Any]], judge: Callable[[Any], str]
) -> dict[str, Timed]:
    """Times fits of one thread; the note judges the models."""
    models: dict[str, Any] = {}

    def timed(name: str) -> float:
        with threadpool_limits(1):
            return processor(lambda: models.update({name: fits[name]()}))

    # Kernels are compiled before.
    timed(OURS)
    bench.note = lambda: (
        f"{note} {'; '.join(f'{name}: {judge(model)}' for name, model in models.items())}."
    )
    return {name: partial(timed, name) for name in fits}


def clicks(rows: int, seed: int) -> tuple[Array, Array]:
    """28 features of two classes, with steps, a product, a long tail and missing numbers."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 28)).astype(np.float32)
    x[:, 3] *= 40
    x[:, 5] = np.exp(x[:, 5])
    score = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.02 * x[:, 3] + 0.2 * x[:, 6] * x[:, 7]
    x[random.random(rows) < 0.1, 0] = np.nan
    return x, (random.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)


def groups(rows: int) -> Array:
    random = np.random.default_rng(0)
    centres = random.normal(size=(8, 28)) * 3
    found: Array = centres[random.integers(0, 8, rows)] + random.normal(size=(rows, 28))
    return found


@case("Boosted trees", repeats=(1, 7), limits=[((_HIST,), 1.2), ((_LIGHTGBM,), 1.5)])
def boosting(bench: Bench) -> dict[str, Timed]:
    """A hundred trees of 31 leaves."""
    rows, trees = bench.pick((20_000, 10), (300_000, 100))
    (x, y), (later, labels) = clicks(rows, 0), clicks(50_000, 1)
    ours = estimators.HistGradientBoostingClassifier
    options = {"max_iter": trees, "early_stopping": False}
    fits: dict[str, Callable[[], Any]] = {
        OURS: lambda: ours(**options).fit(x, y),
        _HIST: lambda: sklearn.ensemble.HistGradientBoostingClassifier(**options).fit(x, y),
    }
    if find_spec("lightgbm") is None:
        bench.skipped[_LIGHTGBM] = "it is not installed"
    else:
        kind = import_module("lightgbm").LGBMClassifier
        more = {"n_jobs": 1, "deterministic": True, "force_row_wise": True, "verbose": -1}
        fits[_LIGHTGBM] = lambda: kind(n_estimators=trees, **more).fit(x, y)
    return _fits(
        bench,
        f"{rows:,} rows of 28 features, two classes, {trees} trees. Area under the curve of other "
        f"rows:",
        fits,
        lambda model: f"{roc_auc_score(labels, model.predict_proba(later)[:, 1]):.4f}",
    )


@case("k-means", repeats=(1, 11), limits=[((_HIST,), 1.3)])
def k_means(bench: Bench) -> dict[str, Timed]:
    """Eight clusters."""
    x = groups(bench.pick(20_000, 300_000))
    return _fits(
        bench,
        f"{len(x):,} rows of 28 features, 8 clusters, one choice of the first centres. Sum of the "
        f"squared distances:",
        {
            OURS: lambda: estimators.KMeans(8).fit(x),
            _HIST: lambda: sklearn.cluster.KMeans(8, n_init=1, random_state=0).fit(x),
        },
        lambda model: f"{model.inertia_:.5g}",
    )


@case("Principal components", repeats=(1, 11), limits=[((_HIST,), 3.0)])
def components(bench: Bench) -> dict[str, Timed]:
    """Four principal components."""
    x = groups(bench.pick(20_000, 300_000))
    kind = sklearn.decomposition.PCA
    return _fits(
        bench,
        f"{len(x):,} rows of 28 features, 4 components, in float64. Share of the variance:",
        {
            OURS: lambda: estimators.PCA(4).fit(x),
            _HIST: lambda: kind(4, svd_solver="covariance_eigh").fit(x),
        },
        lambda model: f"{model.explained_variance_ratio_.sum():.5f}",
    )
