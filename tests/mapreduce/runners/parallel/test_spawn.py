"""The process that starts workers, where somebody has stopped it: nobody waits for it forever."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from multiprocessing import connection

import pytest

from mapreduce.errors import GradreduceError, Interrupted
from mapreduce.runners.parallel import spawn
from mapreduce.support import signals
from programs import PATIENCE

#: A driver with a worker that has started a program; it says their numbers, and waits.
DRIVER = """
import sys
from multiprocessing import connection
from mapreduce.runners.parallel import spawn, worker
import os, subprocess

def main(theirs, parent, path):
    from mapreduce.support import parents
    parents.end_with(parent)
    os.setpgid(0, 0)
    print(os.getppid(), os.getpid(), subprocess.Popen(["sleep", "600"]).pid, flush=True)
    theirs.recv_bytes()

worker.main = main
nursery = spawn.Nursery("fork")
ours, theirs = connection.Pipe()
nursery.start(theirs, "")
sys.stdin.read()
"""


@pytest.fixture
def nursery(monkeypatch, tmp_path):
    monkeypatch.setattr(spawn, "_PATIENCE", 0.2)
    made = spawn.Nursery("fork")
    ours, theirs = connection.Pipe()
    made.worker = made.start(theirs, str(tmp_path / "log"))
    yield made
    ours.close()
    theirs.close()
    made.close()


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


def test_the_end_of_a_worker_is_awaited_for_a_while(nursery):
    stop(nursery._pid)
    nursery.worker.kill()
    assert nursery.worker.wait(is_ending=True) == -signal.SIGKILL


def test_it_is_killed_when_it_does_not_end(nursery):
    stop(nursery._pid)
    nursery.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(nursery._pid, 0)


def test_a_signal_ends_the_start_of_a_worker(nursery, tmp_path):
    stop(nursery._pid)
    ours, theirs = connection.Pipe()
    killed = pytest.raises(GradreduceError, match="was killed")
    ending = pytest.raises(Interrupted), signals.interrupting(), signals.deferred(), killed
    with ours, theirs, contextlib.ExitStack() as stack:
        for one in ending:
            stack.enter_context(one)
        os.kill(os.getpid(), signal.SIGTERM)
        nursery.start(theirs, str(tmp_path / "log"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's end")
@pytest.mark.parametrize("stopped", [0, 1, 2])
def test_nothing_outlives_a_killed_driver_where_one_is_stopped(stopped):
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", DRIVER], **given) as driver:
        numbers = [*map(int, driver.stdout.readline().split())]
        ends = [os.pidfd_open(one) for one in numbers]
        os.kill(numbers[stopped], signal.SIGSTOP)
        driver.kill()
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)
