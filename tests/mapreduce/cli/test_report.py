"""``gradreduce report``: of traces, of runs without one, and of what is neither."""

import json
import shutil

import numpy as np
import pytest

import made_traces
import mapreduce
from mapreduce.cli.main import main
from mapreduce.support import tasks
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
    assert last.endswith("--executor here --trace")
    assert main(["report", str(plain), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"] is None


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_is_neither_run_nor_trace_is_missing(name, tmp_path, capsys):
    assert main(["report", str(tmp_path / name)]) == 66
    assert "no trace" in capsys.readouterr().err


def test_files_are_written_instead(traced, tmp_path, capsys):
    files = [tmp_path / f"a.{name}" for name in ("html", "json", "parquet", "csv")]
    options = zip(("--html", "--chrome", "--parquet", "--csv"), map(str, files), strict=True)
    words = [word for pair in options for word in pair]
    assert main(["report", str(traced), *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: {file.stat().st_size:,} bytes" for file in files
    ]
    assert "Slow worker" in files[0].read_text()
    assert json.loads(files[1].read_text())["traceEvents"]
    assert len(files[3].read_text().splitlines()[0].split(",")) == 7


def test_json_with_a_file_prints_one_object(traced, tmp_path, capsys):
    assert main(["report", str(traced), "--json", "--csv", str(tmp_path / "a.csv")]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"]
    assert (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("option", ["--html", "--chrome", "--parquet", "--csv"])
def test_a_file_that_cannot_be_written_is_an_output(option, traced, tmp_path, capsys):
    place = tmp_path / "missing" / "file"
    assert main(["report", str(traced), option, str(place)]) == 73
    assert str(place) in capsys.readouterr().err


def test_a_file_of_a_run_without_a_trace_is_missing(plain, tmp_path, capsys):
    assert main(["report", str(plain), "--csv", str(tmp_path / "a.csv")]) == 66
    assert "--trace" in capsys.readouterr().err


def test_a_trace_without_rounds_and_tasks_says_so_and_writes_empty_files(tmp_path, capsys):
    with tasks.tracing(tmp_path / "nothing"):
        pass
    assert main(["report", str(tmp_path / "nothing")]) == 0
    first, *rest = [line for line in capsys.readouterr().out.splitlines() if line][1:]
    assert first.startswith("The trace has no rounds and no tasks")
    assert not any("Next" in line or "job" in line for line in rest[1:])
    files = [tmp_path / f"a.{name}" for name in ("html", "json", "parquet", "csv")]
    options = zip(("--html", "--chrome", "--parquet", "--csv"), map(str, files), strict=True)
    words = [word for pair in options for word in pair]
    assert main(["report", str(tmp_path / "nothing"), *words]) == 0
    assert json.loads(files[1].read_text())["traceEvents"] == []
    assert files[3].read_text() == ""
