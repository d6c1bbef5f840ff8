"""Groups of the segments of one reduce task, by one range of keys after another.

Segments are read block by block, next always the one whose keys, as far as it has been read, end
first. Of the keys before that end nothing is left to read: what all readers have of them is one
range, and is put together in a dictionary that stays in the processor's cache. Nothing else is
kept, however large the segments are.

The values of a key that are more than fit are read on as the reducer takes them. If the blocks of
all segments do not fit into memory side by side, neighbouring segments are merged first.
"""

import heapq
import shutil
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from hdfs_utils.atomic import storage_errors
from mapreduce.runners.parallel.columns import Block, ColumnWriter, read_block
from mapreduce.runners.parallel.commands import lines_of
from mapreduce.runners.parallel.gathered import GatheredLines, cut
from mapreduce.runners.parallel.partition import Partitioning
from mapreduce.runners.parallel.segments import (
    Segment,
    SegmentFiles,
    SegmentWriter,
    Target,
    raw_blocks,
)

#: Memory of the blocks that are read ahead, beside one of each segment: more takes longer, for the
#: processor's caches.
_AHEAD_BYTES = 4 << 20

#: Characters of the values of a large key that are handed on together, when they are sorted.
_PART = 1 << 16


class Range(NamedTuple):
    """The sorted texts of keys, and for each a list of its values, which nobody else has.

    If it is streamed, it has a single key, and an iterator, which reads on as values are taken.
    """

    texts: list[str]
    lists: list[Any]
    is_streamed: bool = False


def ranges(segments: list[Segment], memory: int, sort_values: bool) -> Iterator[Range]:
    """All groups in the order of their texts; values in the order of segments, or sorted.

    It holds a block of each segment, and reads ahead for an eighth of ``memory`` bytes, or for a
    few MiB.
    """
    for found in _ranges(segments, memory, sort_values):
        if found.is_streamed:
            found = found._replace(lists=[chain.from_iterable(found.lists[0])])
        yield found
        if found.is_streamed:
            deque(found.lists[0], 0)


def _ranges(segments: list[Segment], memory: int, sort_values: bool) -> Iterator[Range]:
    """As :func:`ranges`, but the iterator of a streamed key gives lists of values."""
    with SegmentFiles() as files:
        readers = [_Reader(segment, files) for segment in segments]
        for reader in readers:
            reader.read()
        # With one block of each alone, a range would be as short as the way from the end of one to
        # the end of the next.
        ahead, most = 0, min(memory // 8, _AHEAD_BYTES)
        groups: dict[str, list[Any]] = defaultdict(list)
        ends = _ends(readers)
        while True:
            while ends and ahead < most:
                _, number = ends[0]
                ahead += readers[number].read()
                if readers[number].has_more:
                    heapq.heapreplace(ends, (readers[number].last, number))
                else:
                    heapq.heappop(ends)
            end = ends[0][0] if ends else None
            ahead -= sum(reader.give(groups, end) for reader in readers)
            if groups:
                texts = sorted(groups)
                lists = list(map(groups.pop, texts))
                if sort_values:
                    deque(map(list.sort, lists), 0)
                yield Range(texts, lists)
            elif end is not None:
                # One key fills what a reader has.
                each = [reader.parts_of(end) for reader in readers]
                parts = _sorted_parts(each) if sort_values else chain.from_iterable(each)
                yield Range([end], [parts], is_streamed=True)
                ends, ahead = _ends(readers), sum(reader.ahead for reader in readers)
            if end is None:
                return


def _ends(readers: "list[_Reader]") -> list[tuple[str, int]]:
    """The last keys of those that have more, with their numbers, as a heap."""
    ends = [(reader.last, number) for number, reader in enumerate(readers) if reader.has_more]
    heapq.heapify(ends)
    return ends


class Merger:
    """Makes groups of the segments of a reduce task, of columns or of lines.

    ``spec``: As of :class:`mapreduce.runners.parallel.tasks.Task`, and so is ``alive``.
    """

    def __init__(self, spec: dict[str, Any], how: Partitioning, alive: Callable[[], None]) -> None:
        self._how = how._replace(partitions=1)
        self._sort_values: bool = spec["sort_values"]
        self._memory: int = spec["memory"]
        self._folder = Path(spec["temporary"])
        self._alive = alive
        #: How many files were made.
        self._made = 0
        #: Paths of the segments that were merged from others: each has a file of its own.
        self._merges: set[str] = set()

    def ranges(self, segments: list[Segment]) -> Iterator[Range]:
        """All groups, in the order that the job wants its keys in."""
        try:
            yield from self._groups(segments)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _groups(self, segments: list[Segment]) -> Iterator[Range]:
        memory = self._memory
        if any(not segment.block_memory for segment in segments):
            # Lines, as batch mappers write them.
            gathered = GatheredLines(self._how.key_fields, self._sort_values)
            blocks = lines_of(self._watched(raw_blocks(segments)))
            lines = map(b"%b\n".__mod__, chain.from_iterable(blocks))
            if not gathered.fill(lines, memory // 2) and not self._how.order:
                if gathered:
                    yield Range(*gathered.take_groups())
                return
            writer = self._new_writer(gathered, self._how, memory // 2)
            writer.flush()
            writer.fill(lines)
            writer.close()
            (segments,) = writer.result["segments"]
        segments = fewer(segments, memory, self._merged)
        for found in self._watched(ranges(segments, memory, self._sort_values)):
            if self._how.order:
                # What they are sorted by stands before them.
                texts = list(map(itemgetter(2), map(str.partition, found.texts, repeat("\t"))))
                found = found._replace(texts=texts)
            yield found

    def _watched(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._alive()
            yield item

    def _merged(self, segments: list[Segment]) -> list[Segment]:
        """Segments as one."""
        writer = self._new_writer(GatheredLines(), Partitioning(1), self._memory // 4)
        for texts, lists, is_streamed in _ranges(segments, self._memory, self._sort_values):
            # The values of a streamed key come part by part.
            for part in ([some] for some in lists[0]) if is_streamed else (lists,):
                self._alive()
                writer.write(texts, part)
        writer.close()
        (found,) = writer.result["segments"]
        for path in self._merges.intersection(one.path for one in segments):
            Path(path).unlink(missing_ok=True)
        self._merges.add(found[0].path)
        # They lie one after the other in the file.
        length, block = sum(one.length for one in found), max(one.block_memory for one in found)
        return [Segment(found[0].path, found[0].offset, length, block)]

    def _new_writer(self, gathered: GatheredLines, how: Partitioning, limit: int) -> ColumnWriter:
        with storage_errors("create", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._made += 1
        output = SegmentWriter(Target(str(self._folder / f"{self._made:05d}")), 1)
        return ColumnWriter(output, how, gathered, limit)


def fewer(
    segments: list[Segment], memory: int, merged: Callable[[list[Segment]], list[Segment]]
) -> list[Segment]:
    """As many segments as have a block each in half of the memory, but two at least.

    ``merged``: Makes one of neighbours. No more are merged than has to be.
    """
    most, total = memory // 2, sum(one.block_memory for one in segments)
    while len(segments) > 2 and total > most:
        left, segments = deque(segments), []
        while left:
            some = [left.popleft()]
            used = largest = some[0].block_memory
            while left and total - used + largest > most:
                if some[1:] and used + left[0].block_memory > most:
                    break
                some.append(left.popleft())
                used, largest = used + some[-1].block_memory, max(largest, some[-1].block_memory)
            found = merged(some) if some[1:] else some
            total += sum(one.block_memory for one in found) - used
            segments += found
    return segments


class _Reader:
    """One segment, some blocks of it at a time."""

    def __init__(self, segment: Segment, files: SegmentFiles) -> None:
        self._segment = segment
        self._files = files
        self._position = 0
        self._waiting: deque[Block] = deque()
        #: Keys and values of the first block that have been given.
        self._keys = self._values = 0

    @property
    def has_more(self) -> bool:
        return self._position < self._segment.length

    @property
    def last(self) -> str:
        return self._waiting[-1].keys[-1]

    @property
    def ahead(self) -> int:
        """The memory of all blocks but the last."""
        return sum(block.memory for block in self._waiting) - self._last_memory

    @property
    def _last_memory(self) -> int:
        return self._waiting[-1].memory if self._waiting else 0

    def read(self) -> int:
        """Read the next block; returns the memory of the one that was the last until then."""
        before = self._last_memory
        block, self._position = read_block(self._segment, self._position, self._files)
        self._waiting.append(block)
        return before

    def give(self, groups: dict[str, list[Any]], end: str | None) -> int:
        """Add what comes before a key, or all, to groups; returns the memory that is free now."""
        freed = 0
        while self._waiting:
            block = self._waiting[0]
            if end is None or block.keys[-1] < end:
                freed += block.memory
                _add(groups, self._take(len(block.keys)))
                continue
            if (stop := bisect_left(block.keys, end, self._keys)) > self._keys:
                _add(groups, self._take(stop))
            break
        return freed

    def parts_of(self, key: str) -> Iterator[list[Any]]:
        """The values of a key that comes next, if it does; it reads on as they are taken."""
        while self._waiting or self.has_more:
            if not self._waiting:
                self.read()
            keys = self._waiting[0].keys
            if keys[self._keys] != key:
                return
            yield self._take(bisect_right(keys, key, self._keys)).values

    def _take(self, stop: int) -> Block:
        """The keys of the first block up to a number, with their values."""
        block = self._waiting[0]
        taken = block.part(self._keys, stop, self._values)
        self._keys, self._values = stop, self._values + len(taken.values)
        if stop == len(block.keys):
            self._waiting.popleft()
            self._keys = self._values = 0
        return taken


def _sorted_parts(each: Iterable[Iterator[list[str]]]) -> Iterator[list[str]]:
    part: list[str] = []
    used = 0
    for value in heapq.merge(*map(chain.from_iterable, each)):
        part.append(value)
        used += len(value)
        if used >= _PART:
            yield part
            part, used = [], 0
    yield part


def _add(groups: dict[str, list[Any]], block: Block) -> None:
    """Add a block's values to its keys' lists."""
    lists = map(groups.__getitem__, block.keys)
    if block.counts is None:
        deque(map(list.append, lists, block.values), 0)
    else:
        deque(map(list.extend, lists, cut(block.values, list(accumulate(block.counts)))), 0)
