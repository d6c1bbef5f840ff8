"""One driver at a time: locks, leases that are stale, and drivers that have lost theirs."""

import dataclasses
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import datasets
import gangs
from builders import HERE
from hdfs_utils.publish import replace
from mapreduce.errors import LeaseError
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint, lease
from mapreduce.runs.events import CheckpointSaved, Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from programs import PATIENCE, fails

#: Holds a lease until it is killed; a new process namespace gives it numbers of its own.
HOLDER = """
import sys, time
from pathlib import Path
from mapreduce.runs import lease
with lease.hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""

ENDED = 2**22 + 1


@pytest.fixture
def run(tmp_path):
    datasets.blobs(tmp_path / "train")
    settings = Settings("softmax", batch_size=96, rounds=6, checkpoint_every=2)
    return creating.create(tmp_path / "run", settings, tmp_path / "train", None)


def write(run, **changes):
    content = {**vars(lease.myself()), "pid": ENDED, **changes}
    replace(run.path / "lease.json", json.dumps(content).encode())


def train(run, *subscribers, **options):
    return driver.train(run, HERE, 0, Events(*subscribers), **options)


def without_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture
def contained(run):
    """A driver in a container of its own, whose numbers of processes mean nothing here."""
    program = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*program, "true"], check=False).returncode
    ):
        pytest.skip("needs the permission to make a namespace of processes")
    process = subprocess.Popen(
        [*program, sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def end(contained):
    """Kill a driver in a container; it has ended a moment after who has started it."""
    (child,) = gangs.children(contained.pid)
    ended = os.pidfd_open(child)
    contained.kill()
    contained.wait()
    assert select.select([ended], [], [], PATIENCE)[0]
    os.close(ended)


def test_a_process_is_known_by_its_start_and_dead_when_it_has_ended():
    me = lease.myself()
    assert lease.is_alive(me)
    assert not lease.is_alive(dataclasses.replace(me, start_time=me.start_time + 1))
    child = subprocess.Popen(["true"])
    # Nobody has waited for it yet, so that its number is still taken.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    started = lease._start_time(child.pid)
    assert started >= me.start_time
    assert not lease.is_alive(dataclasses.replace(me, pid=child.pid, start_time=started))
    child.wait()


@pytest.mark.slow
def test_a_driver_in_another_container_is_not_disturbed(run, contained):
    theirs = lease.holder(run.path)
    assert theirs.host == lease.myself().host
    assert theirs.namespace != lease.myself().namespace
    assert lease.is_alive(theirs)
    for options in ([], ["--take-over"]):
        said = fails(75, "resume", run.path, *options)
        assert f"in use by process {theirs.pid} on {theirs.host}, in another" in said
        assert "Wait for it to end, or stop it where it runs" in said
    assert lease.holder(run.path) == theirs
    assert run.summary()["state"] == "running"
    end(contained)
    # It would hold the lock if it lived.
    ended = []
    train(run, ended.append)
    assert ended[-1].completed == 6


def test_without_locks_a_container_is_taken_over_by_hand_only(run, contained, monkeypatch):
    theirs = lease.holder(run.path)
    without_locks(monkeypatch)
    with pytest.raises(LeaseError, match="run --take-over"):
        train(run)
    assert lease.holder(run.path) == theirs
    train(run, take_over=True)
    assert lease.holder(run.path) is None


def test_without_locks_a_driver_that_has_ended_is_replaced(run, monkeypatch):
    without_locks(monkeypatch)
    write(run, application="application_1")
    with lease.hold(run.path) as previous:
        assert previous.application == "application_1"
        with pytest.raises(LeaseError, match="in use by process"), lease.hold(run.path):
            pass
    assert lease.holder(run.path) is None


@pytest.mark.parametrize("changes", [{"boot": "another"}, {"namespace": "pid:[1]"}])
def test_a_lease_from_before_a_restart(run, monkeypatch, changes):
    """A driver of this host that lives has the lock; without locks that is not known."""
    write(run, **changes)
    with monkeypatch.context() as patch:
        without_locks(patch)
        with pytest.raises(LeaseError, match=r"before a restart\..*run --take-over"):
            train(run)
    state = "stopped" if "boot" in changes else "running"
    assert run.summary()["state"] == state
    train(run)


def test_fields_of_a_later_version_do_not_make_a_lease_none(run):
    write(run, pid=os.getpid(), color="blue")
    with pytest.raises(LeaseError, match=f"in use by process {os.getpid()} on this machine"):
        train(run)
    # The process is another one that got its number.
    write(run, pid=os.getpid(), start_time=1, color="blue")
    train(run)


WRONG = [
    json.dumps({"host": "a", "pid": 1, "start_time": 1, name: value}).encode()
    for name, value in (
        *(("pid", wrong) for wrong in ("1", 1 << 70, -1, 1.0)),
        *(("host", 3), ("start_time", "a"), ("boot", 3), ("application", [1])),
    )
]


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"[]", b'{"host": "a"}', *WRONG])
def test_a_lease_that_cannot_be_read_is_taken_over_by_hand(run, content):
    replace(run.path / "lease.json", content)
    assert "in use by another driver. If that driver has ended" in fails(75, "resume", run.path)
    train(run, take_over=True)


def test_the_lock_outlives_neither_the_driver_nor_its_end(run):
    with lease.hold(run.path):
        other = subprocess.run(
            [sys.executable, "-c", HOLDER, run.path], capture_output=True, text=True, check=False
        )
        assert "in use by process" in other.stderr
        pid = os.fork()
        if not pid:
            signal.pause()
            os._exit(0)
    with lease.hold(run.path):
        pass
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def test_workers_of_a_killed_driver_are_waited_for(run, monkeypatch):
    """They hold its lock until they have ended, which may take them seconds."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        with lease.hold(run.path):
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    os.waitpid(pid, 0)
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    os.close(reader)

    def sleep(seconds, sleep=time.sleep):
        if clock.now == 5:
            os.close(writer)
        clock.now = min(clock.now + 5, 10)
        sleep(seconds)

    clock.sleep = sleep
    monkeypatch.setattr(lease, "time", clock)
    with lease.hold(run.path) as before:
        assert before.pid == pid


# A driver whose lease was taken from it


@pytest.mark.parametrize("executor", ["chain", "gang"])
@pytest.mark.parametrize("loss", ["taken", "removed"])
def test_a_driver_that_lost_its_lease_stops_and_deletes_nothing(run, executor, loss):
    """As one whose host stood still, while the run was taken over by hand."""

    def lose(event):
        if isinstance(event, CheckpointSaved) and event.completed == 2:
            if loss == "taken":
                write(run, host="elsewhere")
            else:
                (run.path / "lease.json").unlink()
            (run.rounds.folder / "00000009.00000-of-00001.block").write_bytes(b"theirs")
            (run.path / "gang").mkdir(exist_ok=True)
            (run.path / "gang/theirs").touch()

    execution = Execution("inline", executor=executor, workers=1, rounds_per_job=2)
    with pytest.raises(LeaseError, match="deletes nothing"):
        driver.train(run, execution, 1, Events(lose))
    assert checkpoint.saved_rounds(run) == [2]
    assert run.read_json("result.json") is None
    assert (run.rounds.folder / "00000009.00000-of-00001.block").exists()
    assert (run.path / "gang/theirs").exists()
    assert (lease.holder(run.path) is not None) == (loss == "taken")
    (run.rounds.folder / "00000009.00000-of-00001.block").unlink()
    assert train(run, take_over=True).completed == 6


def test_rounds_are_not_looked_at_for_the_lease(run, monkeypatch):
    """It is read before a publication of the driver's, not in every round."""
    seen, rounds = [], []
    plain = lease.holder
    monkeypatch.setattr(lease, "holder", lambda run: seen.append(1) or plain(run))
    train(run, lambda event: rounds.append(event) if isinstance(event, RoundCompleted) else None)
    assert len(rounds) == 6
    assert len(seen) < 40
