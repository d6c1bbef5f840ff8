"""A reader of one's own: its rows give one model from the command and from Python."""

import json
from pathlib import Path

import numpy as np
import pytest

import mapreduce
from mapreduce.data.importer import Rows, Source
from mapreduce.errors import DataError, UsageError
from programs import fails, succeed

READER = '''
import numpy as np
from mapreduce.data.importer import Rows, Source

def source(paths, dtype, seed=7):
    with np.load(paths[0]) as arrays:
        rows = Rows(arrays["x"].astype(dtype), arrays["y"])
    return Source([rows], rows.features.shape[1:], 1.0, 0, {"format": "npz"})

def misspelt(paths, dtyp):
    """No option of the command has this name."""
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_npz.py").write_text(READER)
    random = np.random.default_rng(0)
    x, y = random.standard_normal((90, 4)), random.integers(0, 3, 90)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    return tmp_path


def source(classes=3):
    with np.load("rows.npz") as arrays:
        rows = Rows(arrays["x"].astype("float32"), arrays["y"] % classes)
    return Source([rows], rows.features.shape[1:], 1.0, 0, {"format": "npz"})


def test_from_the_command_and_from_python():
    succeed("data", "import", "--format", "own_npz:source", "rows.npz", "data")
    plan = "--model", "softmax", "--rounds", 3, "-r", "inline", "-q"
    succeed("train", "data", "--eval", "data", "--run", "a", *plan)
    options = {"rounds": 3, "executor": "here", "progress": False}
    run = mapreduce.train(source(), "softmax", eval=source(), run="b", **options)
    assert run.model_sha256 == json.loads(Path("a/result.json").read_text())["model_sha256"]
    assert run.evaluate(source()).accuracy == run.evaluate("data").accuracy
    # The same rows are imported once.
    assert len([*Path(".imported").iterdir()]) == 1
    mapreduce.train(source(2), "softmax", run="c", **options)
    assert len([*Path(".imported").iterdir()]) == 2
    with pytest.raises(DataError, match="classes that the training data do not have: '5'"):
        run.evaluate(Source([Rows(np.zeros((2, 4), "f4"), np.array([0, 5]))], (4,), 1.0, 0, {}))


@pytest.mark.parametrize("name", ["task", "weights", "label", "id", "recipe"])
def test_what_its_rows_do_not_take(name):
    value = {"recipe": {}, "weights": np.ones(90)}.get(name, "classification")
    with pytest.raises(UsageError, match=f"^{name}: it is for "):
        mapreduce.train(source(), "softmax", run="a", progress=False, **{name: value})


def test_a_parameter_that_is_no_option():
    said = fails(2, "data", "import", "--format", "own_npz:misspelt", "rows.npz", "data")
    assert "own_npz:misspelt: its parameter dtyp is no option of gradreduce data" in said
    assert "Did you mean dtype?" in said
