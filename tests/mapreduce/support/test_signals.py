"""A signal is one interruption, after which a process cleans up and ends."""

import contextlib
import ctypes
import gc
import math
import os
import signal
import sys
import threading
import time

import pytest

from hdfs_utils.errors import StorageError
from jobs.word_count import WordCount
from mapreduce.errors import Interrupted
from mapreduce.support import signals
from quick import cases

NUMBERS = pytest.mark.parametrize("number", signals.NUMBERS)


@pytest.fixture(autouse=True)
def _no_second_signal(monkeypatch):
    """However late another signal comes, it is an echo of the first: else it ends this process."""
    monkeypatch.setattr(signals, "_ECHO_SECONDS", math.inf)


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def handlers():
    return [signal.getsignal(each) for each in signals.NUMBERS]


@NUMBERS
def test_a_signal_interrupts_once_and_leaves_nothing(number):
    before = handlers()
    with pytest.raises(Interrupted) as caught, signals.interrupting():
        try:
            os.kill(os.getpid(), number)
            work(60)
        finally:
            for each in signals.NUMBERS:
                os.kill(os.getpid(), each)
            work(0.1)
    assert caught.value.exit_code == 128 + number
    assert handlers() == before


def test_within_itself_it_does_nothing():
    with pytest.raises(Interrupted), signals.interrupting():
        with signals.interrupting():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        work(60)


@NUMBERS
def test_a_deferred_signal_waits_though_other_threads_may_get_it(number):
    over, done = threading.Event(), []
    other = threading.Thread(target=over.wait, args=[60])
    other.start()
    try:
        with pytest.raises(Interrupted) as caught, signals.interrupting():
            with signals.deferred():
                with signals.deferred():
                    for each in (number, *signals.NUMBERS):
                        os.kill(os.getpid(), each)
                    work(0.2)
                    done.append("inner")
                work(0.2)
                done.append("outer")
            done.append("after")
    finally:
        over.set()
        other.join()
    assert caught.value.exit_code == 128 + number
    assert done == ["inner", "outer"]


def _closed(act):
    class Closed:
        def __del__(self):
            act()

    Closed()


def _asked(act):
    class Asked:
        @property
        def name(self):
            act()

    # As compiled packages ask for what an object may not have: it clears any error.
    ctypes.pythonapi.PyObject_HasAttrString(ctypes.py_object(Asked()), b"name")


def _caught(act):
    with contextlib.suppress(BaseException):
        act()


_ACTS = []


def _printed(act):
    _ACTS.append(act)
    # As NumPy's `import_array` prints what the import raised.
    ctypes.pythonapi.PyRun_SimpleString(f"import {__name__} as it; it._ACTS.pop()()".encode())


@NUMBERS
@pytest.mark.parametrize("seconds", [signals._AGAIN_SECONDS, 0.0])
@pytest.mark.parametrize("swallow", [_closed, _asked, _caught, _printed])
def test_an_interruption_that_is_swallowed_is_raised_again(
    number, seconds, swallow, monkeypatch, capfd
):
    # Without a delay the signal comes while Python still handles what it has swallowed.
    monkeypatch.setattr(signals, "_AGAIN_SECONDS", seconds)

    def act():
        os.kill(os.getpid(), number)
        work(0.1)
        done.append("not reached")

    done = []
    with pytest.raises(Interrupted) as caught, signals.interrupting():
        swallow(act)
        work(60)
    assert caught.value.exit_code == 128 + number
    assert done == []
    assert capfd.readouterr().err == ""


def test_another_error_that_python_swallows_is_told_as_ever(monkeypatch):
    class Failing:
        def __del__(self):
            int("no number")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(sys, "excepthook", lambda *error: told.append(error[1]))
    with signals.interrupting():
        Failing()
        ctypes.pythonapi.PyRun_SimpleString(b"{}['missing']")
    assert [type(each) for each in (told[0].exc_value, told[1])] == [ValueError, KeyError]


def test_what_is_half_made_fails_unseen(monkeypatch):
    class Half:
        def __init__(self):
            os.kill(os.getpid(), signal.SIGINT)
            work(60)
            self.name = ""

        def __del__(self):
            told.append(self.name)

    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    with pytest.raises(Interrupted) as caught, signals.interrupting():
        try:
            Half()
        except Interrupted as error:
            raise ValueError from error
    del caught
    gc.collect()
    assert told == []


@pytest.mark.parametrize("name", ["unraisablehook", "excepthook"])
def test_a_hook_that_a_job_sets_stays(name, monkeypatch):
    before = getattr(sys, name)
    monkeypatch.setattr(sys, name, before)
    with signals.interrupting():
        pass
    assert getattr(sys, name) is before
    with signals.interrupting():
        setattr(sys, name, print)
    assert getattr(sys, name) is print


def test_an_interruption_takes_the_place_of_an_error_of_what_defers_it():
    with pytest.raises(Interrupted) as caught, signals.interrupting(), signals.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        int("no number")
    assert isinstance(caught.value.__context__, ValueError)


def test_another_thread_defers_nothing():
    inside, over = threading.Event(), threading.Event()

    def defer():
        with signals.deferred():
            inside.set()
            over.wait(60)

    other = threading.Thread(target=defer)
    other.start()
    try:
        inside.wait(60)
        with pytest.raises(Interrupted), signals.interrupting():
            os.kill(os.getpid(), signal.SIGINT)
            work(60)
    finally:
        over.set()
        other.join()


def test_an_error_that_it_led_to_is_none():
    with pytest.raises(Interrupted) as caught, signals.interrupting():
        begun = []
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            work(60)
            begun.append(True)
        finally:
            begun.pop()
    assert isinstance(caught.value.__cause__, IndexError)


def test_an_error_of_the_disk_is_told():
    with pytest.raises(StorageError, match="full"), signals.interrupting():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            work(60)
        except Interrupted as error:
            raise StorageError("full") from error


def test_other_errors_stay_what_they_are():
    with pytest.raises(ValueError, match="no number"), signals.interrupting():
        int("no number")


def test_nothing_is_left_where_nothing_came():
    before = handlers()
    with signals.interrupting():
        assert handlers()[:2] != before[:2]
    assert handlers() == before


@cases(
    "error, asked, default, expected",
    (Interrupted(signal.SIGINT), None, [], ["all"]),
    # Some runners delete after failures too.
    (Interrupted(signal.SIGINT), None, ["ALL"], ["all"]),
    (ValueError("no number"), None, ["ALL"], ["all"]),
    (Interrupted(signal.SIGINT), ["NONE"], ["NONE"], []),
)
def test_files_of_a_job_that_ended_early_are_deleted_once(error, asked, default, expected):
    """Unless the user keeps them after failures."""
    job = WordCount(["-r", "inline", "--no-conf", __file__])
    runner, deleted = job.make_runner(), []
    runner._cleanup_hadoop_tmp = lambda: deleted.append("all")
    runner._opts["cleanup_on_failure"] = default
    if asked:
        job.options.cleanup_on_failure = asked
    with pytest.raises(type(error)), signals.closing(lambda: runner, job):
        raise error
    assert deleted == expected


def test_a_runner_whose_making_was_interrupted_is_none():
    def make():
        raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted), signals.closing(make, WordCount(["--no-conf", __file__])):
        pass


@NUMBERS
def test_a_fork_ends_by_a_signal_however_early(number):
    reader, writer = os.pipe()
    forks = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with signals.interrupting():
        for _ in range(20):
            fork = os.fork()
            if fork == 0:
                os.close(writer)
                # One that has lost its signal reads to the end.
                os.read(reader, 1)
                os._exit(0)
            os.kill(fork, number)
            forks.append(fork)
    os.close(writer)
    os.close(reader)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) for fork in forks]
    assert set(statuses) == {-number}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
