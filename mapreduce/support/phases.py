"""The phases of a task's time, the form of an event, and the recorder that notes them.

A recorder belongs to a thread. Where a thread has none, these functions do nothing. Phases that
follow each other need one mark each, at their ends; those that consist of such phases, or lie
within one, have a beginning, too::

    start = enter()
    ...
    inner = now()
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
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hdfs_utils.atomic import storage_errors
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

#: Codes, those of one's own included, and bytes of a name.
MOST_CODES, _NAME = 64, 32

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

# What is noted are rows of five numbers: what, start, stop, bytes and units. Events are made of
# them when they are written. ``what`` has the code of a phase, or one of these: a round begins,
# whose number is ``start``, or a phase that consists of others, or one within another, or nothing.
_ROWS = 5
_OPEN, _ENTER, _BEGIN, _SKIP = range(MOST_CODES, MOST_CODES + 4)
# A phase that ends may have had a beginning of these, be within another, and follow its packing.
_CLOSES, _WITHIN, _PACKED = 1 << 32, 1 << 33, 1 << 34
# In another thread: the number of the thread, and of phases around, in the main thread's phase.
_DEPTH, _THREAD = 1 << 8, 1 << 16

#: Numbers of events that are written before their time.
_MANY = 5 * 32768

#: Nanoseconds between two samples, and two flushes. Both are due at multiples of these: ranks of
#: one machine do them in the same round, and so rarely wait for each other.
_SAMPLE, _FLUSH = 50_000_000, 1_000_000_000

#: Bytes of a file, above which every other of its rounds is left out.
MOST_BYTES = 8 << 20


class Recorder:
    """Notes the phases of a rank in a file, and what its thread has had of processors.

    Without room for the file the trace ends with a warning, and nothing else. ``start`` is when the
    phase of this name has begun, if it has. Raises OSError (the file cannot be created).

    ``extend`` takes a row. ``opened``: When the round of :func:`next_round` began, or 0. ``due``:
    When the next sample is.
    """

    def __init__(
        self, path: Path, rank: int = 0, ranks: int = 1, generation: int = 1, start: int = 0
    ) -> None:
        self._file = TraceFile(path, HEAD.itemsize)
        self._numbers: list[int] = []
        self.extend = self._numbers.extend
        self._codes = dict(zip(PHASES, range(len(PHASES)), strict=True))
        self._head = head = np.zeros((), HEAD)
        head["magic"], head["version"], head["machine"] = MAGIC, VERSION, machine()
        head["rank"], head["ranks"], head["generation"] = rank, ranks, generation
        now = clock()
        self.start, self.opened = start or now, 0
        #: Of the last row: the round, the phases around, and when the next phase began.
        self._round, self._depth, self._since = 0, int(start > 0), now
        head["start"], head["stop"] = self.start, now
        head["wall"] = time.time_ns() - now + self.start
        head["names"][: len(PHASES)] = PHASES
        #: The numbers of other threads.
        self.threads: dict[int, int] = {}
        self._schedstat = _open_schedstat()
        self._sampled, (self._cpu, self._delay) = now, self._usage()
        self.due, self._flush_at = _next(now, _SAMPLE), _next(now, _FLUSH)
        self._file.write(head.tobytes())

    def code(self, name: str) -> int:
        """The code of a phase; names for which there are no more codes have the last one."""
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = min(len(self._codes), MOST_CODES - 1)
            self._head["names"][found] = name.encode(errors="replace")[:_NAME]
        return found

    def _usage(self) -> tuple[int, int]:
        """Nanoseconds that this thread has had of a processor, and has waited for one."""
        try:
            cpu, delay, _ = os.pread(self._schedstat, 64, 0).split()
            return int(cpu), int(delay)
        except (OSError, ValueError):
            # The system does not tell.
            return time.thread_time_ns(), 0

    def sample(self) -> None:
        """Note what the thread has used since the last time."""
        # A thread may lose its processor when a call of the system ends: the time comes after it.
        (cpu, delay), now = self._usage(), clock()
        self.extend((SAMPLE, self._sampled, now, cpu - self._cpu, delay - self._delay))
        self._sampled, self._cpu, self._delay = now, cpu, delay
        self.due = _next(now, _SAMPLE)
        if len(self._numbers) >= _MANY or now >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Write what has been noted."""
        numbers = self._numbers[:]
        # Other threads may have noted more.
        del self._numbers[: len(numbers)]
        events = self._events(np.fromiter(numbers, "<i8", len(numbers)).reshape(-1, _ROWS))
        head = self._head
        head["stop"] = now = clock()
        self._flush_at = _next(now, _FLUSH)
        code = events["code"]
        is_summed = events["depth"] < 2 + ((code == READ) | (code > SAMPLE))
        took = np.where(is_summed, events["stop"] - events["start"], 0)
        head["nanoseconds"] += np.bincount(code, took, MOST_CODES).astype(np.int64)
        head["rounds"] += int(events["units"][code == ROUND].sum())
        if not self._file.is_open:
            return
        try:
            level = int(head["level"])
            self._append(events[is_kept(events, level)] if level else events)
            self._file.write(head.tobytes())
        except (OSError, StorageError) as error:
            head["error"] = self._file.give_up(error).encode()[:80]
            with contextlib.suppress(OSError), self._file.path.open("r+b") as file:
                file.write(head.tobytes())

    def _events(self, rows: Any) -> Any:
        """The events of rows, which follow those of the last time."""
        if not len(rows):
            return np.zeros(0, EVENT)
        what, start, stop = rows[:, 0].copy(), rows[:, 1], rows[:, 2]
        code, thread = what & 0xFF, what >> 16 & 0xFFFF
        is_open, is_within = code == _OPEN, what & _WITHIN > 0
        opened = np.flatnonzero(is_open)
        number = _filled(self._round, start[opened], opened, len(rows))
        # A phase without a beginning began where the last one ended.
        follows = ~(is_within | (thread > 0) | (code == _BEGIN) | (code == SAMPLE))
        following = np.flatnonzero(follows)
        stops, begun = stop[following], start[following]
        before = np.concatenate([[self._since], stops[:-1]])
        start[following] = np.where(begun > 0, begun, before)
        is_packed = what[following] >= _PACKED
        packed, packing = following[is_packed], before[is_packed]
        # Of the phases around: no round is in one.
        edges = np.flatnonzero(is_open | (code == ROUND))
        depth = ((code == _ENTER) | (code == _BEGIN)).astype(np.int64)
        depth -= what & _CLOSES > 0
        depth[edges] = 0
        depth = np.cumsum(depth)
        depth += _filled(self._depth, is_open[edges] - depth[edges], edges, len(rows))
        self._round, self._depth = int(number[-1]), int(depth[-1])
        self._since = int(stops[-1]) if len(stops) else self._since
        depth += is_within + (what >> 8 & 0xFF)
        depth[code == SAMPLE] = 0
        _within_reads(code, start, thread, depth)
        place = depth.clip(0, 255) << 8 | thread << 16 | number << 32
        rows[:, 0] = code | place
        packs = np.zeros((len(packed), _ROWS), np.int64)
        packs[:, 0], packs[:, 1], packs[:, 2] = PACK | place[packed], packing, start[packed]
        return np.concatenate([rows[code < MOST_CODES], packs]).view(EVENT)[:, 0]

    def problem(self) -> str:
        """Why not all events could be written, if so."""
        text: bytes = self._head["error"].item()
        return f"{self._file.path}: {text.decode(errors='replace')}" if text else ""

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


def _filled(first: int, values: Any, places: Any, count: int) -> Any:
    """An array that has each value from its place on, up to the next one, and the first before."""
    return np.repeat(np.append(first, values), np.diff(places, prepend=0, append=count))


def _within_reads(code: Any, start: Any, thread: Any, depth: Any) -> None:
    """Make phases of one's own deeper that lie within a read, which has no beginning of its own."""
    own = np.flatnonzero((code > SAMPLE) & (code < MOST_CODES))
    if not len(own):
        return
    for number in np.unique(thread[own]):
        mine = own[thread[own] == number]
        reads = np.flatnonzero((code == READ) & (thread == number))
        ends = np.searchsorted(reads, mine)
        mine, ends = mine[ends < len(reads)], ends[ends < len(reads)]
        depth[mine] += start[reads[ends]] <= start[mine]


def _next(now: int, period: int) -> int:
    """The first multiple of a period that is later than now."""
    return now - now % period + period


def _open_schedstat() -> int:
    """The file of the thread's times, or -1 where the system has none."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


class _Beside:
    """Notes the phases of another thread for a recorder, in whose phase the thread works."""

    #: The recorder's own thread has the samples.
    due = 1 << 63

    def __init__(self, recorder: Recorder) -> None:
        threads, self.code, self._extend = recorder.threads, recorder.code, recorder.extend
        thread = threads.setdefault(threading.get_ident(), len(threads) + 1)
        self._place = thread * _THREAD

    def extend(self, row: tuple[int, int, int, int, int]) -> None:
        """Note a row of a phase within that of the recorder."""
        what = row[0]
        if what == _BEGIN:
            self._place += _DEPTH
        elif what >= _WITHIN:
            is_begun = what & _CLOSES > 0
            self._extend((self._place + _DEPTH * (not is_begun) | what & 0xFF, *row[1:]))
            self._place -= _DEPTH * is_begun


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


@contextlib.contextmanager
def tracing(folder: Path) -> Iterator[Recorder]:
    """Have a folder note the phases of this thread, which is the only rank, by :func:`next_round`.

    Raises StorageError (the folder or the file cannot be made).
    """
    path = folder / f"{os.urandom(4).hex()}.alone.1.0{SUFFIX}"
    with storage_errors("create", path):
        folder.mkdir(parents=True, exist_ok=True)
        own = Recorder(path, start=clock())
    with recording(own):
        try:
            yield own
        finally:
            end_round()


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


# Processors have forgotten the following code by the next phase, and a call costs a microsecond or
# two. So these functions do little, and events are made when many rows are there.


def now() -> int:
    """The time, or 0 if nobody notes the phases of this thread."""
    return 0 if recorder() is None else clock()


def enter() -> int:
    """Begin a phase that consists of others; returns the time, or 0 if nobody notes it."""
    return _note(_ENTER)


def begin_round(number: int) -> int:
    """Begin a round; returns the time, or 0 if nobody notes it."""
    return _note(_OPEN, number)


def skip() -> None:
    """Begin the next phase here; what was before is in none."""
    _note(_SKIP)


def _note(what: int, number: int = 0) -> int:
    own = recorder()
    if own is None:
        return 0
    now = clock()
    own.extend((what, number, now, 0, 0))
    return now


def mark(code: int, nbytes: int = 0, units: int = 0) -> None:
    """End a phase, which began where the last one ended."""
    own = recorder()
    if own is None:
        return
    stop = clock()
    own.extend((code, 0, stop, nbytes, units))
    if stop >= own.due:
        own.sample()


def mark_exchange(code: int, start: int, parcels: Iterable[tuple[Sized, Sized]]) -> None:
    """End an exchange of parcels, which began at a time of :func:`now`, after their packing."""
    own = recorder()
    if own is None:
        return
    stop, nbytes = clock(), 0
    for header, body in parcels:
        nbytes += len(header) + len(body)
    own.extend((code + _PACKED, start, stop, nbytes, 0))
    if stop >= own.due:
        own.sample()


def leave(code: int, start: int, units: int = 0) -> None:
    """End a phase, which began at a time of :func:`enter` or :func:`begin_round`."""
    _end(code + _CLOSES, start, 0, units)


def note(code: int, start: int, nbytes: int = 0, units: int = 0) -> None:
    """End a phase within another, which began at a time of :func:`now`, and has no such phase."""
    _end(code + _WITHIN, start, nbytes, units)


def _end(what: int, start: int, nbytes: int, units: int) -> None:
    own = recorder()
    if own is None:
        return
    stop = clock()
    own.extend((what, start, stop, nbytes, units))
    if stop >= own.due:
        own.sample()


def sample() -> None:
    """Note what the thread has used up to here, so that a long phase has samples of its own."""
    own = recorder()
    if isinstance(own, Recorder):
        own.sample()


def next_round(number: int) -> None:
    """Begin a round, which lasts until the next one begins, or to the end; what was before the
    first one is the start.
    """
    own = recorder()
    if own is None:
        return
    if own.opened:
        end_round()
    else:
        leave(START, own.start)
    own.opened = begin_round(number)


def end_round() -> None:
    """End the round of :func:`next_round`, if there is one, also in the middle of a phase."""
    own = recorder()
    if own is None or not own.opened:
        return
    leave(ROUND, own.opened, 1)
    own.opened = 0


def mark_between() -> None:
    """End what was done between two rounds of :func:`next_round`, or before the first one."""
    own = recorder()
    if own is not None:
        mark(SETTLE if own.opened else LOAD)


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
    start = _note(_BEGIN)
    try:
        yield
    finally:
        own = recorder()
        if own is not None:
            _end(own.code(name) + _CLOSES + _WITHIN, start, 0, 0)
