"""The log of an asynchronous run: in which order gradients were applied, and what each had read.

::

    pushes/ROUND.BLOCK-of-BLOCKS.log

A *stretch* is what is trained between two states that are published, the first after ``ROUND``
rounds. Each block has a file for it, which the server of the block writes. The first line is JSON
and names the run. Then follows a line for each gradient, in the order in which they were applied to
the block: the number of its unit in the stretch, and the version of every block for which it was
computed. Version 0 is the state that the stretch begins with, and each application makes the next.

A line is on the disk before its gradient is applied. So the log knows every version that anybody
has read, and the same gradients in the same order give the same bits, whoever computes them.
"""

import hashlib
import heapq
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hdfs_utils.atomic import storage_errors
from mapreduce.errors import DataError
from mapreduce.runs.directory import RunDir

FOLDER = "pushes"
_FORMAT, _VERSION = "gradreduce-pushes", 1
#: macOS has only the second.
_sync = getattr(os, "fdatasync", os.fsync)
_NAME = re.compile(r"(\d{8})\.(\d{5})-of-(\d{5})\.log")


class Push(NamedTuple):
    """A gradient: the number of its unit in the stretch, and the versions of all blocks it read."""

    unit: int
    versions: tuple[int, ...]


class Log:
    """The file of a block, to which the block's server appends."""

    def __init__(self, run: RunDir, start: int, block: int, blocks: int) -> None:
        self._path = _path(run, start, block, blocks)
        self._header = _header(run, start, block, blocks)
        self._descriptor = -1

    def append(self, pushes: Iterable[Push]) -> None:
        """Write some pushes, and return when they are on the disk."""
        with storage_errors("write", self._path):
            if self._descriptor < 0:
                self._open()
            lines = "".join(f"{_line(push)}\n" for push in pushes)
            _write(self._descriptor, lines.encode())
            _sync(self._descriptor)

    def _open(self) -> None:
        """Open the file behind its last whole line."""
        folder = self._path.parent
        folder.mkdir(exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            whole = self._path.read_bytes().rpartition(b"\n")
            size = len(whole[0]) + len(whole[1])
            os.ftruncate(descriptor, size)
            os.lseek(descriptor, size, os.SEEK_SET)
            if not size:
                _write(descriptor, self._header)
            # The name of a new file must be on the disk, too.
            above = os.open(folder, os.O_RDONLY)
            os.fsync(above)
            os.close(above)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def close(self) -> None:
        """Close the file, if anything was written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _line(push: Push) -> str:
    return " ".join(map(str, (push.unit, *push.versions)))


def _path(run: RunDir, start: int, block: int, blocks: int) -> Path:
    return Path(str(run.path), FOLDER, f"{start:08d}.{block:05d}-of-{blocks:05d}.log")


def _header(run: RunDir, start: int, block: int, blocks: int) -> bytes:
    digest = hashlib.sha256((run.path / "run.json").read_bytes()).hexdigest()
    names = {"format": _FORMAT, "format_version": _VERSION, "run": digest}
    place = {"round": start, "block": block, "blocks": blocks}
    return json.dumps(names | place).encode() + b"\n"


class Script:
    """What the log says of a stretch: the pushes of each block, in the order of application.

    ``orders``: Of each block, the units.
    ``versions``: Of each unit, what it has read.
    """

    def __init__(self, logs: Sequence[Sequence[Push]]) -> None:
        self.orders = [[push.unit for push in log] for log in logs]
        self.versions = {push.unit: push.versions for log in logs for push in log}

    @property
    def whole(self) -> set[int]:
        """The units that were applied to all blocks."""
        return set.intersection(*map(set, self.orders)) if self.orders else set()

    def units_by_version(self, block: int) -> dict[int, list[int]]:
        """The units that have read each version of a block."""
        found = defaultdict(list)
        for unit, versions in self.versions.items():
            found[versions[block]].append(unit)
        return found

    def sequence(self) -> list[int]:
        """All units, each after those whose gradients made the versions that it has read.

        So a single worker can compute one after another.

        Raises ValueError (there is no such order).
        """
        # Of each block, the units of its order that are in the sequence, from the first on.
        made, done = [0] * len(self.orders), set[int]()
        missing = dict[int, int]()
        waiting = [defaultdict[int, list[int]](list) for _ in self.orders]
        ready, found = list[int](), list[int]()
        for unit, versions in self.versions.items():
            missing[unit] = sum(map(bool, versions))
            for block, version in enumerate(versions):
                waiting[block][version].append(unit)
            if not missing[unit]:
                ready.append(unit)
        heapq.heapify(ready)
        while ready:
            unit = heapq.heappop(ready)
            found.append(unit)
            done.add(unit)
            for block, order in enumerate(self.orders):
                while made[block] < len(order) and order[made[block]] in done:
                    made[block] += 1
                    for other in waiting[block][made[block]]:
                        missing[other] -= 1
                        if not missing[other]:
                            heapq.heappush(ready, other)
        if len(found) < len(self.versions):
            unit = min(self.versions.keys() - done)
            raise ValueError(f"unit {unit} has read a version that its own gradient led to")
        return found


def starts(run: RunDir, first: int = 0) -> dict[int, int]:
    """The rounds at which the stretches of the log begin, and their numbers of blocks.

    Those before the round ``first`` are left out.
    """
    found = {}
    for path in _files(run):
        start, _, blocks = _numbers(path)
        if start >= first and start not in found and _has_a_push(path):
            found[start] = blocks
    return found


def _has_a_push(path: Path) -> bool:
    """Whether a line follows the first; a server may have been killed before."""
    with storage_errors("read", path), path.open("rb") as file:
        file.readline()
        return file.readline().endswith(b"\n")


def _files(run: RunDir) -> list[Path]:
    folder = Path(str(run.path), FOLDER)
    return sorted(path for path in folder.glob("*") if _NAME.fullmatch(path.name))


def _numbers(path: Path) -> tuple[int, int, int]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2]), int(match[3])


def read(run: RunDir, start: int, blocks: int, units: int) -> Script:
    """What the log says of a stretch of ``units`` units."""
    logs = [_read(run, start, block, blocks, units) for block in range(blocks)]
    read_by: dict[int, Push] = {}
    paths = [_path(run, start, block, blocks) for block in range(blocks)]
    for block, log in enumerate(logs):
        # The first line is the header.
        for number, push in enumerate(log, 2):
            what = ""
            late = [at for at in range(blocks) if push.versions[at] > len(logs[at])]
            if late:
                raise _damaged(
                    paths[late[0]],
                    len(logs[late[0]]) + 2,
                    f"expected at least {push.versions[late[0]]} gradients, since {paths[block]}, "
                    f"line {number}, has read as many versions, found {len(logs[late[0]])}",
                )
            if push.versions[block] > number - 2:
                what = f"version {push.versions[block]} of its own block, which it made itself"
            elif read_by.setdefault(push.unit, push) != push:
                what = f"other versions than in the log of another block: {read_by[push.unit]}"
            if what:
                raise _damaged(paths[block], number, f"unit {push.unit} read {what}")
    script = Script(logs)
    try:
        script.sequence()
    except ValueError as error:
        raise _damaged(paths[0], 2, str(error)) from error
    return script


def _read(run: RunDir, start: int, block: int, blocks: int, units: int | None) -> list[Push]:
    path = _path(run, start, block, blocks)
    with storage_errors("read", path):
        content = path.read_bytes() if path.exists() else b""
    expected = _header(run, start, block, blocks)
    # What has no end was being written when its server was killed: nobody has seen it.
    if expected.startswith(content):
        return []
    header, *lines = content.split(b"\n")[:-1] or [content]
    if header + b"\n" != expected:
        raise DataError(
            f"{path} does not belong to this run: expected the first line "
            f"{expected.decode().strip()}, found {header.decode(errors='replace'):.200}. Put the "
            f"run's own log there"
        )
    found, seen = [], set()
    below = "" if units is None else f" below {units}"
    for number, line in enumerate(lines, 2):
        parts = line.split(b" ")
        is_whole = len(parts) == blocks + 1 and all(part.isdigit() for part in parts)
        values = [int(part) for part in parts if len(part) < 12] if is_whole else []
        is_known = len(values) == blocks + 1 and (units is None or values[0] < units)
        if not is_known or values[0] in seen:
            shown = line.decode(errors="replace")
            what = f"expected a new unit{below} and {blocks} version(s), found {shown!r:.60}"
            raise _damaged(path, number, what)
        seen.add(values[0])
        found.append(Push(values[0], tuple(values[1:])))
    return found


def _damaged(path: Path, number: int, what: str) -> DataError:
    return DataError(
        f"{path}, line {number}: {what}. The log is damaged, or is that of another run. Put the "
        f"run's own log there"
    )


class Staleness(NamedTuple):
    """How many gradients were applied between reading the model and applying one's own.

    The ``mean`` is over blocks and gradients, of which ``pushes`` are the number.
    """

    pushes: int
    mean: float
    most: int


def require_whole(run: RunDir, units: Callable[[int, int], int]) -> None:
    """Require that the log has every gradient of a run that has ended.

    ``units`` gives the number of units of the rounds from one to before another.
    """
    plan, known = run.config.plan, starts(run)
    stop = 0
    for (start, blocks), following in zip(known.items(), [*known, plan.rounds][1:], strict=True):
        expected, stop = stop, min(plan.next_stop(start), following)
        count = units(start, stop)
        whole = len(read(run, start, blocks, count).whole) if start == expected else 0
        if whole < count:
            raise DataError(
                f"{run.path / FOLDER}: the log has {whole:,} of the {count:,} gradients of the "
                f"rounds from {expected:,} to {stop:,}. Copy the whole folder of the run"
            )
    ended = run.result()
    if ended is not None and stop < ended.completed:
        raise DataError(
            f"{run.path / FOLDER}: the log ends after {stop:,} of {ended.completed:,} rounds. Copy "
            f"the whole folder of the run"
        )


def staleness(run: RunDir) -> Staleness | None:
    """What the log says of the staleness of a run; None if there is no log."""
    counts, pushes = Counter[int](), 0
    for path in _files(run):
        start, block, blocks = _numbers(path)
        log = _read(run, start, block, blocks, None)
        counts.update(number - push.versions[block] for number, push in enumerate(log))
        pushes += len(log) if block == 0 else 0
    total = counts.total()
    if not total:
        return None
    mean = sum(late * count for late, count in counts.items()) / total
    return Staleness(pushes, mean, max(counts))
