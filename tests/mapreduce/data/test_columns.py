"""Names of columns: kept by imports, and compared before a model takes data."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapreduce.algorithms.standardise import standardise
from mapreduce.data.columns import Column, misfit
from mapreduce.data.importer import import_rows
from mapreduce.data.manifest import MANIFEST
from mapreduce.data.readers import csv, libsvm, parquet
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import driver
from programs import gradreduce, succeed

TABLE = "age,colour,score,label\n1,red,4,yes\n2,blue,5,no\n3,red,6.5,yes\n"


def plain(*names):
    return tuple(Column(name, "number") for name in names)


def imported(folder, text, **options):
    """The columns that the manifest names."""
    path = folder / "table.csv"
    path.write_text(text)
    options = {"label": None, "labelled": True, "dtype": "float32", **options}
    import_rows(csv.source([path], **options), folder / "out", 0)
    return Dataset(folder / "out").manifest.columns


def test_columns_of_csv(tmp_path):
    assert imported(tmp_path, TABLE, drop=["colour"]) == plain("age", "score")


def test_columns_of_hashed_csv(tmp_path):
    hashed = [("age", "hashed number"), ("colour", "hashed text"), ("score", "hashed number")]
    assert imported(tmp_path, TABLE, hash_bits=5) == tuple(Column(*one) for one in hashed)


def test_csv_without_a_header_has_no_names_but_where_they_are_hashed(tmp_path):
    text = "1,2,0\n3,4,1\n"
    (tmp_path / "a").mkdir()
    assert imported(tmp_path / "a", text) is None
    (tmp_path / "b").mkdir()
    hashed = tuple(Column(name, "hashed number") for name in "12")
    assert imported(tmp_path / "b", text, hash_bits=5) == hashed
    like = Dataset(tmp_path / "b/out").manifest.source
    (tmp_path / "c").mkdir()
    assert imported(tmp_path / "c", text, like=like) == hashed


def test_columns_of_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {"b": [1, 2], "label": [0, 1], "a": ["x", "y"], "c": [[1.0, 2.0], [3.0, 4.0]]}
    pq.write_table(pa.table(columns), path)
    found = parquet.source([path], columns=["b"]).columns
    assert found == plain("b")
    assert parquet.source([path], columns=["c"]).columns is None
    hashed = parquet.source([path], columns=["a", "b"], hash_bits=3).columns
    assert hashed == (Column("a", "hashed text"), Column("b", "hashed number"))


def test_libsvm_has_no_names(tmp_path):
    (tmp_path / "a").write_text("1 1:2\n")
    assert libsvm.source([tmp_path / "a"], "classification", "float32").columns is None


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (None, plain("a"), None),
        (plain("a"), None, None),
        (plain("a", "b"), plain("a", "b"), None),
        (plain("b", "a"), plain("a", "b"), "in another order: b, a; expected: a, b"),
        (plain("a"), plain("a", "b"), "missing: b"),
        (plain("a", "c", "b"), plain("a", "b"), "extra: c"),
        (plain("c", "b"), plain("a", "b"), "missing: a; extra: c"),
        (
            (Column("a", "hashed text"),),
            (Column("a", "hashed number"),),
            "of another kind: a (hashed text, expected hashed number)",
        ),
        (
            (Column("b", "hashed text"), Column("a", "hashed number")),
            (Column("a", "hashed number"), Column("b", "hashed text")),
            None,
        ),
        (plain(*"klmnopqrst"), plain("k"), "extra: l, m, n, o, p, q, r, s, … (9)"),
    ],
)
def test_misfit(found, expected, words):
    assert misfit(found, expected) == words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on ``age,score``, and data in another order, with other columns, and without names."""
    folder = tmp_path_factory.mktemp("columns")
    values = np.random.default_rng(0).standard_normal((60, 2))
    for name, header in (
        ("train", "age,score,label"),
        ("same", "age,score,label"),
        ("order", "score,age,label"),
        ("other", "age,height,label"),
        ("more", "age,score,height,label"),
        ("unnamed", None),
    ):
        table = np.column_stack([values, values[:, :1]]) if name == "more" else values
        rows = [f"{','.join(map(str, row))},{int(row[0] > 0)}" for row in table]
        (folder / f"{name}.csv").write_text("\n".join([header, *rows] if header else rows) + "\n")
        source = csv.source([folder / f"{name}.csv"])
        import_rows(source, folder / name, 0)
    run = driver.create(folder / "run", Settings("logistic"), folder / "train", None)
    driver.train(run, Execution("inline"), 0, Events())
    return folder


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("order", "in another order: score, age; expected: age, score"),
        ("other", "missing: score; extra: height"),
        ("more", "extra: height"),
    ],
)
def test_data_with_other_columns_are_refused(folder, tmp_path, name, words):
    run, data = folder / "run", folder / name
    for command in (
        ["evaluate", run, data],
        ["predict", run, data, tmp_path / "out"],
        ["train", folder / "train", "--run", tmp_path / "run", "--eval", data],
    ):
        done = gradreduce(*command)
        assert done.returncode == 65, done.stderr
        assert words in done.stderr
    assert list(tmp_path.iterdir()) == []
    like = tmp_path / "like"
    standardise(folder / "train", like, "float32", Execution("inline"))
    with pytest.raises(DataError, match="cannot be standardised like") as caught:
        standardise(data, tmp_path / "out", "float32", Execution("inline"), like)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["same", "unnamed"])
def test_data_that_fit_are_taken(folder, tmp_path, name):
    scored = json.loads(succeed("evaluate", folder / "run", folder / name, "--json"))
    assert scored["rows"] == 60
    standardise(folder / "train", tmp_path / "like", "float32", Execution("inline"))
    standardise(folder / name, tmp_path / "out", "float32", Execution("inline"), tmp_path / "like")
    assert Dataset(tmp_path / "out").manifest.columns == Dataset(folder / name).manifest.columns


def test_a_run_of_named_columns_takes_no_hashed_ones(folder, tmp_path):
    """Sparse rows of as many features, that other columns were hashed to."""
    manifest = Dataset(folder / "train").manifest
    hashed = tuple(Column(name, "hashed number") for name in ("age", "score"))
    ignored = shutil.ignore_patterns(MANIFEST)
    shutil.copytree(folder / "train", tmp_path / "hashed", ignore=ignored)
    replace(manifest, columns=hashed).save(tmp_path / "hashed")
    with pytest.raises(DataError, match="of another kind: age"):
        driver.plan(Settings("logistic"), folder / "train", tmp_path / "hashed")


def test_show_tells_the_columns(folder):
    shown = json.loads(succeed("data", "show", folder / "train", "--json"))
    assert shown["columns"] == {"age": "number", "score": "number"}
