"""Groups of the segments of one reduce task, by one range of keys after another.

Each segment is read a block or more at a time. What all readers have of the keys below the first
that any of them may have more of is one range: it is put together in a dictionary that stays in the
processor's cache. Nothing else is kept, whatever the segments come to.
"""

import heapq
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from typing import Any, NamedTuple

from mapreduce.runners.parallel.columns import Block, blocks_of
from mapreduce.runners.parallel.segments import Segment

#: What is merged at once at most: more takes longer, for the processor's caches.
_MERGED_BYTES = 4 << 20

#: Memory that keys and values take when they have been read, beside their bytes.
_KEY_BYTES, _VALUE_BYTES = 330, 40

#: Memory that a block takes at most, if no value in it is large.
_MOST_BLOCK = 1 << 20


class Range(NamedTuple):
    """Sorted keys, and for each its values: lists, which nobody else has, or what is read as it is
    taken, of a single key."""

    texts: list[str]
    lists: list[Any]
    is_streamed: bool = False


def ranges(segments: list[Segment], memory: int, sort_values: bool) -> Iterator[Range]:
    """All groups in the order of their texts; values in the order of segments, or sorted.

    It takes about ``memory`` bytes at most.
    """
    share = min(memory // 2, _MERGED_BYTES) // max(1, len(segments))
    readers = [_Reader(segment, share) for segment in segments]
    groups: dict[str, list[Any]] = defaultdict(list)
    while True:
        readers = [one for one in readers if one.refill()]
        ends = [one.last for one in readers if one.has_more]
        end = min(ends, default=None)
        for one in readers:
            one.give(groups, end)
        if groups:
            texts = sorted(groups)
            lists = list(map(groups.pop, texts))
            if sort_values:
                deque(map(list.sort, lists), 0)
            yield Range(texts, lists)
        elif end is not None and any(one.is_full_of(end) for one in readers):
            # One key fills a reader's share.
            each = [one.values_of(end) for one in readers]
            values = heapq.merge(*each) if sort_values else chain.from_iterable(each)
            yield Range([end], [values], is_streamed=True)
            deque(values, 0)
        if end is None:
            return


def fewer(
    segments: list[Segment], memory: int, merged: Callable[[list[Segment]], Iterable[Segment]]
) -> list[Segment]:
    """Segments of which a block each fits into half of the memory.

    ``merged``: Makes one of neighbours.
    """
    sizes = (
        min(_MOST_BLOCK, one.keys * _KEY_BYTES + one.values * _VALUE_BYTES + 2 * one.length)
        for one in segments
    )
    most = max(2, memory // 2 // _MOST_BLOCK)
    if sum(sizes) <= memory // 2 or len(segments) <= most:
        return segments
    cuts = range(0, len(segments), most)
    found = list(chain.from_iterable(merged(segments[at : at + most]) for at in cuts))
    return fewer(found, memory, merged)


class _Reader:
    """One segment, some blocks of it at a time; the file is open only to read them."""

    def __init__(self, segment: Segment, share: int) -> None:
        self._segment = segment
        self._share = share
        self._position = 0
        self._waiting: deque[Block] = deque()

    @property
    def has_more(self) -> bool:
        return self._position < self._segment.length

    @property
    def last(self) -> str:
        return self._waiting[-1].keys[-1]

    def refill(self) -> bool:
        """Read on, to the share, or a block; returns whether there is anything."""
        used = sum(_memory(block) for block in self._waiting)
        if self.has_more and (used < self._share or not self._waiting):
            for size, block in blocks_of(self._segment, self._position):
                self._waiting.append(block)
                self._position += size
                used += 2 * size + _memory(block)
                if used >= self._share:
                    break
        return bool(self._waiting)

    def give(self, groups: dict[str, list[Any]], end: str | None) -> None:
        """Add what comes before a key, or all, to groups."""
        waiting = self._waiting
        while waiting:
            keys, counts, values = waiting[0]
            if end is None or keys[-1] < end:
                _add(groups, waiting.popleft())
                continue
            at = bisect_left(keys, end)
            if at:
                some = at if counts is None else sum(counts[:at])
                _add(groups, Block(keys[:at], counts and counts[:at], values[:some]))
                waiting[0] = Block(keys[at:], counts and counts[at:], values[some:])
            return

    def is_full_of(self, key: str) -> bool:
        """Whether it has nothing but values of a key, and may have more."""
        return self.has_more and self._waiting[0].keys[0] == key == self.last

    def values_of(self, key: str) -> Iterator[Any]:
        """The values of a key that comes next, if it does; it reads on as they are taken."""
        while self._waiting or self.refill():
            keys, counts, values = self._waiting[0]
            if keys[0] != key:
                return
            some = counts[0] if counts else 1
            if len(keys) == 1:
                self._waiting.popleft()
            else:
                self._waiting[0] = Block(keys[1:], counts and counts[1:], values[some:])
                values = values[:some]
            yield from values


def _memory(block: Block) -> int:
    return len(block.keys) * _KEY_BYTES + len(block.values) * _VALUE_BYTES


def _add(groups: dict[str, list[Any]], block: Block) -> None:
    """Add a block's values to its keys' lists."""
    lists = map(groups.__getitem__, block.keys)
    if block.counts is None:
        deque(map(list.append, lists, block.values), 0)
    else:
        ends = list(accumulate(block.counts))
        slices = map(slice, chain((0,), ends), ends)
        deque(map(list.extend, lists, map(block.values.__getitem__, slices)), 0)
