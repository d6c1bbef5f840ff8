"""The ranges of units that the map tasks of a round have."""

import heapq
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from mapreduce.reduction.tree import root

#: Least number of aligned pieces in the range of a map task.
_PIECES = 8


class Split(NamedTuple):
    """How units are divided among tasks, which does not change the result.

    ``speeds``: A positive number for each task, in any unit of measure; empty if all are equally
      fast.
    ``probe``: A task that gets one piece, whatever its speed, so that it is measured; -1 for none.
    """

    speeds: tuple[float, ...] = ()
    probe: int = -1


#: The split among equal tasks.
EVEN = Split()


class LeafRange(NamedTuple):
    """Units ``start`` to ``stop`` of the round after ``completed`` ones: leaves of its tree."""

    completed: int
    start: int
    stop: int

    def to_key(self) -> str:
        """The key, all of which have the same length, so that a file of them is split evenly."""
        return f"{self.completed:08d}.{self.start:08d}-{self.stop:08d}"

    @classmethod
    def from_key(cls, key: str) -> "LeafRange":
        return cls(int(key[:8]), int(key[9:17]), int(key[18:26]))


def alignment(leaves: int, tasks: int) -> int:
    """Level of the nodes of which ranges are made: for even ranges, with few complete nodes."""
    return max(0, (leaves // (tasks * _PIECES)).bit_length() - 1)


def ranges(leaves: int, tasks: int) -> list[tuple[int, int]]:
    """Even, aligned ranges of leaves, none of them empty, for at most ``tasks`` map tasks."""
    piece = 1 << alignment(leaves, tasks)
    pieces = -(-leaves // piece)
    tasks = min(tasks, pieces)
    edges = [min(pieces * i // tasks * piece, leaves) for i in range(tasks)] + [leaves]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def leaf_ranges(completed: int, leaves: int, tasks: int) -> list[LeafRange]:
    """The :func:`ranges` of a round's units: fewer than tasks if there are few units."""
    return [LeafRange(completed, start, stop) for start, stop in ranges(leaves, tasks)]


@lru_cache(maxsize=64)
def shares(leaves: int, tasks: int, split: Split = EVEN) -> tuple[tuple[int, int], ...]:
    """The range of each of the ``tasks``, in their order; those of some may be empty.

    Equal tasks get the :func:`ranges`. Otherwise each aligned piece in turn is counted for the task
    that would be done with it first, which makes the time of the slowest task as short as pieces of
    one size allow (Q | p = 1 | Cmax, in the words of scheduling). The range of a faster task has at
    least as many pieces.
    """
    if tasks == 1 or (len({*split.speeds}) < 2 and split.probe < 0):
        even = ranges(leaves, tasks)
        return (*even, *[(leaves, leaves)] * (tasks - len(even)))
    piece = 1 << alignment(leaves, tasks)
    left, counts = -(-leaves // piece), [0] * tasks
    speeds = split.speeds or (1.0,) * tasks
    if split.probe >= 0:
        left, counts[split.probe] = left - 1, 1
    # When each task would be done with one more piece.
    ends = [(1 / speed, task) for task, speed in enumerate(speeds) if task != split.probe]
    heapq.heapify(ends)
    for _ in range(left):
        task = ends[0][1]
        counts[task] += 1
        heapq.heapreplace(ends, ((counts[task] + 1) / speeds[task], task))
    edges = [min(count * piece, leaves) for count in accumulate(counts, initial=0)]
    return (*pairwise(edges),)


def even_shares(leaves: int, tasks: int) -> tuple[tuple[int, int], ...]:
    """The range of each of the ``tasks``, as even as single leaves allow; those of some are empty.

    Where shares stay for all rounds, an uneven piece would cost more than a few nodes do.

    >>> even_shares(34, 2), even_shares(2, 3)
    (((0, 17), (17, 34)), ((0, 1), (1, 2), (2, 2)))
    """
    return (*pairwise(-(-leaves * task // tasks) for task in range(tasks + 1)),)


def merge_levels(leaves: int, tasks: int, fan_in: int) -> list[int]:
    """Levels of the tree at which an additional step merges partial sums.

    They limit the partial sums that a reducer merges to ``fan_in``, unless it is 0.
    """
    if not fan_in:
        return []
    step = fan_in.bit_length() - 1
    return list(range(alignment(leaves, tasks) + step, root(leaves).level, step))
