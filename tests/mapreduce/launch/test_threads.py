"""Jobs and trainings in any thread, and in several at once."""

import asyncio
import functools
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mapreduce
import programs
from mapreduce.job import Job
from mapreduce.runners.parallel import pool
from mapreduce.runners.parallel.spawn import Nursery
from mapreduce.support import turns

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


class Count(Job):
    def mapper(self, _, line):
        for word in line.split():
            yield word, 1

    def reducer(self, word, ones):
        yield word, sum(ones)


def count(number, runner, job=Count):
    """Whether a job has counted its own words, and all of them."""
    lines = ["a b a"] * 20 + [str(number)]
    return dict(mapreduce.run(job, lines=lines, runner=runner).pairs) == {
        "a": 40,
        "b": 20,
        str(number): 1,
    }


def state():
    """What belongs to the whole process."""
    tasks = {name: value for name, value in os.environ.items() if name.startswith("mapreduce")}
    level = logging.getLogger("mrjob").level
    return sys.stdin, sys.stdout, sys.stderr, sys.argv, Path.cwd(), level, tasks


@pytest.fixture(autouse=True)
def nothing_has_changed():
    before = state()
    yield
    assert state() == before
    assert not sys.stdout.closed
    assert turns._running == []


@pytest.mark.parametrize("runners", [["parallel"], ["inline"], ["parallel", "inline"]])
def test_jobs_in_threads_of_an_executor(runners, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(programs.COUNT)
    jobs = [Count, Count, str(script)]
    with ThreadPoolExecutor(3) as executor:
        found = [
            executor.submit(count, number, runners[number % len(runners)], jobs[number % 3])
            for number in range(6)
        ]
        assert [one.result() for one in found] == [True] * 6


def test_jobs_beside_an_event_loop():
    async def count_twice():
        return await asyncio.gather(
            asyncio.to_thread(count, 1, "parallel"), asyncio.to_thread(count, 2, "inline")
        )

    assert asyncio.run(count_twice()) == [True, True]


def test_a_task_may_have_an_executor_of_its_own():
    class Own(Count):
        def mapper(self, _, line):
            with ThreadPoolExecutor(2) as executor:
                yield from executor.map(lambda word: (word, 1), line.split())

    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(count, 1, "parallel", Own).result()


@pytest.mark.parametrize("alone", [[True, False], [False, True], [True, True], [False, False]])
def test_who_has_to_be_alone_waits_and_is_waited_for(alone):
    entered = threading.Event()

    def enter():
        with turns.turn(alone[1]):
            entered.set()

    with turns.turn(alone[0]), turns.turn(alone=True):
        # This thread has its turn already.
        pass
    thread = threading.Thread(target=enter)
    with turns.turn(alone[0]):
        thread.start()
        programs.wait_until(lambda: entered.is_set() or bool(turns._turns._waiters))
        assert entered.is_set() == (alone == [False, False])
    thread.join()
    assert entered.is_set()


def test_a_pool_is_its_threads_own():
    with pool.shared(1, "fork", []) as mine:
        assert pool.current(1, "fork") is mine
        with ThreadPoolExecutor(1) as executor:
            assert executor.submit(pool.current, 1, "fork").result() is None


def test_a_pool_closes_before_a_younger_one():
    """The younger one's process has inherited what the older one's looks at."""
    older, younger = Nursery("fork"), Nursery("fork")
    thread = threading.Thread(target=older.close)
    thread.start()
    thread.join(programs.PATIENCE)
    is_closed = not thread.is_alive()
    younger.close()
    thread.join()
    assert is_closed


def test_a_fork_waits_for_no_property_of_another_thread():
    begun, end = threading.Event(), threading.Event()

    class Slow:
        is_slow = False

        @functools.cached_property
        def value(self):
            if self.is_slow:
                begun.set()
                end.wait()
            return 0

    slow = Slow()
    slow.is_slow = True
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    pid = os.fork()
    if not pid:
        signal.alarm(programs.PATIENCE)
        os._exit(Slow().value)
    end.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.slow
def test_trainings_in_threads_are_those_of_one(tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    options = {"runner": "parallel", "executor": "chain", "workers": 1, "rounds": 3}

    def train(number):
        folder = tmp_path / str(number)
        run = mapreduce.train((rows, labels), "softmax", run=folder, progress=False, **options)
        assert (run.predict(rows, runner="parallel") == run.predict(rows)).all()
        return run.model_sha256

    with ThreadPoolExecutor(3) as executor:
        assert len({train(0), *executor.map(train, (1, 2, 3))}) == 1
