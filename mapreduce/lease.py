"""The lease of a run: one driver at a time.

``lease.json`` holds host, process, the process's start time and the id of the application that runs
on a cluster, if there is one. A lease whose process on this host has ended is stale at once; one
from another host can only be taken over by hand, since nobody here can see that process.
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdfs_utils.publish import replace, storage_errors
from mapreduce.errors import LeaseError

_FILE, _LOCK = "lease.json", "lease.lock"


@dataclass(frozen=True)
class Holder:
    """Who holds a lease.

    Attributes
    ----------
    host : str
    pid : int
    start_time : int
        When the process started, in clock ticks since the machine did; 0 where that is not known.
        It tells the process from a later one of the same number.
    application : str or None
        Id of the cluster's application.
    """

    host: str
    pid: int
    start_time: int
    application: str | None = None


def myself() -> Holder:
    """This process as a holder."""
    return Holder(socket.gethostname(), os.getpid(), _start_time(os.getpid()))


def _start_time(pid: int) -> int:
    return int(_status(pid)[19])


def _status(pid: int) -> list[str]:
    """Fields of the process's status from the third on; zeros where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ["0"] * 50
    # The second field, the program's name, is in parentheses and may hold spaces.
    return stat.rpartition(")")[2].split()


def holder(run: Path) -> Holder | None:
    """Who holds the lease of a run, dead or alive, or None."""
    try:
        content: dict[str, Any] = json.loads((run / _FILE).read_bytes())
        return Holder(**content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        # Written by no driver: a lease takes its name when it is complete.
        return None


def is_alive(other: Holder) -> bool:
    """Whether a holder still runs; those of other hosts are taken to."""
    if other.host != socket.gethostname():
        return True
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if _status(other.pid)[0] in "ZX":
        # Killed, and only not yet waited for by its parent.
        return False
    return not other.start_time or _start_time(other.pid) == other.start_time


@contextlib.contextmanager
def held(run: Path, *, take_over: bool = False) -> Iterator[Holder | None]:
    """Hold the lease of a run.

    Parameters
    ----------
    run : Path
        The run's folder.
    take_over : bool
        Take the lease from a driver on another host, which the user knows to have ended.

    Yields
    ------
    Holder or None
        The driver that held the lease before and ended without giving it back.

    Raises
    ------
    LeaseError
        Another driver works on the run.
    """
    with _locked(run):
        previous = holder(run)
        if previous is not None and is_alive(previous):
            remote = previous.host != socket.gethostname()
            if not (remote and take_over):
                raise LeaseError(_refusal(run, previous, remote))
        me = myself()
        replace(run / _FILE, json.dumps(asdict(me)).encode())
    try:
        yield previous
    finally:
        with _locked(run):
            if holder(run) == me:
                (run / _FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Nobody else looks at the lease meanwhile. The kernel unlocks when a process ends."""
    with storage_errors("write", run / _LOCK), (run / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refusal(run: Path, other: Holder, remote: bool) -> str:
    if remote:
        return (
            f"{run} is in use by process {other.pid} on {other.host}. If that driver has ended, "
            f"take the run over: gradreduce resume {run} --take-over"
        )
    return (
        f"{run} is in use by process {other.pid} on this machine. Wait for it to end, or stop it: "
        f"kill {other.pid}"
    )
