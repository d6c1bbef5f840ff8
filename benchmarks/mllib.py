"""Fits in this process beside those of Spark MLlib in two threads, whose start is not counted."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import roc_auc_score

from benchmarks.algorithms import clicks, groups
from benchmarks.common import folder
from benchmarks.paired import Result, in_turn
from benchmarks.programs import PYSPARK
from benchmarks.sparse import SPARK, Peer
from mapreduce import estimators
from mapreduce.data.batch import Array
from mapreduce.data.importer import Rows, Source, import_rows


def _table(x: Array, y: Array | None) -> pa.Table:
    columns = {f"c{number}": column for number, column in enumerate(x.T)}
    return pa.table(columns if y is None else {**columns, "label": y.astype(float)})


def _compared(
    title: str,
    note: str,
    task: str,
    data: dict[str, tuple[Array, Array | None]],
    fit: Callable[[Path], Any],
    judge: Callable[[Any], float],
    quick: bool,
) -> Result:
    """Fits to the rows named ``train``."""
    models: list[Any] = []
    processors: list[float] = []
    with folder() as path:
        for name, (x, y) in data.items():
            pq.write_table(_table(x, y), path / f"{name}.parquet")
        x, y = data["train"]
        import_rows(Source([Rows(x, y)], x.shape[1:], 1.0, x.nbytes, {}), path / "data", 0)

        def ours() -> float:
            started, before = time.perf_counter(), time.process_time()
            models[:] = [fit(path / "data")]
            processors.append(time.process_time() - before)
            return time.perf_counter() - started

        # Kernels are compiled before.
        ours()
        spark = Peer("spark_fits", path, f"{task}:{judge(models[0])}")
        reason = PYSPARK.missing()
        peers = {} if reason else {SPARK: spark}
        times, theirs = in_turn(ours, peers, 1 if quick else 3, {SPARK: 1})
    note += f" this toolkit: {judge(models[0]):.5g}; {SPARK}: {spark.loss:.5g}."
    if spark.processor is not None:
        own = statistics.median(processors[1:])
        note += f" Processor time: {own:.3g} s, {SPARK}: {spark.processor:.3g} s."
    skipped = {SPARK: reason} if reason else {}
    return Result(title, "s", note, times, theirs, None if quick else (SPARK, 0.2), skipped)


def boosting(quick: bool) -> Result:
    """Trees of 31 leaves beside trees of depth 5, which have up to 32.

    MLlib's loss has twice the margin, so that its step of 0.1 is one of 0.2 here.
    """
    rows, trees = (5_000, 3) if quick else (100_000, 20)
    (x, y), (later, labels) = clicks(rows, 0), clicks(50_000, 1)
    # MLlib takes no missing numbers.
    x, later = (np.nan_to_num(each) for each in (x, later))
    kind = estimators.HistGradientBoostingClassifier
    return _compared(
        "Boosted trees beside MLlib's",
        f"{rows:,} rows of 28 features, two classes, {trees} trees. Area under the curve of other "
        f"rows:",
        f"boosting:{trees}",
        {"train": (x, y), "later": (later, labels)},
        lambda data: kind(learning_rate=0.2, max_iter=trees, early_stopping=False).fit(data),
        lambda model: float(roc_auc_score(labels, model.predict_proba(later)[:, 1])),
        quick,
    )


def k_means(quick: bool) -> Result:
    """Eight clusters, from centres by k-means||."""
    x = groups(5_000 if quick else 300_000).astype(np.float32)
    return _compared(
        "k-means beside MLlib's",
        f"{len(x):,} rows of 28 features, 8 clusters. Sum of the squared distances:",
        "k-means:8",
        {"train": (x, None)},
        lambda data: estimators.KMeans(8).fit(data),
        lambda model: float(model.inertia_),
        quick,
    )
