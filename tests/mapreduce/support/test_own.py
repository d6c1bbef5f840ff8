"""Packages of a user's that are called as the toolkit's: each finds its own, in every process."""

import json
import os
import sys

import pytest

import programs
from mapreduce.runners.yarn import shipping
from mapreduce.support import own
from programs import ran
from quick import first_of

COMMAND = [sys.executable, "-P", f"{own.HOME}/mapreduce/cli/gradreduce.py"]
JOB = """\
import importlib
import pickle

from mrjob.job import MRJob

import hdfs_utils
import kernels.mine as mine
import mapreduce
from jobs import word_count
from mapreduce.errors import GradreduceError  # the user has no such module
from mapreduce.job import Job

assert pickle.loads(pickle.dumps(mine.Mine())).value == 3
assert importlib.import_module("kernels.deep").VALUE == 3
assert not issubclass(Job, MRJob)


class Sum(MRJob):
    def mapper(self, _, line):
        import kernels.deep

        three = kernels.deep.VALUE
        yield mapreduce.WHO + hdfs_utils.WHO, mine.Mine.value + word_count.VALUE + three

    def reducer(self, key, values):
        yield key, sum(values)


if __name__ == "__main__":
    Sum.run()
"""
FILES = {
    # Beside the script, without __init__.py: as good as a package, where the toolkit is not.
    "beside/kernels/deep.py": "VALUE = 3",
    "beside/kernels/mine.py": "from . import deep\nfrom kernels.deep import VALUE\n"
    "class Mine:\n    value = VALUE",
    "beside/job.py": JOB,
    "path/mapreduce/__init__.py": "WHO = 'a user'",
    "path/mapreduce/job.py": "class Job: pass",
    "path/hdfs_utils.py": "WHO = '\\'s'",
    "path/jobs/__init__.py": "",
    "path/jobs/word_count.py": "VALUE = 5",
    "path/kernels/__init__.py": "raise AssertionError('what is beside comes first')",
    "text": "a\nb",
}


@pytest.fixture
def run(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "path")}
    return lambda *command, **options: ran(*command, **{"env": env, "cwd": tmp_path} | options)


@pytest.mark.parametrize(
    "options",
    first_of(
        ["run"],
        ["run", "-r", "inline"],
        ["run", "--start-method", "forkserver"],
        ["run", "-r", "local", "--dir", "beside/kernels"],
        ["explain"],
        ["check"],
    ),
)
def test_jobs(run, options):
    command, *options = options
    done = run(*COMMAND, command, "beside/job.py", *options, "text")
    expected = (
        '"a user\'s"\t22\n' if command == "run" else "22" if command == "explain" else "obeys"
    )
    assert done.stdout == expected or (command != "run" and expected in done.stdout), done.stdout


def test_tasks_of_hadoop(run, tmp_path):
    name, content = shipping.archive()
    (tmp_path / name).write_bytes(content)
    task = [sys.executable, name, "Sum", "beside/job.py", "--step-num=0", "--mapper"]
    env = {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "path"), "LOCAL_USER_DIRS": ""}
    assert run(*task, input="a\n", env={**os.environ, **env}).stdout == '"a user\'s"\t11\n'


@pytest.mark.parametrize("first", first_of("mapreduce.job", "kernels.deep"))
def test_notebooks(run, tmp_path, first):
    """The working folder is where Python looks first; tasks work in others."""
    cells = (
        f"import {first}\nfrom mapreduce import run\nfrom mapreduce.job import Job\n"
        "from kernels import deep\n"
        "class Sum(Job):\n    def mapper(self, _, line):\n        import kernels.deep\n"
        "        yield line, kernels.deep.VALUE + deep.VALUE\n"
        "for runner in ('inline', 'parallel'):\n"
        "    print(run(Sum, lines=['a'], runner=runner).pairs)\n"
        "from kernels import dispatch\nprint(dispatch.get('first_non_finite').__name__)"
    )
    env = {**os.environ, "PYTHONPATH": ""}
    done = run(sys.executable, "-c", cells, cwd=tmp_path / "beside", env=env)
    assert done.stdout.splitlines()[:2] == ["[('a', 6)]"] * 2


@pytest.mark.slow
def test_modules_that_a_user_names(run, tmp_path):
    """The user's, or else the toolkit's."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/__init__.py").touch()
    (tmp_path / "jobs/mine.py").write_text(programs.COUNT)
    for module in ("jobs.mine", "jobs.word_count"):
        for method in ("fork", "forkserver"):
            command = [*COMMAND, "run", module, "-q", "--start-method", method, "text"]
            assert {*run(*command, env=os.environ).stdout.splitlines()} == {'"a"\t1', '"b"\t1'}


def test_who_means_what(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/mine.py").touch()
    # Without __init__.py it gives way, as Python would have it.
    (tmp_path / "kernels/dispatch.py").touch()
    mine = f"kernels@{str(tmp_path).replace('.', '%2E')}"
    theirs, ours = {"__file__": f"{tmp_path}/job.py"}, {"__file__": own.__file__}
    cases = [
        ("kernels.mine", theirs, (), f"{mine}.mine"),
        ("kernels.mine", ours, (), "kernels.mine"),
        ("kernels.mine", {"__file__": json.__file__}, (), "kernels.mine"),
        ("kernels.dispatch", theirs, (), "kernels.dispatch"),
        ("kernels", theirs, ["mine"], mine),
        ("kernels", theirs, ["dispatch"], "kernels"),
        ("jobs", theirs, (), "jobs"),
        ("json", theirs, (), "json"),
    ]
    for name, importer, wanted, expected in cases:
        assert own.theirs(name, importer, wanted) == expected
    # Of a script's folder, its own code alone finds what lies there.
    monkeypatch.setattr(own, "_folders", {str(tmp_path)})
    assert own.theirs("kernels.mine", {"__file__": "/elsewhere.py"}) == "kernels.mine"
    assert own.theirs("kernels.mine", theirs) == f"{mine}.mine"
