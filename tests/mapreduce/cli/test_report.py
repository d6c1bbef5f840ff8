"""``gradreduce report``: of traces, of runs without one, and of what is neither."""

import json
import shutil

import numpy as np
import pytest

import made_traces
import mapreduce
from mapreduce.cli.main import main
from mapreduce.timing import reading


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run that was not traced."""
    random = np.random.default_rng(1)
    rows, labels = random.random((32, 4)), random.integers(0, 2, 32)
    path = tmp_path_factory.mktemp("plain") / "run"
    mapreduce.train((rows, labels), run=path, model="softmax", rounds=3, executor="here")
    return path


@pytest.fixture
def traced(plain, tmp_path, monkeypatch):
    """A run with the trace of a slow rank."""
    shutil.copytree(plain, tmp_path / "run")
    monkeypatch.setattr(reading, "read", lambda path: made_traces.gang(slow=((1, 4.0),)))
    return tmp_path / "run"


def test_the_sentence_comes_first_and_the_command_last(traced, capsys):
    assert main(["report", str(traced)]) == 0
    first, *_, last = [line for line in capsys.readouterr().out.splitlines() if line][1:]
    assert first.startswith("Slow worker, 4.57 of 12.1 s (38%): rank 1")
    assert last.startswith("  gradreduce train ")
    assert last.endswith("--workers 1")


def test_json_has_all(traced, capsys):
    assert main(["report", str(traced), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["causes"][0]["kind"] == "slow worker"
    (segment,) = content["segments"]
    assert len(segment["load"]) == segment["ranks"] == 2
    assert len(segment["load"][0]) == segment["rounds"] == 400
    assert content["run"]["completed"] == 3


def test_a_run_without_a_trace_says_so_and_how_to_trace_it(plain, capsys):
    assert main(["report", str(plain)]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert "has no trace" in first
    assert last.endswith("--trace")
    assert main(["report", str(plain), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"] is None


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_is_neither_run_nor_trace_is_missing(name, tmp_path, capsys):
    assert main(["report", str(tmp_path / name)]) == 66
    assert "no trace" in capsys.readouterr().err
