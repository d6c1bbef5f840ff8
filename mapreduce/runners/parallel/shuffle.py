"""What lies between a map task and a reduce task of ``-r parallel``: segments, partitions, groups.

Records are lines ``key TAB value LF``, as in Hadoop streaming. A map task writes the records of
each partition together, in one or more segments of a file, in memory as long as there is room and
on the disk beyond; a reduce task reads the segments of its partition from all map tasks, in their
order, so that the values of a key come in the same order in every run. It groups them in memory, or
by ``sort(1)`` if they are too many.
"""

import errno
import marshal
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from sys import getsizeof
from typing import Any, NamedTuple

from hdfs_utils.atomic import storage_errors, write_all
from hdfs_utils.errors import StorageError
from mapreduce.batches.pairs import (
    REMEMBERED,
    Read,
    Write,
    arrow_layout,
    encode_columns,
    is_columns,
    is_keyed,
    line_writer,
)
from mapreduce.batches.snapshots import HUGE, PLAIN
from mapreduce.job.calls import as_pair
from mapreduce.runners.parallel.commands import CommandError, block_of, lines_of, piped
from mapreduce.runners.parallel.comparator import Order
from mapreduce.runners.parallel.gathered import (
    CODED_OTHERWISE,
    KEYS,
    MARSHAL,
    MUTABLE,
    kept,
    lines_of_pack,
    pairs_of,
    raw_key,
    through_text,
)
from mapreduce.runners.parallel.partition import Partitioning, partitioner

Buffer = bytes | bytearray | memoryview

#: Raw values of a raw key; None stands for the value of a line without TAB.
Group = tuple[bytes, list[bytes | None]]

#: Memory that a line takes while it is grouped, as a multiple of its own length, measured with
#: short lines.
GROUPED = 6

#: The most that packs come to, as measured, and what their keys and values take beside themselves.
_UNPACKED, _KEY_BYTES, _SLOT_BYTES = 9, 150, 9

#: Every so many packs are looked at before they are read, and how often they may be read.
_SAMPLED, _MOST_TIMES = 8, 12

#: Memory that is packed together, and what a value may take beside itself, and a key to remember.
_PACK_BYTES, _VALUE_BYTES, _KNOWN_BYTES = 1 << 20, 64, 512

_READ_BYTES = 1 << 20
_LONGEST_REMEMBERED = 256


class Segment(NamedTuple):
    """Records of one partition that lie together in a file: lines, or packs."""

    path: str
    offset: int
    length: int
    packed: bool = False


class Target(NamedTuple):
    """The file that a task writes; beyond ``quota`` bytes, as of memory, ``overflow`` on a disk."""

    path: str
    quota: int | None = None
    overflow: str | None = None


class SegmentWriter:
    """A task's output: for each partition a list of segments."""

    def __init__(self, target: Target, partitions: int) -> None:
        self._target = target
        self._path = Path(target.path)
        with storage_errors("write", self._path):
            self._file = self._path.open("wb", buffering=0)
        self._position = 0
        self._overflowing = False
        self._process = os.getpid()
        self.segments: list[list[Segment]] = [[] for _ in range(partitions)]
        #: Paths and bytes of the files.
        self.files: list[tuple[str, int]] = []

    @property
    def result(self) -> dict[str, Any]:
        """The description of the output for the driver."""
        return {"segments": self.segments, "files": self.files}

    def append(self, parts: Iterable[list[Buffer]], packed: bool = False) -> None:
        """Write one segment for each partition that has any buffers."""
        if os.getpid() != self._process:
            # A copy of the task's process, which it made and let return: its output came twice.
            os._exit(1)
        for number, buffers in enumerate(parts):
            length = sum(map(len, buffers))
            if length:
                self._make_room(length)
                self._write(buffers)
                segment = Segment(str(self._path), self._position, length, packed)
                self.segments[number].append(segment)
                self._position += length

    def _write(self, buffers: list[Buffer]) -> None:
        try:
            with storage_errors("write", self._path):
                write_all(self._file, *buffers)
        except StorageError as error:
            cause = error.__cause__
            full = isinstance(cause, OSError) and cause.errno == errno.ENOSPC
            if not full or self._overflowing or not self._target.overflow:
                self._file.close()
                raise
            os.ftruncate(self._file.fileno(), self._position)
            self._overflow()
            self._write(buffers)

    def _make_room(self, length: int) -> None:
        quota = self._target.quota
        if quota is not None and not self._overflowing and self._position + length > quota:
            self._overflow()

    def _overflow(self) -> None:
        assert self._target.overflow
        self._end_file()
        self._overflowing = True
        self._path = Path(self._target.overflow)
        with storage_errors("write", self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb", buffering=0)
        self._position = 0

    def _end_file(self) -> None:
        self._file.close()
        self.files.append((str(self._path), self._position))

    def close(self) -> None:
        """Take no more."""
        self._end_file()


def load_kernels() -> None:
    """Load what divides columns."""
    import numpy as np

    from kernels import dispatch

    dispatch.get("hash_partitions", "cpu")(np.zeros(1, np.int32), np.empty(0, np.uint8), 2)


class LineWriter:
    """Writes records as lines, by partition; up to ``buffer_bytes`` wait in memory.

    Output that is not divided has one partition.
    """

    def __init__(self, target: Target, write: Write, how: Partitioning, buffer_bytes: int) -> None:
        self._output = SegmentWriter(target, how.partitions)
        self._protocol = write
        self._encode = line_writer(write)
        self._how = how
        self._partition = partitioner(how)
        self._parts: list[list[Buffer]] = [[] for _ in range(how.partitions)]
        self._buffered = 0
        self._buffer_bytes = buffer_bytes

    @property
    def result(self) -> dict[str, Any]:
        return self._output.result

    def write_pairs(self, pairs: Iterable[tuple[Any, Any]], repeat: bool = False) -> None:
        """Encode and take in pairs, also pairs of columns; ``repeat`` if many may be equal."""
        encode = self._encode
        if repeat and is_keyed(self._protocol) and self._how.partitions > 1:
            self._write_repeated(pairs)
            return
        whole = self._parts[0] if self._how.partitions == 1 else None
        for pair in pairs:
            key, value = pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)
            if is_columns(key):
                self._write_columns(key, value)
                continue
            line = encode(key, value)
            if whole is None or self._buffered >= self._buffer_bytes:
                self.write_line(line)
            else:
                whole.append(line)
                self._buffered += len(line)

    def _write_repeated(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """As above, remembering lines."""
        known: dict[Any, Any] = {}
        encode, how, partition, parts = self._encode, self._how, self._partition, self._parts
        for pair in pairs:
            if type(pair) is not tuple:
                pair = as_pair(pair)
            try:
                key, value = pair
            except ValueError:
                as_pair(pair)
                raise
            # Equal objects of other types have other encodings: 1, 1.0 and True.
            is_plain = type(key) is str and (type(value) is int or type(value) is str)
            entry = known.get(pair) if is_plain else None
            if entry is None:
                if is_columns(key):
                    self._write_columns(key, value)
                    continue
                line = encode(key, value)
                append = parts[partition(key_of(line, how.key_fields))].append
                if is_plain and len(line) <= _LONGEST_REMEMBERED:
                    if len(known) >= REMEMBERED:
                        known.clear()
                    known[pair] = line, append
            else:
                line, append = entry
            append(line)
            self._buffered += len(line)
            if self._buffered >= self._buffer_bytes:
                self._flush()

    def write_line(self, line: bytes) -> None:
        """Take in a record, with its line feed."""
        how = self._how
        number = self._partition(key_of(line, how.key_fields)) if how.partitions > 1 else 0
        self._parts[number].append(line)
        self._buffered += len(line)
        if self._buffered >= self._buffer_bytes:
            self._flush()

    def _write_columns(self, keys: Any, values: Any) -> None:
        lines = encode_columns(self._protocol, keys, values)
        if self._how.partitions == 1:
            self._take_in(0, lines)
        elif self._how.fields is not None or self._how.key_fields > 1:
            for line in lines.to_pylist():
                self.write_line(line)
        else:
            import numpy as np

            from kernels import dispatch

            hash_partitions = dispatch.get("hash_partitions", "cpu")
            numbers = hash_partitions(*arrow_layout(lines), self._how.partitions)
            for number in range(self._how.partitions):
                self._take_in(number, lines.take(np.flatnonzero(numbers == number)))

    def _take_in(self, number: int, lines: Any) -> None:
        content = arrow_layout(lines)[1]
        self._parts[number].append(memoryview(content))
        self._buffered += len(content)
        if self._buffered >= self._buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        self._output.append(
            # One buffer a segment: a system call takes no more than some hundreds.
            [part[0] if len(part) == 1 else b"".join(part)] if part else []
            for part in self._parts
        )
        for part in self._parts:
            part.clear()
        self._buffered = 0

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        self._output.close()


class PackedWriter:
    """Writes records of mrjob's JSON by partition as packs; their lines are never made.

    About ``buffer_bytes`` wait in memory.
    """

    def __init__(self, target: Target, write: Write, how: Partitioning, buffer_bytes: int) -> None:
        self._output = SegmentWriter(target, how.partitions)
        self._protocol = write
        self._partition = partitioner(how)
        self._buffer_bytes = buffer_bytes
        #: Of each partition: keys and values in turn, and packs of them.
        self._parts: list[list[Any]] = [[] for _ in range(how.partitions)]
        self._packs: list[list[Buffer]] = [[] for _ in range(how.partitions)]
        self._bytes = self._packed_bytes = 0

    @property
    def result(self) -> dict[str, Any]:
        return self._output.result

    def write_pairs(self, pairs: Iterable[tuple[Any, Any]], repeat: bool = False) -> None:
        """Take in pairs, also pairs of columns; ``repeat`` if many may have one key."""
        if repeat:
            self._write_repeated(pairs)
            return
        for pair in pairs:
            key, value = pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)
            self._write(key, value)

    def _write_repeated(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """As above, remembering keys."""
        # Of keys of one of these types, those are equal whose JSON is.
        known: dict[type, dict[Any, Any]] = {kind: {} for kind in KEYS}
        most = max(REMEMBERED, self._buffer_bytes // _KNOWN_BYTES)
        waiting, dumps = 0, marshal.dumps
        for pair in pairs:
            if type(pair) is not tuple:
                pair = as_pair(pair)
            try:
                key, value = pair
            except ValueError:
                as_pair(pair)
                raise
            kind = type(value)
            try:
                if kind is not int or not -HUGE < value < HUGE:
                    value = PLAIN[kind](value)
                    if kind in MUTABLE:
                        value = dumps(value, MARSHAL)
                    waiting += getsizeof(value)
                raw, part = known[type(key)][key]
            except CODED_OTHERWISE:
                # Also for a key that is new.
                entry = self._write(*pair)
                keys = known.get(type(key))
                if entry and keys is not None and len(keys) < most:
                    keys[key] = entry
                continue
            part.append(raw)
            part.append(value)
            waiting += _VALUE_BYTES
            if waiting >= _PACK_BYTES:
                self._pack()
                waiting = 0

    def _write(self, key: Any, value: Any) -> tuple[bytes, list[Any]] | None:
        """Take in a pair; returns its key's JSON and its part, if it was not made of text."""
        try:
            raw = raw_key(key)
            return raw, self._take_in(raw, kept(value))
        except CODED_OTHERWISE:
            for raw, found in through_text(self._protocol, key, value):
                self._take_in(raw, found)
            return None

    def _take_in(self, raw: bytes, value: Any) -> list[Any]:
        part = self._parts[self._partition(raw)]
        part.append(raw)
        part.append(value)
        self._bytes += len(raw) + getsizeof(value) + _VALUE_BYTES
        if self._bytes >= _PACK_BYTES:
            self._pack()
        return part

    def _pack(self) -> None:
        for part, packs in zip(self._parts, self._packs, strict=True):
            if part:
                pack = marshal.dumps(part)
                packs += len(pack).to_bytes(8, "little"), pack
                self._packed_bytes += len(pack)
                part.clear()
        self._bytes = 0
        if self._packed_bytes >= self._buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        # One buffer a segment: a system call takes no more than some hundreds.
        self._output.append(([b"".join(packs)] for packs in self._packs), packed=True)
        for packs in self._packs:
            packs.clear()
        self._packed_bytes = 0

    def close(self) -> None:
        """Write what is left."""
        self._pack()
        self._flush()
        self._output.close()


def key_of(line: bytes, fields: int = 1) -> bytes:
    """The key of a record: all before the first TAB, or the whole line if there is none.

    With more ``fields``, all before that many TABs.
    """
    end = line.find(b"\t")
    for _ in range(fields - 1):
        if end < 0:
            break
        end = line.find(b"\t", end + 1)
    return line[:end] if end >= 0 else line.rstrip(b"\n")


def raw_blocks(segments: Iterable[Segment]) -> Iterator[bytes]:
    """The lines of some segments, cut anywhere."""
    for segment in segments:
        path, offset, length, packed = segment
        if packed:
            yield from map(lines_of_pack, packs_of(segment))
            continue
        with storage_errors("read", Path(path)), Path(path).open("rb", buffering=0) as file:
            file.seek(offset)
            while length:
                block = file.read(min(length, _READ_BYTES))
                if not block:
                    raise StorageError(f"{path} is {length} bytes shorter than it was written")
                length -= len(block)
                yield block


def packs_of(segment: Segment) -> Iterator[bytes]:
    """The packs of a packed segment."""
    path, offset, length, _ = segment
    with storage_errors("read", Path(path)), Path(path).open("rb") as file:
        file.seek(offset)
        while length > 0:
            size = int.from_bytes(file.read(8), "little")
            pack = file.read(size)
            if not size or len(pack) < size:
                raise StorageError(f"{path} is {length} bytes shorter than it was written")
            length -= 8 + size
            yield pack


class PackedGroups:
    """As :class:`Groups`, of packed segments, with objects for values.

    What does not fit into ``memory`` bytes is read several times, a range of keys each time.

    ``is_possible``: False if that would take too many times, or one key needs more memory.
    """

    def __init__(self, segments: list[Segment], memory: int, order: Order | None = None) -> None:
        self._segments = segments
        self._order = order
        self._memory = memory
        #: Where ranges end; each holds what is less.
        self._ends: list[bytes] = []
        length = sum(segment.length for segment in segments)
        self.is_possible = length * _UNPACKED <= memory or self._divide(length)

    def _packs(self) -> Iterator[bytes]:
        return chain.from_iterable(map(packs_of, self._segments))

    def _divide(self, length: int) -> bool:
        """Choose the ranges by a sample of the packs; returns whether they will do."""
        sizes: dict[bytes, int] = {}
        sampled = 0
        for pack in islice(self._packs(), 0, None, _SAMPLED):
            sampled += len(pack)
            for key, value in pairs_of(pack):
                sizes[key] = sizes.get(key, _KEY_BYTES) + getsizeof(value) + _SLOT_BYTES
        # Such a part of the sample as the memory is of all, and a bit less, since it is a sample.
        share = 0.8 * self._memory * sampled / length
        size = 0
        for key in sorted(sizes):
            size += sizes[key]
            if size > share:
                self._ends.append(key)
                size = sizes[key]
        most = 0 if self._order else _MOST_TIMES - 1
        return len(self._ends) <= most and max(sizes.values()) <= share

    def __iter__(self) -> Iterator[tuple[bytes, list[Any]]]:
        """Each group once: its memory is given back."""
        for low, high in pairwise([b"", *self._ends, None]):
            groups = self._read(low or b"", high)
            for key in _in_order(groups, self._order):
                yield key, groups.pop(key)

    def _read(self, low: bytes, high: bytes | None) -> dict[bytes, list[Any]]:
        groups: dict[bytes, list[Any]] = {}
        for pack in self._packs():
            pairs = pairs_of(pack)
            if low or high is not None:
                pairs = (pair for pair in pairs if pair[0] >= low and (not high or pair[0] < high))
            for key, value in pairs:
                try:
                    groups[key].append(value)
                except KeyError:
                    groups[key] = [value]
        return groups


def _in_order(keys: Iterable[bytes], order: Order | None) -> list[bytes]:
    ordered = sorted(keys)
    if order:
        ordered.sort(key=order)
    return ordered


class Groups:
    """Records of a partition, those of one key together, keys sorted by ``order`` and their bytes.

    ``lists``: Lines without their line feeds. ``sort_values``: Whether the values of a key are
    sorted by their bytes; else they stay in their order. ``fields``: Number of fields of a key.

    ``is_split``: Whether every line is a key of one field, a TAB and a value.
    """

    def __init__(
        self,
        lists: Iterable[list[bytes]],
        sort_values: bool,
        fields: int = 1,
        order: Order | None = None,
    ) -> None:
        self._sort_values = sort_values
        self._order = order
        groups: dict[bytes, list[bytes | None]] = {}
        self.is_split = True
        value: bytes | None
        for lines in lists:
            for line in lines:
                key, tab, value = line.partition(b"\t")
                if fields > 1 or not tab:
                    self.is_split = False
                    key, value = _with_more_fields(line, fields)
                try:
                    groups[key].append(value)
                except KeyError:
                    groups[key] = [value]
        self._groups = groups

    def __iter__(self) -> Iterator[Group]:
        """Each group once: its memory is given back."""
        for key in _in_order(self._groups, self._order):
            values = self._groups.pop(key)
            if self._sort_values:
                values.sort(key=lambda value: value or b"")
            yield key, values


def _with_more_fields(line: bytes, fields: int) -> tuple[bytes, bytes | None]:
    key = key_of(line, fields)
    return key, (line[len(key) + 1 :] if len(key) < len(line) else None)


def in_memory(segments: Iterable[Segment]) -> Iterator[list[bytes]]:
    """Lines of some segments."""
    return lines_of(raw_blocks(segments))


def sorted_lines(
    segments: Iterable[Segment],
    folder: Path,
    sort_values: bool,
    fields: int,
    memory: int,
    order: Order | None = None,
) -> Iterator[list[bytes]]:
    """Lines of some segments, sorted as by :class:`Groups`, with temporary files in a folder.

    Sorting takes ``memory`` bytes.

    Raises StorageError (the disk is full, or ``sort`` is missing).
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = [] if sort_values else ["-t", "\t", "-k", f"1,{fields}", "-s"]
    blocks = raw_blocks(segments)
    if order:
        # In a field of its own, in front, for the time of the sort.
        keys = ["-t", "\t", "-k", "1,1", "-k", f"2,{1 + fields}", "-s"]
        blocks = (
            block_of([order(key_of(line, fields)) + b"\t" + line for line in lines])
            for lines in lines_of(blocks)
        )
    command = ["sort", *keys, "-S", f"{memory >> 10}K", "-T", str(folder)]
    try:
        for lines in piped(command, blocks, keep_stderr=True, env={"LC_ALL": "C"}):
            yield [line.partition(b"\t")[2] for line in lines] if order else lines
    except CommandError as error:
        reason = error.stderr or f"{error}: install coreutils"
        raise StorageError(
            f"cannot sort records in {folder}: {reason}. Free some space there, or give more "
            "--memory"
        ) from error


def read_groups(groups: Iterable[Group], read: Read, at: Callable[[bytes], None]) -> Iterator[Any]:
    """Pairs of groups, by a protocol that reads lines."""
    for key, values in groups:
        at(key)
        for value in values:
            yield read((key if value is None else key + b"\t" + value).rstrip(b"\r\n"))
