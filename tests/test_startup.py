"""What is not imported until it is needed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import programs
from quick import cases

ROOT = Path(__file__).parent.parent
# Looking for a module that is not there leaves its own name: pyspark, say.
HEAVY = {"numba.core", "pyarrow.lib", "numpy", "pyspark.sql", "scipy.linalg", "setuptools.dist"}


#: What mrjob imports, or we may, and jobs of lines do not need.
RARE = {"yaml", "urllib.request", "hashlib", "secrets", "difflib", "importlib.resources"}


def imported(*command):
    run = [sys.executable, "-X", "importtime", *map(str, command)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def importing(module):
    return ["-c", f"import {module}"]


@cases(
    "command, more",
    (["-m", "mapreduce.cli.main", "--help"], ["mrjob", "rich"]),
    (["-m", "mapreduce.cli.main", "run", "jobs/word_count.py", "-q", "README.md"], RARE),
    (["-m", "mapreduce.cli.main", "explain", "jobs/word_count.py", "README.md"], ["jinja2"]),
    (["jobs/word_count.py", "-r", "parallel", "-q", "README.md"], RARE),
    (importing("mapreduce.plan.flags"), ["mrjob"]),
    (importing("mapreduce.runs.flags"), ["mrjob"]),
    (importing("mapreduce.runners.emr.traits"), ["mrjob", "boto3"]),
    (importing("mapreduce.job"), RARE),
    (importing("mapreduce.parts"), ["mrjob", "ast"]),
)
def test_light_commands_import_nothing_heavy(command, more):
    found = imported(*command)
    assert "click" in found or "mrjob.runner" in found or "-c" in command
    assert not found & {*HEAVY, *more}


def test_the_test_can_fail():
    found = imported("jobs/word_count_vectorized.py", "-r", "inline", "-q", "README.md")
    assert found >= {"numba.core", "pyarrow.lib", "numpy"}


def test_a_fit_by_a_command_imports_no_scikit_learn(tmp_path):
    """Which takes a second: a user's process has its base classes, and a command needs none."""
    table = tmp_path / "table.csv"
    table.write_text("x,y,label\n" + "".join(f"{n},{n * n % 7},{n % 3}\n" for n in range(30)))
    command = ["mapreduce/cli/gradreduce.py", "train", table, "--label", "label"]
    found = imported(*command, "--model", "ridge", "--run", tmp_path / "run", "-q")
    assert "mapreduce.estimators.base" in found and "sklearn" not in found
    if find_spec("sklearn"):
        assert "sklearn.base" in imported(*importing("mapreduce.estimators.base"))


def test_the_collector_leaves_alone_what_was_imported_and_nothing_of_the_user(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(f"""{programs.COUNT}
import gc

class Mine:
    pass

mine = Mine()
mine.self = mine

if __name__ == "__main__":
    print(gc.isenabled(), gc.get_freeze_count() > 10_000, any(o is mine for o in gc.get_objects()))
    Count.run()
""")
    said = programs.succeed("run", str(job), "-q", "-r", "inline", str(job))
    assert said.splitlines()[0] == "True True True"
