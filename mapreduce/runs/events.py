"""Events of a training: typed, for subscribers and for the log."""

import json
import math
import os
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import replace
from mapreduce.errors import LeftOutWarning
from mapreduce.support import signals
from mapreduce.support.jsonfiles import checked


@dataclass(frozen=True)
class Event:
    """Base class."""


@dataclass(frozen=True)
class RunStarted(Event):
    """A driver starts a training or resumes it; it chooses executor or workers if they are None.

    A fit without gradients has no optimizer. Each of its rounds reads all rows, and nobody knows
    their number before: ``rounds`` is 0.
    """

    run: str
    completed: int
    rounds: int
    batch_size: int
    runner: str
    workers: int | None
    executor: str | None = None
    stages: int = 1
    model: str = ""
    optimizer: str = ""
    l2: float = 0.0


@dataclass(frozen=True)
class ExecutionTried(Event):
    """Rounds up to one were run in a way; ``seconds`` is what one of them took lately.

    ``evaluation`` is what an evaluation took, or None.
    """

    completed: int
    way: str
    seconds: float
    evaluation: float | None = None


@dataclass(frozen=True)
class ExecutionChosen(Event):
    """The way in which the rounds after ``completed`` ones are run, and why."""

    completed: int
    way: str
    why: str


@dataclass(frozen=True)
class PhasesTimed(Event):
    """What the rounds of a gang up to one took, in seconds.

    ``mapped`` are those of the maps of all workers together, ``rest`` those of all else.
    """

    completed: int
    workers: int
    mapped: float
    rest: float


@dataclass(frozen=True)
class OfRound(Event):
    """Base class of what is told of each round once, of which ``completed`` is the number."""

    completed: int


@dataclass(frozen=True)
class RoundCompleted(OfRound):
    """A round is published. The loss is the mean over its rows, before the update.

    ``weight`` is the sum of the rows' weights; None in logs of earlier versions.
    """

    rows: int
    loss: float
    weight: float | None = None


@dataclass(frozen=True)
class RoundPublished(Event):
    """A fit has come so far: it goes on from this round if it is stopped. Not each is told."""

    completed: int


@dataclass(frozen=True)
class TournamentDecided(OfRound):
    """Replicas competed in a round, in pairs; the numbers are those of replicas.

    Attributes
    ----------
    best : int
        The replica that has become the model.
    winners, losers : tuple of int
        Of each match: the loser goes on from the winner's parameters and state.
    losses : tuple of float or None
        Mean loss of each replica on the rows that were held out; None if it is not finite, or if
        the replica did not take part.
    """

    best: int
    winners: tuple[int, ...]
    losers: tuple[int, ...]
    losses: tuple[float | None, ...]


@dataclass(frozen=True)
class JobSubmitted(Event):
    """A job of the training was submitted to a cluster, where ``application`` identifies it."""

    application: str


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """A checkpoint can be resumed from."""

    completed: int
    model_sha256: str


@dataclass(frozen=True)
class Evaluated(Event):
    """The model was evaluated: its mean loss, and its accuracy unless it predicts numbers."""

    completed: int
    rows: int
    accuracy: float | None
    loss: float


@dataclass(frozen=True)
class Warned(Event):
    """A warning to the user; the training continues. A ``lasting`` one is about its result."""

    message: str
    lasting: bool = False


@dataclass(frozen=True)
class Exchanged(Event):
    """Bytes that replicas and the owners of the model have exchanged in all rounds, as planned.

    Attributes
    ----------
    completed : int
    pushed : int
        Updates, as they were sent.
    plain : int
        The same updates, if they were not compressed.
    pulled : int
        Parameters that replicas have read.
    kept : int
        What replicas keep to themselves, which is not sent.
    """

    completed: int
    pushed: int
    plain: int
    pulled: int
    kept: int


@dataclass(frozen=True)
class RunEnded(Event):
    """The training ended.

    Attributes
    ----------
    completed : int
        Rounds of the model that is the result.
    model_sha256 : str
    stopped_early : bool
        Whether the evaluations stopped improving.
    search : {"converged", "stalled", "unfinished"} or None
        For an optimizer that searches: the gradient's norm is at most the plan's ``tol``, no better
        point was found, or the rounds were over.
    gradient_norm : float or None
        For such an optimizer, at the end; relative to the loss, if the plan's ``relative_tol`` is.
    """

    completed: int
    model_sha256: str
    stopped_early: bool
    search: str | None = None
    gradient_norm: float | None = None


#: The numbers of :class:`Exchanged`.
BYTES = ("pushed", "plain", "pulled", "kept")

Subscriber = Callable[[Event], None]


class Events:
    """Passes events to subscribers, in the order in which they subscribed."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber(event)

    def flush(self) -> None:
        """Have the rounds written that were told: after one round or many."""
        for subscriber in self._subscribers:
            if isinstance(subscriber, JsonLines):
                subscriber.flush()


class JsonLines:
    """Appends events to a file, one JSON object on each line.

    Rounds that the file has already, from before a crash, are not written again. Other rounds are
    written with the next event, or by :meth:`flush`. A file of another filesystem is written as a
    whole, about once a second, since not all of them can append.

    Parameters
    ----------
    path : Path or RemotePath
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = path
        content = _content(path)
        self._written = content if isinstance(path, RemotePath) else b""
        # A killed writer may have cut its last line short.
        self._waiting = b"" if content[-1:] in (b"", b"\n") else b"\n"
        self._at = time.monotonic()
        self._recorded = {kind.__name__: 0 for kind in OfRound.__subclasses__()}
        # Whoever writes tells of the other lines.
        for event in read(path, lambda message: None):
            if event["event"] in self._recorded:
                last = self._recorded[event["event"]]
                self._recorded[event["event"]] = max(last, event["completed"])

    def __call__(self, event: Event) -> None:
        if isinstance(event, OfRound) and event.completed <= self._recorded[type(event).__name__]:
            return
        if isinstance(event, RunStarted):
            # A driver that starts from an earlier round reports the following ones again.
            for kind, last in self._recorded.items():
                self._recorded[kind] = min(last, event.completed)
        record = {"event": type(event).__name__, "time": round(time.time(), 3), **vars(event)}
        # JSON has no NaN: the loss of a skipped round is null.
        record = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        start = json.dumps(record).encode()[:-1]
        self._waiting += start + _CHECK + _checksum(start) + b"\n"
        if not isinstance(event, OfRound):
            self.close()

    def flush(self) -> None:
        """Write the rounds that have not been written yet."""
        is_remote = isinstance(self._path, RemotePath)
        # A longer file is written less often.
        if not is_remote or time.monotonic() - self._at > 1 + len(self._written) / 1e6:
            self.close()

    def close(self) -> None:
        """Write the events that have not been written yet."""
        if not self._waiting:
            return
        # What is written waits no longer, also if a signal comes.
        with signals.deferred():
            if isinstance(self._path, RemotePath):
                replace(self._path, self._written + self._waiting)
                self._written += self._waiting
            else:
                # Links are not followed.
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
                with os.fdopen(os.open(self._path, flags, 0o666), "ab") as file:
                    file.write(self._waiting)
            self._waiting, self._at = b"", time.monotonic()


def _content(path: AnyPath) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def read(path: AnyPath, warn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """The events of a file; ``warn`` gets a message if there are lines that are not events.

    By default that is a Python warning. If a driver started from an earlier round, the events of
    later rounds before it are left out.
    """
    lines = _content(path).splitlines()
    found: list[dict[str, Any]] = []
    others = 0
    for line in lines:
        try:
            event = _event(line)
        except (ValueError, TypeError, KeyError, RecursionError):
            others += 1
            continue
        if event["event"] == "RunStarted":
            found = [e for e in found if e.get("completed", 0) <= event["completed"]]
        found.append(event)
    if others:
        message = f"{path}: {others:,} of {len(lines):,} lines are not events, and are left out"
        if warn is None:
            warnings.warn(message, LeftOutWarning, stacklevel=1)
        else:
            warn(message)
    return found


def _event(line: bytes) -> dict[str, Any]:
    """The event of a line. Raises ValueError, TypeError, KeyError, RecursionError (it has none)."""
    start, mark, end = line.rpartition(_CHECK)
    if mark and end != _checksum(start):
        raise ValueError("expected the checksum of the line")
    event: dict[str, Any] = json.loads(start + b"}" if mark else line)
    fields, needed = _FIELDS[event["event"]]
    for name in {*event, *needed} - {"event", "time"}:
        checked(fields[name], event[name], name)
    return event


def _checksum(start: bytes) -> bytes:
    """What stands behind :data:`_CHECK` in a line."""
    return b'"%08x"}' % zlib.crc32(start)


#: What comes before a line's checksum; lines of earlier versions have none.
_CHECK = b', "crc32": '


def _fields(kind: type[Event]) -> tuple[dict[str, Any], set[str]]:
    """The types of an event's fields, and those without a default, which no line lacks.

    JSON has no NaN: the loss of a skipped round is null.
    """
    types = {
        name: wanted | None if wanted is float else wanted
        for name, wanted in get_type_hints(kind).items()
    }
    return types, {name for name in types if not hasattr(kind, name)}


_FIELDS = {
    kind.__name__: _fields(kind) for kind in (*Event.__subclasses__(), *OfRound.__subclasses__())
}
