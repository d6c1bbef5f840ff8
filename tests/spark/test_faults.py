"""What is killed, what is wrong, and what users have of their own."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import mapreduce
from killing_spark import Killing, Raising, Variables
from mapreduce.errors import UsageError
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runners.spark import contexts, masters
from mapreduce.support import numeric

LINES = ["one two three", "two three", "three"] * 20
COUNTS = {"one": 20, "two": 40, "three": 60}


@pytest.mark.parametrize(("above", "times"), [(0, 2), (2, 2)], ids=["task", "python worker"])
def test_killed_processes_change_nothing(above, times, tmp_path):
    arguments = ["--marks", tmp_path, "--above", above, "--times", times]
    found = mapreduce.run(Killing, lines=LINES, runner="spark", arguments=arguments)
    assert dict(found.pairs) == COUNTS
    assert len([*tmp_path.iterdir()]) == times


def test_a_task_that_always_dies_is_named(tmp_path):
    arguments = ["--marks", tmp_path, "--times", 1000]
    with pytest.raises(TaskFailedException, match=r"failed: its worker was killed 4 times"):
        mapreduce.run(Killing, lines=LINES, runner="spark", arguments=arguments)


def test_an_error_is_the_users_own(capfd, tmp_path):
    numbers = tmp_path / "numbers"
    numbers.write_text("1\ntwo\n")
    errors = {}
    for runner in ("parallel", "spark"):
        capfd.readouterr()
        with pytest.raises(TaskFailedException) as caught:
            mapreduce.run(Raising, numbers, runner=runner)
        errors[runner] = caught.value
        assert "org.apache" not in capfd.readouterr().err
    assert str(errors["spark"]) == str(errors["parallel"])
    assert errors["spark"].exit_code == errors["parallel"].exit_code
    traceback = errors["spark"].error.traceback
    assert "yield int(line), 1" in traceback and "pyspark" not in traceback


def test_a_context_of_the_users_is_used_and_left_running(monkeypatch):
    spark = contexts.get(None, 2).spark
    monkeypatch.setattr(contexts, "_known", [])
    found = mapreduce.run(Killing, lines=LINES, runner="spark", arguments=["--times", 0])
    assert dict(found.pairs) == COUNTS
    (context,) = contexts._known
    assert context.spark is spark and not context.is_ours
    contexts.stop()
    assert spark.parallelize(range(3), 2).sum() == 3


def test_tasks_have_the_environment_of_the_driver(monkeypatch):
    contexts.get(None, 2)
    monkeypatch.setenv("LATE", "1")
    found = mapreduce.run(Variables, lines=["LATE"], runner="spark")
    assert dict(found.pairs) == {"LATE": "1"}


def test_executors_start_with_the_numeric_profile(monkeypatch):
    context = contexts.get(None, 2)
    pins = numeric.environment("native")
    assert {name: context.spark.environment.get(name) for name in pins} == pins
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    with pytest.raises(UsageError, match=r"has the variables .* expected .* OPENBLAS_CORETYPE=Pre"):
        contexts._check(context)


def test_a_python_that_is_not_there_is_named():
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3 in "
        "stage 0.0 (TID 3) (node7 executor 1): java.io.IOException: Cannot run program "
        '"/no/python3": error=2, No such file or directory\n\tat java.base/java.lang\n\t... 20 more'
    )
    expected = 'Cannot run program "/no/python3": error=2, No such file or directory'
    assert contexts.cause(Exception(text)) == expected


def test_an_executor_that_comes_late_refuses_tasks(monkeypatch):
    """Under dynamic allocation, say: nobody has looked at it before."""
    contexts.get(None, 2)
    real = contexts.here(True)._replace(folders=(("/no/folder", True),))
    monkeypatch.setattr("mapreduce.runners.spark.pool.here", lambda is_near: real)
    with pytest.raises(TaskFailedException, match="does not see /no/folder, a folder") as caught:
        mapreduce.run(Killing, lines=LINES, runner="spark", arguments=["--times", 0])
    assert caught.value.exit_code == UsageError.exit_code


def test_several_jobs_at_once():
    def count(words):
        arguments = ["--times", 0]
        found = mapreduce.run(Killing, lines=words, runner="spark", arguments=arguments)
        return dict(found.pairs)

    with ThreadPoolExecutor(2) as threads:
        found = [*threads.map(count, [["a b", "b"], ["c", "c c"]])]
    assert found == [{"a": 1, "b": 2}, {"c": 3}]


def test_a_job_leaves_no_accumulator():
    contexts.get(None, 2)
    from pyspark.accumulators import _accumulatorRegistry

    before = {*_accumulatorRegistry}
    mapreduce.run(Killing, lines=LINES, runner="spark", arguments=["--times", 0])
    assert {*_accumulatorRegistry} <= before


def test_more_workers_than_slots_are_refused_with_both_numbers(monkeypatch):
    # As a context of the user's is: it is not started anew.
    monkeypatch.setattr(contexts, "_known", [contexts.get(None, 2)._replace(is_ours=False)])
    with pytest.raises(UsageError, match=r"--workers: expected at most 2, .* found 3"):
        contexts.get(None, 3)


def test_a_master_elsewhere_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="--spark-master: found 'mesos://host'"):
        masters.parse("mesos://host", None)


def test_executors_that_see_other_folders_are_refused(monkeypatch, tmp_path):
    """As in a container: the driver's folder for temporary files is another one there."""
    context, hidden = contexts.get(None, 2), str(tmp_path / "hidden")
    look = contexts._look
    monkeypatch.setattr(contexts.tempfile, "gettempdir", lambda: hidden)
    (tmp_path / "hidden").mkdir()

    def moved(package, folders):
        return look(package, [one.replace("hidden", "other") for one in folders])

    contexts._check(context)
    monkeypatch.setattr(contexts, "_look", moved)
    with pytest.raises(UsageError) as caught:
        contexts._check(context)
    said = str(caught.value)
    host = socket.gethostname()
    assert f"an executor on {host} does not see {tmp_path}/other/gradreduce-" in said
    assert f"that the driver on {host} has made. Tasks on several machines need a disk" in said


def test_executors_with_another_toolkit_are_refused(monkeypatch):
    context = contexts.get(None, 2)
    monkeypatch.setattr("mapreduce.runners.spark.tasks.code", lambda: "0123")
    with pytest.raises(UsageError, match=r"of other content, expected .* install the same"):
        contexts._check(context)


def test_files_that_a_task_finds_changed_are_named(monkeypatch, tmp_path):
    """As on another machine that has a file of this name, too."""
    context = contexts.get(None, 2)
    (tmp_path / "lines").write_text("one\n")
    far = [context._replace(is_near=False)]
    monkeypatch.setattr(contexts, "_known", far)
    monkeypatch.setattr(type(context), "reach", "")
    monkeypatch.setattr(contexts, "get", lambda *given: far[0])
    arguments = ["--times", 0]
    found = mapreduce.run(Killing, tmp_path / "lines", runner="spark", arguments=arguments)
    assert dict(found.pairs) == {"one": 1}
    monkeypatch.setattr("mapreduce.runners.spark.pool.look", lambda path: [4, 1])
    with pytest.raises(TaskFailedException, match=r"finds another file, or none, at /.* than the"):
        mapreduce.run(Killing, tmp_path / "lines", runner="spark", arguments=arguments)


def test_executors_without_the_packages_are_named(monkeypatch):
    """The task that looks is no function of the toolkit's."""
    context, look = contexts.get(None, 2), contexts._look

    def bare(package, folders):
        task = look(package, folders)

        def run(number):
            import sys

            sys.modules["mapreduce.runners.spark.tasks"] = None
            try:
                return task(number)
            finally:
                del sys.modules["mapreduce.runners.spark.tasks"]

        return run

    monkeypatch.setattr(contexts, "_look", bare)
    with pytest.raises(UsageError) as caught:
        contexts._check(context)
    said = str(caught.value)
    assert f"an executor on {socket.gethostname()} runs {sys.executable}: expected grad" in said
    assert "found import of mapreduce.runners.spark.tasks halted" in said
    assert f"PYSPARK_PYTHON: {sys.executable}" in said


def test_without_pyspark(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError, match=r"pip install 'gradreduce\[spark\]'"):
        contexts.get(None, 2)
