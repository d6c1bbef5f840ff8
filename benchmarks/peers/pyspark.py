"""PySpark: a DataFrame in a local session of two threads."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, explode, lower, split


def main() -> None:
    text, out = sys.argv[1:]
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    lines = session.read.text(text)
    words = lines.select(explode(split(lower("value"), r"[^\w']+")).alias("word"))
    counts = words.where(col("word") != "").groupBy("word").count()
    counts.write.csv(out, sep="\t", quote="", escape="")
    session.stop()


if __name__ == "__main__":
    main()
