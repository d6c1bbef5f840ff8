"""The lease of a run: one driver at a time.

``lease.json`` holds host, process, the process's start time and the id of the application that runs
on a cluster, if there is one. A lease whose process on this host has ended is stale at once; one
from another host can only be taken over by hand, since nobody here can see that process. The file
is written under a lock; in a filesystem that has none, as HDFS, only one driver can create it.
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import create, replace, storage_errors, temporary_name
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


def holder(run: AnyPath) -> Holder | None:
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
def held(run: AnyPath, *, take_over: bool = False) -> Iterator[Holder | None]:
    """Hold the lease of a run.

    Parameters
    ----------
    run : Path or RemotePath
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
    me = myself()
    if isinstance(run, RemotePath):
        previous = _take_remote(run, me, take_over)
    else:
        previous = _take(run, me, take_over)
    try:
        yield previous
    finally:
        with _locked(run):
            if _is_mine(holder(run), me):
                (run / _FILE).unlink(missing_ok=True)


def note(run: AnyPath, application: str) -> None:
    """Write into this process's lease of a run which application works for it."""
    me = myself()
    with _locked(run):
        if _is_mine(holder(run), me):
            replace(run / _FILE, _encoded(changed(me, application=application)))


def _is_mine(found: Holder | None, me: Holder) -> bool:
    return found is not None and changed(found, application=None) == me


def _take(run: Path, me: Holder, take_over: bool) -> Holder | None:
    with _locked(run):
        previous = holder(run)
        _check_free(run, previous, take_over)
        replace(run / _FILE, _encoded(me))
    return previous


def _check_free(run: AnyPath, previous: Holder | None, take_over: bool) -> None:
    if previous is not None and is_alive(previous):
        remote = previous.host != socket.gethostname()
        if not (remote and take_over):
            raise LeaseError(_refusal(run, previous, remote))


def _encoded(me: Holder) -> bytes:
    return json.dumps(asdict(me)).encode()


def _take_remote(run: RemotePath, me: Holder, take_over: bool) -> Holder | None:
    """Take the lease by creating its file, which only one of several drivers can.

    On S3 both may; then the one whose file was written over withdraws.
    """
    path, previous = run / _FILE, None
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            create(path, _encoded(me), sync=True)
            if path.can_rename or holder(run) == me:
                return previous
        with contextlib.suppress(FileNotFoundError):
            found = path.read_bytes()
            previous = holder(run)
            _check_free(run, previous, take_over)
            _remove(path, found)
    raise LeaseError(
        f"{run} is being taken by several drivers at once. Wait a moment, then run the command "
        f"again"
    )


_ATTEMPTS = 3


def _remove(path: RemotePath, stale: bytes) -> None:
    """Remove a stale lease, but none that somebody has taken meanwhile."""
    if not path.can_rename:
        path.unlink(missing_ok=True)
        return
    aside = temporary_name(path)
    path.rename(aside)
    if aside.read_bytes() != stale:
        # Of another driver, which was faster: it gets it back.
        aside.rename(path)
    else:
        aside.unlink()


@contextlib.contextmanager
def _locked(run: AnyPath) -> Iterator[None]:
    """Nobody else on this machine looks at the lease meanwhile.

    The kernel unlocks when a process ends. Other filesystems have no locks.
    """
    if isinstance(run, RemotePath):
        yield
        return
    with storage_errors("write", run / _LOCK), (run / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refusal(run: AnyPath, other: Holder, remote: bool) -> str:
    if remote:
        return (
            f"{run} is in use by process {other.pid} on {other.host}. If that driver has ended, "
            f"take the run over: gradreduce resume {run} --take-over"
        )
    return (
        f"{run} is in use by process {other.pid} on this machine. Wait for it to end, or stop it: "
        f"kill {other.pid}"
    )
