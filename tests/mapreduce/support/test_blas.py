"""The threads of BLAS: one while the toolkit computes, and the user's own afterwards."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import mapreduce
import programs
from builders import blobs_in
from mapreduce.executors.here import Here
from mapreduce.inference.report import Tallies
from mapreduce.inference.request import Request
from mapreduce.runs import checkpoint
from mapreduce.runs.execution import Execution
from mapreduce.support import blas
from mapreduce.support.blas import in_one_thread, limit

data = blobs_in(train=(60,))


def threads():
    """The largest number of threads of the libraries of BLAS here."""
    return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, "blas"):
        assert threads() == 2
        yield


def test_the_last_one_that_leaves_ends_it():
    entered, may_leave = threading.Event(), threading.Event()

    def other():
        with in_one_thread():
            entered.set()
            may_leave.wait(60)

    with in_one_thread():
        assert threads() == 1
        (thread := threading.Thread(target=other)).start()
        entered.wait(60)
    assert threads() == 1
    may_leave.set()
    thread.join()
    assert threads() == 2
    with pytest.raises(ZeroDivisionError), in_one_thread():
        1 / 0  # noqa: B018
    assert threads() == 2


def test_another_thread_has_set_them_before():
    """As a library does that limits its own products."""
    set_, may_leave = threading.Event(), threading.Event()

    def other():
        threadpool_limits(2, "blas")
        set_.set()
        may_leave.wait(60)

    (thread := threading.Thread(target=other)).start()
    set_.wait(60)
    with in_one_thread():
        assert threads() == 1
    assert threads() == 2
    limit()
    assert threads() == 1
    may_leave.set()
    thread.join()


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_a_training_leaves_the_threads_of_its_caller(data, tmp_path, runner):
    seen = []
    run = mapreduce.train(
        data,
        run=tmp_path / "run",
        model="mlp:5",
        rounds=2,
        runner=runner,
        progress=False,
        callbacks=[lambda event: seen.append(threads())],
    )
    assert set(seen) == {1}
    assert threads() == 2
    run.evaluate(data, runner=runner)
    run.predict(np.ones((2, 12), np.float32), runner=runner)
    assert threads() == 2
    opened = mapreduce.open_run(tmp_path / "run")._run
    Here().advance(Tallies.of(Request(checkpoint.fitted(opened), data, Execution("inline"))))
    assert threads() == 2


class Watched:
    """A lock that knows how many have asked for it."""

    def __init__(self):
        self._lock, self.asked = threading.Lock(), 0

    def acquire(self):
        self.asked += 1
        return self._lock.acquire()

    def release(self):
        self._lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_fork_waits_for_who_looks_for_libraries(monkeypatch):
    """The loader's lock, which is held meanwhile, would never be released in the fork."""
    looking, end, lock, codes = threading.Event(), threading.Event(), Watched(), []
    libraries = blas.libraries

    def slow_libraries():
        looking.set()
        end.wait(60)
        looking.clear()
        return libraries()

    def fork():
        pid = os.fork()
        if not pid:
            os._exit(looking.is_set())
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    monkeypatch.setattr(blas, "libraries", slow_libraries)
    monkeypatch.setattr(blas, "_lock", lock)
    threads = [threading.Thread(target=one) for one in (limit, fork)]
    threads[0].start()
    looking.wait(60)
    threads[1].start()
    programs.wait_until(lambda: codes or lock.asked == 2)
    end.set()
    for thread in threads:
        thread.join()
    assert codes == [0]


class Library:
    """A BLAS, as threadpoolctl shows it."""

    def __init__(self, path):
        self.filepath, self.num_threads = path, 4

    def set_num_threads(self, number):
        self.num_threads = number


def test_a_library_that_is_loaded_within_is_looked_for_again(monkeypatch):
    first, second = Library("first"), Library("second")
    loaded = [first]
    monkeypatch.setattr(blas, "libraries", lambda: list(loaded))
    with blas.in_one_thread():
        loaded.append(second)
        assert (first.num_threads, second.num_threads) == (1, 4)
        with blas.in_one_thread():
            assert (first.num_threads, second.num_threads) == (1, 1)
        assert second.num_threads == 1
    assert (first.num_threads, second.num_threads) == (4, 4)
