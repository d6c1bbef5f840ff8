"""Lines of pairs: the output of a job, and what batch mappers and batch reducers exchange."""

from collections.abc import Iterable
from itertools import chain
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from mapreduce.batches.pairs import (
    Write,
    arrow_layout,
    encode_columns,
    is_columns,
    is_json,
    line_writer,
    to_json,
)
from mapreduce.job.calls import Pair, as_pair
from mapreduce.runners.parallel.gathered import key_of
from mapreduce.runners.parallel.partition import Partitioning, partitioner
from mapreduce.runners.parallel.segments import Buffer, SegmentWriter, Target

#: Characters of lines that are encoded together, and of a long one.
_TOGETHER, _PIECE = 1 << 17, 1 << 20


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
        self._write = write
        self._encode = line_writer(write)
        self._how = how
        self._partition = partitioner(how)
        self._parts: list[list[Buffer]] = [[] for _ in range(how.partitions)]
        self._buffered = 0
        self._buffer_bytes = buffer_bytes

    @property
    def result(self) -> dict[str, Any]:
        return self._output.result

    def write_pairs(self, pairs: Iterable[Pair]) -> None:
        """Encode and take in pairs, also pairs of columns."""
        if self._how.partitions == 1 and is_json(self._write):
            self.write_json(pairs)
            return
        for pair in pairs:
            key, value = pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)
            if is_columns(key):
                self._write_columns(key, value)
            else:
                self.write_line(self._encode(key, value))

    def write_json(self, pairs: Iterable[Pair]) -> None:
        """As above, of mrjob's JSON that is not divided."""
        lines: list[str] = []
        used, most = 0, min(_TOGETHER, self._buffer_bytes)
        for pair in pairs:
            key, value = pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)
            if type(key) is not str and type(key) is not int and is_columns(key):
                self._take_texts(lines)
                self._write_columns(key, value)
                continue
            name: Any = (
                quote(key) if type(key) is str else key if type(key) is int else to_json(key)
            )
            kind, text = type(value), value
            # Python's own text of an integer is its JSON, and of a float that is finite.
            if kind is str:
                text = quote(value)
            elif value is None:
                text = "null"
            elif kind is not int and (kind is not float or value - value):
                text = to_json(value)
            if type(text) is str and len(text) > _PIECE:
                self._take_texts(lines)
                # Of what is long there is one copy already.
                pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
                for piece in chain((f"{name}\t",), pieces, ("\n",)):
                    self._take_in(0, piece.encode())
                continue
            line = f"{name}\t{text}\n"
            lines.append(line)
            used += len(line)
            if used >= most:
                self._take_texts(lines)
                used = 0
        self._take_texts(lines)

    def _take_texts(self, lines: list[str]) -> None:
        self._take_in(0, "".join(lines).encode())
        lines.clear()

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Take in records without their line feeds."""
        for line in lines:
            self.write_line(line + b"\n")

    def write_line(self, line: bytes) -> None:
        """Take in a record, with its line feed."""
        how = self._how
        number = self._partition(key_of(line, how.key_fields)) if how.partitions > 1 else 0
        self._take_in(number, line)

    def _write_columns(self, keys: Any, values: Any) -> None:
        lines = encode_columns(self._write, keys, values)
        if self._how.partitions == 1:
            self._take_in(0, memoryview(arrow_layout(lines)[1]))
        elif self._how.fields is not None or self._how.key_fields > 1:
            for line in lines.to_pylist():
                self.write_line(line)
        else:
            import numpy as np

            from kernels import dispatch

            hash_partitions = dispatch.get("hash_partitions", "cpu")
            numbers = hash_partitions(*arrow_layout(lines), self._how.partitions)
            for number in range(self._how.partitions):
                some = lines.take(np.flatnonzero(numbers == number))
                self._take_in(number, memoryview(arrow_layout(some)[1]))

    def _take_in(self, number: int, content: Buffer) -> None:
        self._parts[number].append(content)
        self._buffered += len(content)
        if self._buffered >= self._buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        for number, part in enumerate(self._parts):
            # One buffer a segment: a system call takes no more than some hundreds.
            self._output.append(number, [part[0] if len(part) == 1 else b"".join(part)])
            part.clear()
        self._buffered = 0

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        self._output.close()
