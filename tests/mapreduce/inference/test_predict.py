"""Predictions in the order of the source, whatever the import did to it."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from mapreduce.data import shards
from mapreduce.data.importer import import_rows
from mapreduce.data.shards import Dataset
from mapreduce.errors import OutputError
from mapreduce.inference import outputs
from mapreduce.inference.predict import Predict, predict
from mapreduce.inference.request import Request
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from reading import source_of

ROWS = 700
INLINE = Execution("inline")


def write_csv(path, values):
    lines = [f"{a},{b},{'yes' if a > b else 'no'}" for a, b in values.tolist()]
    path.write_text("\n".join(["a,b,label", *lines[:100], "", *lines[100:]]) + "\n")
    return path


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(3).standard_normal((ROWS, 2)).round(3)


@pytest.fixture(scope="module")
def folder(values, tmp_path_factory):
    """Two files as one dataset, in shards of some number of rows; and a run."""
    folder = tmp_path_factory.mktemp("predict")
    files = [write_csv(folder / "a.csv", values[:400]), write_csv(folder / "b.csv", values[400:])]
    for name, rows, seed in (("one", 10**6, 0), ("many", 64, 5)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "ROW_UNIT", min(rows, 2048))
            patch.setattr(shards, "BATCH_BYTES", 8)
            patch.setattr(shards, "SHARD_BYTES", rows * 8)
            import_rows(source_of("csv", files), folder / name, seed)
    run = creating.create(folder / "run", Settings("logistic", epochs=1), folder / "many", None)
    driver.train(run, Execution("inline", executor="here"), 0, Events())
    return folder


def predicted(folder, name, out, execution=INLINE, run=None):
    model = checkpoint.fitted(RunDir(run or folder / "run"))
    assert predict(Request(model, folder / name, execution, out)) == ROWS
    return [pq.read_table(path) for path in sorted(out.glob("part-*.parquet"))]


@pytest.mark.parametrize("name", ["one", "many"])
def test_predictions_are_in_the_order_of_the_source(folder, values, tmp_path, name):
    tables = predicted(folder, name, tmp_path / "out")
    assert len(tables) == len(Dataset(folder / name).manifest.shards)
    rows = [row for table in tables for row in table.to_pylist()]
    assert [row["row"] for row in rows] == [*range(ROWS)]
    assert [row["label"] for row in rows] == ["yes" if a > b else "no" for a, b in values]
    right = np.mean([row["label"] == row["prediction"] for row in rows])
    assert right > 0.9


def test_labels_are_those_of_the_file_and_predictions_the_model_s(folder, values, tmp_path):
    file = write_csv(tmp_path / "other.csv", values)
    other = {"yes": "no", "no": "yes"}
    file.write_text(re.sub("yes|no", lambda found: other[found[0]], file.read_text()))
    import_rows(source_of("csv", [file]), tmp_path / "data", 0)
    (table,) = predicted(tmp_path, "data", tmp_path / "out", run=folder / "run")
    rows = table.to_pylist()
    assert [row["label"] for row in rows] == ["no" if a > b else "yes" for a, b in values]
    best = [("no", "yes")[int(np.argmax(row["probabilities"]))] for row in rows]
    assert [row["prediction"] for row in rows] == best
    assert all(row["probability"] == max(row["probabilities"]) for row in rows)
    assert np.mean([row["label"] == row["prediction"] for row in rows]) < 0.1


def test_the_files_are_the_same_for_any_number_of_workers(folder, tmp_path):
    contents = []
    for number, execution in enumerate(
        [INLINE, Execution("parallel", 1), Execution("parallel", 2)]
    ):
        predicted(folder, "many", tmp_path / str(number), execution)
        parts = sorted((tmp_path / str(number)).iterdir())
        contents.append([(path.name, path.read_bytes()) for path in parts])
    assert contents[0] == contents[1] == contents[2]
    assert [name for name, _ in contents[0] if not name.startswith("part-")] == [
        "_SUCCESS",
        "_prediction.json",
    ]


def test_many_shards_share_parts(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "MOST_PARTS", 3)
    tables = predicted(folder, "many", tmp_path / "out")
    assert [table.num_rows for table in tables] == [256, 256, 188]
    assert [row for table in tables for row in table["row"].to_pylist()] == [*range(ROWS)]


def test_what_is_complete_is_left_alone(folder, tmp_path, monkeypatch):
    before = predicted(folder, "many", tmp_path / "out")
    monkeypatch.setattr(Predict, "map", None)
    assert predicted(folder, "many", tmp_path / "out") == before


@pytest.mark.parametrize("name", ["other", "part-00000.parquet"])
def test_nothing_is_written_through_a_link(folder, tmp_path, name):
    predicted(folder, "one", tmp_path / "out")
    for path in (tmp_path / "out" / "_SUCCESS", tmp_path / "out" / "part-00000.parquet"):
        path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (tmp_path / "out" / name).symlink_to(elsewhere)
    with pytest.raises(OutputError, match=f"{name} is a symbolic link.*Name another folder"):
        predicted(folder, "one", tmp_path / "out")
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]
    # The folder itself may be one.
    (tmp_path / "out" / name).unlink()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert sum(table.num_rows for table in predicted(folder, "one", tmp_path / "link")) == ROWS
