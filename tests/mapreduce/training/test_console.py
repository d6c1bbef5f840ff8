"""What a terminal shows of a training's progress."""

import subprocess
import sys
from dataclasses import replace

import pytest

import datasets
from mapreduce.runs.events import RoundCompleted, RunStarted
from mapreduce.training.console import Display, Pace
from programs import gradreduce
from quick import cases, each


def pace(*rounds):
    """After rounds that ended at given seconds, 10 rows each."""
    found = Pace()
    for number, now in enumerate(rounds, 1):
        found.add(now, RoundCompleted(completed=number, rows=10, loss=0.0))
    return found


def test_the_time_left_leaves_out_what_came_before_the_first_round():
    """Compiling takes 100 s, and each round after it 1 s."""
    assert pace(100.0, 101.0, 102.0).words(102.0, 63) == "  10 rows/s  1:00 left"


def test_rounds_of_the_first_burst_are_not_counted():
    """Two rounds are reported at once; then each takes 2 s."""
    assert pace(50.0, 50.01, 52.0, 54.0).words(54.0, 34) == "  5 rows/s  1:00 left"


@pytest.mark.parametrize("ends", [(), (3.0,), (3.0, 3.05)])
def test_nothing_is_guessed_before_a_second_round(ends):
    assert pace(*ends).words(3.05, 100) == ""


@cases(
    "changes, words",
    ({}, ""),
    ({"workers": 1}, ", 1 worker"),
    ({"workers": 2, "executor": "chain"}, ", 2 workers"),
    ({"workers": 2, "executor": "gang"}, ", gang of 2 workers"),
    ({"workers": 4, "executor": "gang", "stages": 2}, ", gang of 4 workers in 2 stages"),
    ({"executor": "gang"}, ", gang"),
)
def test_the_first_line_says_how_rounds_are_run(changes, words, capsys):
    start = RunStarted("run", 0, 5, 128, "parallel", None, model="mlp:3", optimizer="sgd")
    Display(quiet=False)(replace(start, **changes))
    assert (
        capsys.readouterr().err == f"mlp:3 by sgd: 5 rounds of 128 rows; runner parallel{words}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("option", "lines"), each(2, [("--json", 1), ("--quiet", 0)]))
def test_quiet_does_not_mention_compiling(tmp_path, option, lines, monkeypatch):
    """Workers compile too."""
    datasets.blobs(tmp_path / "data")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    command = [sys.executable, "-m", "mapreduce.cli.main", "train", tmp_path / "data", option]
    command += ["--run", tmp_path / "run", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert list((tmp_path / "compiled").rglob("*.nbi"))
    assert done.stderr.count("compiling kernels") == lines
    assert bool(done.stderr) == bool(lines)


EXECUTORS = """
from mapreduce.errors import UsageError
from mapreduce.executors.resumable import Resumable

class Lacking(Resumable):
    name = "lacking"

class Picky(Resumable):
    name = "picky"
    once = go_on = None

    def __init__(self, execution, **more):
        super().__init__(execution, **more)
        if execution.workers != 1:
            raise UsageError(f"--workers {execution.workers}: expected 1")

one = Picky.__new__(Picky)
"""


@pytest.mark.every_case
@cases(
    "name, message",
    ("Picky --workers 1", ""),
    ("Picky --workers 2", "--workers 2: expected 1"),
    ("Lacking", "it lacks the methods go_on, once"),
    ("one", "expected a class, found"),
    ("Pikcy", "has no attribute 'Pikcy'. Did you mean own_executors:Picky?"),
)
def test_a_dry_run_asks_the_executor(name, message, tmp_path, monkeypatch):
    (tmp_path / "own_executors.py").write_text(EXECUTORS)
    monkeypatch.chdir(tmp_path)
    data = datasets.blobs(tmp_path / "data").folder
    name, *more = name.split()
    train = ["train", data, "--run", "run", "--dry-run", "--executor", f"own_executors:{name}"]
    done = gradreduce(*train, *more)
    assert done.returncode == (2 if message else 0)
    assert ("plan sha256" in done.stdout) == (not message)
    assert message in done.stderr
    assert not (tmp_path / "run").exists()
