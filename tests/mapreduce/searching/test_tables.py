"""``gradreduce search`` on the file of a table, which is imported beside the folder."""

import json
from pathlib import Path

import mapreduce

PENGUINS = Path(__file__).parents[2] / "tables" / "penguins.csv"
SPACE = {"model": "mlp:4..32|softmax", "learning_rate": "log:0.001..1", "epochs": "2"}
OPTIONS = [word for name, text in SPACE.items() for word in (f"--{name.replace('_', '-')}", text)]


def found(answer, folder, *options):
    start = "search", PENGUINS, "--run", folder, "--executor", "here", "-q", "--json"
    return json.loads(answer(0, *start, "--label", "species", *OPTIONS, *options).out)


def test_a_file_is_searched_as_in_python(answer, tmp_path):
    ours = found(answer, tmp_path / "ours", "--trials", 3)
    more = {"run": tmp_path / "python", "executor": "here", "progress": False}
    python = mapreduce.search(PENGUINS, label="species", trials=3, **SPACE, **more)
    assert (tmp_path / "ours" / "trials.csv").read_bytes() == (
        python.path / "trials.csv"
    ).read_bytes()
    assert ours["trials"] == 3
    # The same command goes on, with the dataset of before.
    (folder,) = (tmp_path / ".imported").iterdir()
    assert found(answer, tmp_path / "ours", "--trials", 4)["trials"] == 4
    assert [*(tmp_path / ".imported").iterdir()] == [folder]


def test_options_of_files(answer, refused, tmp_path):
    ended = found(answer, tmp_path / "run", "--trials", 1, "--eval", PENGUINS)
    assert ended["accuracy"] > 0
    start = "search", tmp_path, "--run", tmp_path / "other", "--trials", 1
    assert f"{tmp_path} is not a dataset" in refused(66, *start, "--label", "y")
    data = next((tmp_path / ".imported").iterdir())
    said = refused(2, "search", data, *start[2:], "--label", "y")
    assert "--label y: it is for the file of a table" in said
    said = refused(2, "search", PENGUINS, "--run", tmp_path / "other", "--trials", 1)
    assert "no column is called label" in said
    assert not (tmp_path / "other").exists()


def test_rows_without_a_label_are_left_out_as_in_python(answer, tmp_path):
    start = "search", PENGUINS, "--run", tmp_path / "ours", "--executor", "here", "-q"
    options = "--model", "softmax", "--epochs", 1, "--learning-rate", "0.1|1", "--trials", 2
    answer(0, *start, "--label", "sex", "--missing-label", "drop", *options)
    more = {"run": tmp_path / "python", "executor": "here", "progress": False, "trials": 2}
    space = {"model": "softmax", "epochs": 1, "learning_rate": "0.1|1"}
    python = mapreduce.search(PENGUINS, label="sex", missing_label="drop", **space, **more)
    assert python.table.num_rows == 2
    assert (tmp_path / "ours" / "trials.csv").read_bytes() == (
        python.path / "trials.csv"
    ).read_bytes()
