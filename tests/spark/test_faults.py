"""What is killed, what is wrong, and what users have of their own."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import mapreduce
from killing_spark import Killing, Raising, Variables
from mapreduce.errors import UsageError
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runners.spark import contexts
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


def test_several_jobs_at_once():
    def count(words):
        arguments = ["--times", 0]
        found = mapreduce.run(Killing, lines=words, runner="spark", arguments=arguments)
        return dict(found.pairs)

    with ThreadPoolExecutor(2) as threads:
        found = [*threads.map(count, [["a b", "b"], ["c", "c c"]])]
    assert found == [{"a": 1, "b": 2}, {"c": 3}]


def test_more_workers_than_slots_are_refused_with_both_numbers(monkeypatch):
    # As a context of the user's is: it is not started anew.
    monkeypatch.setattr(contexts, "_known", [contexts.get(None, 2)._replace(is_ours=False)])
    with pytest.raises(UsageError, match=r"--workers: expected at most 2, .* found 3"):
        contexts.get(None, 3)


def test_a_master_elsewhere_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="--spark-master: found 'yarn'"):
        contexts._local_slots("yarn", None)


def test_without_pyspark(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError, match=r"pip install 'gradreduce\[spark\]'"):
        contexts.get(None, 2)
