"""A signal ends every command with a word, its exit code, and nothing half-written."""

import os
import signal

import pytest

import datasets
import programs
from mapreduce.rundir import RunDir

pytestmark = pytest.mark.fault


def interrupted(process, number):
    """The message of a command that a signal ends; no traceback, nobody is left."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert "interrupted" in err
    return err


@pytest.fixture
def place(tmp_path):
    """A folder for temporary files, which must be empty in the end, and an environment with it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield {**os.environ, "TMPDIR": str(folder)}
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_import(tmp_path, place, number):
    source = tmp_path / "a.csv"
    source.write_text("0.25,0.5,0.75,1,2,3,4,5,6,7,8,9,1\n" * 1_000_000)
    folder = tmp_path / "out"
    folder.mkdir()
    process = programs.start("data", "import", "--format", "csv", source, folder / "d", env=place)
    programs.wait_until(lambda: process.poll() is not None or any(folder.iterdir()))
    assert "nothing was written" in interrupted(process, number)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("runner", "number"), [("inline", signal.SIGINT), ("local", signal.SIGTERM)]
)
def test_a_training(tmp_path, place, runner, number):
    datasets.blobs(tmp_path / "data")
    run = RunDir(tmp_path / "run")
    options = ["--epochs", 1000, "--workers", 2, "-r", runner, "--batch-size", 32]
    process = programs.start("train", tmp_path / "data", "--run", run.path, *options, env=place)
    programs.wait_until(
        lambda: process.poll() is not None or max(run.complete_rounds(), default=0) > 0, 120
    )
    assert f"gradreduce resume {run.path}" in interrupted(process, number)
    assert list(run.checkpoints.iterdir())


@pytest.mark.parametrize("command", ["predict", "standardise"])
def test_a_job_over_a_dataset(tmp_path, place, command):
    datasets.blobs(tmp_path / "data", (20,) * 300)
    folder = tmp_path / "out"
    folder.mkdir()
    if command == "predict":
        run = tmp_path / "run"
        programs.succeed("train", tmp_path / "data", "--run", run, "--limit-rows", 20)
        arguments = ["predict", run, tmp_path / "data", folder / "p"]
    else:
        arguments = ["data", "standardise", tmp_path / "data", folder / "d"]
    process = programs.start(*arguments, "--workers", 2, env=place)
    programs.wait_until(lambda: process.poll() is not None or any(folder.rglob("*.*")))
    err = interrupted(process, signal.SIGTERM)
    if command == "predict":
        assert "the same command goes on" in err
        assert not (folder / "p" / "_SUCCESS").exists()
        assert "6,000 predictions" in programs.succeed(*arguments)
    else:
        assert list(folder.iterdir()) == []
