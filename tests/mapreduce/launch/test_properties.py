"""Misspelt properties of Hadoop's: a question, and never an error."""

import stock_jobs

import mapreduce
from mapreduce.launch.properties import KNOWN, question
from quick import cases


@cases(
    "name, meant",
    ("mapreduce.jobs.reduce", "mapreduce.job.reduces"),
    ("mapreduce.map.memory", "mapreduce.map.memory.mb"),
    ("mapreduce.job.queue", "mapreduce.job.queuename"),
    # An old family with a new name.
    ("mapred.job.reduces", "mapreduce.job.reduces"),
    ("yarn.app.mapreduce.am.resources.mb", "yarn.app.mapreduce.am.resource.mb"),
)
def test_a_name_that_is_nearly_right(name, meant):
    assert question(name) == f"Did you mean {meant}?"


@cases(
    "name",
    *("", "mapreduce", "mapreduce.", "mapreduce..", "mapreduce." + "x" * 5000, "Ö.ü"),
    # A user's own, and some of Hadoop's that are not in the list.
    *("my.job.reduces", "mapreduce.our.threshold", "mapreduce.ifile.readahead"),
    *("mapreduce.map.resource.yarn.io/gpu", "mapreduce.output.textoutputformat.separator"),
)
def test_a_name_that_may_be_right(name):
    assert question(name) == ""


def test_names_that_are_known():
    assert {"mapred.reduce.tasks", "mapreduce.job.reduces", "mapreduce.map.cpu.vcores"} <= KNOWN
    assert not any(map(question, KNOWN))


def test_the_job_runs_and_is_asked_about_it_once(tmp_path, caplog):
    (tmp_path / "words.txt").write_text("a b a\n")
    misspelt = ["--no-conf", "-D", "mapreduce.job.reducess=1"]
    for runner in ("parallel", "inline"):
        found = mapreduce.run(
            stock_jobs.WordCount, tmp_path / "words.txt", runner=runner, arguments=misspelt
        )
        assert dict(found.pairs) == {"a": 2, "b": 1}
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert said == [
        "no property of Hadoop called mapreduce.job.reducess is known here. Did you mean "
        "mapreduce.job.reduces?"
    ]
