"""Reading the input of map tasks: files are cut into splits by byte, splits are read by line.

Nothing is copied to cut a file. A split is read in blocks that end where a line ends; a line
belongs to the split in which it starts. Compressed files are read as a whole.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hdfs_utils import codecs
from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import RemotePath
from mapreduce.support.reading import reading, reading_compressed, refuse_compressed
from mapreduce.support.records import record_text

#: Bytes that are read at once; a line may be longer.
BLOCK_BYTES = 1 << 20


class Split(NamedTuple):
    """A part of a file: the lines that start at ``start`` or later, but before ``stop``."""

    path: str
    start: int
    stop: int


def is_compressed(path: str) -> bool:
    """Whether a file is read through a decompressor, by its name."""
    return codecs.by_name(path) is not None


def splits(files: Sequence[tuple[str, int]], wanted: int) -> list[Split]:
    """Cut files, given by path and bytes, into about ``wanted`` splits of equal size.

    No split spans two files. An empty file has one, as on Hadoop, so that a job's init and final
    methods run. Compressed files are not cut, since they can only be read from their beginning.
    """
    total = sum(size for _, size in files)
    result = []
    for path, size in files:
        is_whole = not size or is_compressed(path)
        parts = 1 if is_whole else max(1, (size * wanted + total // 2) // total)
        edges = [size * part // parts for part in range(parts + 1)]
        pairs = [(start, stop) for start, stop in pairwise(edges) if start < stop or not size]
        result += [Split(path, *pair) for pair in pairs]
    return result


class SplitReader:
    """Reads one split, and knows which of its lines was read last.

    ``on_block`` is called before each block that is read, as a sign of life.
    """

    def __init__(self, split: Split, on_block: Callable[[], None] = lambda: None) -> None:
        self._split = split
        self._on_block = on_block
        self._offset = 0
        self._block = b""
        self._number = 0
        self._left: Iterator[Any] = iter(())

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """The split's bytes, in blocks of about ``size`` that end with a whole line.

        Raises DataError (a compressed file is damaged or cut off), StorageError (the file cannot be
        read).
        """
        pending: list[bytes] = []
        for offset, chunk, is_last in self._chunks(size):
            end = len(chunk) if is_last else chunk.rfind(b"\n") + 1
            if not pending:
                self._offset = offset
            if not end:
                pending.append(chunk)
                continue
            block = b"".join([*pending, chunk[:end]]) if pending else chunk[:end]
            pending = [chunk[end:]] if end < len(chunk) else []
            if block:
                yield block
            if pending:
                self._offset = offset + end
        if pending:
            yield b"".join(pending)

    def _chunks(self, size: int) -> Iterator[tuple[int, bytes, bool]]:
        """Offset, bytes, and whether it is the last one, cut off at the split's end."""
        path, start, stop = self._split
        compressed = is_compressed(path)
        with _reading(path), _open(path) as raw, codecs.reader(raw, path) as file:
            position = 0
            skip = bool(start) and not compressed
            if skip:
                # The line that runs into the split belongs to the one before.
                position = start - 1
                file.seek(position)
            while True:
                self._on_block()
                chunk = file.read(size)
                if not chunk:
                    return
                if not position and is_remote(path):
                    # One of this machine was looked at before the job began.
                    refuse_compressed(path, b"" if compressed else chunk)
                offset = position
                position += len(chunk)
                if skip:
                    begin = chunk.find(b"\n") + 1
                    if not begin:
                        continue
                    skip = False
                    offset += begin
                    chunk = chunk[begin:]
                    if offset >= stop:
                        return
                if not compressed and position >= stop:
                    end = chunk.find(b"\n", max(0, stop - 1 - offset)) + 1
                    if end:
                        yield offset, chunk[:end], True
                        return
                if chunk:
                    yield offset, chunk, False

    def __iter__(self) -> Iterator[bytes]:
        """The lines, without their line feeds."""
        for block in self.blocks():
            self._read(block, block.split(b"\n"))
            yield from self._left
        self._block = b""

    def texts(self) -> Iterator[Iterator[str]]:
        """The lines as mrjob's protocol for text reads them: those of one block after another's."""
        for block in self.blocks():
            try:
                lines = block.decode().split("\n")
            except UnicodeDecodeError:
                lines = list(map(_text, block.split(b"\n")))
            if b"\r" in block:
                lines = [line.rstrip("\r") for line in lines]
            self._read(block, lines)
            # Who takes the raw lines may leave some of a block.
            while operator.length_hint(self._left):
                yield self._left
        self._block = b""

    def _read(self, block: bytes, lines: list[Any]) -> None:
        if block.endswith(b"\n"):
            lines.pop()
        self._block, self._number, self._left = block, len(lines), iter(lines)

    def _index(self) -> int:
        """The number of the line, in its block, that was read last."""
        return self._number - operator.length_hint(self._left) - 1

    def rest(self) -> Iterator[bytes]:
        """The raw lines of the block whose texts were not taken, each in the place of its text."""
        block, lines = b"", [b""]
        while next(self._left, None) is not None:
            if block is not self._block:
                block, lines = self._block, self._block.split(b"\n")
            yield lines[self._index()]

    def location(self) -> str | None:
        """File, line and text of what was read last; None before the first and after the last."""
        if not self._block:
            return None
        index = self._index()
        before = _count_lines(self._split.path, self._offset)
        line = self._block.split(b"\n")[index]
        return f"{self._split.path}, line {before + index + 1}: {record_text(line)}"


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _count_lines(path: str, stop: int) -> int:
    """Line feeds before an offset of the unpacked file."""
    count = 0
    with _reading(path), _open(path) as raw, codecs.reader(raw, path) as file:
        while stop > 0 and (chunk := file.read(min(stop, BLOCK_BYTES))):
            count += chunk.count(b"\n")
            stop -= len(chunk)
    return count


#: Copies on this machine of files that are not, by their URIs.
copies: dict[str, str] = {}


def _open(path: str) -> Any:
    path = copies.get(path, path)
    return RemotePath(path).open() if is_remote(path) else Path(path).open("rb", buffering=0)


def _reading(path: str) -> reading:
    return reading_compressed(path) if is_compressed(path) else reading(path, "")
