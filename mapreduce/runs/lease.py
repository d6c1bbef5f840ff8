"""The lease of a run: one driver at a time.

``lease.json`` says who works on the run. Where the filesystem has locks, a driver also holds
``lease.lock`` for as long as it lives, and another one is refused, from any container. Without the
lock, a lease is stale at once if its process has ended, which can be seen if host, boot and
namespace are this process's own; so is any lease with this host's name, whose driver would hold the
lock. Any other lease can only be taken over by hand, since its process cannot be seen from here. In
a filesystem without locks, such as HDFS, only one driver can create the file; on S3 too if boto3 is
installed.

A driver reads its lease before it publishes or deletes (:func:`check`), and stops if it has lost
the lease.
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from dataclasses import replace as changed
from pathlib import Path

from hdfs_utils import conditional
from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import create, replace
from mapreduce.errors import LeaseError
from mapreduce.support.commands import resume
from mapreduce.support.jsonfiles import build

_FILE, _LOCK = "lease.json", "lease.lock"


@dataclass(frozen=True)
class Holder:
    """Who holds a lease.

    ``start_time`` is when the process started, in clock ticks since the machine did, which tells it
    from a later process of the same number; 0 if unknown. ``boot`` and ``namespace`` are ids of the
    host's last start and of the namespace of process numbers; None if unknown.
    """

    host: str
    pid: int
    start_time: int
    application: str | None = None
    boot: str | None = None
    namespace: str | None = None


#: The holder of a lease that is damaged, or that a later version wrote in another way.
_UNKNOWN = Holder("", 0, 0)


def myself(pid: int = 0) -> Holder:
    """This process, or a child of it, as a holder."""
    pid, boot, namespace = pid or os.getpid(), None, None
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return Holder(socket.gethostname(), pid, _start_time(pid), None, boot, namespace)


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


def files(run: AnyPath) -> list[AnyPath]:
    """The files that a lease has in a folder."""
    return [run / _FILE, run / _LOCK]


def holder(run: AnyPath) -> Holder | None:
    """Who holds the lease of a run, dead or alive, or None."""
    content = _read(run)
    return None if content is None else _decoded(content)


def _read(run: AnyPath) -> bytes | None:
    try:
        return (run / _FILE).read_bytes()
    except FileNotFoundError:
        return None


def _decoded(content: bytes) -> Holder:
    """The holder that a lease names; unknown fields are left out."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        found = dict(json.loads(content))
        known = {field.name: found.get(field.name) for field in fields(Holder)}
        holder = build(Holder, known)
        if holder.host and 0 < holder.pid < 1 << 31 and holder.start_time >= 0:
            return holder
    return _UNKNOWN


def is_alive(other: Holder) -> bool:
    """Whether a holder still runs, or may run where its process cannot be seen from here."""
    if not is_visible(other):
        me = myself()
        return other.host != me.host or other.boot in (None, me.boot)
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if _status(other.pid)[0] in "ZX":
        # Killed, but its parent has not waited for it yet.
        return False
    return not other.start_time or _start_time(other.pid) == other.start_time


def is_held(run: AnyPath) -> bool:
    """Whether the lease of a run has a holder that is alive."""
    known = holder(run)
    return known is not None and is_alive(known)


def is_visible(other: Holder) -> bool:
    """Whether a holder is a process that this one sees, if it is alive."""
    me = myself()
    same = (other.boot in (None, me.boot), other.namespace in (None, me.namespace))
    return other.host == me.host and all(same)


@contextlib.contextmanager
def hold(run: AnyPath, *, take_over: bool = False) -> Iterator[Holder | None]:
    """Hold the lease of a run's folder.

    Yields the driver that held the lease before and ended without giving it back, if one did. With
    ``take_over`` it is taken from a driver on another host, which the user knows to have ended.
    Raises LeaseError (another driver works on the run).
    """
    me = myself()
    with _locked(run) as is_locked:
        previous = _take(run, me, take_over, is_locked)
        _HELD[str(run)] = me, _encoded(me)
        try:
            yield previous
        finally:
            del _HELD[str(run)]
            if _is_mine(holder(run), me):
                (run / _FILE).unlink(missing_ok=True)


#: The runs that this process works on: the holder that it is for each, and its lease's content.
_HELD: dict[str, tuple[Holder, bytes]] = {}


def check(run: AnyPath) -> None:
    """Stop a driver that lost its lease, by a LeaseError, before it publishes or deletes."""
    me, mine = _HELD.get(str(run), (None, b""))
    if me is None or me.pid != os.getpid() or (content := _read(run)) == mine:
        return
    other = None if content is None else _decoded(content)
    if _is_mine(other, me):
        return
    by = "was removed" if other is None else "is another driver's"
    again = f"continue with '{resume(run)}'" if _is_run(run) else "start it again"
    raise LeaseError(
        f"the lease of {run} {by}: this driver stops here, and deletes nothing. When no driver "
        f"works on it any more, {again}"
    )


def _is_run(folder: AnyPath) -> bool:
    """Whether a folder is one of a run, which a command resumes."""
    return any((folder / name).exists() for name in ("run.json", "fit.json", "search.json"))


def note(run: AnyPath, application: str) -> None:
    """Note in this process's lease of a run which application works for it."""
    me = myself()
    if _is_mine(holder(run), me):
        replace(run / _FILE, _encoded(changed(me, application=application)))


def _is_mine(found: Holder | None, me: Holder) -> bool:
    return found is not None and changed(found, application=None) == me


def _check_free(run: AnyPath, previous: Holder, take_over: bool, is_locked: bool) -> None:
    # If a driver of this host were alive, it would hold the lock that this process holds. Without
    # a time of its start, the number may be another process's by now.
    is_known = is_visible(previous) and previous.start_time
    if is_locked and previous.host == myself().host and not is_known:
        return
    if is_alive(previous) if is_visible(previous) else not take_over:
        raise LeaseError(_refusal(run, previous))


def _encoded(me: Holder) -> bytes:
    return json.dumps(asdict(me)).encode()


def _take(run: AnyPath, me: Holder, take_over: bool, is_locked: bool) -> Holder | None:
    """Take the lease, and return who held it before."""
    previous, found = None, _read(run)
    if found is not None:
        previous = _decoded(found)
        _check_free(run, previous, take_over, is_locked)
    if not _swap(run, found, _encoded(me)):
        raise LeaseError(f"{run}: another driver came or left just now. Run the command again")
    return previous


def _swap(run: AnyPath, stale: bytes | None, mine: bytes) -> bool:
    """Replace a stale lease, or create one if there is none; false if another driver was faster."""
    path = run / _FILE
    on_s3 = isinstance(path, RemotePath) and not path.can_rename
    if on_s3:
        with contextlib.suppress(NotImplementedError):
            return conditional.swap(path, stale, mine)  # type: ignore[arg-type]
    if stale is not None:
        if _read(run) != stale:
            return False
        path.unlink(missing_ok=True)
    try:
        # When the machine fails, nobody holds it any more.
        create(path, mine, sync=True, named=False)
    except FileExistsError:
        return False
    return not on_s3 or path.read_bytes() == mine


@contextlib.contextmanager
def _locked(run: AnyPath) -> Iterator[bool]:
    """Hold the lock of a run, which the kernel frees when a process ends.

    Yields whether there are locks. Raises a :class:`LeaseError` if another process holds the lock.
    """
    if isinstance(run, RemotePath):
        yield False
        return
    with storage_errors("write", run / _LOCK):
        lock = os.open(run / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        yield _lock(run, lock)
    finally:
        # Forked processes hold it too.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _lock(run: AnyPath, lock: int) -> bool:
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            other = holder(run)
            is_left = other is not None and is_visible(other) and not is_alive(other)
            if time.monotonic() - started > (_LEFT_SECONDS if is_left else _ENDING_SECONDS):
                raise LeaseError(_refusal(run, other, lives=True)) from None
            time.sleep(0.05)
        except OSError:
            return False


#: Seconds for which a driver that ends may still hold the lock, and the workers of a killed one.
_ENDING_SECONDS, _LEFT_SECONDS = 1, 30


def _refusal(run: AnyPath, other: Holder | None, *, lives: bool = False) -> str:
    """Who is at work, and what to do; ``lives`` if the driver holds its lock."""
    who, where = "another driver", " where it runs"
    if other is not None and other != _UNKNOWN:
        who = f"process {other.pid} on {other.host}"
        if is_visible(other):
            who, where = f"process {other.pid} on this machine", f": kill {other.pid}"
        elif other.host == socket.gethostname():
            who += ", in another container or before a restart"
    if lives or (other is not None and is_visible(other)):
        return f"{run} is in use by {who}. Wait for it to end, or stop it{where}"
    again = f"remove {run / _FILE}, then start it again: it goes on from there"
    if _is_run(run):
        again = f"take the run over: {resume(run)} --take-over"
    return f"{run} is in use by {who}. If that driver has ended, {again}"
