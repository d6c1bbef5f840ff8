"""DataFrames: rows in any order and partitioning are one dataset, with one set of predictions."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.data.manifest import load
from mapreduce.errors import DataError, GradreduceError, UsageError

# mrjob unpacks a folder for tasks as Python 3.14 will not by default.
pytestmark = pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")

ROWS = 2000


@pytest.fixture(scope="module")
def session(context):
    from pyspark.sql import SparkSession

    found = SparkSession.builder.getOrCreate()
    found.conf.set("spark.sql.shuffle.partitions", 4)
    found.conf.set("spark.sql.session.timeZone", "UTC")
    return found


@pytest.fixture(scope="module")
def frame(session, tmp_path_factory):
    return written(session, tmp_path_factory.mktemp("rows") / "rows", ROWS)


def written(session, path, count):
    """Rows with -0.0, NaN, nulls, decimals, times, names with dots, and equal rows."""
    from pyspark.sql import functions as f

    row = f.col("id") % (count // 2)
    zero, nan = f.lit(-0.0), f.lit(float("nan"))
    rows = session.range(count).select(
        f.when(row % 3 == 0, zero).when(row % 7 == 0, nan).otherwise(f.rand(5)).alias("size"),
        f.when(row % 5 != 0, f.concat(f.lit("town "), row % 4)).alias("home.town"),
        (row % 11).cast("decimal(10,2)").alias("price"),
        f.timestamp_seconds(row * 25_000).alias("time"),
        f.date_add(f.lit("2020-02-28").cast("date"), (row % 9).cast("int")).alias("day"),
        (row % 2 == 0).alias("open"),
        (row % 4 > 1).alias("label"),
        row.alias("key"),
    )
    rows.write.parquet(str(path))
    return session.read.parquet(str(path))


def variants(frame):
    """The same rows in another way, and settings of the session."""
    from pyspark.sql import functions as f

    yield frame, {}
    yield frame.orderBy(f.rand(1)), {}
    for count in (1, 3, 17):
        yield frame.repartition(count), {"spark.sql.adaptive.enabled": "false"}
    zone = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    yield frame.repartition(5), {"spark.sql.adaptive.enabled": "true", **zone}


@pytest.fixture
def settings(session):
    """Sets settings of the session, for one test."""
    before = {}

    def change(values):
        for name, value in values.items():
            before.setdefault(name, session.conf.get(name))
            session.conf.set(name, value)

    yield change
    change(before)


def trained(data, folder, model="logistic", **options):
    """The digest of the dataset that a training has imported, and the run."""
    options = {"label": "label", "rounds": 2, "progress": False, "drop": ["key"]} | options
    run = mapreduce.train(data, model, run=folder / "run", **options)
    (dataset,) = (folder / ".imported").iterdir()
    return load(dataset).sha256, run


@pytest.mark.long
def test_one_dataset(frame, settings, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("rows come to the driver")

    for name in ("toArrow", "toPandas", "toLocalIterator", "__arrow_c_stream__"):
        monkeypatch.setattr(type(frame), name, refuse, raising=False)
    digests, models = set(), set()
    for number, (rows, values) in enumerate(variants(frame)):
        settings(values)
        digest, run = trained(rows, tmp_path / str(number))
        digests.add(digest)
        models.add(run.model_sha256)
    assert len(digests) == len(models) == 1
    kinds = {column.name: column.kind for column in run.recipe.columns}
    assert kinds["time"] == "date:YYYY-MM-DD@UTC"
    assert kinds["price"] == kinds["size"] == "number"
    # Other rows are another dataset, and so are rows in another order.
    other, _ = trained(frame.limit(ROWS - 1), tmp_path / "other")
    by_key, _ = trained(frame, tmp_path / "key", order_by=["key", "key"])
    again, _ = trained(frame.repartition(3), tmp_path / "again", order_by="key")
    assert by_key == again
    assert len({*digests, other, by_key}) == 3
    report = run.evaluate(frame.drop("key"))
    assert report.rows == ROWS
    assert report.loss == run.evaluate(frame.drop("key").repartition(3)).loss


@pytest.mark.long
@pytest.mark.parametrize("what", ["rows", "penguins"])
def test_many_rows_and_penguins_are_one_dataset(session, settings, tmp_path, what):
    if what == "rows":
        rows, label = written(session, tmp_path / "rows", 60_000), "label"
    else:
        reader, label = (
            session.read.options(header=True, inferSchema=True, nullValue="NA"),
            "species",
        )
        rows = reader.csv(str(Path(__file__).parents[1] / "tables" / "penguins.csv"))
    digests = set()
    for number, (variant, values) in enumerate(variants(rows)):
        settings(values)
        drop = [name for name in ["key"] if name in rows.columns]
        options = {"label": label, "drop": drop}
        digest, run = trained(variant, tmp_path / str(number), "softmax", **options)
        digests.add(digest)
    assert len(digests) == 1
    assert run.evaluate(rows).rows == rows.count()


@pytest.mark.long
def test_predictions_are_those_of_the_command(frame, settings, tmp_path):
    from pyspark.sql import functions as f

    _, run = trained(frame, tmp_path)
    rows = frame.drop("label").withColumn("id", f.monotonically_increasing_id())
    table = rows.toArrow()
    pq.write_table(table.drop_columns(["key"]), tmp_path / "rows.parquet")
    command = [sys.executable, "-m", "gradreduce", "predict", run.path, tmp_path / "rows.parquet"]
    subprocess.run([*command, tmp_path / "out.parquet", "--id", "id", "-q"], check=True)
    expected = pq.read_table(tmp_path / "out.parquet").sort_by("id")
    # A map is no column of the model's, and stays.
    rows = rows.withColumn("more", f.create_map(f.lit("key"), "key"))
    for parts, batch, zone in ((1, 10_000, "UTC"), (3, 7, "Asia/Tokyo"), (17, 10_000, "UTC")):
        settings({"spark.sql.execution.arrow.maxRecordsPerBatch": batch})
        settings({"spark.sql.session.timeZone": zone})
        predicted = run.predict(rows.repartition(parts).orderBy(f.rand(parts)).repartition(parts))
        assert predicted.columns[: len(rows.columns)] == rows.columns
        found = predicted.toArrow().sort_by("id")
        assert found["home.town"].equals(table.sort_by("id")["home.town"])
        assert found["more"].combine_chunks()[3].as_py() == [("key", table["key"][3].as_py())]
        for name in ("prediction", "probability", "probabilities"):
            own, others = found[name].combine_chunks(), expected[name].combine_chunks()
            if name == "probabilities":
                own, others = own.flatten(), others.flatten()
            assert own.equals(others), (name, parts, batch)


def test_vectors_dense_and_sparse_are_one_dataset(session, tmp_path):
    from pyspark.ml.linalg import Vectors

    numbers = np.random.default_rng(3).integers(-1, 2, (60, 4)).astype(float)
    labels = (numbers.sum(axis=1) > 0).astype(int).tolist()
    dense = [Vectors.dense(row) for row in numbers]
    sparse = [Vectors.sparse(4, [*enumerate(row)]) for row in numbers]
    runs = {}
    for name, vectors in (("dense", dense), ("sparse", sparse), ("array", numbers.tolist())):
        rows = session.createDataFrame([*zip(vectors, labels, strict=True)], ["x.y", "label"])
        runs[name] = mapreduce.train(rows, "softmax", run=tmp_path / name, rounds=5, progress=False)
    assert len({run.model_sha256 for run in runs.values()}) == 1
    predicted = runs["array"].predict(rows.drop("label"), probability_of=1).toArrow()
    order = np.array(predicted["x.y"].to_pylist())
    expected = runs["array"].predict(order, probabilities=True)
    assert np.array_equal(np.array(predicted["probabilities"].to_pylist(), np.float32), expected)
    assert predicted["probability of 1"].to_numpy().tolist() == expected[:, 1].tolist()
    assert runs["dense"].evaluate(rows).rows == 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, df: df.limit(0), "expected at least one row, found none"),
        (lambda f, df: df.select("*", df.key), "two columns have the name 'key'"),
        (lambda f, df: df.withColumn("m", f.create_map("key", "key")), "'m' is of type map<"),
        (lambda f, df: df.withColumn("s", f.struct("key")), "'s' is of type struct<"),
        (lambda f, df: df.withColumn("c", f.collate("`home.town`", "UNICODE")), "'c' is of type"),
        (lambda f, df: df.withColumn("v", f.lit(None)), "'v' is of type void"),
        (lambda f, df: df.withColumn("label", f.nullif("label", f.lit(True))), "found nothing"),
        (
            lambda f, df: df.withColumn("x", f.raise_error(f.lit("no luck")).cast("int")),
            r"Spark failed.*no luck",
        ),
    ],
    ids=["empty", "two names", "map", "struct", "collation", "void", "label", "failing"],
)
def test_frames_that_are_refused(frame, change, message, tmp_path):
    from pyspark.sql import functions as f

    with pytest.raises((DataError, GradreduceError), match=message) as caught:
        trained(change(f, frame), tmp_path)
    assert "part-0" not in str(caught.value)
    assert "org.apache" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert not [*(tmp_path / ".imported").iterdir()]


def test_what_is_missing_is_named(session, frame, tmp_path, monkeypatch):
    from mapreduce.runners.spark import snapshots

    with pytest.raises(UsageError, match=r"order_by: .* no column 'kee'.*Did you mean key"):
        trained(frame, tmp_path, order_by="kee")
    with pytest.raises(UsageError, match="order_by is for DataFrames"):
        trained(frame.limit(9).toArrow(), tmp_path, order_by="key")
    with pytest.raises(UsageError, match=r"df\.toArrow"):
        mapreduce.compare(frame, label="label")
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "find_spec", lambda name: None)
        with pytest.raises(UsageError, match="pandas, which is not installed"):
            trained(frame, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(session, "_sc", SimpleNamespace(_jsc=None))
        with pytest.raises(UsageError, match="a context that was stopped"):
            trained(frame, tmp_path)
    with monkeypatch.context() as patch:
        whole = snapshots._sorted
        patch.setattr(snapshots, "_sorted", lambda *given: (whole(*given)[0], []))
        with pytest.raises(UsageError, match=r"2,000 rows were written .* has 0 of them"):
            trained(frame, tmp_path)


def test_a_job_refuses_connect_by_name(monkeypatch):
    from pyspark import SparkContext

    from mapreduce.runners.spark import contexts

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(UsageError, match="found a session of Spark Connect"):
        contexts.get(None, 2)


def test_predictions_that_are_refused(frame, tmp_path):
    _, run = trained(frame, tmp_path)
    with pytest.raises(DataError, match="price"):
        run.predict(frame.drop("price"))
    with pytest.raises(UsageError, match="its column 'prediction' has the name"):
        run.predict(frame.withColumn("prediction", frame.key))
    with pytest.raises(UsageError, match="all columns of a DataFrame stay"):
        run.predict(frame, keep="key")
    with pytest.raises(UsageError, match="workers"):
        run.predict(frame, workers=2)
    with pytest.raises(UsageError, match="found a DataFrame"):
        run.evaluate(frame, by="open")


@pytest.mark.long
def test_rows_that_the_model_leaves_out_have_no_predictions(frame, session, settings, tmp_path):
    with pytest.warns(UserWarning, match="rows left out"):
        _, run = trained(frame, tmp_path, missing="drop")
    settings({"spark.sql.execution.arrow.maxRecordsPerBatch": 2})
    found = run.predict(frame).toArrow()
    whole = frame.toArrow().to_pandas()
    assert len(found) == len(whole.dropna())
    assert not found.to_pandas()["home.town"].isna().any()
