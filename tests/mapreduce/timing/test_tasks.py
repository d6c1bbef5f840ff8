"""The tasks of jobs and of chains, from their drivers; and what strangers make of such files."""

import logging
import os
import time

import numpy as np
import pytest

import programs
from builders import CHAIN, HERE, blobs_in
from mapreduce.cli.run import _tracing
from mapreduce.errors import DataError, UsageError
from mapreduce.job import Job
from mapreduce.launch import run
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events, Warned
from mapreduce.runs.execution import Execution
from mapreduce.support import tasks, tracefiles
from mapreduce.support.tasks import DRIVER, TASKS
from mapreduce.timing.reading import _DRIVER, read
from mapreduce.timing.trace import TASK
from mapreduce.training import creating, driver
from programs import fails, succeed

data = blobs_in(train=(40, 40), test=(20,), features=6, classes=3)

COUNT = programs.COUNT


class Words(Job):
    """Counts words, in two steps."""

    def mapper(self, _, line):
        yield from ((word, 1) for word in line.split())

    def reducer(self, word, counts):
        yield word, sum(counts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tasks of two jobs."""
    place = tmp_path_factory.mktemp("jobs")
    files = [place / f"{number}.txt" for number in range(3)]
    for number, path in enumerate(files):
        path.write_text("a b c\n" * (number + 1))
    with tasks.tracing(place / "trace"):
        for _ in range(2):
            run.run(Words, files, runner="parallel", arguments=["--workers", 2])
    # Of nobody.
    run.run(Words, files, runner="parallel", arguments=["--workers", 2])
    return place / "trace"


class Timed(Job):
    """Says when a worker has made it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made = time.monotonic_ns()

    def mapper_final(self):
        yield "made", self.made


def test_a_task_begins_when_the_worker_has_made_the_job(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    with tasks.tracing(tmp_path / "trace"):
        done = run.run(Timed, [tmp_path / "a.txt"], runner="parallel", arguments=["--workers", 1])
    rows = read(tmp_path / "trace").tasks
    (made,) = {value for key, value in done.pairs if key == "made"}
    assert rows["ready"].max() < made <= rows["start"].min()


def test_tasks_of_a_job(folder):
    trace = read(folder)
    assert trace.segments == ()
    assert trace.workers == 2
    rows = trace.tasks
    assert [*np.unique(rows["job"])] == [0, 1]
    for job in range(2):
        mine = rows[rows["job"] == job]
        maps, reduces = (mine[mine["kind"] == kind] for kind in ("map", "reduce"))
        assert sorted(maps["number"]) == [0, 1, 2]
        assert [int(maps["read"][maps["number"] == at][0]) for at in range(3)] == [6, 12, 18]
        assert len(reduces) == 2
        assert maps["written"].sum() == reduces["read"].sum() > 0
        assert maps["stop"].max() <= reduces["ready"].min()
        assert len(np.unique(reduces["ready"])) == len(np.unique(maps["ready"])) == 1
    assert (rows["ready"] <= rows["start"]).all()
    assert (rows["start"] <= rows["stop"]).all()
    assert trace.start <= rows["ready"].min()
    assert rows["stop"].max() <= trace.stop
    assert (rows["cpu"] > 0).all()
    # A worker has one task at a time.
    for worker in range(2):
        its = rows[rows["worker"] == worker]
        assert (its["start"][1:] >= its["stop"][:-1]).all()


def test_a_driver_notes_what_it_does_without_gaps(folder):
    trace = read(folder)
    rows = trace.driver
    assert [*rows["kind"]] == [*["rest", *["plan", "run"] * 2] * 2, "rest"]
    assert (rows["start"][0], rows["stop"][-1]) == (trace.start, rows["stop"].max())
    assert (rows["start"][1:] == rows["stop"][:-1]).all()
    # Workers are other processes.
    assert 0 < rows["cpu"].sum() < trace.stop - trace.start
    # Tasks begin when they have been planned.
    assert {*trace.tasks["ready"]} == {*rows["stop"][rows["kind"] == "plan"]}


def test_a_file_of_the_version_before_is_read(folder, tmp_path):
    (path,) = folder.glob(f"*{TASKS}")
    content = bytearray(path.read_bytes())
    rows = np.frombuffer(content[DRIVER.size :], TASK)
    np.frombuffer(content, _DRIVER, 1)["version"] = 1
    old = rows[np.isin(rows["kind"], ("map", "reduce"))]
    (tmp_path / path.name).write_bytes(content[: DRIVER.size] + old.tobytes())
    assert (read(tmp_path).tasks == read(folder).tasks).all()
    assert not len(read(tmp_path).driver)


def test_a_chain_has_a_job_after_the_other(data, tmp_path):
    chosen = Settings(model="softmax", batch_size=40, slice_rows=10, rounds=4)
    found = []
    for trace in (False, True):
        made = creating.create(tmp_path / str(trace), chosen, data / "train", None)
        how = Execution(**{**CHAIN.to_dict(), "trace": trace})
        found.append(driver.train(made, how, 3, Events()).model_sha256)
    assert found[0] == found[1]
    assert not (tmp_path / "False/timing").exists()
    rows = read(tmp_path / "True").tasks
    assert [*np.unique(rows["job"])] == [0, 1, 2, 3]
    assert (rows["kind"] == "map").sum() == 8


def test_drivers_follow_each_other_without_the_time_between(folder, tmp_path):
    (path,) = folder.glob(f"*{TASKS}")
    head, rows = path.read_bytes()[: DRIVER.size], path.read_bytes()[DRIVER.size :]
    first, again = np.frombuffer(bytearray(head), _DRIVER), np.frombuffer(bytearray(rows), TASK)
    (tmp_path / path.name).write_bytes(path.read_bytes())
    # The machine was started again: an earlier clock, an hour later.
    first["wall"] += 3600 * 10**9
    for name in ("start", "stop"):
        first[name] -= 10**8
    for name in ("ready", "start", "stop"):
        again[name] -= 10**8
    (tmp_path / f"00000000{TASKS}").write_bytes(first.tobytes() + again.tobytes())
    one, both = read(folder), read(tmp_path)
    assert both.start == one.start
    assert both.stop - both.start == 2 * (one.stop - one.start)
    assert len(both.tasks) == 2 * len(one.tasks)
    assert [*np.unique(both.tasks["job"])] == [0, 1, 2, 3]
    later = both.tasks[both.tasks["job"] >= 2]
    assert (later["start"] - one.tasks["start"] == one.stop - one.start).all()


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(folder, tmp_path):
    (path,) = folder.glob(f"*{TASKS}")
    (tmp_path / path.name).write_bytes(path.read_bytes()[: DRIVER.size + 3 * TASK.itemsize + 5])
    trace = read(tmp_path)
    assert (trace.tasks == np.sort(trace.tasks, order="start")).all()
    assert len(trace.tasks) + len(trace.driver) == 3


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("head", "magic", b"GRX", "first bytes"),
        ("head", "version", 9, "has version 9; this program reads version 2"),
        ("head", "workers", 1 << 30, "workers: expected"),
        ("head", "workers", 1, "row ., worker 1: expected less than 1"),
        ("head", "wall", -1, "times: expected"),
        ("row", "kind", "<b>", "row 1, kind: expected map or reduce"),
        ("row", "ready", 3, "row 1, ready 3: expected"),
        ("row", "start", 3, "row 1, start 3: expected"),
        ("row", "stop", 1 << 62, "row 1, stop"),
        ("row", "cpu", -1, "row 1, cpu -1"),
        ("row", "read", 1 << 60, "row 1, read"),
        ("row", "records", -2, "row 1, records -2: expected -1 to"),
    ],
)
def test_a_damaged_file_says_where(folder, tmp_path, part, name, value, message):
    (path,) = folder.glob(f"*{TASKS}")
    content = bytearray(path.read_bytes())
    head, rows = np.frombuffer(content, _DRIVER, 1), np.frombuffer(content, TASK, -1, DRIVER.size)
    (head if part == "head" else rows[1:2])[name] = value
    (tmp_path / path.name).write_bytes(content)
    with pytest.raises(DataError, match=f"{path.name}.*{message}"):
        read(tmp_path)


def test_a_full_disk_ends_the_trace_and_not_the_training(data, tmp_path, monkeypatch, caplog):
    write = os.pwrite

    def full(file, text, at):
        return write(file, text[:-1] if at else text, at)

    monkeypatch.setattr(tracefiles.os, "pwrite", full)
    chosen = Settings(model="softmax", batch_size=40, slice_rows=10, rounds=2)
    made = creating.create(tmp_path / "run", chosen, data / "train", None)
    events = []
    how = Execution(**{**CHAIN.to_dict(), "trace": True})
    with caplog.at_level(logging.ERROR, "mrjob"):
        assert driver.train(made, how, 3, Events(events.append)).completed == 2
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert warned.count("the trace is not whole: No space left on device") == 1, warned
    assert not len(read(made.path).tasks)


def test_a_folder_that_cannot_be_made_ends_the_trace_and_not_the_training(data, tmp_path):
    chosen = Settings(model="softmax", batch_size=40, slice_rows=10, rounds=2)
    made = creating.create(tmp_path / "run", chosen, data / "train", None)
    (made.path / "timing").touch()
    events = []
    how = Execution(**{**CHAIN.to_dict(), "trace": True})
    assert driver.train(made, how, 3, Events(events.append)).completed == 2
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert [one for one in warned if "there will be no trace: cannot create" in one], warned


def test_a_trace_needs_a_disk(tmp_path):
    from hdfs_utils.paths import path_of

    how = Execution("inline", trace=True)
    how.check_trace(tmp_path)
    HERE.check_trace(path_of("hdfs://name:1/runs/a"))
    with pytest.raises(
        UsageError, match=r"--trace: expected a run on a disk .* hdfs://name:1/runs/a"
    ):
        how.check_trace(path_of("hdfs://name:1/runs/a"))


def test_a_full_disk_is_a_warning_of_the_command(tmp_path, monkeypatch, capsys):
    """Also where the job is quiet."""
    with _tracing(tmp_path / "full"):
        monkeypatch.setattr(tracefiles.os, "pwrite", lambda file, content, at: 0)
    monkeypatch.undo()
    said = capsys.readouterr().err
    assert "the trace is not whole: No space left on device" in said
    assert "has no tasks" not in said


def test_the_command_line(tmp_path):
    (tmp_path / "count.py").write_text(COUNT + '\n\nif __name__ == "__main__":\n    Count.run()\n')
    (tmp_path / "in.txt").write_text("to be or not to be\n")
    job = (tmp_path / "count.py", tmp_path / "in.txt", "-q")
    out = succeed("run", "--trace", tmp_path / "timed", *job)
    assert '"be"\t2\n' in out
    assert {*read(tmp_path / "timed").tasks["kind"]} == {"map", "reduce"}
    done = programs.gradreduce("run", "--trace", tmp_path / "nothing", *job, "-r", "inline")
    assert done.returncode == 0
    assert done.stderr.count("nothing has no tasks: only -r parallel and -r hadoop tell") == 1
    assert "found --submit" in fails(2, "run", "--submit", "--trace", tmp_path / "no", *job)
    assert "found hdfs://a:1/b" in fails(2, "run", "--trace", "hdfs://a:1/b", *job)
    (tmp_path / "file").touch()
    assert "cannot create" in fails(73, "run", "--trace", tmp_path / "file" / "in", *job)
