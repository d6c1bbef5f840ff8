"""Jobs that wrap, replace or close Python's streams in a task: their output is whole."""

import codecs
import io
import os
import sys
from pathlib import Path

import pytest

import mapreduce
from mapreduce.job import Job


class Tee:
    """What people put in the place of a stream: it can do nothing but write."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text):
        return self.stream.write(text)


class Fails(Tee):
    def flush(self):
        raise RuntimeError("nothing is flushed here")


def put(name, make):
    return lambda: setattr(sys, name, make(getattr(sys, name)))


def both():
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


#: What works on every runner.
CHANGES = {
    "codec": put("stdout", lambda stream: codecs.getwriter("utf-8")(stream.buffer)),
    "codec around": put("stdout", codecs.getwriter("utf-8")),
    "wrapper": put("stdout", lambda stream: io.TextIOWrapper(stream.buffer)),
    "wrapper of err": put("stderr", lambda stream: io.TextIOWrapper(stream.buffer)),
    "detached err": put("stderr", lambda stream: io.TextIOWrapper(stream.detach())),
    "tee": put("stdout", Tee),
    "tee of err": put("stderr", Tee),
    "no flush": put("stdout", Fails),
    "none": put("stdout", lambda stream: None),
    "none of err": put("stderr", lambda stream: None),
    "in memory": put("stdout", lambda stream: io.StringIO()),
    "nowhere": both,
    "closed": lambda: sys.stdout.close(),
    "deleted": lambda: delattr(sys, "stdout"),
}
#: What tasks with a process of their own may do.
OWN = {
    "detached": put("stdout", lambda stream: codecs.getwriter("utf-8")(stream.detach())),
    "closed err": lambda: sys.stderr.close(),
    "descriptor 1": lambda: os.close(1),
    "descriptor 2": lambda: os.close(2),
    "first names": lambda: [sys.__stdout__.close(), sys.__stderr__.close()],
    "unbuffered": put("stderr", lambda stream: os.fdopen(stream.fileno(), "w", 1)),
}


class Changes(Job):
    """Does what each record names, counts, and yields."""

    def mapper(self, _, name):
        (CHANGES | OWN)[name.strip()]()
        self.increment_counter("changes", "done")
        yield name.strip(), 1


def counted(result):
    return sorted(result.pairs), result.counters[0]["changes"]["done"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_inline(name):
    assert counted(mapreduce.run(Changes, lines=[name], runner="inline")) == ([(name, 1)], 1)


def test_parallel():
    """A task for each."""
    names = sorted(CHANGES | OWN)
    # Lines of equal length are divided evenly.
    lines = [f"{name:20}" for name in names]
    options = ["--workers", 2, "-D", f"mapreduce.job.maps={len(names)}"]
    found = mapreduce.run(Changes, lines=lines, arguments=options)
    assert counted(found) == ([(name, 1) for name in names], len(names))


@pytest.mark.parametrize("name", ["tee", "wrapper of err", "closed", "closed err"])
def test_explain(name):
    trace = mapreduce.explain(Changes, lines=[name]).trace
    assert trace.failure is None
    (task,) = [task for task in trace.steps[0].maps if task.lines]
    assert len(task.outputs) == 1
    assert task.counters["changes"]["done"] == 1


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_who_closes_what_its_output_needs_is_told_so(name):
    class Closes(Job):
        def mapper(self, _, line):
            getattr(self, name).close()
            self.increment_counter("a", "b")
            yield line, 1

    with pytest.raises(ValueError, match="closed file") as caught:
        mapreduce.run(Closes, lines=["a"], runner="inline")
    assert f"the task has closed sys.{name}, which it needs" in caught.value.__notes__


def test_who_ends_its_process_is_asked_about_that():
    class Ends(Job):
        def mapper(self, _, line):
            os._exit(3)

    with pytest.raises(Exception, match=r"last by exit status 3\. Does it call os\._exit\?"):
        mapreduce.run(Ends, lines=["a"])
