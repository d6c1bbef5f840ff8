"""Spark MLlib: LogisticRegression by L-BFGS, in a local session of two threads."""

import json
import sys
import time
from pathlib import Path

import numpy as np
from pyspark.ml.classification import LogisticRegression
from pyspark.sql import SparkSession

from benchmarks.sparse import L2, PASSES, log_loss, scores_of


def main() -> None:
    path, task = Path(sys.argv[1]), sys.argv[2]
    with np.load(path / "rows.npz") as found:
        rows = {name: found[name] for name in found.files}
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    reader = session.read.format("libsvm").option("numFeatures", str(int(rows["columns"])))
    data = reader.load(str(path / "rows.svm")).cache()
    data.count()
    estimator = LogisticRegression(
        maxIter=1 if task == "online" else PASSES, regParam=L2, standardization=False, tol=0.0
    )
    started = time.perf_counter()
    model = estimator.fit(data)
    seconds = time.perf_counter() - started
    params = np.append(model.coefficients.toArray(), model.intercept)
    loss = log_loss(scores_of(params, rows), rows["labels"])
    session.stop()
    print(json.dumps({"seconds": seconds, "loss": loss}))


if __name__ == "__main__":
    main()
