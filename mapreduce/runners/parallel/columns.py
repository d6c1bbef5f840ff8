"""Segments of columns: blocks of sorted keys, how many values each has, and all values in turn.

A block is::

    <5Q         memory that it takes when it is read, kind of values, bytes of keys, counts, values
    <Q          checksum of all else
    keys        texts of the keys, separated by line feeds, of which they have none
    counts      array of uint32; nothing if all are 1: a key may then come several times
    values      as :func:`mapreduce.runners.parallel.codec.packed` has them

The text of a key is its JSON, or with other protocols its bytes, one character each. If keys have
an order of their own, what they are sorted by precedes the text, with a TAB between.
"""

import struct
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import StorageError
from mapreduce.batches.pairs import Write
from mapreduce.batches.snapshots import NOT_PLAIN
from mapreduce.job.calls import Pair
from mapreduce.runners.parallel.codec import packed, unpacked, waiting_form, write_lines
from mapreduce.runners.parallel.comparator import codes_of
from mapreduce.runners.parallel.gathered import Gathered, GatheredLines, items_at
from mapreduce.runners.parallel.partition import Partitioning, partition_numbers
from mapreduce.runners.parallel.segments import Segment, SegmentFiles, SegmentWriter

_HEAD, _CHECK = struct.Struct("<5Q"), struct.Struct("<Q")

#: Keys and values of a block at most, and bytes, of which a single pair may have more.
_BLOCK_ITEMS, _BLOCK_BYTES = (1 << 10, 1 << 12), 1 << 18

#: Writers with fewer bytes of memory make smaller blocks, so that as many can be read side by side,
#: but none for fewer keys and values than the latter.
_ENOUGH, _SMALLEST = 8 << 20, 16

#: Bytes of memory that a key and a value take when they have been read, beside their own bytes, and
#: how many times their own they take: strings and numbers, and lists and dictionaries, which may be
#: full of empty ones.
_KEY_BYTES, _VALUE_BYTES, _FLAT, _NESTED = 330, 40, 2, 16
_NESTING = frozenset({bytes, tuple, list, dict})

#: Values whose bytes are easily told.
_SIZED = frozenset({str, bytes})


#: So few partitions are picked out one by one.
_FEW_PARTS = 8

#: Keys that are divided together.
_NEAR = 1 << 12


class Block(NamedTuple):
    """The sorted texts of keys, how many values each has, or None if all have one, and all values.

    ``memory``: Bytes that it takes, of a block that was read.
    """

    keys: list[str]
    counts: list[int] | None
    values: list[Any]
    memory: int = 0

    def part(self, start: int, stop: int, first: int) -> "Block":
        """Keys from one number up to another, whose values begin at the number ``first``."""
        keys, counts = self.keys[start:stop], self.counts and self.counts[start:stop]
        number = sum(counts) if counts else len(keys)
        return Block(keys, counts, self.values[first : first + number])


def _block(keys: list[str], items: list[Any], rows: bool) -> Block:
    if rows:
        return Block(keys, None, items)
    return Block(keys, list(map(len, items)), list(chain.from_iterable(items)))


class ColumnWriter:
    """Writes what was gathered as segments of columns, one for each partition.

    ``limit``: Bytes of memory of what waits. ``write``: Of a protocol, if pairs are to be lines.
    """

    def __init__(
        self,
        output: SegmentWriter,
        how: Partitioning,
        gathered: Gathered | GatheredLines,
        limit: int,
        write: Write | None = None,
    ) -> None:
        self._output = output
        self._how = how
        self._gathered: Any = gathered
        self._limit = limit
        scale = min(1.0, limit / _ENOUGH)
        self._most = tuple(max(_SMALLEST, int(number * scale)) for number in _BLOCK_ITEMS)
        self._most_bytes = _BLOCK_BYTES * scale
        self._write_line = write

    @property
    def result(self) -> dict[str, Any]:
        return self._output.result

    @property
    def takes_objects(self) -> bool:
        return type(self._gathered) is Gathered

    def write_pairs(self, pairs: Iterable[Pair]) -> None:
        """Take in pairs, also pairs of columns."""
        self.fill(iter(pairs) if self._write_line is None else write_lines(self._write_line, pairs))

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Take in records without their line feeds."""
        self.fill(map(b"%b\n".__mod__, lines))

    def fill(self, items: Iterator[Any]) -> None:
        """Take in what the writer gathers: pairs of objects, or lines with their line feeds."""
        while self._gathered.fill(items, self._limit):
            self.flush()

    def write_combined(self, pairs: Iterable[Pair], keys: list[Any], texts: list[str]) -> None:
        """Take in what a combiner has made of sorted keys: most often one pair of each."""
        values: list[Any] = []
        pairs, awaited = iter(pairs), iter(keys)
        for pair in pairs:
            key = next(awaited, None)
            is_pair = type(pair) is tuple and len(pair) == 2
            # Others could have been changed.
            if is_pair and pair[0] is key and (type(key) is str or type(key) is int):
                try:
                    values.append(waiting_form(pair[1]))
                    continue
                except NOT_PLAIN:
                    pass
            self._add(texts, values)
            self.write_pairs(chain((pair,), pairs))
            return
        if len(values) < len(keys):
            self._add(texts, values)
        else:
            self.flush()
            self.write(texts, values, True)

    def _add(self, texts: list[str], values: list[Any]) -> None:
        for text, value in zip(texts, values, strict=False):
            self._gathered.add_text(text, value)

    def flush(self) -> None:
        """Write what waits."""
        if self._gathered:
            self.write(*self._gathered.take())

    def write(self, texts: list[str], items: list[Any], rows: bool = False) -> None:
        """Write keys, each with a list of values, or with one value if they are rows."""
        parts: list[tuple[list[str], list[Any]]] = [([], []) for _ in range(self._how.partitions)]
        # Keys that are near in memory, while they are in the processor's cache.
        for at in range(0, len(texts), _NEAR):
            some = self._divided(texts[at : at + _NEAR], items[at : at + _NEAR])
            for part, (keys, found) in zip(parts, some, strict=True):
                part[0].extend(keys)
                part[1].extend(found)
        for number, (keys, found) in enumerate(parts):
            if self._how.order:
                keys = [
                    f"{code}\t{key}"
                    for at in range(0, len(keys), _NEAR)
                    for code, key in self._coded(keys[at : at + _NEAR])
                ]
            places = self._gathered.order(keys, found, rows)
            most_keys = self._most[0]
            each = (places[at : at + most_keys] for at in range(0, len(places), most_keys))
            blocks = [
                block
                for near in each
                for block in self._blocks(_block(items_at(keys, near), items_at(found, near), rows))
            ]
            most = max((memory for memory, _ in blocks), default=0)
            self._output.append(number, [part for _, parts in blocks for part in parts], most)

    def _divided(self, texts: list[str], items: list[Any]) -> list[tuple[list[str], list[Any]]]:
        if self._how.partitions == 1:
            return [(texts, items)]
        numbers = partition_numbers(texts, self._how)
        return _divided(texts, items, numbers, self._how.partitions)

    def _coded(self, keys: list[str]) -> Iterable[tuple[str, str]]:
        return zip(codes_of(keys, self._how), keys, strict=True)

    def _blocks(self, block: Block) -> Iterator[tuple[int, list[bytes]]]:
        """The memory and bytes of a block, or of each of those that one too large is cut into."""
        keys, values = block.keys, block.values
        if not values:
            return
        if len(values) <= self._most[1]:
            kinds, most = set(map(type, values)), self._most_bytes
            if len(values) == 1 or _weight(block, kinds) <= most:
                memory, parts = _encoded(block, kinds, not self.takes_objects)
                if len(values) == 1 or sum(map(len, parts[1:])) <= most:
                    yield memory, parts
                    return
        if len(keys) > 1:
            at = len(keys) // 2
            before = block.part(0, at, 0)
            halves = before, block.part(at, len(keys), len(before.values))
        else:
            at = len(values) // 2
            halves = Block(keys, [at], values[:at]), Block(keys, [len(values) - at], values[at:])
        for half in halves:
            yield from self._blocks(half)

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        self._output.close()


def _divided(
    texts: list[str], items: list[Any], numbers: list[int], partitions: int
) -> list[tuple[list[str], list[Any]]]:
    """Keys and their items by their numbers."""
    if partitions <= _FEW_PARTS:
        every = bytes(numbers)
        masks = [every.translate(bytes(map(n.__eq__, range(256)))) for n in range(partitions)]
        return [(list(compress(texts, mask)), list(compress(items, mask))) for mask in masks]
    parts: list[tuple[list[str], list[Any]]] = [([], []) for _ in range(partitions)]
    for which, column in enumerate((texts, items)):
        homes = [part[which] for part in parts]
        deque(map(list.append, map(homes.__getitem__, numbers), column), 0)
    return parts


def _weight(block: Block, kinds: set[type]) -> int:
    """Bytes of keys and values, as far as they are easily told."""
    values: Iterable[Any] = block.values
    if not kinds <= _SIZED:
        values = [one for one in values if type(one) in _SIZED] if kinds & _SIZED else ()
    return sum(map(len, block.keys)) + sum(map(len, values))


def _encoded(block: Block, kinds: set[type], are_codes: bool) -> tuple[int, list[bytes]]:
    """The memory that a block takes when it is read, and its bytes, in parts: they may be many.

    ``kinds``: The types of its values. ``are_codes``: Whether none stands for an object.
    """
    keys, counts, values, _ = block
    texts = "\n".join(keys).encode("latin-1")
    is_counted = counts is not None and len(values) > len(keys)
    numbers = array("I", counts or ()).tobytes() if is_counted else b""
    kind, content = packed(values, kinds, are_codes)
    size = sum(map(len, content))
    memory = len(keys) * _KEY_BYTES + len(values) * _VALUE_BYTES + len(texts) * _FLAT
    is_nested = kinds & _NESTING and not (are_codes and kinds == {bytes})
    memory += size * (_NESTED if is_nested else _FLAT)
    parts = texts, numbers, *content
    head = _HEAD.pack(memory, kind, len(texts), len(numbers), size)
    return memory, [head + _CHECK.pack(_checksum((head, *parts))), *parts]


def _checksum(parts: Iterable[bytes]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def read_block(segment: Segment, position: int, files: SegmentFiles) -> tuple[Block, int]:
    """The block of a segment at a position, and the position of the next one.

    Raises StorageError (the file is not as it was written).
    """
    path, offset, length, *_ = segment
    with storage_errors("read", Path(path)):
        file = files.at(path, offset + position)
        head = file.read(_HEAD.size + _CHECK.size)
        if len(head) == _HEAD.size + _CHECK.size:
            memory, kind, *sizes = _HEAD.unpack_from(head)
            end = position + len(head) + sum(sizes)
            if end <= length:
                texts, counts, values = map(file.read, sizes)
                check = _checksum((head[: _HEAD.size], texts, counts, values))
                if _CHECK.unpack_from(head, _HEAD.size)[0] == check:
                    numbers = array("I", counts).tolist() if counts else None
                    keys = texts.decode("latin-1").split("\n")
                    return Block(keys, numbers, unpacked(kind, values), memory), end
    raise StorageError(f"{path} is not as it was written: damaged, or cut off. Run the job again")
