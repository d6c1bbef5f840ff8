"""The phases of a task's time, the form of an event, and the recorder that notes them.

A recorder belongs to a thread. Where a thread has none, these functions do nothing. Phases that
follow each other need one mark each, at their ends; those that consist of such phases, or lie
within one, have a beginning, too::

    start = enter()
    ...
    inner = begin()
    ...
    note(READ, inner)
    mark(MAP, units=3)
    ...
    mark(PACK)
    leave(EVALUATE, start)

A file of events is a :data:`HEAD`, which is written again with each flush, and events.
"""

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hdfs_utils.errors import StorageError
from mapreduce.errors import UsageError
from mapreduce.support.tracefiles import TraceFile, clock, log, machine

T = TypeVar("T")
R = TypeVar("R")

#: Phases of a rank of a gang, by their codes. ``round`` is around those of a round, ``start``
#: around those before the first; ``read`` is within ``map``. ``sample`` is no phase: what the
#: thread has used since the last one.
PHASES = (
    *("round", "start", "load", "read", "map", "pack", "exchange", "reduce", "spread"),
    *("publish", "settle", "evaluate", "sample"),
)
ROUND, START, LOAD, READ, MAP, PACK, EXCHANGE, REDUCE, SPREAD, PUBLISH, SETTLE = range(11)
EVALUATE, SAMPLE = range(11, 13)

#: An event. ``start`` and ``stop`` are nanoseconds of a monotonic clock, ``round`` counts from 1 (0
#: is before the first), ``depth`` is the number of phases around it. ``units`` of a round are the
#: rounds that it is, those of a read its rows. Of a sample, ``bytes`` are the nanoseconds on a
#: processor, ``units`` those in which the thread was ready and had none.
EVENT = np.dtype(
    [
        *(("code", "u1"), ("depth", "u1"), ("thread", "<u2"), ("round", "<u4")),
        *(("start", "<i8"), ("stop", "<i8"), ("bytes", "<i8"), ("units", "<i8")),
    ]
)

#: Codes, those of one's own included, and bytes of a name.
MOST_CODES, _NAME = 64, 32

MAGIC, VERSION = b"GRTRACE\n", 1

#: The head of a file of events. ``machine`` says whose clock it is, ``wall`` the nanoseconds since
#: 1970 at ``start``; of every 2 ** ``level`` rounds one is there. ``nanoseconds`` are of all
#: rounds, by code. ``error`` says why no more could be written, if so.
HEAD = np.dtype(
    [
        *(("magic", "S8"), ("version", "<u4"), ("rank", "<u4"), ("ranks", "<u4")),
        *(("generation", "<u4"), ("level", "<u4"), ("start", "<i8"), ("stop", "<i8")),
        *(("wall", "<i8"), ("rounds", "<i8"), ("machine", "S40"), ("error", "S80")),
        *(("nanoseconds", "<i8", MOST_CODES), ("names", f"S{_NAME}", MOST_CODES)),
    ]
)

#: How the names of files of events end.
SUFFIX = ".events"

#: An event in fewer numbers: the first one has code, depth, thread and round.
_EVENT = struct.Struct("<5q")
_DEPTH, _THREAD, _ROUND = 1 << 8, 1 << 16, 1 << 32

#: Numbers of events that are written before their time.
_MANY = 5 * 4096

#: Nanoseconds between two samples, and two flushes.
_SAMPLE, _FLUSH = 50_000_000, 1_000_000_000

#: Bytes of a file, above which every other of its rounds is left out.
MOST_BYTES = 8 << 20


class Recorder:
    """Notes the phases of a rank in a file, and what its thread has had of processors.

    Without room for the file the trace ends with a warning, and nothing else. ``start`` is when the
    phase of this name has begun, if it has. Raises OSError (the file cannot be created).

    ``place``: The phases around the one that ends at the next mark, and the round, as in an event.
    ``since``: When this phase began. ``extend`` takes the numbers of an event.
    """

    def __init__(
        self, path: Path, rank: int = 0, ranks: int = 1, generation: int = 1, start: int = 0
    ) -> None:
        self.place = _DEPTH if start else 0
        self._file = TraceFile(path, HEAD.itemsize)
        self._numbers: list[int] = []
        self.extend = self._numbers.extend
        self._codes = dict(zip(PHASES, range(len(PHASES)), strict=True))
        self._head = head = np.zeros((), HEAD)
        head["magic"], head["version"], head["machine"] = MAGIC, VERSION, machine()
        head["rank"], head["ranks"], head["generation"] = rank, ranks, generation
        self.since = now = clock()
        head["start"], head["stop"] = start or now, now
        head["wall"] = time.time_ns() - now + (start or now)
        head["names"][: len(PHASES)] = PHASES
        #: Events of other threads, and the numbers of these.
        self.beside: list[bytes] = []
        self.threads: dict[int, int] = {}
        self._schedstat = _open_schedstat()
        self._sampled, (self._cpu, self._delay) = now, self._usage()
        self.due, self._flush_at = now + _SAMPLE, now + _FLUSH
        self._file.write(head.tobytes())

    def code(self, name: str) -> int:
        """The code of a phase; names for which there are no more codes have the last one."""
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = min(len(self._codes), MOST_CODES - 1)
            self._head["names"][found] = name.encode(errors="replace")[:_NAME]
        return found

    def note(self, code: int, start: int, nbytes: int, units: int) -> None:
        """Note a phase, which ends now."""
        stop = clock()
        self.extend((self.place + code, start, stop, nbytes, units))
        self.place -= _DEPTH
        if stop >= self.due:
            self.sample()

    def _usage(self) -> tuple[int, int]:
        """Nanoseconds that this thread has had of a processor, and has waited for one."""
        with contextlib.suppress(OSError, ValueError):
            cpu, delay, _ = os.pread(self._schedstat, 64, 0).split()
            return int(cpu), int(delay)
        # The system does not tell.
        return time.thread_time_ns(), 0

    def sample(self) -> None:
        """Note what the thread has used since the last time."""
        # A thread may lose its processor when a call of the system ends: the time comes after it.
        (cpu, delay), now = self._usage(), clock()
        place = self.place // _ROUND * _ROUND + SAMPLE
        self.extend((place, self._sampled, now, cpu - self._cpu, delay - self._delay))
        self._sampled, self._cpu, self._delay, self.due = now, cpu, delay, now + _SAMPLE
        if len(self._numbers) >= _MANY or now >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Write what has been noted."""
        events = np.array(self._numbers, "<i8").view(EVENT)
        others, self.beside = self.beside, []
        if others:
            events = np.concatenate([events, np.frombuffer(b"".join(others), EVENT)])
        self._numbers.clear()
        head = self._head
        head["stop"] = now = clock()
        self._flush_at = now + _FLUSH
        is_inner = (events["code"] == READ) | (events["code"] > SAMPLE)
        summed = events[events["depth"] < 2 + is_inner]
        seconds = np.bincount(summed["code"], summed["stop"] - summed["start"], MOST_CODES)
        head["nanoseconds"] += seconds.astype(np.int64)
        head["rounds"] += int(events["units"][events["code"] == ROUND].sum())
        if not self._file.is_open:
            return
        try:
            self._append(events[is_kept(events, int(head["level"]))])
            self._file.write(head.tobytes())
        except (OSError, StorageError) as error:
            head["error"] = self._file.give_up(error).encode()[:80]
            with contextlib.suppress(OSError), self._file.path.open("r+b") as file:
                file.write(head.tobytes())

    def _append(self, events: Any) -> None:
        """Append events, whole ones; of a file that grows too large every other round goes."""
        self._file.append(events.tobytes())
        if self._file.end <= MOST_BYTES:
            return
        events = np.frombuffer(self._file.rows(HEAD.itemsize), EVENT)
        while events.nbytes > MOST_BYTES // 2:
            self._head["level"] += 1
            if self._head["level"] > 32:
                raise OSError(0, f"one round has more than {MOST_BYTES:,} bytes of events")
            events = halved(events[is_kept(events, int(self._head["level"]))])
        self._file.replace(self._head.tobytes() + events.tobytes())

    def close(self) -> None:
        """Write what is left, and close the file."""
        self.sample()
        self.flush()
        self._file.close()
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1


def open_file(path: Path, *more: int) -> Recorder | None:
    """A recorder with a file of its own; None, after a warning, if there can be no file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Recorder(path, *more)
    except OSError as error:
        log.warning("there will be no trace, %s cannot be written: %s", path, error.strerror)
        return None


def problem(prefix: Path) -> str:
    """Why a rank could not write all of its events, if so; for the ranks of a driver."""
    for path in sorted(prefix.parent.glob(f"{prefix.name}.*{SUFFIX}")):
        with contextlib.suppress(OSError, ValueError):
            if text := bytes(np.fromfile(path, HEAD, 1)[0]["error"]):
                return f"{path}: {text.decode(errors='replace')}"
    return ""


def is_kept(events: Any, level: int) -> Any:
    """Whether events stay where one of 2 ** ``level`` rounds does, and all samples, as a mask.

    Rounds are spread by the golden ratio, so that they have no rhythm with what happens at regular
    intervals. Those of a level are among those of the one below.
    """
    places = events["round"].astype(np.uint64) * np.uint64(2654435769) % np.uint64(1 << 32)
    return (places < (1 << 32) >> level) | (events["code"] == SAMPLE)


def halved(events: Any) -> Any:
    """Events with half of the samples, each the sum of two."""
    is_sample = events["code"] == SAMPLE
    samples = events[is_sample].copy()
    first, second = samples[:-1:2], samples[1::2]
    first["stop"] = second["stop"]
    for name in ("bytes", "units"):
        first[name] += second[name]
    return np.concatenate([events[~is_sample], samples[::2]])


def _open_schedstat() -> int:
    """The file of the thread's times, or -1 where the system has none."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


class _Beside:
    """Notes the phases of another thread for a recorder, in whose phase the thread works."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, threads = recorder, recorder.threads
        thread = threads.setdefault(threading.get_ident(), len(threads) + 1)
        self.place = recorder.place + thread * _THREAD

    def code(self, name: str) -> int:
        """As the recorder does."""
        return self._recorder.code(name)

    def note(self, code: int, start: int, nbytes: int, units: int) -> None:
        """As the recorder does."""
        event = _EVENT.pack(self.place + code, start, clock(), nbytes, units)
        self.place -= _DEPTH
        self._recorder.beside.append(event)


#: What notes the phases of this thread, if anything does.
current: ContextVar[Any] = ContextVar("recorder", default=None)
recorder = current.get
# What a process forks would write into the same file.
os.register_at_fork(after_in_child=lambda: current.set(None))


@contextlib.contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Have this thread note its phases, if there is a recorder, which is closed at the end."""
    token = current.set(recorder)
    try:
        yield
    finally:
        current.reset(token)
        if recorder is not None:
            recorder.close()


def inherited(function: Callable[[T], R]) -> Callable[[T], R]:
    """A function for other threads, whose phases are noted with those of this one."""
    own = recorder()
    if not isinstance(own, Recorder):
        return function

    def call(item: T) -> R:
        token = current.set(_Beside(own))
        try:
            return function(item)
        finally:
            current.reset(token)

    return call


def begin() -> int:
    """Begin a phase within another; returns the time, or 0 if nobody notes it."""
    own = recorder()
    if own is None:
        return 0
    own.place += _DEPTH
    return clock()


def enter() -> int:
    """Begin a phase that consists of others; returns the time, or 0 if nobody notes it."""
    own = recorder()
    if own is None:
        return 0
    own.place += _DEPTH
    own.since = now = clock()
    return now


def leave(code: int, start: int, units: int = 0) -> None:
    """End a phase, which began at a time of :func:`enter`."""
    own = recorder()
    if own is not None:
        own.place -= _DEPTH
        own.since = start
        mark(code, 0, units)


def begin_round(number: int) -> int:
    """Begin a round."""
    own = recorder()
    if own is None:
        return 0
    own.place = own.place % _ROUND + number * _ROUND
    return enter()


def mark(code: int, nbytes: int = 0, units: int = 0) -> None:
    """End a phase, which began where the last one ended."""
    own = recorder()
    if own is None:
        return
    # Processors have forgotten this code by the next phase: what is not called costs nothing, and
    # numbers are packed when many of them are there.
    stop = clock()
    own.extend((own.place + code, own.since, stop, nbytes, units))
    own.since = stop
    if stop >= own.due:
        own.sample()


def skip() -> None:
    """Begin the next phase here; what was before is in none."""
    own = recorder()
    if own is not None:
        own.since = clock()


def sample() -> None:
    """Note what the thread has used up to here, so that a long phase has samples of its own."""
    own = recorder()
    if isinstance(own, Recorder):
        own.sample()


def note(code: int, start: int, nbytes: int = 0, units: int = 0) -> None:
    """End a phase, which began at a time of :func:`begin`."""
    own = recorder()
    if own is not None:
        own.note(code, start, nbytes, units)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Note the time of a block of code in the trace of a training, if the training is traced.

    Parameters
    ----------
    name : str
        Name of the phase, of which at most 32 bytes are noted.

    Raises
    ------
    UsageError
        The name is empty, or is the name of a phase of the toolkit.
    """
    if not isinstance(name, str) or not name or name in PHASES:
        raise UsageError(
            f"phase({name!r:.60}): expected a name of your own, which is none of "
            f"{', '.join(PHASES)}"
        )
    start = begin()
    try:
        yield
    finally:
        own = recorder()
        if own is not None:
            note(own.code(name), start)
