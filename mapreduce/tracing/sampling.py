"""The lines of a job's input: all of them, or a sample where they are too many."""

import bisect
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mapreduce.runners.parallel.records import Split, SplitReader, is_compressed, task_splits
from mapreduce.tracing.model import Line, Source

#: Seed of the places of a sample.
_SEED = 0

#: Bytes of a line that are read of a file that is sampled.
_LONGEST = 1 << 20


def read_lines(
    files: Iterable[tuple[str, int]], most: int
) -> tuple[list[Source], list[list[Line]]]:
    """The lines of some files, or a sample if they are more than ``most`` together.

    Parameters
    ----------
    files : iterable of (path, bytes)
    most : int
        Lines in all. Each file has a share of them, by its size.

    Returns
    -------
    sources : list of Source
    lines : list of list of Line
        Lines of each file.
    """
    files = list(files)
    total = sum(size for _, size in files) or 1
    sources, found = [], []
    for path, size in files:
        share = max(1, most * size // total)
        lines = _first_lines(path, size, share + 1)
        # A file of a few lines more than its share is read as a whole if all files are.
        sampled = len(lines) > share
        if sampled:
            lines = _sample(path, size, share)
        sources.append(Source(path, size, len(lines), sampled))
        found.append(lines)
    return sources, found


def _first_lines(path: str, size: int, most: int) -> list[Line]:
    lines: list[Line] = []
    offset = 0
    for number, text in enumerate(_lines_of(path, size), 1):
        lines.append(Line(text.decode("latin-1"), offset, number))
        offset += len(text) + 1
        if len(lines) == most:
            break
    return lines


def _lines_of(path: str, size: int) -> Iterator[bytes]:
    return iter(SplitReader(Split(path, 0, size)))


def _sample(path: str, size: int, most: int) -> list[Line]:
    """One line of each of ``most`` equal parts of a file that is not read as a whole.

    It is the first line of the first part, and else one at a random place, the same each time: at
    equal distances lines could be all of one kind. A compressed file can be read from its beginning
    only: its first lines are taken.
    """
    if is_compressed(path):
        return _first_lines(path, size, most)
    found: dict[int, Line] = {}
    chance = random.Random(_SEED)
    with Path(path).open("rb") as file:
        for place in range(most):
            if place:
                at = int(size * (place + chance.random()) / most)
                # The line that begins here or next: what is before belongs to another one.
                file.seek(at - 1)
                file.readline(_LONGEST)
            offset = file.tell()
            if text := file.readline(_LONGEST):
                found[offset] = Line(text.removesuffix(b"\n").decode("latin-1"), offset, 0)
            file.seek(0)
    return [found[offset] for offset in sorted(found)]


def divide(
    files: Sequence[tuple[str, int]],
    lines: Sequence[Sequence[Line]],
    maps: int,
    uneven: bool = False,
) -> list[tuple[Split, list[Line]]]:
    """Splits of some files, as the runner ``parallel`` makes them, each with its lines.

    ``uneven`` ones are a quarter of each file, and the rest.
    """
    known = {path: found for (path, _), found in zip(files, lines, strict=True)}
    result = []
    cut = task_splits(files, 1 if uneven else maps)
    if uneven:
        edges = [(split, 0 if is_compressed(split.path) else split.stop // 4) for split in cut]
        halves = [(split._replace(stop=at), split._replace(start=at)) for split, at in edges]
        cut = [part for pair in halves for part in pair if part.start < part.stop] or cut
    for split in cut:
        found = known[split.path]
        if is_compressed(split.path):
            result.append((split, list(found)))
            continue
        offsets = [line.offset for line in found]
        first, last = (bisect.bisect_left(offsets, edge) for edge in (split.start, split.stop))
        result.append((split, list(found[first:last])))
    return result


def plain_name(path: str) -> str:
    """The name of a file, without the ending that says that it is compressed."""
    return Path(path).stem if is_compressed(path) else Path(path).name


def part_name(number: int) -> str:
    """The name of a task's output."""
    return f"part-{number:05d}"
