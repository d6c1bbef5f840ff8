"""Segments: what a map task has written for one reduce task, in memory or on the disk.

A segment holds lines ``key TAB value LF``, as in Hadoop streaming, or columns
(:mod:`mapreduce.runners.parallel.columns`). A reduce task reads those of its partition in the order
of the map tasks, so that the values of a key come in the same order in every run.

The segments of a map task lie in one file: in memory, while all files together take at most half of
``--memory``, and beyond that on the disk.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from hdfs_utils.atomic import storage_errors, write_all
from hdfs_utils.errors import StorageError

Buffer = bytes | bytearray | memoryview

_READ_BYTES = 1 << 20

#: Files that are open at once to be read: a process may often have no more than 1,024 of all kinds.
_MOST_OPEN = 64


class Segment(NamedTuple):
    """Records of one partition that lie together in a file.

    ``block_memory``: Bytes that the largest block of columns takes when it is read; 0 for lines.
    """

    path: str
    offset: int
    length: int
    block_memory: int = 0


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

    def append(self, number: int, buffers: list[Buffer], block_memory: int = 0) -> None:
        """Write a segment of a partition, given by its number."""
        if os.getpid() != self._process:
            # A copy of the task's process, which it made and let return: its output came twice.
            os._exit(1)
        length = sum(map(len, buffers))
        if length:
            self._make_room(length)
            self._write(buffers)
            segment = Segment(str(self._path), self._position, length, block_memory)
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


class SegmentFiles:
    """The files of segments that are read side by side: those that were opened last stay open."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def at(self, path: str, position: int) -> BinaryIO:
        """A file, to be read from a position on."""
        if path not in self._files:
            if len(self._files) >= _MOST_OPEN:
                self._files.pop(next(iter(self._files))).close()
            self._files[path] = Path(path).open("rb")  # noqa: SIM115  (closed at the end)
        file = self._files[path]
        file.seek(position)
        return file


def raw_blocks(segments: Iterable[Segment]) -> Iterator[bytes]:
    """The lines of some segments of lines, cut anywhere.

    Raises StorageError (a file is shorter than it was when it was written).
    """
    for path, offset, length, *_ in segments:
        with storage_errors("read", Path(path)), Path(path).open("rb", buffering=0) as file:
            file.seek(offset)
            while length:
                block = file.read(min(length, _READ_BYTES))
                if not block:
                    raise StorageError(f"{path} is {length} bytes shorter than it was written")
                length -= len(block)
                yield block
