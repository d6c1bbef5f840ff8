"""What is not imported until it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"numba", "pyarrow", "numpy", "pyspark", "scipy", "setuptools"}


def imported(*command):
    run = [sys.executable, "-X", "importtime", *map(str, command)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "mapreduce.cli.main", "--help"],
        ["-m", "mapreduce.cli.main", "run", "jobs/word_count.py", "-q", "README.md"],
        ["jobs/word_count.py", "-r", "parallel", "-q", "README.md"],
    ],
)
def test_light_commands_import_nothing_heavy(command):
    found = imported(*command)
    assert "mapreduce" in found or "word_count" in " ".join(command)
    assert not found & HEAVY


def test_the_test_can_fail():
    assert "numba" in imported("jobs/word_count_vectorized.py", "-r", "inline", "-q", "README.md")
