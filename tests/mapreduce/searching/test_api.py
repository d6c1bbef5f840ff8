"""``mapreduce.search``: the command of a search for Python."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mapreduce
from mapreduce.errors import OutputError, UsageError
from mapreduce.searching.api import Search
from quick import cases


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 400)
    return random.normal(size=(400, 5)).astype(np.float32) + y[:, None], y


@pytest.fixture
def search(rows, tmp_path):
    """Searches in this process, on half of the rows."""
    x, y = rows
    given = {"eval": (x[200:], y[200:]), "progress": False, "executor": "here", "epochs": 2}

    def run(data=(x[:200], y[:200]), name="search", **options):
        return mapreduce.search(data, run=tmp_path / name, **{**given, **options})

    return run


def test_the_call_is_the_command(search, tmp_path, answer):
    found = search(learning_rate="log:0.01..1", model="mlp:4|softmax", trials=4)
    # Also once its package is imported.
    assert callable(mapreduce.search) and isinstance(found, mapreduce.Search)
    shown = json.loads(answer(0, "runs", "show", found.path, "--json").out)
    train, evaluation = shown["config"]["data"], shown["config"]["evaluation"]
    options = "--learning-rate", "log:0.01..1", "--model", "mlp:4|softmax", "--epochs", 2
    folder = "--run", tmp_path / "again", "--executor", "here", "--trials", 4, "--json"
    printed = answer(0, "search", train, "--eval", evaluation, *options, *folder)
    assert json.loads(printed.out)["table_sha256"] == shown["table_sha256"]


def test_what_a_search_returns(search):
    found = search(learning_rate="0.1|0.2", sampler="grid", l2=0.01)
    table = found.table
    assert table.column("trial").to_pylist() == [0, 1]
    assert {*table.column("learning_rate").to_pylist()} == {0.1, 0.2}
    losses = table.column("loss").to_pylist()
    assert table.column("loss").type == pa.float64() and min(losses) > 0
    row = table.slice(losses.index(min(losses)), 1).to_pylist()[0]
    assert found.best.model_sha256 == row["model_sha256"] and "--l2 0.01" in row["command"]
    assert (
        found.best.plan.learning_rate
        == row["learning_rate"]
        == float(found.options["learning_rate"])
    )
    assert repr(found).startswith(f"<Search {found.path}: ended, 2 trials, best trial ")


def test_a_search_is_extended_and_opened_again(search):
    first = search(learning_rate="0.01..1.0", trials=2)
    more = Search(first.path).resume(trials=3, progress=False)
    assert len(more.table) == 3
    assert len(search(learning_rate="0.01..1.0").table) == 32


def test_folds(search, rows):
    x, y = rows
    found = search((x, y), eval=None, folds=3, trials=2, learning_rate="log:0.01..1")
    assert found.folds.column("fold").to_pylist() == [1, 2, 3] * 2
    for row in found.table.to_pylist():
        losses = found.folds.filter(pc.field("trial") == row["trial"]).column("loss").to_pylist()
        assert np.mean(losses) == pytest.approx(row["loss"], rel=1e-12)
    assert found.best.plan.fold is None
    with pytest.raises(UsageError, match="this search has no folds"):
        _ = search(trials=1, name="other").folds


def test_tables_and_models_of_rounds(search, rows):
    x, y = rows
    frame = pa.table({"a": x[:, 0], "b": x[:, 1], "label": [f"c{each}" for each in y]})
    found = search(
        frame.slice(0, 200),
        eval=frame.slice(200),
        optimizer="lbfgs",
        l2="0.01|0.1|1.0",
        sampler="grid",
    )
    assert found.best.predict(frame.drop_columns("label")).column("prediction")[0].as_py()[0] == "c"


@cases(
    "options, message",
    ({"learning_rte": "0.1|0.2"}, "there is no keyword 'learning_rte'. Did you mean learning_rate"),
    ({"learning_rate": "1..0.1"}, 'learning_rate="1..0.1": expected LOW below HIGH'),
    ({"folds": 5}, "folds=5: each part of the data evaluates the models of the others, and"),
    ({"sampler": 3}, "sampler: expected str, found 3"),
    ({"metric": "f1"}, "metric: expected one of loss, accuracy"),
    ({"evaluation": 1}, "eval and evaluation are one keyword"),
    ({"learning_rate": "0.1..0.2", "sampler": "grid"}, 'sampler="grid": expected alternatives'),
    ({"trials": 3, "sampler": "grid"}, "trials=3: expected at most 1, the points of the grid"),
)  # fmt: skip
def test_errors_are_in_the_words_of_python(options, message, search, tmp_path):
    with pytest.raises(UsageError) as raised:
        search(**options)
    assert str(raised.value).startswith(message)
    assert not (tmp_path / "search").exists()


def test_another_search_in_the_folder(search):
    search(trials=1)
    with pytest.raises(OutputError, match="another search: epochs was 2, now 3"):
        search(trials=1, epochs=3)
