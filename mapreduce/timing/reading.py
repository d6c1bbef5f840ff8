"""Reading traces, which anybody may have written."""

import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hdfs_utils.atomic import storage_errors
from mapreduce.errors import DataError, MissingInputError
from mapreduce.support import phases, tasks
from mapreduce.support.phases import EVENT, HEAD, PHASES, SUFFIX, is_kept
from mapreduce.support.tasks import TASKS
from mapreduce.support.tracefiles import FOLDER
from mapreduce.timing import clocks
from mapreduce.timing.trace import TASK, Segment, Trace

#: The head of a driver's file: see :data:`mapreduce.support.tasks.DRIVER`.
_DRIVER = np.dtype(
    [
        *(("magic", "S8"), ("version", "<u4"), ("workers", "<u4"), ("machine", "S40")),
        *(("start", "<i8"), ("stop", "<i8"), ("wall", "<i8"), ("error", "S80")),
    ]
)

#: Kinds of tasks.
_KINDS = "map", "reduce"

#: Ranks or workers, nanoseconds of a trace (ten years), bytes and other counts, and bytes of files.
_MOST_RANKS, _MOST_TIME, _MOST = 1 << 16, 10 * 366 * 86_400 * 10**9, 1 << 56
_MOST_SIZE = {SUFFIX: 2 * phases.MOST_BYTES, TASKS: tasks.MOST_BYTES}


class _Notes(NamedTuple):
    """What a rank has noted; ``names`` are those of its codes."""

    head: Any
    names: list[str]
    events: Any


class _Part(NamedTuple):
    """What a driver and its ranks have noted, by the driver's clock; ``wall`` gives their order."""

    segments: list[tuple[int, Segment]]
    tasks: Any
    driver: Any
    start: int
    stop: int
    wall: int
    workers: int


def read(place: Path) -> Trace:
    """Read the trace of a run, or one in a folder.

    Parameters
    ----------
    place : Path
        A run, or a folder of ``gradreduce run --trace``.

    Returns
    -------
    Trace
        Drivers that followed each other do so without a gap.

    Raises
    ------
    MissingInputError
        There is no trace.
    DataError
        A file is damaged, or of another version. One that was cut is read as far as it goes.
    """
    places = place / FOLDER, place / "rounds" / FOLDER
    folder = next((each for each in places if each.is_dir()), place)
    groups: dict[str, dict[str, dict[int, _Notes]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        notes = _read_events(path)
        if notes is not None:
            name = path.name.removesuffix(SUFFIX).rpartition(".")[0]
            ranks, rank = groups[name.partition(".")[0]][name], int(notes.head["rank"])
            _expect(path, "head", rank not in ranks, "a rank once")
            ranks[rank] = notes
    drivers = {path.name.removesuffix(TASKS): path for path in sorted(folder.glob(f"*{TASKS}"))}
    found = (_part(folder, drivers.get(name), groups[name]) for name in {**drivers, **groups})
    parts = sorted(filter(None, found), key=lambda each: each.wall)
    if not parts:
        raise MissingInputError(
            f"{place} has no trace: expected files {FOLDER}/*{SUFFIX}. Train with --trace"
        )
    segments: list[tuple[int, Segment]] = []
    rows: list[Any] = []
    stop, jobs = parts[0].start, 0
    for part in parts:
        shift = stop - part.start
        for at, segment in part.segments:
            for events in segment.ranks:
                _move(events, shift, "start", "stop")
            segments.append((at + shift, segment))
        for each in (part.tasks, part.driver):
            _move(each, shift, "ready", "start", "stop")
        own, numbers = np.unique(part.tasks["job"], return_inverse=True)
        part.tasks["job"] = jobs + numbers
        rows.append(part.tasks)
        jobs, stop = jobs + len(own), part.stop + shift
        _expect(folder, "times of drivers", stop < 1 << 62, "ten years at most")
    ordered = np.concatenate(rows)
    return Trace(
        tuple(segment for _, segment in sorted(segments, key=lambda each: each[0])),
        ordered[np.argsort(ordered["start"], kind="stable")],
        parts[0].start,
        stop,
        max(each.workers for each in parts),
        np.concatenate([part.driver for part in parts]),
    )


def _move(rows: Any, shift: int, *names: str) -> None:
    for name in names:
        rows[name] += shift


def _part(
    folder: Path, path: Path | None, groups: Mapping[str, Mapping[int, _Notes]]
) -> _Part | None:
    """What a driver and its ranks have left; None if that is nothing."""
    own = None if path is None else _read_tasks(path)
    if own is None and not groups:
        return None
    segments, spans, workers, is_near = [], [], [1], True
    for name, notes in groups.items():
        segment, first = _segment(folder / name, notes), notes[min(notes)].head
        if own is not None and first["machine"] != own[0]["machine"]:
            # Nothing better than the machines' own times connects the two.
            is_near = False
            zero = int(first["wall"]) - int(first["start"])
            shift = zero - int(own[0]["wall"]) + int(own[0]["start"])
            for events in segment.ranks:
                _move(events, shift, "start", "stop")
        some = [events for events in segment.ranks if len(events)]
        start = min(int(events["start"].min()) for events in some)
        spans.append((start, max(int(events["stop"].max()) for events in some)))
        segments.append((start, segment))
        workers.append(len(segment.ranks))
    walls = [int(notes[min(notes)].head["wall"]) for notes in groups.values()]
    rows = np.zeros(0, TASK)
    if own is not None:
        head, rows = own
        spans.append((int(head["start"]), int(max(head["stop"], rows["stop"].max(initial=0)))))
        walls, workers = [int(head["wall"])], [*workers, int(head["workers"])]
    start, stop = min(first for first, _ in spans), max(last for _, last in spans)
    is_task = np.isin(rows["kind"], _KINDS)
    driver = rows[~is_task & is_near]
    return _Part(segments, rows[is_task], driver, start, stop, min(walls), max(workers))


def _read(path: Path, head: Any, magic: bytes, version: int, row: Any) -> tuple[Any, Any] | None:
    """Head and rows of a file; None if it was cut before them."""
    most = _MOST_SIZE[path.suffix]
    with storage_errors("read", path):
        status = path.lstat()
        _expect(path, "path", stat.S_ISREG(status.st_mode), "a file, and no link")
        _expect(path, "size", status.st_size <= most, f"{most:,} bytes at most")
        content = path.read_bytes()
    if len(content) < head.itemsize:
        return None
    found = np.frombuffer(content, head, 1)[0]
    _expect(path, "first bytes", found["magic"] == magic, f"{magic!r}")
    if not 1 <= found["version"] <= version:
        raise DataError(
            f"{path} has version {found['version']}; this program reads version {version}. Use the "
            f"program that wrote it"
        )
    first, last = int(found["start"]), int(found["start"]) + _MOST_TIME
    is_short = 0 <= first <= found["stop"] <= last < 1 << 60
    _expect(path, "times", is_short and 0 <= found["wall"] < 1 << 62, "ten years at most")
    rows = np.frombuffer(
        content, row, (len(content) - head.itemsize) // row.itemsize, head.itemsize
    )
    return found, rows.copy()


def _check(path: Path, rows: Any, checks: Iterable[tuple[str, Any, str]]) -> None:
    """Refuse rows of which a field does not hold what is wanted."""
    for name, holds, wanted in checks:
        if not holds.all():
            at = int(np.argmin(holds))
            found = f" {rows[name][at]}" if rows[name].dtype.kind in "iu" else ""
            _expect(path, f"row {at}, {name}{found}", False, wanted)


def _is_count(values: Any, least: int = 0) -> Any:
    return (values >= least) & (values < _MOST)


def _read_events(path: Path) -> _Notes | None:
    """The events of a file; None if its rank was lost before it noted any."""
    found = _read(path, HEAD, phases.MAGIC, phases.VERSION, EVENT)
    if found is None or not len(found[1]):
        return None
    head, events = found
    names = [name.decode(errors="replace") for name in head["names"].tolist()]
    names = names[: max(at for at, name in enumerate(names) if name or not at) + 1]
    sums = head["nanoseconds"]
    for what, holds, wanted in (
        ("names", tuple(names[: len(PHASES)]) == PHASES, f"those of {len(PHASES)} phases"),
        ("rank", head["rank"] < head["ranks"] <= _MOST_RANKS, f"one of {_MOST_RANKS} at most"),
        ("level", head["level"] <= 32, "32 at most"),
        ("rounds", 0 <= head["rounds"] < 1 << 32, "a number below 2 ** 32"),
        ("sums", ((sums >= 0) & (sums <= _MOST_TIME)).all(), "ten years at most"),
    ):
        _expect(path, what, bool(holds), wanted)
    first, start, stop = int(head["start"]), events["start"], events["stop"]
    checks = (
        ("code", events["code"] < len(names), f"a number below {len(names)}"),
        ("start", start >= first, f"{first} at least"),
        ("stop", (stop >= start) & (stop <= first + _MOST_TIME), "a later time"),
        *((name, _is_count(events[name]), f"0 to {_MOST}") for name in ("bytes", "units")),
    )
    _check(path, events, checks)
    return _Notes(head, names, events)


def _read_tasks(path: Path) -> tuple[Any, Any] | None:
    """Head and rows of a driver's file."""
    found = _read(path, _DRIVER, tasks.MAGIC, tasks.VERSION, TASK)
    if found is None:
        return None
    head, rows = found
    _expect(path, "workers", head["workers"] <= _MOST_RANKS, f"{_MOST_RANKS} at most")
    first, ready, start, stop = int(head["start"]), rows["ready"], rows["start"], rows["stop"]
    counts = (("cpu", 0), ("waited", 0), ("read", -1), ("written", -1), ("records", -1))
    checks = (
        ("kind", np.isin(rows["kind"], (*_KINDS, *tasks.OWN)), "map or reduce"),
        ("worker", rows["worker"] < max(int(head["workers"]), 1), f"less than {head['workers']}"),
        ("ready", ready >= first, f"{first} at least"),
        ("start", start >= ready, "a later time"),
        ("stop", (stop >= start) & (stop <= first + _MOST_TIME), "a later time"),
        *((name, _is_count(rows[name], least), f"{least} to {_MOST}") for name, least in counts),
    )
    _check(path, rows, checks)
    return head, rows


def _expect(path: Path, what: str, holds: bool, wanted: str) -> None:
    if not holds:
        raise DataError(
            f"{path} is damaged: {what}: expected {wanted}. Remove the file to do without it"
        )


def _segment(path: Path, notes: Mapping[int, _Notes]) -> Segment:
    """The ranks of a generation, with equal codes, the rounds that all have, and one clock."""
    ranks = int(next(iter(notes.values())).head["ranks"])
    for each in notes.values():
        _expect(path, "head", each.head["ranks"] == ranks, f"{ranks} ranks, as another has")
    names = [*dict.fromkeys((*PHASES, *(name for each in notes.values() for name in each.names)))]
    level = max(int(each.head["level"]) for each in notes.values())
    seconds, events = np.zeros((ranks, len(names))), [np.zeros(0, EVENT)] * ranks
    for rank, each in notes.items():
        codes = np.array([names.index(name) for name in each.names], np.uint8)
        np.add.at(seconds[rank], codes, each.head["nanoseconds"][: len(codes)] / 1e9)
        whole = each.events[is_kept(each.events, level)]
        whole["code"] = codes[whole["code"]]
        events[rank] = whole[np.lexsort((whole["depth"], whole["start"]))]
    rounds, errors = max(int(each.head["rounds"]) for each in notes.values()), np.zeros(ranks)
    zero = notes.get(0)
    for rank, each in notes.items():
        if zero is None or each.head["machine"] != zero.head["machine"]:
            events[rank], errors[rank] = _by_clock(events[0], events[rank])
    return Segment(path.name, tuple(events), seconds, rounds, tuple(names), errors)


def _by_clock(zero: Any, events: Any) -> tuple[Any, float]:
    """The events of a rank by the clock of rank 0, and by how many seconds they may be wrong."""
    found, error = events.copy(), 0.0
    for name in ("start", "stop"):
        difference, wrong = clocks.differences(zero, events, events[name])
        found[name] += np.rint(difference).astype(np.int64)
        error = max(error, float(wrong.max()) / 1e9)
    return found, error
