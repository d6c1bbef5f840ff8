"""The streams of this process, which mrjob's inline runner puts aside for each task."""

import contextlib
import logging
import logging.handlers
import sys

import pytest
from mrjob import inline

import mapreduce
from hdfs_utils.errors import StorageError
from mapreduce.job import Job


class Passing(Job):
    def mapper(self, _, line):
        yield line, 1


@contextlib.contextmanager
def never_put_back():
    """As if an interruption came before the first stream is put back."""
    yield
    raise KeyboardInterrupt


def test_an_interruption_while_they_are_put_back(tmp_path, monkeypatch):
    (path := tmp_path / "text").write_text("a\n")
    before = sys.stdin, sys.stdout, sys.stderr
    monkeypatch.setattr(inline, "save_sys_std", never_put_back)
    with (
        pytest.raises(KeyboardInterrupt),
        Passing(["-r", "inline", "--no-conf", str(path)]).make_runner() as runner,
    ):
        runner.run()
    assert (sys.stdin, sys.stdout, sys.stderr) == before
    sys.stderr.write("")


class Prints(Job):
    def mapper(self, _, line):
        print("seen", line)
        yield line, 1


class PrintsWarm(Prints):
    WARM = True


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [Prints, PrintsWarm])
def test_what_is_printed_is_no_record(kind, tmp_path, caplog):
    (path := tmp_path / "text").write_text("a\nb\n")
    with kind(["-r", "inline", "--no-conf", str(path)]).make_runner() as runner:
        runner.run()
        assert sorted(b"".join(runner.cat_output()).splitlines()) == [b'"a"\t1', b'"b"\t1']
    # Once, though both tasks do it.
    (told,) = [each.getMessage() for each in caplog.records if "printed" in each.getMessage()]
    assert told.startswith("a mapper printed to standard output, which on Hadoop would")
    assert told.endswith("It printed:\nseen a")


class Logs(Job):
    def mapper(self, _, line):
        print("reads", line, file=sys.stderr)
        logging.warning("logs %s", line)
        self.increment_counter("lines", "read")
        self.set_status("halfway")
        yield line, 1

    def reducer(self, line, ones):
        sys.stderr.write(f"adds {line}")
        yield line, sum(ones)


class LogsWarm(Logs):
    WARM = True


@pytest.mark.every_case
# Tasks have this file as their script, and no helpers of tests.
@pytest.mark.parametrize(
    ("kind", "runner"),
    [
        *((kind, runner) for kind in (Logs, LogsWarm) for runner in ("inline", "parallel")),
        pytest.param(Logs, "local", marks=pytest.mark.slow),
    ],
)
def test_the_standard_error_of_tasks(kind, runner, tmp_path, monkeypatch):
    handler = logging.handlers.BufferingHandler(100)
    monkeypatch.setattr(logging.getLogger("mrjob.tasks"), "handlers", [handler])
    # As in a program that has set up no log: the first record has a handler made.
    monkeypatch.setattr(logging.root, "handlers", [])
    found = tmp_path / "tasks.log"
    options = ["--task-log", found]
    result = mapreduce.run(kind, lines=["a", "b"], runner=runner, arguments=options)
    assert result.counters[0]["lines"] == {"read": 2}
    assert handler.buffer == logging.root.handlers == []
    text = found.read_text()
    for line in ("reads a", "WARNING:root:logs a", "reads b", "WARNING:root:logs b"):
        assert text.count(f"{line}\n") == 1
    assert text.count("adds a") == text.count("adds b") == 1
    assert "# step 1 of 1, map" in text
    assert "# step 1 of 1, reduce" in text
    assert "reporter:" not in text
    assert "halfway" not in text
    assert "Logging error" not in text
    # As -v does.
    logging.getLogger("mrjob").setLevel(logging.DEBUG)
    mapreduce.run(kind, lines=["a"], runner=runner, arguments=options)
    told = [record.getMessage() for record in handler.buffer]
    assert all(each.startswith("standard error of step 1 of 1, ") for each in told)
    assert [each.partition(":\n")[2] for each in told] == ["reads a\nWARNING:root:logs a", "adds a"]
    # It is added to.
    assert found.read_text().startswith(text)


def test_a_file_that_cannot_be_written_is_told_before_the_job_begins(tmp_path):
    options = ["--task-log", tmp_path / "none" / "tasks.log"]
    with pytest.raises(StorageError, match=r"cannot write .*tasks\.log: No such file"):
        mapreduce.run(Logs, lines=["a"], runner="inline", arguments=options)


def test_what_is_written_before_a_task_fails(tmp_path):
    class Fails(Logs):
        def reducer(self, line, ones):
            sys.stderr.write("at the end")
            raise ValueError(line)

    for runner in ("inline", "parallel"):
        found = tmp_path / runner
        with pytest.raises(Exception, match="a"):
            mapreduce.run(Fails, lines=["a"], runner=runner, arguments=["--task-log", found])
        assert "reads a" in found.read_text()
        assert "at the end" in found.read_text()
