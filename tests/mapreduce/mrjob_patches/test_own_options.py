"""Options of jobs that are called as options of ours."""

import argparse

import pytest

import mapreduce.job  # noqa: F401  (teaches mrjob our options)

from mrjob.job import MRJob  # isort: skip


def job_with(flag):
    class Own(MRJob):
        def configure_args(self):
            super().configure_args()
            self.add_passthru_arg(flag, default="own")

        def mapper(self, _, line):
            yield line, 1

    return Own


@pytest.mark.parametrize("flag", ["--dry-run", "--price-per-hour"])
def test_names_that_only_emr_needs_are_free(flag):
    job = job_with(flag)(["-r", "inline", flag, "x"])
    name = flag.strip("-").replace("-", "_")
    assert getattr(job.options, name) == "x"
    assert job._non_option_kwargs()["extra_args"] == [flag, "x"]
    assert getattr(job_with(flag)([]).options, name) == "own"


def test_other_options_stay_what_they_are():
    with pytest.raises(argparse.ArgumentError, match="conflicting option string: --conf-path"):
        job_with("--conf-path")([])
