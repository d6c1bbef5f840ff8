"""How rank 0 divides a round's units among ranks whose speeds differ.

Each rank sends the seconds of its map with what it sends to rank 0 anyway. Once in some rounds rank
0 compares the medians and, where that makes rounds clearly shorter, tells all ranks another split,
with the block that they wait for anyway. All have it from the same round on.
"""

import math
from statistics import median

from mapreduce.engine.leaf_ranges import EVEN, Split, alignment, shares

#: Rounds of which a median is taken, or fewer if they take so many seconds.
_ROUNDS, _LEAST, _SECONDS = 16, 3, 1.0

#: The even split is as good as that by speed if it takes longer by at most the first share. A
#: split is replaced if it takes longer than the best by more than the second, and than the seconds.
_EQUAL, _GAIN, _WORTH = 0.1, 0.2, 1e-4

#: A rank without units is measured again after these seconds, and after so many times of what a
#: piece takes it.
_PROBE_SECONDS, _PROBE_SHARE = 1.0, 50

#: The shortest time for a unit, where the clock saw none pass.
_TICK = 1e-9


class Balance:
    """The splits of one generation of ``ranks``, which begins with an even one at ``now``."""

    def __init__(self, ranks: int, now: float) -> None:
        self._ranks = ranks
        self._split = EVEN
        #: Seconds per unit: of each rank's maps since the last comparison, and the last median.
        self._windows: list[list[float]] = [[] for _ in range(ranks)]
        self._seconds: list[float | None] = [None] * ranks
        #: When each rank was measured, on the clock of :meth:`decide`.
        self._measured = [-math.inf] * ranks
        self._leaves = self._rounds = 0
        self._since = now

    def note(self, rank: int, units: int, seconds: float) -> None:
        """Note what a map took: compute alone, without the waiting for other ranks."""
        self._windows[rank].append(max(seconds / units, _TICK))

    def decide(self, leaves: int, now: float) -> Split | None:
        """The split of the next rounds, if that is another one; call this once in each round."""
        self._rounds += 1
        self._leaves = max(self._leaves, leaves)
        is_time = self._rounds >= _ROUNDS or (
            self._rounds >= _LEAST and now - self._since >= _SECONDS
        )
        # The short round at the end of an epoch says little about the others.
        if leaves < self._leaves or not (is_time or self._split.probe >= 0):
            return None
        self._rounds, self._since = 0, now
        for rank, window in enumerate(self._windows):
            if window:
                self._seconds[rank], self._measured[rank] = median(window), now
                window.clear()
        before, self._split = self._split, self._wanted(leaves, now)
        return None if self._split == before else self._split

    def _wanted(self, leaves: int, now: float) -> Split:
        known = [seconds for seconds in self._seconds if seconds is not None]
        # Ranks that never had a unit may be as fast as any.
        each = [min(known) if seconds is None else seconds for seconds in self._seconds]
        if self._split == EVEN and max(each) <= (1 + _EQUAL) * min(each):
            return EVEN

        def longest(split: Split) -> float:
            parts = shares(leaves, self._ranks, split)
            return max((b - a) * seconds for (a, b), seconds in zip(parts, each, strict=True))

        chosen = self._split._replace(probe=-1)
        best = Split(tuple(1 / seconds for seconds in each))
        if longest(EVEN) <= (1 + _EQUAL) * longest(best):
            best = EVEN
        if longest(chosen) - longest(best) > max(_GAIN * longest(best), _WORTH):
            chosen = best
        return chosen if chosen == EVEN else self._with_probe(chosen, leaves, each, now)

    def _with_probe(self, split: Split, leaves: int, each: list[float], now: float) -> Split:
        """The split that also measures the rank without units that has waited longest, if due."""
        piece = 1 << alignment(leaves, self._ranks)
        due = [
            rank
            for rank, (start, stop) in enumerate(shares(leaves, self._ranks, split))
            if start == stop
            and now - self._measured[rank] >= max(_PROBE_SECONDS, _PROBE_SHARE * piece * each[rank])
        ]
        return split._replace(probe=min(due, key=self._measured.__getitem__, default=-1))
