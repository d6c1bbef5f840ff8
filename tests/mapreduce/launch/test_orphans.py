"""What a killed driver has left is taken by one process, and only if nothing has changed."""

import json
import logging
import os
import shutil
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hdfs_utils.errors import ClusterError
from mapreduce.errors import DataError, LeaseError, OutputError, UsageError
from mapreduce.launch import jobs, orphans
from mapreduce.launch.orphans import Asked, Left
from mapreduce.launch.report import Report
from mapreduce.runners.hadoop import submissions
from mapreduce.runs import lease
from mapreduce.support import traits
from mapreduce.support.traits import Step
from programs import gradreduce, succeed
from quick import cases

STEPS = (Step("application_1_0001", "step"), Step("application_1_0002", "tmp/out"))


class Runner:
    """What a record asks of the runner ``hadoop``."""

    alias = "hadoop"
    _job_key = "job.me.1"
    _unpublished = None

    def __init__(self, *inputs, output="hdfs://h/out", job="Count", **options):
        self._mrjob_cls = type(job, (), {})
        named = {"local_tmp_dir": None, "py_files": [], "libjars": [], **options}
        self._opts, self._input_paths, self._output_dir = named, inputs, output
        self._hadoop_tmp_dir = str(Path("tmp").absolute())
        self._script_path = "job.py"
        self._working_dir_mgr = SimpleNamespace(paths=lambda: {"job.py"})
        self._dir_to_archive_path = {}
        self.keeper = None

    def _get_steps(self):
        return [{"type": "streaming"}] * 2

    def _has_spark_steps(self):
        return "spark" in self._opts

    def counters(self):
        return [{"own": {"lines": 3}}]

    def going_on(self, left):
        return {"steps": left.steps}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(submissions, "end_left_behind", lambda run: [])
    monkeypatch.chdir(tmp_path)
    logging.getLogger("mrjob").propagate = True
    Path("job.py").write_text("x = 1\n")
    Path("in").mkdir()
    Path("in/a.txt").write_text("a\n")
    Path("other").mkdir()
    Path("other/c.txt").touch()
    Path("in/deep").symlink_to("../other")
    return tmp_path


def dead():
    """A driver that has ended."""
    return replace(lease.myself(), start_time=1)


def left_by(id="20260101-000000-aaaaaa", *, driver=None, arguments=("job.py",), **changed):
    """Leave what a killed driver of a job would have."""
    folder = orphans.jobs() / id
    folder.mkdir(parents=True)
    left = replace(orphans._of(Runner("in"), id), **{"steps": STEPS, **changed})
    asked = Asked(arguments, str(Path.cwd()), driver or dead())
    for name, content in (("job.json", asked), (orphans._LEFT, left)):
        (folder / name).write_text(json.dumps(asdict(content)))
    Report(id, "job.py", "hadoop").write(folder / "report.json")
    return folder


@pytest.mark.parametrize("driver", [None, lease.myself()])
def test_no_job_takes_negative_seconds(folder, monkeypatch, driver):
    """Where the clock was set back."""
    id = left_by(driver=driver).name
    monkeypatch.setattr(time, "time", lambda: 5.0)
    found = jobs.SubmittedJob(id).status()
    assert (found.state, found.seconds) == ("running" if driver else "lost", 0)
    found.end()
    assert found.seconds == 0


def kept(*arguments):
    options = SimpleNamespace(runner="hadoop")
    return orphans.record_job(SimpleNamespace(options=options), ["job.py", *arguments])


def taken(runner=None, *arguments):
    """Steps that the same command takes."""
    with kept(*arguments) as note:
        note.start(runner or Runner("in"))
        return note.taken


def test_the_same_command_takes_what_was_begun_once(folder):
    left_by()
    assert taken() == dict(enumerate(STEPS))
    assert taken() == {}
    assert list(orphans.jobs().iterdir()) == []


def test_a_submitted_job_has_succeeded_then(folder):
    place = left_by()
    (place / "log").touch()
    assert taken() == dict(enumerate(STEPS))
    found = jobs.SubmittedJob(place.name).status()
    assert (found.state, found.exit_code, found.counters) == ("succeeded", 0, Runner().counters())


def test_it_is_on_record_while_the_job_runs(folder):
    with kept() as note:
        note.start(Runner("in"))
        note.begins(0, "step")
        note.submitted("application_1_0001")
        note.begins(1, "out")
        note.publishes()
        left = orphans.read(note.folder, orphans._LEFT, Left)
        assert left.steps == (STEPS[0], Step("", "out"))
        assert left.is_published
        (job,) = jobs.submitted()
        found = job.status()
        assert (found.state, found.runner, found.output) == ("running", "hadoop", "hdfs://h/out")
        assert found.applications == ["application_1_0001"]
        with pytest.raises(UsageError, match="jobs cancel"):
            job.clean()
        with pytest.raises(LeaseError, match="and runs: process"), orphans.wanting(job.id):
            taken()


def test_one_that_was_killed_while_it_adopted_is_adopted(folder):
    """Its record is still that of the first."""
    place = left_by()
    second = left_by("20260102-000000-bbbbbb", marks=(place.name,))
    (place / orphans._LEFT).unlink()
    with kept() as note:
        note.start(Runner("in"))
        assert note.left.marks == (place.name, second.name, note.folder.name)
    assert list(orphans.jobs().iterdir()) == []


def test_one_whose_output_is_in_the_way_stays(folder, caplog):
    place = left_by()

    def going_on(left):
        raise OutputError("hdfs://h/out exists")

    runner = Runner("in")
    runner.going_on = going_on
    with pytest.raises(OutputError):
        taken(runner)
    assert f"jobs adopt {place.name}" in caplog.text
    assert orphans.left_behind() == [place]
    assert taken() == dict(enumerate(STEPS))


def test_one_whose_cluster_falls_silent_can_be_adopted_again(folder):
    left_by()
    with pytest.raises(ClusterError), kept() as note:
        note.start(Runner("in"))
        raise ClusterError("nobody answers")
    (job,) = orphans.left_behind()
    asked = orphans.read(job, "job.json", Asked)
    (job / "job.json").write_text(json.dumps(asdict(replace(asked, driver=dead()))))
    assert taken() == dict(enumerate(STEPS))
    assert list(orphans.jobs().iterdir()) == []


CHANGES = {
    "longer": lambda: Path("in/a.txt").write_text("ab\n"),
    "as long": lambda: os.utime("in/a.txt", ns=(1, 1)),
    "behind a link": lambda: os.utime("other/c.txt", ns=(1, 1)),
    "another file": lambda: Path("in/b.txt").touch(),
    "gone": lambda: Path("in/a.txt").unlink(),
    "all gone": lambda: shutil.rmtree("in"),
    "script": lambda: Path("job.py").write_text("x = 2\n"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_not_adopted_and_named(folder, name, caplog):
    place = left_by()
    CHANGES[name]()
    assert taken() == {}
    changed = {
        "script": "job.py has changed",
        "another file": "in/b.txt has changed: not there, now 0",
        "behind a link": "in/deep/c.txt has changed: 0 bytes",
    }
    said = changed.get(name, "in/a.txt has changed: 2 bytes of 20")
    assert f"{place.name} is not adopted: " in caplog.text
    assert said in caplog.text
    (job,) = jobs.submitted()
    assert said in job.status().cause
    with pytest.raises(DataError, match="is not adopted: "), orphans.wanting(place.name):
        taken()
    assert (place / orphans._LEFT).exists()


@cases(
    "runner, arguments, said",
    (Runner("in", jobconf={"a": 1}), (), "its options have changed"),
    (Runner("in", job="Other"), (), ""),
    (Runner("in", spark=True), (), ""),
    (Runner("in"), ("-D", "a=1"), ""),
)
def test_another_command_adopts_nothing(folder, runner, arguments, said, caplog):
    left_by()
    assert taken(runner, *arguments) == {}
    assert ("is not adopted" in caplog.text) == bool(said)
    assert said in caplog.text


@pytest.mark.parametrize(("output", "is_named"), [("hdfs://h/out", True), ("hdfs://h/o", False)])
def test_what_another_command_left_of_the_same_output_is_named(folder, output, is_named, caplog):
    place = left_by(output=output)
    assert taken(None, "-q") == {}
    assert (f"jobs adopt {place.name}" in caplog.text) == is_named


def test_standard_input_is_not_adopted(folder, caplog):
    left_by(inputs=("-",), files={})
    assert taken(Runner("-")) == {}
    assert "it has read standard input" in caplog.text


def test_one_of_two_that_adopt_at_once_says_that_the_other_does(folder, monkeypatch):
    place = left_by()
    rename = Path.rename

    def later(path, target):
        if path == place / orphans._LEFT:
            rename(path, place / "other")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", later)
    with pytest.raises(LeaseError, match=f"has just adopted or removed job {place.name}"):
        taken()
    assert (place / "other").exists()


@pytest.mark.parametrize("changed", [{}, {"output": "hdfs://h/o2", "marks": ("a", "b")}])
def test_the_same_command_that_runs_is_named(folder, changed):
    """It writes to the same output, or has adopted what could be adopted."""
    place = left_by(driver=lease.myself(), **changed)
    with pytest.raises(LeaseError, match=f"job {place.name} is the same command, and runs") as one:
        taken()
    assert one.value.exit_code == 75


def test_the_same_command_may_run_where_its_output_is_another(folder):
    left_by(driver=lease.myself(), output="hdfs://h/o2")
    assert taken() == {}


def test_a_driver_that_cannot_be_seen_is_asked_about(folder, caplog):
    place = left_by(driver=replace(dead(), host="elsewhere"))
    assert taken() == {}
    assert (
        f"may run on elsewhere. If it does not, gradreduce jobs adopt {place.name}" in caplog.text
    )
    with orphans.wanting(place.name):
        assert taken() == dict(enumerate(STEPS))


def test_a_cluster_that_does_not_answer_leaves_all_as_it_is(folder, caplog):
    place = left_by()
    runner = Runner("in")

    def going_on(left):
        raise ClusterError("nobody answers")

    runner.going_on = going_on
    assert taken(runner) == {}
    assert f"{place.name} is not adopted: nobody answers" in caplog.text
    with pytest.raises(ClusterError), orphans.wanting(place.name):
        taken(runner)
    assert taken() == dict(enumerate(STEPS))


@pytest.mark.parametrize("content", ["{", '{"script": 1}', "[]"])
def test_a_damaged_record_is_named_and_hides_no_other(folder, content, caplog):
    (left_by("20260102-000000-bbbbbb") / orphans._LEFT).write_text(content)
    left_by()
    listed = {job.id: job.status().cause for job in jobs.submitted()}
    assert "left.json is damaged" in listed["20260102-000000-bbbbbb"]
    assert taken() == dict(enumerate(STEPS))
    assert "left.json is damaged" in caplog.text


def test_all_is_removed_at_the_end_but_what_an_error_names(folder):
    for error in (None, ValueError(), OutputError()):
        for name in ("tmp", "tmp/job.me.1", ".out.1.tmp", ".out.1.tmp-again", "out", "steps"):
            Path(name).mkdir(exist_ok=True)
        places = [str(folder / name) for name in ("tmp/job.me.1", ".out.1.tmp")]
        steps = (Step("a", str(folder / "steps")), Step("b", f"{places[1]}-again"))
        left_by(folders=tuple(places), steps=steps, output=str(folder / "out"))
        with pytest.raises(type(error)) if error else nullcontext(), kept() as note:
            note.start(Runner("in", output=str(folder / "out")))
            if error:
                raise error
        names = {path.name for path in folder.iterdir()}
        assert {"out", "steps", "in", "job.py"} <= names
        assert not Path("tmp/job.me.1").exists()
        is_kept = isinstance(error, OutputError)
        assert ({".out.1.tmp", ".out.1.tmp-again"} <= names) == is_kept
        assert list(orphans.jobs().iterdir()) == []


def test_what_is_left_is_removed_once_and_if_need_be_later(folder, monkeypatch):
    Path("tmp").mkdir()
    place = left_by(folders=(str(folder / "tmp"), str(folder / "gone")))

    def nobody(*_):
        raise ClusterError("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(submissions, "end_left_behind", nobody)
        assert gradreduce("jobs", "list").returncode == 0
        with pytest.raises(ClusterError):
            jobs.SubmittedJob(place.name).clean()
    assert taken() == {}
    with pytest.raises(UsageError, match="left nothing to go on with"):
        jobs.SubmittedJob(place.name).adopt()
    assert jobs.SubmittedJob(place.name).clean() == [str(folder / "tmp")]
    assert not Path("tmp").exists()
    assert succeed("jobs", "list") == "no job was submitted\n"


def test_a_state_that_cannot_be_written_is_no_error(folder, caplog):
    Path("state").write_text("")
    with kept() as note:
        assert note is None
    assert "if this driver is killed, its result is lost" in caplog.text


def test_other_runners_keep_no_record(folder):
    assert [name for name in traits.RUNNERS.builtin if traits.of(name).can_adopt] == ["hadoop"]
    Path("count.py").write_text("from mrjob.job import MRJob\n\n\nclass Count(MRJob):\n    pass\n")
    gradreduce("run", "count.py", "-q", "in/a.txt")
    assert not orphans.jobs().exists()
