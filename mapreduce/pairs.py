"""Pairs to lines and back, by mrjob's protocols: one at a time, quickly, or whole columns.

mrjob's protocols turn a key and a value into a line. The functions here give the same bytes and the
same objects; where a protocol is one of mrjob's own and the objects are plain, they take a shorter
way. Columns are Arrow arrays, of keys and of values, as batch mappers and batch reducers have them.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any

from mapreduce import compat

compat.install()

from mrjob.protocol import (  # noqa: E402  (mrjob needs what compat supplies)
    StandardJSONProtocol,
    _KeyCachingProtocol,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: From a line without its line feed to a pair; from a pair to such a line.
Read = Callable[[bytes], tuple[Any, Any]]
Write = Callable[[Any, Any], bytes]

#: Values that are remembered with their encoding, so that the next one costs a look-up.
REMEMBERED = 1 << 16


def is_json(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` is that of mrjob's JSON by the standard library."""
    protocol: Any = type(getattr(function, "__self__", None))
    return is_keyed(function) and (
        (protocol._loads, protocol._dumps)
        == (StandardJSONProtocol._loads, StandardJSONProtocol._dumps)
    )


def is_keyed(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` codes key and value each by itself, with a TAB between."""
    protocol: Any = type(getattr(function, "__self__", None))
    return issubclass(protocol, _KeyCachingProtocol) and (
        (protocol.read, protocol.write) == (_KeyCachingProtocol.read, _KeyCachingProtocol.write)
    )


def line_writer(write: Write) -> Write:
    """A function with the result of ``write``, and a line feed."""
    if not is_json(write):
        return lambda key, value: write(key, value) + b"\n"

    def write_line(key: Any, value: Any) -> bytes:
        if type(key) is str:
            if type(value) is int:
                return f"{quote(key)}\t{value}\n".encode()
            if type(value) is str:
                return f"{quote(key)}\t{quote(value)}\n".encode()
        return write(key, value) + b"\n"

    return write_line


class Decoder(dict[bytes, Any]):
    """Decodes values, and remembers numbers and strings: ``decoder[raw]``."""

    def __init__(self, loads: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._loads = loads

    def __missing__(self, raw: bytes) -> Any:
        value = self._loads(raw)
        if len(self) < REMEMBERED and type(value) in (int, float, str):
            self[raw] = value
        return value


def pairs_of(results: Iterable[Any] | None) -> Iterator[tuple[Any, Any]]:
    """The pairs that a batch mapper or reducer yields.

    A RecordBatch of two columns gives one pair, of two Arrow arrays.

    Raises
    ------
    TypeError
        Something else was yielded.
    """
    for result in results or ():
        if type(result) is tuple:
            yield result
        elif hasattr(result, "schema"):
            if result.num_columns != 2:
                raise TypeError(
                    "expected a RecordBatch of two columns, keys and values, found "
                    f"{result.num_columns}: {', '.join(result.schema.names)}"
                )
            key, value = result.columns
            yield _whole(key), _whole(value)
        else:
            key, value = result
            yield key, value


def _whole(column: Any) -> Any:
    """A column as one array; those of a Table come in chunks."""
    return column.combine_chunks() if hasattr(column, "chunks") else column


def is_columns(key: Any) -> bool:
    """Whether a pair's key is an Arrow array, and the pair therefore two columns."""
    return hasattr(key, "to_pylist") and hasattr(key, "type")


def encode_columns(write: Write, keys: "pa.Array", values: "pa.Array") -> "tuple[Any, Any]":
    """Lines of two columns.

    Parameters
    ----------
    write : callable
        A protocol's.
    keys, values : pyarrow.Array
        Of equal length.

    Returns
    -------
    keys, lines : pyarrow.BinaryArray
        Encoded keys, and whole records with their line feeds.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_json(write):
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        lines = [write(*pair) + b"\n" for pair in pairs]
        heads = [line.rstrip(b"\n").partition(b"\t")[0] for line in lines]
        return pa.array(heads, pa.binary()), pa.array(lines, pa.binary())
    key, value = _encode_json(keys), _encode_json(values)
    lines = pc.binary_join_element_wise(key, value, b"\t")
    return key, pc.binary_join_element_wise(lines, pa.scalar(b"", pa.binary()), b"\n")


def _encode_json(column: "pa.Array") -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not column.null_count:
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return pc.cast(column, pa.string()).cast(pa.binary())
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text and _needs_no_escape(column):
            mark = pa.scalar(b'"', pa.binary())
            return pc.binary_join_element_wise(mark, column.cast(pa.binary()), mark, b"")
        if is_text:
            return pa.array([quote(text).encode() for text in column.to_pylist()], pa.binary())
    return pa.array([json.dumps(item).encode() for item in column.to_pylist()], pa.binary())


def _content(column: Any) -> Any:
    """The bytes of a string or binary array, as a NumPy array."""
    import numpy as np

    offsets = _offsets(column)
    data = column.buffers()[2]
    if data is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _offsets(column: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(1, np.int64)
    every = np.frombuffer(buffer, np.int64 if large else np.int32)
    return every[column.offset : column.offset + len(column) + 1]


def arrow_layout(column: Any) -> tuple[Any, Any]:
    """Offsets, from 0 on, and bytes of a string or binary array, for kernels."""
    offsets = _offsets(column)
    return offsets - offsets[0], _content(column)


def _needs_no_escape(column: Any) -> bool:
    """Whether JSON writes the strings as they are: printable ASCII but quote and backslash."""
    content = _content(column)
    if not len(content):
        return True
    if content.min() < 0x20 or content.max() > 0x7E:
        return False
    return not ((content == 0x22) | (content == 0x5C)).any()


def decode_lines(read: Read, block: bytes, order: str | None = None) -> Any:
    """The columns ``key`` and ``value`` of some lines.

    Parameters
    ----------
    read : callable
        A protocol's.
    block : bytes
        Whole lines.
    order : {"keys", "lines"}, optional
        Sort by the bytes of the key, keeping the order within one key, or by those of the whole
        line.

    Returns
    -------
    pyarrow.RecordBatch
        Integers are int64, strings are string; other values have the type that Arrow infers.
    """
    import pyarrow as pa

    if is_json(read) and block:
        raw = _split_columns(block)
        if raw is not None:
            if order:
                raw = _sorted_columns(raw, order)
            columns = [_decode_json(column) for column in raw]
            return pa.RecordBatch.from_arrays(columns, names=["key", "value"])
    lines = [line for line in block.split(b"\n") if line]
    if order:
        lines.sort(key=None if order == "lines" else lambda line: line.partition(b"\t")[0])
    pairs = [read(line.rstrip(b"\r\n")) for line in lines]
    keys, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], names=["key", "value"])


def _split_columns(block: bytes) -> list[Any] | None:
    """Raw keys and values; None if a line has not exactly one TAB."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(
                use_threads=False, column_names=["key", "value"], block_size=max(1, len(block))
            ),
            csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False),
            csv.ConvertOptions(
                column_types={"key": pa.binary(), "value": pa.binary()},
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    return [column.combine_chunks() for column in table.columns]


def _sorted_columns(raw: list[Any], order: str) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = pa.RecordBatch.from_arrays(raw, names=["key", "value"])
    names = ["key", "value"] if order == "lines" else ["key"]
    # Arrow's sort is stable.
    found = batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in names]))
    return list(found.columns)


def _decode_json(raw: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(raw):
        return pa.array([], pa.null())
    offsets, content = _offsets(raw), _content(raw)
    firsts = content[offsets[:-1] - offsets[0]]
    if (firsts == 0x22).all():
        if not (content == 0x5C).any():
            return pc.binary_slice(raw, 1, -1).cast(pa.string())
    elif ((firsts == 0x2D) | ((firsts >= 0x30) & (firsts <= 0x39))).all():
        try:
            return pc.cast(raw.cast(pa.string()), pa.int64())
        except pa.ArrowInvalid:
            pass
    return pa.array([json.loads(item) for item in raw.to_pylist()])
