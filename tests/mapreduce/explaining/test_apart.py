"""Tasks in processes of their own: none outlives who started it."""

import signal
import subprocess
import sys
import types

import pytest

from mapreduce.explaining import apart
from mapreduce.explaining.apart import ProcessLost, TimeLimitReached, run_apart, time_limit
from programs import PATIENCE, processes_of, wait_until

PROGRAM = """
import sys, time
from mapreduce.explaining.apart import run_apart

def work():
    time.sleep(60)

run_apart(work, 60)
"""


@pytest.mark.fault
def test_a_task_ends_with_its_parent(tmp_path):
    mark = f"apart-{tmp_path.name}"
    command = [sys.executable, "-c", PROGRAM, mark]
    parent = subprocess.Popen(command)
    wait_until(lambda: len(processes_of(mark)) == 2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not processes_of(mark))


def test_a_second_alarm_on_the_way_out_is_none(monkeypatch):
    """As one comes to a process that stood still."""
    before, took_back = signal.getsignal(signal.SIGALRM), signal.setitimer

    def late(which, seconds, *more):
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        took_back(which, seconds, *more)

    # Called from the frame that takes the limit back, as the system's own is.
    monkeypatch.setattr(
        signal,
        "setitimer",
        types.FunctionType(
            late.__code__.replace(co_filename=apart.__file__),
            globals(),
            "late",
            None,
            late.__closure__,
        ),
    )
    with pytest.raises(TimeLimitReached), time_limit(PATIENCE):
        signal.raise_signal(signal.SIGALRM)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_its_time_is_over():
    def endless():
        with time_limit(0.01):
            while True:
                pass

    with pytest.raises(ProcessLost, match=r"TimeLimitReached: it did not end within 0\.01 s"):
        run_apart(endless, PATIENCE)
