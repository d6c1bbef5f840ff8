"""What is not imported until it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Looking for a module that is not there leaves its own name: pyspark, say.
HEAVY = {"numba.core", "pyarrow.lib", "numpy", "pyspark.sql", "scipy.linalg", "setuptools.dist"}


def imported(*command):
    run = [sys.executable, "-X", "importtime", *map(str, command)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def importing(module):
    return ["-c", f"import {module}"]


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["-m", "mapreduce.cli.main", "--help"], ["mrjob", "rich"]),
        (["-m", "mapreduce.cli.main", "run", "jobs/word_count.py", "-q", "README.md"], []),
        (["jobs/word_count.py", "-r", "parallel", "-q", "README.md"], []),
        (importing("mapreduce.plan.flags"), ["mrjob"]),
        (importing("mapreduce.runs.flags"), ["mrjob"]),
        (importing("mapreduce.runners.emr.traits"), ["mrjob", "boto3"]),
        (importing("mapreduce.job"), []),
    ],
)
def test_light_commands_import_nothing_heavy(command, more):
    found = imported(*command)
    assert "click" in found or "mrjob.job" in found or "-c" in command
    assert not found & {*HEAVY, *more}


def test_the_test_can_fail():
    found = imported("jobs/word_count_vectorized.py", "-r", "inline", "-q", "README.md")
    assert found >= {"numba.core", "pyarrow.lib", "numpy"}
