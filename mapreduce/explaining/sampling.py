"""The lines of a job's input: all of them, or a sample where they are too many."""

import random
from collections.abc import Iterable, Sequence
from itertools import count, islice
from pathlib import Path

from mapreduce.explaining.model import Line, Lines, Source
from mapreduce.runners.parallel.records import Split, SplitReader, is_compressed, splits

#: A path, and its bytes.
File = tuple[str, int]

#: Seed of the places of a sample.
_SEED = 0

#: Bytes of a line that are read of a file that is sampled.
_LONGEST = 1 << 20


def read_lines(files: Sequence[File], most: int) -> tuple[list[Source], Lines]:
    """The lines of some files, or a sample if they are more than ``most`` together.

    Each file, given by its path and its bytes, has a share of the lines by its size.
    """
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


def numbered(texts: Iterable[str], numbers: Iterable[int]) -> list[Line]:
    """Lines of a file, from its beginning."""
    lines, offset = [], 0
    for text, number in zip(texts, numbers, strict=False):
        lines.append(Line(text, offset, number))
        offset += lines[-1].size
    return lines


def _first_lines(path: str, size: int, most: int) -> list[Line]:
    texts = islice(SplitReader(Split(path, 0, size)), most)
    return numbered((text.decode("latin-1") for text in texts), count(1))


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
    files: Sequence[File], lines: Sequence[list[Line]], maps: int, uneven: bool = False
) -> list[tuple[Split, list[Line]]]:
    """Splits of some files, as the runner ``parallel`` makes them, each with its lines.

    ``uneven`` ones are a quarter of each file, and the rest.
    """
    known = {path: found for (path, _), found in zip(files, lines, strict=True)}
    result = []
    cut = splits(files, 1 if uneven else maps)
    if uneven:
        edges = [(split, 0 if is_compressed(split.path) else split.stop // 4) for split in cut]
        halves = [(split._replace(stop=at), split._replace(start=at)) for split, at in edges]
        cut = [part for two in halves for part in two if part.start < part.stop or not two[1].stop]
    for split in cut:
        whole = is_compressed(split.path)
        start, stop = split.start, split.stop
        own = [one for one in known[split.path] if whole or start <= one.offset < stop]
        result.append((split, own))
    return result


def part_name(number: int) -> str:
    """The name of a task's output."""
    return f"part-{number:05d}"
