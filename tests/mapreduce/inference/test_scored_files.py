"""Reports on files of tables: those of the dataset that the file would become."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.data.readers import csv, parquet
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from mapreduce.inference import base, raw, report, using
from mapreduce.inference.flags import ReportOptions
from mapreduce.inference.request import Request
from mapreduce.models.fed import Fed
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution

INLINE = Execution("inline")
PARALLEL = Execution("parallel", 2, start_method="fork")
#: By kind: the model, the label and other options.
MODELS = {
    "softmax": ("softmax", "kind", {"weights": "weight"}),
    "logistic": ("logistic", "odd", {}),
    "svm": ("svm", "odd", {"dtype": "float64"}),
    "network": ("mlp:7", "kind", {}),
    "linear": ("linear", "length", {"weights": "weight"}),
    "numbers": ("dense:5,relu", "length", {}),
    "hashed": ("logistic", "odd", {"hash_bits": 12}),
}


def table_of(rows, seed=0, towns=40):
    chance = np.random.default_rng(seed)
    size, town = chance.normal(0, 3, rows).round(3), chance.integers(0, towns, rows)
    label = (size > 0).astype(int) + (town % 3 == 1)
    return pa.table(
        {
            "size": size,
            "town": [f"town {number}" for number in town],
            "kind": [f"kind {number}" for number in label],
            "odd": label % 2,
            "length": size + chance.normal(0, 1, rows).round(3),
            "weight": chance.integers(0, 4, rows),
        }
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of each kind, which has learned from a small table."""
    folder = tmp_path_factory.mktemp("models")
    others = {"kind", "odd", "length", "weight"}
    for name, (model, label, options) in MODELS.items():
        drop = [*(others - {label, options.get("weights")})]
        how = {"label": label, "drop": drop, "run": folder / name, **options}
        mapreduce.train(table_of(300), model, rounds=3, executor="here", progress=False, **how)
    return {name: checkpoint.fitted(RunDir(folder / name)) for name in MODELS}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of a few dozen rows, features of which a few hundred are there at once."""
    monkeypatch.setattr(csv, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(parquet, "_BLOCK_ROWS", 100)
    monkeypatch.setattr(base, "_CHUNK_BYTES", 1 << 12)


def written(table, path):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=230)
    else:
        pyarrow.csv.write_csv(table, path)
    return path


def whole(request, folder):
    """The report on the dataset that a file becomes."""
    request = replace(request, reading={**request.reading, "id": ""})
    raw.make(request, folder, labelled=True)
    return report.report(request.of_dataset(folder, labelled=True))


@pytest.mark.parametrize("name", MODELS)
def test_the_bits_of_the_report_on_a_dataset(models, tmp_path, monkeypatch, name):
    suffix = "parquet" if name in ("svm", "linear") else "csv"
    path = written(table_of(2900, 1), tmp_path / f"new.{suffix}")
    request = Request(models[name], path, INLINE)
    expected = whole(request, tmp_path / "data")
    asked, before = [], Request.of_dataset
    watch = lambda *one, **more: asked.append(more["of_logits"]) or before(*one, **more)  # noqa: E731
    monkeypatch.setattr(Request, "of_dataset", watch)
    for execution in (INLINE, replace(INLINE, executor="here"), PARALLEL):
        found = using.evaluate(replace(request, execution=execution))
        assert repr(found) == repr(expected)
    assert found.rows == 2900 and asked == [True] * 3


class _Watched(tempfile.TemporaryDirectory):
    """Folders that say how large they are at their end."""

    def cleanup(self):
        files = [path for path in Path(self.name).rglob("*") if path.is_file()]
        _Watched.total += sum(path.stat().st_size for path in files)
        super().cleanup()


def test_the_features_of_a_wide_table_are_nowhere(tmp_path, monkeypatch):
    """The file has 80 kB, a dataset of it 8 MB."""
    run, wide = tmp_path / "run", table_of(2000, 2, towns=1000).select(["size", "town", "kind"])
    recipe = {"max_categories": 1000}
    how = {"label": "kind", "recipe": recipe, "rounds": 1, "executor": "here", "progress": False}
    mapreduce.train(wide, "softmax", run=run, **how)
    path = written(wide, tmp_path / "new.csv")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", _Watched)
    request = Request(checkpoint.fitted(RunDir(run)), path, replace(INLINE, executor="here"))
    assert request.fitted.data.features > 800
    used = []
    for importance in (False, True):
        _Watched.total = 0
        using.evaluate(request, ReportOptions(importance=importance, repeats=1))
        used.append(_Watched.total)
    assert used[0] < path.stat().st_size and used[1] > 40 * path.stat().st_size


def test_a_model_whose_rows_are_not_alone_is_evaluated_on_a_dataset(models, tmp_path):
    """As those of earlier versions, and those that another run feeds."""
    path = written(table_of(600, 3), tmp_path / "new.csv")
    fitted = models["softmax"]
    assert fitted.about.of_logits() is not None
    old = replace(fitted, options={**fitted.options, "batch_invariant": False})
    assert old.about.of_logits() is None
    assert Fed(models["network"].about.model, "layers.0", fitted.about.model).of_logits() is None
    request = Request(old, path, INLINE)
    with raw.imported(request, labelled=True, scores=True) as dataset:
        assert not dataset.of_logits
        assert Dataset(dataset.data).manifest.features == fitted.data.features


def test_rows_that_are_left_out_and_that_no_row_counts(models, tmp_path):
    table = table_of(600, 4)
    path = written(table, tmp_path / "new.csv")
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace(table["kind"][2].as_py(), "")
    path.write_text("\n".join(lines))
    request, told = Request(models["network"], path, INLINE), []
    with pytest.raises(DataError, match=r"new\.csv, row 3, column kind: .*missing"):
        using.evaluate(request)
    request = replace(request, reading={"missing_label": "drop"}, warn=told.append)
    assert using.evaluate(request).rows == 599
    assert told == ["rows left out, since labels or fields are missing: 1"]
    none = table.set_column(5, "weight", pa.array([0] * 600))
    path = written(none, tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"none\.csv: all weights are 0, so that no row counts"):
        using.evaluate(Request(models["softmax"], path, INLINE))


def test_notes_and_errors_of_parts_are_those_of_the_file(models, tmp_path):
    table, told = table_of(1500, 5, towns=60), []
    path = written(table, tmp_path / "new.csv")
    request = Request(models["network"], path, INLINE, warn=told.append)
    whole(request, tmp_path / "data")
    expected, told[:] = told[:], []
    using.evaluate(request)
    assert told == expected and "count as other" in told[0]
    kinds = table["kind"].to_pylist()
    kinds[1200] = "kind 9"
    path = written(table.set_column(2, "kind", pa.array(kinds)), tmp_path / "odd.csv")
    with pytest.raises(DataError, match="classes that the training data do not have: 'kind 9'"):
        using.evaluate(replace(request, data=path))
