"""Reading traces, which anybody may have written."""

import stat
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hdfs_utils.atomic import storage_errors
from mapreduce.errors import DataError, MissingInputError
from mapreduce.support.phases import (
    EVENT,
    FOLDER,
    HEAD,
    MAGIC,
    MOST_BYTES,
    PHASES,
    SUFFIX,
    VERSION,
    is_kept,
)
from mapreduce.timing import clocks
from mapreduce.timing.trace import TASK, Segment, Trace

#: Ranks of a segment, and nanoseconds of a trace: ten years.
_MOST_RANKS, _MOST_TIME = 1 << 16, 10 * 366 * 86_400 * 10**9


class _Notes(NamedTuple):
    """What a rank has noted; ``names`` are those of its codes."""

    head: Any
    names: list[str]
    events: Any


def read(place: Path) -> Trace:
    """Read the trace of a run, or one in a folder.

    Parameters
    ----------
    place : Path
        A run, or a folder of ``gradreduce run --trace``.

    Raises
    ------
    MissingInputError
        There is no trace.
    DataError
        A file is damaged, or of another version. One that was cut is read as far as it goes.
    """
    places = place / FOLDER, place / "rounds" / FOLDER
    folder = next((each for each in places if each.is_dir()), place)
    groups: dict[str, dict[int, _Notes]] = defaultdict(dict)
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        notes = _read_events(path)
        if notes is not None:
            name = path.name.removesuffix(SUFFIX).rpartition(".")[0]
            _expect(path, "head", int(notes.head["rank"]) not in groups[name], "a rank once")
            groups[name][int(notes.head["rank"])] = notes
    found = [_segment(folder / name, ranks) for name, ranks in groups.items()]
    spans = sorted(found, key=lambda each: each[1])
    if not spans:
        raise MissingInputError(
            f"{place} has no trace: expected files {FOLDER}/*{SUFFIX}. Train with --trace"
        )
    segments = tuple(each for each, _ in spans)
    start, stop = spans[0][1][0], max(span[1] for _, span in spans)
    workers = max(len(each.ranks) for each in segments)
    return Trace(segments, np.zeros(0, TASK), start, stop, workers)


def _read_events(path: Path) -> _Notes | None:
    """The events of a file; None if its rank was lost before it noted any."""
    with storage_errors("read", path):
        status = path.lstat()
        _expect(path, "path", stat.S_ISREG(status.st_mode), "a file, and no link")
        _expect(path, "size", status.st_size <= 2 * MOST_BYTES, f"{2 * MOST_BYTES:,} bytes at most")
        content = path.read_bytes()
    if len(content) < HEAD.itemsize:
        return None
    head = np.frombuffer(content, HEAD, 1)[0]
    _expect(path, "first bytes", head["magic"] == MAGIC.rstrip(b"\0"), f"{MAGIC!r}")
    version = int(head["version"])
    if version != VERSION:
        raise DataError(
            f"{path} has version {version}; this program reads version {VERSION}. Use the program "
            f"that wrote it"
        )
    count = (len(content) - HEAD.itemsize) // EVENT.itemsize
    events = np.frombuffer(content, EVENT, count, HEAD.itemsize)
    names = [name.decode(errors="replace") for name in head["names"].tolist()]
    names = names[
        : max(len(PHASES), 1 + max((at for at, name in enumerate(names) if name), default=0))
    ]
    first, last = int(head["start"]), int(head["start"]) + _MOST_TIME
    sums = head["nanoseconds"]
    for what, holds, wanted in (
        ("names", tuple(names[: len(PHASES)]) == PHASES, f"those of {len(PHASES)} phases"),
        ("rank", head["rank"] < head["ranks"] <= _MOST_RANKS, f"one of {_MOST_RANKS} at most"),
        ("level", head["level"] <= 32, "32 at most"),
        ("times", 0 <= first <= head["stop"] <= last < 1 << 62, "ten years at most"),
        ("rounds", 0 <= head["rounds"] < 1 << 32, "a number below 2 ** 32"),
        ("sums", ((sums >= 0) & (sums <= _MOST_TIME)).all(), "ten years at most"),
    ):
        _expect(path, what, bool(holds), wanted)
    for name, holds, wanted in (
        ("code", events["code"] < len(names), f"a number below {len(names)}"),
        ("start", events["start"] >= first, f"{first} at least"),
        ("stop", (events["stop"] >= events["start"]) & (events["stop"] <= last), "a later time"),
        ("bytes", (events["bytes"] >= 0) & (events["bytes"] < 1 << 56), "a number below 2 ** 56"),
        ("units", (events["units"] >= 0) & (events["units"] < 1 << 56), "a number below 2 ** 56"),
    ):
        if not holds.all():
            at = int(np.argmin(holds))
            where = f"event {at}, {name} {events[name][at]}"
            _expect(path, where, False, wanted)
    return _Notes(head, names, events) if count else None


def _expect(path: Path, what: str, holds: bool, wanted: str) -> None:
    if not holds:
        raise DataError(
            f"{path} is damaged: {what}: expected {wanted}. Remove the file to do without it"
        )


def _segment(path: Path, notes: Mapping[int, _Notes]) -> tuple[Segment, tuple[int, int]]:
    """The ranks of a generation, with equal codes and the rounds that all have; and its time."""
    ranks = int(next(iter(notes.values())).head["ranks"])
    for each in notes.values():
        _expect(path, "head", each.head["ranks"] == ranks, f"{ranks} ranks, as another has")
    phases = [*dict.fromkeys((*PHASES, *(name for each in notes.values() for name in each.names)))]
    level = max(int(each.head["level"]) for each in notes.values())
    seconds, events = np.zeros((ranks, len(phases))), [np.zeros(0, EVENT)] * ranks
    for rank, each in notes.items():
        codes = np.array([phases.index(name) for name in each.names], np.uint8)
        np.add.at(seconds[rank], codes, each.head["nanoseconds"][: len(codes)] / 1e9)
        whole = each.events[is_kept(each.events, level)]
        whole = whole[np.lexsort((whole["depth"], whole["start"]))]
        whole["code"] = codes[whole["code"]]
        events[rank] = whole
    rounds, errors = max(int(each.head["rounds"]) for each in notes.values()), np.zeros(ranks)
    zero = notes.get(0)
    for rank, each in notes.items():
        if zero is None or each.head["machine"] != zero.head["machine"]:
            events[rank], errors[rank] = _by_clock(events[0], events[rank])
    own = Segment(path.name, tuple(events), seconds, rounds, tuple(phases), errors)
    some = [each for each in events if len(each)]
    span = (
        int(min(each["start"][0] for each in some)),
        int(max(each["stop"].max() for each in some)),
    )
    return own, span


def _by_clock(zero: Any, events: Any) -> tuple[Any, float]:
    """The events of a rank by the clock of rank 0, and by how many seconds they may be wrong."""
    found, error = events.copy(), 0.0
    for name in ("start", "stop"):
        difference, wrong = clocks.differences(zero, events, events[name])
        found[name] += np.rint(difference).astype(np.int64)
        error = max(error, float(wrong.max()) / 1e9)
    return found, error
