"""Options of jobs that are called as options of ours."""

import argparse
import shutil

import pytest

from mapreduce.errors import UsageError
from mapreduce.launch.run import run
from mapreduce.mrjob_patches.options import OPTIONS

from mrjob.job import MRJob  # isort: skip


def job_with(flag, **settings):
    class Own(MRJob):
        def configure_args(self):
            super().configure_args()
            self.add_passthru_arg(flag, **{"default": "own", **settings})

        def mapper(self, _, line):
            yield line, getattr(self.options, settings.get("dest", flag[2:].replace("-", "_")))

    return Own


OURS = [flag for option in OPTIONS.values() for flags, _ in option["switches"] for flag in flags]


@pytest.mark.every_case
@pytest.mark.parametrize("flag", OURS)
def test_our_names_are_free(flag):
    job = job_with(flag)(["-r", "inline", flag, "x"])
    name = flag.strip("-").replace("-", "_")
    assert getattr(job.options, name) == "x"
    assert job._non_option_kwargs()["extra_args"] == [flag, "x"]
    assert getattr(job_with(flag)([]).options, name) == "own"


@pytest.mark.parametrize("settings", [{}, {"dest": "memory"}])
def test_what_is_the_jobs_own_does_not_reach_the_runner(settings, write):
    """By its flag, or by the name of its attribute alone: 4 MiB would be refused."""
    flag = "--mem" if settings else "--memory"
    job_class = job_with(flag, type=int, **settings)
    given = [flag, "4", "--workers", "1"]
    assert run(job_class, lines=["a"], arguments=given).pairs == [("a", 4)]
    conf = write("runners: {parallel: {memory: 4}}", "mrjob.conf")
    with pytest.raises(UsageError, match="--memory: expected a number of at least 16, found 4"):
        run(job_class, lines=["a"], arguments=[*given, "-c", conf])


def test_ours_beside_a_name_alone():
    """Where only the attribute has the name, our flag is still there."""
    job = job_with("--mem", dest="memory")(["--memory", "40", "-r", "parallel"])
    assert job.options.memory == "own"
    assert job._runner_kwargs()["memory"] == 40


def test_a_name_in_a_group_of_options():
    class Own(MRJob):
        def configure_args(self):
            super().configure_args()
            self.arg_parser.add_argument_group("own").add_argument("--workers")

    assert Own(["--workers", "x"]).options.workers == "x"


def test_the_help_says_whose_option_it_is(capsys):
    for arguments in ([], ["-r", "parallel"]):
        with pytest.raises(SystemExit):
            job_with("--memory", help="what it is")(["--help", *arguments])
        shown = capsys.readouterr().out
        assert ("what it is" in shown) == (not arguments)
        assert "MiB of memory" not in shown
        last = shown.splitlines()[-1]
        assert last == "--memory is the job's own; the runner's is memory in mrjob.conf"
    with pytest.raises(SystemExit):
        job_with("--other")(["--help"])
    assert "--memory" not in capsys.readouterr().out


def test_other_options_stay_what_they_are():
    with pytest.raises(argparse.ArgumentError, match="conflicting option string: --conf-path"):
        job_with("--conf-path")([])


def test_options_are_read_once(monkeypatch):
    looks, added = [], []
    size, add = shutil.get_terminal_size, argparse.ArgumentParser.add_argument
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *a: looks.append(a) or size(*a))
    monkeypatch.setattr(
        argparse.ArgumentParser, "add_argument", lambda *a, **k: added.append(a) or add(*a, **k)
    )
    job = MRJob(["-r", "inline"])
    number = len(added)
    assert job._runner_kwargs()["extra_args"] == []
    # mrjob has over a hundred, and reads them once more for a job that has one of its own.
    assert number > 100
    assert len(added) == number
    assert len(looks) <= len(OPTIONS) + 10
    job_with("--own")(["-r", "inline", "--own", "x"])._runner_kwargs()
    assert len(added) > 2 * number + 100


def test_the_formatter_of_the_help_is_that_of_the_job():
    class Own(MRJob):
        def configure_args(self):
            self.arg_parser.formatter_class = argparse.RawTextHelpFormatter
            super().configure_args()

    assert Own([]).arg_parser.formatter_class is argparse.RawTextHelpFormatter
    assert MRJob([]).arg_parser.formatter_class is argparse.HelpFormatter
