"""Fits of classic algorithms beside scikit-learn's and LightGBM's: processor time of a whole fit.

All compute in one thread. LightGBM takes part where it is installed: ``pip install lightgbm``.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.decomposition
import sklearn.ensemble
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from benchmarks.paired import Result, in_turn
from mapreduce import estimators
from mapreduce.data.batch import Array

_HIST, _LIGHTGBM = "scikit-learn", "LightGBM"


def _seconds(fit: Callable[[], Any], models: dict[str, Any], name: str) -> Callable[[], float]:
    """Times a fit, and keeps the model."""

    def timed() -> float:
        with threadpool_limits(1):
            started = time.process_time()
            models[name] = fit()
            return time.process_time() - started

    return timed


def _measured(
    title: str,
    note: str,
    fits: Mapping[str, Callable[[], Any]],
    limits: Mapping[str, float],
    repeats: int,
    judge: Callable[[Any], str],
) -> Result:
    models: dict[str, Any] = {}
    ours, *peers = [(name, _seconds(fit, models, name)) for name, fit in fits.items()]
    # Kernels are compiled before.
    ours[1]()
    times, theirs = in_turn(ours[1], dict(peers), repeats)
    note += " " + "; ".join(f"{name}: {judge(model)}" for name, model in models.items()) + "."
    wanted = [((name,), most) for name, most in limits.items() if name in fits]
    skipped = {name: "it is not installed" for name in limits if name not in fits}
    return Result(title, "s", note, times, theirs, skipped=skipped, limits=wanted)


def clicks(rows: int, seed: int) -> tuple[Array, Array]:
    """28 features of two classes, with steps, a product, a long tail and missing numbers."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 28)).astype(np.float32)
    x[:, 3] *= 40
    x[:, 5] = np.exp(x[:, 5])
    score = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.02 * x[:, 3] + 0.2 * x[:, 6] * x[:, 7]
    x[random.random(rows) < 0.1, 0] = np.nan
    return x, (random.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)


def boosting(quick: bool) -> Result:
    """A hundred trees of 31 leaves."""
    rows, trees = (20_000, 10) if quick else (300_000, 100)
    (x, y), (later, labels) = clicks(rows, 0), clicks(50_000, 1)
    ours = estimators.HistGradientBoostingClassifier
    options = {"max_iter": trees, "early_stopping": False}
    fits: dict[str, Callable[[], Any]] = {
        "this toolkit": lambda: ours(**options).fit(x, y),
        _HIST: lambda: sklearn.ensemble.HistGradientBoostingClassifier(**options).fit(x, y),
    }
    try:
        import lightgbm
    except ImportError:
        pass
    else:
        more = {"n_jobs": 1, "deterministic": True, "force_row_wise": True, "verbose": -1}
        kind = lightgbm.LGBMClassifier
        fits[_LIGHTGBM] = lambda: kind(n_estimators=trees, **more).fit(x, y)
    return _measured(
        "Boosted trees",
        f"{rows:,} rows of 28 features, two classes, {trees} trees. Area under the curve of other "
        f"rows:",
        fits,
        {_HIST: 1.2, _LIGHTGBM: 1.5},
        1 if quick else 7,
        lambda model: f"{roc_auc_score(labels, model.predict_proba(later)[:, 1]):.4f}",
    )


def groups(rows: int) -> Array:
    random = np.random.default_rng(0)
    centres = random.normal(size=(8, 28)) * 3
    found: Array = centres[random.integers(0, 8, rows)] + random.normal(size=(rows, 28))
    return found


def k_means(quick: bool) -> Result:
    """Eight clusters."""
    x = groups(20_000 if quick else 300_000)
    return _measured(
        "k-means",
        f"{len(x):,} rows of 28 features, 8 clusters, one choice of the first centres. Sum of the "
        f"squared distances:",
        {
            "this toolkit": lambda: estimators.KMeans(8).fit(x),
            _HIST: lambda: sklearn.cluster.KMeans(8, n_init=1, random_state=0).fit(x),
        },
        {_HIST: 1.3},
        1 if quick else 11,
        lambda model: f"{model.inertia_:.5g}",
    )


def components(quick: bool) -> Result:
    """Four principal components."""
    x = groups(20_000 if quick else 300_000)
    kind = sklearn.decomposition.PCA
    return _measured(
        "Principal components",
        f"{len(x):,} rows of 28 features, 4 components, in float64. Share of the variance:",
        {
            "this toolkit": lambda: estimators.PCA(4).fit(x),
            _HIST: lambda: kind(4, svd_solver="covariance_eigh").fit(x),
        },
        {_HIST: 3.0},
        1 if quick else 11,
        lambda model: f"{model.explained_variance_ratio_.sum():.5f}",
    )
