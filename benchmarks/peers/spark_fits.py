"""Spark MLlib: GBTClassifier and KMeans, in a local session of two threads."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.ml.classification import GBTClassifier
from pyspark.ml.clustering import KMeans
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession


def main() -> None:
    path, (task, size) = Path(sys.argv[1]), sys.argv[2].split(":")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")

    def rows(name: str) -> Any:
        table = session.read.parquet(str(path / f"{name}.parquet"))
        columns = [column for column in table.columns if column != "label"]
        vectors = VectorAssembler(inputCols=columns, outputCol="features").transform(table)
        return vectors.select("features", *{"label"} & {*table.columns}).repartition(2).cache()

    data = rows("train")
    data.count()
    kind: Any = KMeans(k=int(size), seed=0)
    if task == "boosting":
        kind = GBTClassifier(maxIter=int(size), maxDepth=5, maxBins=255, stepSize=0.1, seed=0)
    started = time.perf_counter()
    model = kind.fit(data)
    seconds = time.perf_counter() - started
    if task == "boosting":
        loss = BinaryClassificationEvaluator().evaluate(model.transform(rows("later")))
    else:
        loss = model.summary.trainingCost
    session.stop()
    print(json.dumps({"seconds": seconds, "loss": loss}))


if __name__ == "__main__":
    main()
