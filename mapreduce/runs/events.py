"""What happens while a model is trained: typed events that anybody may subscribe to."""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import replace
from mapreduce.support.jsonfiles import checked


@dataclass(frozen=True)
class Event:
    """Base class."""


@dataclass(frozen=True)
class RunStarted(Event):
    """A driver begins to work, or goes on."""

    run: str
    completed: int
    rounds: int
    batch_size: int
    runner: str
    workers: int


@dataclass(frozen=True)
class RoundCompleted(Event):
    """A round is published.

    Attributes
    ----------
    completed : int
        Rounds completed, this one included.
    rows : int
    loss : float
        Mean over the round's rows, before the update.
    """

    completed: int
    rows: int
    loss: float


@dataclass(frozen=True)
class JobSubmitted(Event):
    """A job of the training was given to a cluster.

    Attributes
    ----------
    application : str
        Its identifier there.
    """

    application: str


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """A checkpoint can be resumed from."""

    completed: int
    model_sha256: str


@dataclass(frozen=True)
class Evaluated(Event):
    """The model was evaluated on other data; sums over the whole set, divided once.

    Attributes
    ----------
    completed, rows : int
    accuracy : float or None
        None for a model that predicts numbers.
    loss : float
    """

    completed: int
    rows: int
    accuracy: float | None
    loss: float


@dataclass(frozen=True)
class Warned(Event):
    """Something that the user should know, though the training goes on."""

    message: str


@dataclass(frozen=True)
class RunEnded(Event):
    """The training ended.

    Attributes
    ----------
    completed : int
        Rounds of the model that is the result.
    model_sha256 : str
    stopped_early : bool
        Whether the evaluations stopped getting better.
    search : {"converged", "stalled", "unfinished"} or None
        For an optimizer that searches: whether the gradient's norm is at most the plan's ``tol``;
        or no better point could be found; or the rounds were over.
    gradient_norm : float or None
        For such an optimizer, in the end.
    """

    completed: int
    model_sha256: str
    stopped_early: bool
    search: str | None = None
    gradient_norm: float | None = None


Subscriber = Callable[[Event], None]


class Events:
    """Passes events on to subscribers, in the order in which they subscribed."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber(event)


class JsonLines:
    """Appends events to a file, one JSON object on each line.

    Rounds that the file has already, from before a crash, are not written again. A file of another
    filesystem is written anew about once in a second, since not all of them can append.

    Parameters
    ----------
    path : Path or RemotePath
    """

    def __init__(self, path: AnyPath) -> None:
        self._lines = _Remote(path) if isinstance(path, RemotePath) else _Local(path)
        self._recorded = max(
            (event["completed"] for event in read(path) if event["event"] == "RoundCompleted"),
            default=0,
        )

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundCompleted) and event.completed <= self._recorded:
            return
        if isinstance(event, RunStarted):
            # Rounds that it goes back before are told again.
            self._recorded = min(self._recorded, event.completed)
        record = {"event": type(event).__name__, "time": round(time.time(), 3), **asdict(event)}
        # JSON has no NaN: of a round that was skipped the loss is null.
        record = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        self._lines.write(json.dumps(record) + "\n", soon=not isinstance(event, RoundCompleted))

    def close(self) -> None:
        """Write what has not been written yet."""
        self._lines.flush()


class _Local:
    """Lines of a file that can be appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A last line that a killed writer cut short: the next one stands by itself.
        if path.exists() and path.stat().st_size:
            with path.open("rb+") as file:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def write(self, line: str, *, soon: bool) -> None:
        # Not what a link leads to.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with os.fdopen(os.open(self._path, flags, 0o666), "a") as file:
            file.write(line)

    def flush(self) -> None:
        pass


class _Remote:
    """Lines of a file that can only be written as a whole."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        try:
            self._content = path.read_bytes()
        except FileNotFoundError:
            self._content = b""
        self._written = len(self._content)
        self._at = time.monotonic()

    def write(self, line: str, *, soon: bool) -> None:
        self._content += line.encode()
        # The longer the file is, the less often.
        if soon or time.monotonic() - self._at > 1 + len(self._content) / 1e6:
            self.flush()

    def flush(self) -> None:
        if len(self._content) > self._written:
            replace(self._path, self._content)
            self._written = len(self._content)
        self._at = time.monotonic()


def read(path: AnyPath, warn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """The events of a file; ``warn`` is told how many lines are none, and were left out.

    A driver that goes back before some rounds, since what it had of them is damaged, takes back
    what was told of them.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    others = 0
    for line in lines:
        try:
            event = json.loads(line)
            for name, kind in _FIELDS[event["event"]].items():
                checked(kind, event.get(name), name)
        except (ValueError, TypeError, KeyError, RecursionError):
            others += 1
            continue
        if event["event"] == "RunStarted":
            found = [e for e in found if e.get("completed", 0) <= event["completed"]]
        found.append(event)
    if others and warn is not None:
        warn(f"{path}: {others:,} of {len(lines):,} lines are not events, and are left out")
    return found


#: Types of each kind's fields, but of those with a default, which a log may lack. The loss of a
#: round that was skipped is null.
_FIELDS = {
    kind.__name__: {
        name: wanted | None if wanted is float else wanted
        for name, wanted in get_type_hints(kind).items()
        if not hasattr(kind, name)
    }
    for kind in Event.__subclasses__()
}
