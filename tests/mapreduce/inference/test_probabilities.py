"""Which class a probability belongs to, and the probability of a class that somebody names."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.cli.main import main
from mapreduce.errors import UsageError

#: Neither in the order of the numbers, nor one that a text file keeps without quotes.
CLASSES = ["10", "2", 'a "b", c', "größer"]
WANTED = ["2", 'a "b", c']


def rows_of(count):
    chance = np.random.default_rng(count)
    places = chance.integers(len(CLASSES), size=count)
    columns = {f"x{at}": (places == at) + chance.normal(0, 0.3, count) for at in range(3)}
    return pa.table({**columns, "kind": [CLASSES[at] for at in places]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on a table, its dataset, and a file to predict."""
    folder = tmp_path_factory.mktemp("probabilities")
    options = {"rounds": 3, "progress": False, "executor": "here"}
    mapreduce.train(rows_of(80), "softmax", label="kind", run=folder / "run", **options)
    mapreduce.train(rows_of(80), "linear", label="x0", run=folder / "numbers", **options)
    pq.write_table(rows_of(40), folder / "new.parquet")
    (made,) = (path for path in (folder / ".imported").iterdir() if has_classes(path))
    made.rename(folder / "data")
    return folder


def has_classes(dataset):
    return json.loads((dataset / "manifest.json").read_text())["classes"] is not None


@pytest.fixture
def predict(folder, tmp_path, pinned):
    """Predicts the file, or the dataset, by a command; returns where the predictions are."""

    def run(command, data, out, *options, code=0):
        words = [command, folder / "run", folder / data, tmp_path / out, *options, "-q"]
        if command == "predict":
            words += ["-r", "inline"]
        assert main([*map(str, words)]) == code
        return tmp_path / out

    return run


def read(path):
    """The columns of a text file."""
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def classes_of(table):
    return json.loads(table.schema.metadata[b"gradreduce.classes"])


@pytest.mark.parametrize(
    ("data", "out"),
    [(data, out) for data in ("new.parquet", "data") for out in ("out", "a.parquet", "a.arrow")],
)
def test_the_metadata_have_the_classes_in_the_order_of_the_probabilities(predict, data, out):
    place = predict("predict", data, out)
    table = pa.ipc.open_file(place).read_all() if out == "a.arrow" else pq.read_table(place)
    classes = classes_of(table)
    assert sorted(classes) == CLASSES
    values = np.array(table["probabilities"].to_pylist())
    assert [classes[at] for at in values.argmax(axis=1)] == table["prediction"].to_pylist()
    assert not [name for name in table.column_names if name.startswith("probability of")]


@pytest.mark.parametrize("data", ["new.parquet", "data"])
def test_the_probability_of_a_class_is_a_column(predict, data, capsys):
    named = [word for name in WANTED for word in ("--probability-of", name)]
    whole = pq.read_table(predict("predict", data, "whole.parquet"))
    values = np.array(whole["probabilities"].to_pylist(), np.float32)
    places = [classes_of(whole).index(name) for name in WANTED]
    columns = [f"probability of {name}" for name in WANTED]
    text = read(predict("predict", data, "a.csv", *named))
    table = pq.read_table(predict("predict", data, "a.parquet", *named))
    parts = predict("predict", data, "out", *named)
    for at, column in zip(places, columns, strict=True):
        assert table[column].to_pylist() == values[:, at].tolist()
        np.testing.assert_array_equal(np.array(text[column], np.float32), values[:, at])
    at = table.column_names.index("probability") + 1
    assert table.column_names[at : at + 3] == [*columns, "probabilities"]
    assert table.drop_columns(columns).equals(whole)
    assert pq.read_table(parts) == table
    # The lists are all that a text file lacks, and without the option it has no other columns.
    assert [*text] == [name for name in table.column_names if name != "probabilities"]
    plain = read(predict("predict", data, "b.csv"))
    assert [*plain] == [name for name in text if name not in columns]
    # Those of other classes are another folder's.
    capsys.readouterr()
    predict("predict", data, "out", "--probability-of", "10", code=73)
    assert "or with other options" in capsys.readouterr().err


def test_a_swarm_writes_the_same(predict):
    options = ("--probability-of", "10")
    for data in ("new.parquet", "data"):
        alone = predict("predict", data, f"{data}-alone", *options)
        swarm = predict("swarm", data, f"{data}-swarm", *options, "--workers", "1")
        for path in alone.iterdir():
            assert (swarm / path.name).read_bytes() == path.read_bytes()


def test_python_takes_one_class_or_several(folder):
    run = mapreduce.open_run(folder / "run")
    expected = run.predict(rows_of(30), probabilities=True)
    for options in ({"here": True}, {"runner": "inline"}):
        table = run.predict(rows_of(30), probability_of=WANTED, **options)
        assert tuple(classes_of(table)) == run.classes
        assert {*table.schema.metadata} == {b"gradreduce.classes"}
        for name in WANTED:
            found = table[f"probability of {name}"].to_numpy()
            np.testing.assert_array_equal(found, expected[:, run.classes.index(name)])


def test_python_gives_an_array_for_an_array(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    options = {"rounds": 2, "progress": False, "executor": "here"}
    run = mapreduce.train((x, y), "softmax", run=tmp_path / "run", **options)
    every = run.predict(x, probabilities=True)
    for more in ({}, {"runner": "inline"}):
        np.testing.assert_array_equal(run.predict(x, probability_of=2, **more), every[:, 2])
        np.testing.assert_array_equal(run.predict(x, probability_of=y[1], **more), every[:, 1])
        found = run.predict(x, probability_of=[2, "0"], **more)
        np.testing.assert_array_equal(found, every[:, [2, 0]])
    with pytest.raises(UsageError, match="probabilities and probability_of: each is an array"):
        run.predict(x, probability_of=2, probabilities=True)


def test_a_class_that_there_is_not(folder, predict, capsys):
    for command in ("predict", "swarm"):
        predict(
            command,
            "new.parquet",
            "a.csv"[: 5 * (command == "predict")] or "out",
            "--probability-of",
            "grösser",
            code=2,
        )
        said = capsys.readouterr().err
        assert "--probability-of grösser: the model has no such class; it has 10, 2, " in said
        assert "Did you mean größer" in said
    with pytest.raises(UsageError, match=r"probability_of=1: .* it predicts numbers"):
        mapreduce.open_run(folder / "numbers").predict(rows_of(3), probability_of=1)
    # Nor may a column that is kept have the name.
    named = rows_of(5).rename_columns(["x0", "x1", "x2", "kind"])
    named = named.append_column("probability of 2", pa.array([1.0] * 5))
    run = mapreduce.open_run(folder / "run")
    with pytest.raises(UsageError, match="predictions have a column of this name themselves"):
        run.predict(named, probability_of="2", keep="probability of 2")
    assert "probability of 2" in run.predict(named, keep="probability of 2").column_names
