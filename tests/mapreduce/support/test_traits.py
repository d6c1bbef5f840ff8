"""What runners say that they can do, and a runner of an installed package."""

import json
import os
import sys

import pytest

import datasets
import programs
from mapreduce.errors import UsageError
from mapreduce.runs import flags
from mapreduce.support import traits
from mapreduce.support.traits import RUNNERS

OWN = '''\
"""A runner of one's own: another worker pool, say, with a bound of its own."""

from mapreduce.runners.parallel.runner import ParallelMRJobRunner
from mapreduce.runners.parallel.traits import PARALLEL
from dataclasses import replace


class Careful(ParallelMRJobRunner):
    alias = "careful"


TRAITS = replace(PARALLEL, runner="careful:Careful", most_workers=3)
'''


@pytest.fixture
def installed(tmp_path):
    (tmp_path / "careful.py").write_text(OWN)
    programs.install(tmp_path, "careful", "gradreduce.runners", "careful", "careful:TRAITS")
    datasets.blobs(tmp_path / "train")
    return tmp_path


def command(folder, *arguments):
    return programs.ran(
        sys.executable,
        "-m",
        "mapreduce.cli.main",
        *map(str, arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )


@pytest.mark.slow
def test_an_installed_package_adds_a_runner(installed):
    made = []
    for runner in ("careful", "inline"):
        how = ["--run", runner, "--rounds", 2, "--batch-size", 96, "--json", "-q"]
        done = command(installed, "train", "train", *how, "-r", runner)
        assert done.returncode == 0, done.stderr
        made.append(json.loads(done.stdout)["model_sha256"])
    assert made[0] == made[1]
    refused = command(installed, "train", "train", "--run", "x", "-r", "careful", "--workers", 4)
    assert (refused.returncode, "positive number up to 3" in refused.stderr) == (2, True)
    again = command(installed, "resume", "careful")
    assert (again.returncode, "-r careful" in again.stderr) == (2, True)
    (installed / "text").write_text("a b a\n")
    job = os.path.abspath("jobs/word_count.py")  # noqa: PTH100
    done = command(installed, "run", job, "-r", "careful", "text")
    assert sorted(done.stdout.split("\n")) == ["", '"a"\t2', '"b"\t1'], done.stderr


def test_a_runner_that_cannot_be_imported(installed):
    path = installed / "careful.py"
    path.write_text(path.read_text().replace("careful:Careful", "careful:Missing"))
    done = command(installed, "train", "train", "--run", "x", "-r", "careful")
    assert (done.returncode, "careful:Missing cannot be imported" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", [*RUNNERS])
def test_every_runner_has_traits(name):
    assert isinstance(RUNNERS.find(name), traits.Traits)
    is_cluster = not traits.of(name).is_here
    assert traits.is_harmless(name) is not is_cluster
    assert traits.of(name).shares_files or is_cluster
    assert traits.of(name).most_workers == (99_999 if is_cluster else 1024)


def test_of_other_runners_nothing_is_known():
    assert traits.of("dataproc") == traits.Traits()
    assert not traits.is_harmless("dataproc")
    with pytest.raises(UsageError, match="--runner: expected one of inline, parallel, local"):
        flags.execution({"runner": "dataproc"})


def test_what_was_left_is_ended_by_whom_it_is_of(monkeypatch):
    asked = []
    for name in ("hadoop", "emr"):
        kind = type(traits.of(name))
        monkeypatch.setattr(
            kind, "end_left_behind", lambda self, *given: asked.append((type(self), *given)) or []
        )
    hadoop, emr = (type(traits.of(name)) for name in ("hadoop", "emr"))
    traits.end_left_behind("parallel", "run", "application_1_1")
    traits.end_left_behind("hadoop", "run", "j-1")
    traits.end_left_behind("hadoop", "run", None)
    assert traits.end_left_behind("parallel", "run", None) == []
    assert asked == [(hadoop, "run", "application_1_1"), (emr, "run", "j-1"), (hadoop, "run", None)]
