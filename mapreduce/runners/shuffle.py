"""What lies between a map task and a reduce task of ``-r parallel``: splits, partitions, groups.

Records are lines ``key TAB value LF``, as in Hadoop streaming, or binary frames with a key, where
the job's protocol has such. A map task writes one file, in which the records of each partition lie
together in one or more segments; a reduce task reads the segments of its partition from all of
them, in the order of the map tasks, so that the values of a key come in the same order in every
run.
"""

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mrjob.cat import decompress, is_compressed
from mrjob.util import to_lines

from hdfs_utils.publish import storage_errors, write_all

Lines = Iterable[bytes]
Buffer = bytes | bytearray | memoryview

#: A map task's records wait in memory up to this many bytes before they are written.
BUFFER_BYTES = 32 << 20


class Split(NamedTuple):
    """A part of a file: the lines that start at ``start`` or later, but before ``stop``."""

    path: str
    start: int
    stop: int


class Segment(NamedTuple):
    """Records of one partition that lie together in a file."""

    path: str
    offset: int
    length: int


def splits(files: Iterable[tuple[str, int]], wanted: int) -> list[Split]:
    """Cut files into about ``wanted`` splits of equal size; no split spans two files.

    Compressed files are not cut, since they can only be read from their beginning.

    Parameters
    ----------
    files : iterable of (path, bytes)
        Empty files give no split.
    wanted : int
    """
    sizes = [(path, size) for path, size in files if size]
    total = sum(size for _, size in sizes)
    result = []
    for path, size in sizes:
        parts = 1 if is_compressed(path) else max(1, (size * wanted + total // 2) // total)
        edges = [size * part // parts for part in range(parts + 1)]
        result += [Split(path, start, stop) for start, stop in pairwise(edges) if start < stop]
    return result


def read_lines(split: Split) -> Iterator[bytes]:
    """The lines of a split, unpacked, each with its line feed, if it has one."""
    with storage_errors("read", Path(split.path)), Path(split.path).open("rb") as file:
        if is_compressed(split.path):
            yield from to_lines(decompress(file, split.path))
            return
        position = split.start
        if position:
            # The line that runs into the split belongs to the one before.
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while position < split.stop:
            line = file.readline()
            if not line:
                return
            position += len(line)
            yield line


@lru_cache(maxsize=1 << 16)
def hash_partition(key: bytes, partitions: int) -> int:
    """The partition of a key under Hadoop's HashPartitioner.

    ``(hash & 0x7fffffff) % partitions``, where the hash of a key is that of Hadoop's ``Text``:
    ``h = 31 h + byte`` over its signed bytes in 32 bits, from 1 on.
    """
    value = 1
    for byte in key:
        value = (31 * value + (byte if byte < 128 else byte - 256)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


def key_of(line: bytes) -> bytes:
    """The key of a record: all before the first TAB, or the whole line if there is none."""
    end = line.find(b"\t")
    return line[:end] if end >= 0 else line.rstrip(b"\n")


class _Output:
    """A map task's file."""

    def __init__(self, path: Path, partitions: int) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._partitions = partitions
        self._buffered = 0
        #: Bytes of the file.
        self.written = 0
        self.segments: list[list[Segment]] = [[] for _ in range(partitions)]

    def _append(self, parts: list[list[Buffer]]) -> None:
        """Write one segment for each partition that has any buffers."""
        with storage_errors("write", self._path):
            for number, buffers in enumerate(parts):
                length = sum(map(len, buffers))
                if length:
                    self.segments[number].append(Segment(str(self._path), self.written, length))
                    self.written += length
                    write_all(self._file, *buffers)
        self._buffered = 0


class LineWriter(_Output):
    """Collects the lines of a map task, by partition.

    Parameters
    ----------
    path : Path
        The map task's output.
    partitions : int
    combine : callable, optional
        From the buffered records to fewer, before they are divided into partitions.
    """

    def __init__(
        self, path: Path, partitions: int, combine: Callable[[Lines], Lines] | None = None
    ) -> None:
        super().__init__(path, partitions)
        self._combine = combine
        self._buffer: list[bytes] = []

    def write(self, line: bytes) -> None:
        """Take in a record, with its line feed."""
        self._buffer.append(line)
        self._buffered += len(line)
        if self._buffered >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        lines: Lines = self._buffer
        if self._combine:
            lines = self._combine(lines)
        self._append([[part] for part in self._divide(lines)])
        self._buffer = []

    def _divide(self, lines: Lines) -> list[bytes]:
        if self._partitions == 1:
            return [b"".join(lines)]
        parts: list[list[bytes]] = [[] for _ in range(self._partitions)]
        for line in lines:
            parts[hash_partition(key_of(line), self._partitions)].append(line)
        return [b"".join(part) for part in parts]

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        self._file.close()


class FrameWriter(_Output):
    """Collects the frames of a map task, by partition.

    Each has its key and its length before it, and starts at a multiple of 64 bytes, so that its
    arrays are aligned in the mapped file.
    """

    def __init__(self, path: Path, partitions: int) -> None:
        super().__init__(path, partitions)
        self._parts: list[list[Buffer]] = [[] for _ in range(partitions)]

    def write(self, key: bytes, frame: list[Buffer]) -> None:
        """Take in a record: its key, and a frame whose length is a multiple of 64 bytes.

        It is written at once, since its memory may change afterwards.
        """
        length = sum(map(len, frame))
        head = _FRAME_HEAD.pack(len(key), length) + key
        head += bytes(-len(head) % _ALIGNMENT)
        parts: list[list[Buffer]] = [[] for _ in range(self._partitions)]
        parts[hash_partition(key, self._partitions)] = [head, *frame]
        self._append(parts)

    def close(self) -> None:
        self._file.close()


_FRAME_HEAD = struct.Struct("<QQ")
_ALIGNMENT = 64


def grouped_frames(segments: Iterable[Segment]) -> Iterator[tuple[bytes, memoryview]]:
    """Keys and frames of a partition, those of one key together, keys in order of their bytes.

    Frames are views of the mapped files.
    """
    groups: dict[bytes, list[memoryview]] = {}
    for segment in segments:
        view, position = _view(segment)
        end = position + segment.length
        while position < end:
            key_length, length = _FRAME_HEAD.unpack_from(view, position)
            start = position + _FRAME_HEAD.size
            key = bytes(view[start : start + key_length])
            start += key_length + (-(_FRAME_HEAD.size + key_length) % _ALIGNMENT)
            groups.setdefault(key, []).append(view[start : start + length])
            position = start + length
    for key in sorted(groups):
        for frame in groups[key]:
            yield key, frame


def _view(segment: Segment) -> tuple[memoryview, int]:
    """Memory that holds a segment, and where in it the segment starts."""
    path = Path(segment.path)
    with storage_errors("read", path), path.open("rb", buffering=0) as file:
        if segment.length >= _LEAST_MAPPED:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), segment.offset
        file.seek(segment.offset)
        return memoryview(file.read(segment.length)), 0


#: Mapping a file costs more than reading so few bytes of it.
_LEAST_MAPPED = 1 << 16


def segment_lines(segments: Iterable[Segment]) -> Iterator[bytes]:
    """The records of some segments, without their line feeds."""
    for segment in segments:
        yield from _read_segment(segment)


def grouped(lines: Lines, sort_values: bool) -> Iterator[bytes]:
    """Records with those of one key together, keys in the order of their bytes.

    The values of a key stay in the order in which they came, or are sorted by their bytes.
    """
    groups: dict[bytes, list[bytes]] = {}
    for line in lines:
        groups.setdefault(key_of(line), []).append(line)
    for key in sorted(groups):
        values = groups.pop(key)
        yield from sorted(values) if sort_values else values


def _read_segment(segment: Segment) -> list[bytes]:
    path = Path(segment.path)
    with storage_errors("read", path), path.open("rb") as file:
        file.seek(segment.offset)
        content = file.read(segment.length)
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines
