"""An interruption ends the work, whoever catches exceptions in between, and is one alone."""

import contextlib
import os
import signal
import time

import pytest

from hdfs_utils.errors import StorageError
from jobs.word_count import WordCount
from mapreduce import signals
from mapreduce.errors import Interrupted

NUMBERS = pytest.mark.parametrize("number", signals.NUMBERS)


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def swallowed(number):
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), number)
        work(1)


def handlers():
    return [signal.getsignal(each) for each in (*signals.NUMBERS, signal.SIGALRM)]


@NUMBERS
def test_what_was_swallowed_is_raised_again(number):
    before = handlers()
    with pytest.raises(Interrupted) as caught, signals.interrupting():
        swallowed(number)
        swallowed(signal.SIGINT)
        work(60)
    assert caught.value.exit_code == 128 + number
    assert handlers() == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_alarm_of_others_stays():
    def theirs(_number, _frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, theirs)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000, 2000)
        with pytest.raises(Interrupted), signals.interrupting():
            swallowed(signal.SIGINT)
            work(60)
        assert signal.getsignal(signal.SIGALRM) is theirs
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left <= 1000
        assert interval == 2000
    finally:
        signal.signal(signal.SIGALRM, before)


@NUMBERS
def test_cleaning_up_is_not_cut_off(number):
    done = []
    with pytest.raises(Interrupted), signals.interrupting():
        try:
            swallowed(number)
            work(60)
        except Interrupted:
            for each in signals.NUMBERS:
                os.kill(os.getpid(), each)
            with contextlib.suppress(ValueError):
                int("no number")
            work(0.5)
            done.append("except")
            raise
        finally:
            work(0.5)
            done.append("finally")
    assert done == ["except", "finally"]


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


@pytest.mark.parametrize("default", [[], ["ALL"]])
def test_files_of_an_interrupted_job_are_deleted_once(default):
    job = WordCount(["-r", "inline", "--no-conf", __file__])
    deleted = []
    with (
        pytest.raises(Interrupted),
        job.make_runner() as runner,
        signals.cleaned_up(runner, job),
    ):
        # As it is for some runners.
        runner._opts["cleanup_on_failure"] = default
        runner._cleanup_hadoop_tmp = lambda: deleted.append("once")
        raise Interrupted(signal.SIGINT)
    assert deleted == ["once"]
