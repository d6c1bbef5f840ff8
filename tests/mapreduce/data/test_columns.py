"""Names of columns: kept by imports, and compared before a model takes data."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as pa_csv

from builders import trained
from mapreduce.data.columns import misfit
from mapreduce.data.importer import import_rows
from mapreduce.data.manifest import MANIFEST, RECIPE
from mapreduce.data.readers import memory, opening
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution
from mapreduce.tables.standardise import standardise
from programs import fails, succeed
from quick import cases
from reading import source_of

TABLE = "age,colour,score,label\n1,red,4,yes\n2,blue,5,no\n3,red,6.5,yes\n"


def imported(folder, text, **options):
    """The columns that the manifest names."""
    path = folder / "table.csv"
    path.write_text(text)
    import_rows(source_of("csv", [path], **options), folder / "out", 0)
    return Dataset(folder / "out").manifest.columns


def test_columns_are_the_features_in_the_order_of_the_first_file(tmp_path):
    """So a weight's place is that of its column, with ten columns and more, too."""
    names = [f"f{i}" for i in range(11)]
    values = {name: [1.5, 2.5] for name in names} | {"colour": ["red", "blue"], "label": [0, 1]}
    first, second = pa.table(values), pa.table(dict(reversed(values.items())))
    paths = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for path, table in zip(paths, (first, second), strict=True):
        pa_csv.write_csv(table, path)
    pq.write_table(memory.table(first), tmp_path / "a.parquet")
    expected = (*names, "colour=blue", "colour=red", "colour (other)")
    for kind, files in (("csv", paths), ("parquet", [tmp_path / "a.parquet"])):
        import_rows(source_of(kind, files), tmp_path / kind, 0)
        assert Dataset(tmp_path / kind).manifest.columns == expected


def test_columns_of_hashed_csv(tmp_path):
    """What meets in one feature has no name."""
    assert imported(tmp_path, TABLE, hash_bits=5) is None


def test_csv_without_a_header_has_numbers_as_names(tmp_path):
    assert imported(tmp_path, "1,2,0\n3,4,1\n") == ("1", "2")


def test_columns_of_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {"b": [1, 2], "label": [0, 1], "a": ["x", "y"], "c": [[1.0, 2.0], [3.0, 4.0]]}
    pq.write_table(pa.table(columns), path)

    def columns_of(*names):
        source = source_of("parquet", [path], only=names)
        list(source.chunks)
        return source.columns if source.finish is None else source.finish().columns

    assert columns_of("b") == ("b",)
    assert columns_of("c") is None
    assert columns_of("b", "a") == ("b", "a=x", "a=y", "a (other)")


@cases(
    "found, expected, words",
    (None, ("a",), None),
    (("a",), None, None),
    (("a", "b"), ("a", "b"), None),
    (("b", "a"), ("a", "b"), "in another order: b, a; expected: a, b"),
    (("a",), ("a", "b"), "missing: b"),
    (("a", "c", "b"), ("a", "b"), "extra: c"),
    (("c", "b"), ("a", "b"), "missing: a; extra: c"),
    (tuple("klmnopqrst"), ("k",), "extra: l, m, n, o, p, q, r, s, … (9)"),
)
def test_misfit(found, expected, words):
    assert misfit(found, expected) == words


def plain_copy(data, out, **changes):
    """A copy of a dataset that nobody made by a recipe."""
    shutil.copytree(data, out, ignore=shutil.ignore_patterns(MANIFEST, RECIPE))
    replace(Dataset(data).manifest, recipe=None, **changes).save(out)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on ``age,score``, and data in another order, or with other columns.

    ``like same`` and ``like order`` were imported as the training data were; the first of them was
    evaluated by the run ``evaluated``.
    """
    folder = tmp_path_factory.mktemp("columns")
    values = np.random.default_rng(0).standard_normal((60, 2))
    for name in ("train", "same", "order", "other"):
        columns = {"order": "score,age,label", "other": "age,height,label"}
        header = columns.get(name, "age,score,label")
        rows = [f"{','.join(map(str, row))},{int(row[0] > 0)}" for row in values]
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
        source = source_of("csv", [folder / f"{name}.csv"])
        import_rows(source, folder / name, 0)
    train = Dataset(folder / "train").manifest
    fitted = opening.fitted_of(folder / "train", train)
    for name in ("same", "order"):
        source = opening.table([folder / f"{name}.csv"], "csv", fitted.recipe, fitted)
        import_rows(source, folder / f"like {name}", 0, train.classes)
    for name, evaluation in (("run", None), ("evaluated", folder / "like same")):
        plan = Settings("logistic", rounds=1)
        trained(folder / name, folder / "train", plan, evaluation=evaluation)
    return folder


def test_data_with_other_columns_are_refused(folder, tmp_path):
    """By every command that takes data."""
    run, data = folder / "run", folder / "other"
    words = "feature 2: expected 'score', as in .*, found 'height' .missing: score; extra"
    for where, command in (
        (data, ["evaluate", run, data]),
        (f"--data {data}", ["evaluate", folder / "evaluated", "--data", data]),
        (data, ["predict", run, data, tmp_path / "out"]),
        (f"--eval {data}", ["train", folder / "train", "--run", tmp_path / "run", "--eval", data]),
    ):
        said = fails(65, *command)
        found = re.search(rf"^error: {where}: .*{words}.*--like {folder}/train", said, re.M)
        assert found, said
    assert list(tmp_path.iterdir()) == []


def test_moved_data_that_fit_and_are_others(folder):
    data, run = folder / "like order", folder / "evaluated"
    said = fails(65, "evaluate", run, "--data", data)
    assert f"error: --data {data}: expected the evaluation data of the run at" in said
    assert f"leave --data out: gradreduce evaluate {run} '{data}'" in said
    assert succeed("evaluate", run, "--data", folder / "like same")


def test_tables_are_standardised_as_they_are_imported(folder, tmp_path):
    with pytest.raises(
        DataError,
        match="from a table, and the import has standardised the numbers",
    ):
        standardise(folder / "train", tmp_path / "out", "float32", Execution("inline"))
    train = plain_copy(folder / "train", tmp_path / "train")
    standardise(train, tmp_path / "like", "float32", Execution("inline"))
    other = plain_copy(folder / "other", tmp_path / "other")
    with pytest.raises(DataError, match=r"cannot be standardised like .* missing: score; extra"):
        standardise(other, tmp_path / "out", "float32", Execution("inline"), tmp_path / "like")


@pytest.mark.parametrize("name", ["same", "order"])
def test_data_that_fit_are_taken(folder, tmp_path, name):
    scored = json.loads(succeed("evaluate", folder / "run", folder / f"like {name}", "--json"))
    assert scored["rows"] == 60
    plain = plain_copy(folder / f"like {name}", tmp_path / "plain")
    standardise(plain, tmp_path / "like", "float32", Execution("inline"))
    standardise(plain, tmp_path / "out", "float32", Execution("inline"), tmp_path / "like")
    assert Dataset(tmp_path / "out").manifest.columns == Dataset(folder / "train").manifest.columns
