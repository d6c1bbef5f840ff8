"""Where the blocks of a CSV file begin, from parts of it that know nothing of those before.

What a byte means depends on whether quotes are open there. So each part says, for every state in
which it may begin, where its first record ends and in which state it ends itself. One after the
other, a few numbers for each part, these tell what reading the whole file would have.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from hdfs_utils.paths import AnyPath
from kernels.records import BLANKS, RECORD, is_quoted
from mapreduce.data.batch import Array
from mapreduce.data.readers.records import RecordEnds, check_line
from mapreduce.data.readers.table import Leaf
from mapreduce.data.recipes.recipe import Recipe

_STATES = BLANKS + 1
#: Behind so many bytes few states are left: in quotes, or not.
_HEAD_BYTES = 1 << 12


def edges_of(part: bytes, recipe: Recipe, end: bytes) -> Array:
    """For each state in which a part may begin: an array (25,), int64, for :func:`leaves_at`.

    The place behind its first end of a record, or 0; the state behind it; and whether quotes seem
    to be left open before one of its ends. At last, whether it ends with the end of a line.
    """
    head, rest = part[:_HEAD_BYTES], part[_HEAD_BYTES:]
    found = np.zeros((_STATES, 3), np.int64)
    behind: dict[int, tuple[int, int, bool]] = {}
    for state in range(_STATES):
        first, last, wrong = _read(head, recipe, end, state)
        if rest:
            if last not in behind:
                behind[last] = _read(rest, recipe, end, last)
            place, last, more = behind[last]
            first, wrong = first or (place and len(head) + place), wrong or more
        found[state] = first, last, wrong
    return np.append(found.ravel(), part.endswith(end))


def _read(part: bytes, recipe: Recipe, end: bytes, state: int) -> tuple[int, int, bool]:
    records = RecordEnds(recipe, end, state)
    return records.first(part), records.state, records.wrong is not None


def leaves_at(path: AnyPath, edges: Iterable[Array], size: int, step: int) -> Iterator[Leaf]:
    """The blocks of a file, without their content, from the edges of its parts of ``step`` bytes.

    Raises DataError (a line is too long).
    """
    state, begin, starts, is_doubtful, is_open = RECORD, 0, True, False, False
    for start, found in zip(range(0, size, step), edges, strict=True):
        stop, (cut, state, wrong) = min(start + step, size), found[:-1].reshape(-1, 3)[state]
        is_doubtful |= bool(wrong)
        if is_open:
            if not cut:
                check_line(path, stop - begin - step, is_quoted(state))
                continue
            yield Leaf(path, starts, None, begin, is_doubtful)
            begin, starts = start + int(cut), False
        is_open = begin < stop and not (state == RECORD and found[-1])
        if begin < stop and not is_open:
            yield Leaf(path, starts, None, begin, is_doubtful)
            begin, starts = stop, False
    if is_open:
        yield Leaf(path, starts, None, begin, is_doubtful or is_quoted(state))
