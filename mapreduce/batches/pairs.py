"""Pairs to lines and back, by mrjob's protocols: one at a time, quickly, or whole columns.

mrjob's protocols turn a key and a value into a line. The functions here give the same bytes and the
same objects; where a protocol is one of mrjob's own and the objects are plain, they take a shorter
way. Columns are Arrow arrays, of keys and of values, as batch mappers and batch reducers have them.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from json.encoder import encode_basestring_ascii as quote
from types import NoneType
from typing import TYPE_CHECKING, Any

from mapreduce import compat

compat.install()

from mrjob.protocol import (  # noqa: E402  (mrjob needs what compat supplies)
    PickleProtocol,
    ReprProtocol,
    StandardJSONProtocol,
    TextProtocol,
    TextValueProtocol,
    _KeyCachingProtocol,
)

from mapreduce.errors import DataError  # noqa: E402
from mapreduce.support.places import raised_in  # noqa: E402

if TYPE_CHECKING:
    import pyarrow as pa

#: ``read`` turns a line without its line feed into a pair, ``write`` a pair into such a line.
Read = Callable[[bytes], tuple[Any, Any]]
Write = Callable[[Any, Any], bytes]

#: Values that are remembered with their encoding, so that the next one costs a look-up.
REMEMBERED = 1 << 16

#: Bytes of those at most, which are not counted as memory.
_SHORT = 24

#: Rows of a batch that are encoded together: encoding takes several times their memory.
COLUMN_ROWS = 1 << 18

#: mrjob accepts whatever can be unpacked into two. Nobody means these types by a pair.
NO_PAIRS = (str, bytes, bytearray, Mapping, Set)

# Types of most keys.
_NO_COLUMNS = frozenset({str, int, float, bool, list, tuple, NoneType})

# What JSON allows, and Arrow reads as Python does.
_FLOAT = r"^-?(0|[1-9][0-9]*)(\.[0-9]+([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)$"


def is_json(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` is that of mrjob's JSON by the standard library."""
    return _codes_as(function, StandardJSONProtocol)


def is_pickle(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` is that of mrjob's pickles."""
    return _codes_as(function, PickleProtocol)


def is_repr(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` is that of mrjob's literals of Python."""
    return _codes_as(function, ReprProtocol)


def _codes_as(function: Callable[..., Any], kind: Any) -> bool:
    protocol: Any = type(getattr(function, "__self__", None))
    return is_keyed(function) and (protocol._loads, protocol._dumps) == (kind._loads, kind._dumps)


def is_keyed(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` codes key and value each by itself, with a TAB between."""
    protocol: Any = type(getattr(function, "__self__", None))
    methods = (_KeyCachingProtocol.read, _KeyCachingProtocol.write)
    return (
        issubclass(protocol, _KeyCachingProtocol)
        and (protocol.read, protocol.write) == methods
        and getattr(function, "__func__", None) in methods
    )


def is_text(function: Callable[..., Any]) -> bool:
    """Whether a ``read`` or ``write`` is that of mrjob's text with a TAB between."""
    return getattr(function, "__func__", None) in (TextProtocol.read, TextProtocol.write)


#: What ``json.dumps`` and ``json.loads`` come to in C, which takes a third of their time.
_encoder: Any = json.encoder
_decoder: Any = json.JSONDecoder()
_pieces_of = _encoder.c_make_encoder and _encoder.c_make_encoder(
    None, json.JSONEncoder().default, quote, None, ": ", ", ", False, False, True
)
scan = _decoder.scan_once


def to_json(value: Any) -> str:
    """The result of ``json.dumps``, or its error."""
    try:
        return "".join(_pieces_of(value, 0))
    except Exception:
        return json.dumps(value)


def from_json(raw: bytes) -> Any:
    """The result of ``json.loads`` for UTF-8, or its error."""
    text = raw.decode()
    try:
        value, end = scan(text, 0)
    except (StopIteration, ValueError):
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


def line_writer(write: Write) -> Write:
    """A function with the result of ``write``, and a line feed."""
    if is_text(write):
        return lambda key, value: (
            f"{key}\t{value}\n".encode()
            if type(key) is type(value) is str
            else write(key, value) + b"\n"
        )
    if not is_json(write):
        return lambda key, value: write(key, value) + b"\n"
    code = JSON_KINDS.get

    # Its name says to what explains errors that a pair could not be written.
    def write_line(key: Any, value: Any) -> bytes:
        return f"{code(type(key), to_json)(key)}\t{code(type(value), to_json)(value)}\n".encode()

    return write_line


#: What codes strings and integers as JSON.
JSON_KINDS: dict[type, Callable[[Any], str]] = {str: quote, int: int.__repr__}


def read_lines(read: Read, lines: Iterable[bytes]) -> Iterator[tuple[Any, Any]]:
    """Pairs of lines, by a protocol's ``read``."""
    protocol: Any = TextValueProtocol
    if is_json(read):
        yield from map(line_reader(read), (line.rstrip(b"\r\n") for line in lines))
        return
    if getattr(read, "__func__", None) is not protocol.read:
        for line in lines:
            # No map: a StopIteration of somebody's protocol would end it in silence.
            yield read(line.rstrip(b"\r\n"))
        return
    for line in lines:
        line = line.rstrip(b"\r\n")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = read(line)[1]
        yield None, text


def line_reader(read: Read) -> Read:
    """A function with the result of ``read``."""
    if not is_json(read):
        return read
    last: bytes | None = None
    key: Any = None

    def read_line(line: bytes) -> tuple[Any, Any]:
        nonlocal last, key
        raw, value = line.split(b"\t", 1)
        if raw != last:
            # As mrjob's, which gives the same object again.
            last, key = raw, from_json(raw)
        return key, from_json(value)

    return read_line


class Decoder(dict[bytes, Any]):
    """Decodes values, and remembers numbers and strings: ``decoder[raw]``."""

    def __init__(self, loads: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._loads = loads

    def __missing__(self, raw: bytes) -> Any:
        value = self._loads(raw)
        if len(raw) <= _SHORT and len(self) < REMEMBERED and type(value) in (int, float, str):
            self[raw] = value
        return value


def pair_of(item: Any) -> tuple[Any, Any] | None:
    """The yielded object as a pair; None if it is not a pair."""
    if isinstance(item, NO_PAIRS):
        return None
    try:
        key, value = item
    except (TypeError, ValueError):
        return None
    return key, value


def pairs_of(results: Iterable[Any] | None) -> Iterator[tuple[Any, Any]]:
    """The pairs that a batch mapper or reducer yields; it may also return one RecordBatch.

    A RecordBatch of two columns gives pairs of two Arrow arrays, of a bounded number of rows.

    Raises TypeError (the method yielded something else).
    """
    if hasattr(results, "schema"):
        # Returned, not yielded.
        results = [results]
    for result in results or ():
        if type(result) is tuple and len(result) == 2:
            yield result
        elif hasattr(result, "schema"):
            yield from _columns_of(result)
        elif (pair := pair_of(result)) is not None:
            yield pair
        else:
            message = (
                "expected a pair of key and value, or a RecordBatch of two columns, found "
                f"{type(result).__name__}: {result!r:.80}"
            )
            raise raised_in(results, message)


def _columns_of(batch: Any) -> Iterator[tuple[Any, Any]]:
    if batch.num_columns != 2:
        raise TypeError(
            "expected a RecordBatch of two columns, keys and values, found "
            f"{batch.num_columns}: {', '.join(batch.schema.names)}"
        )
    for start in range(0, batch.num_rows, COLUMN_ROWS):
        key, value = batch.slice(start, COLUMN_ROWS).columns
        yield key, value


def is_columns(key: Any) -> bool:
    """Whether a pair's key is an Arrow array, and the pair therefore two columns."""
    return type(key) not in _NO_COLUMNS and hasattr(key, "to_pylist") and hasattr(key, "type")


def encode_columns(write: Write, keys: "pa.Array", values: "pa.Array") -> Any:
    """Lines of two columns: a ``pyarrow.LargeBinaryArray`` of records with their line feeds.

    ``write``: The ``write`` of a protocol. ``keys``, ``values``: Of equal length.

    Raises TypeError (the columns do not belong together, or the protocol cannot encode what is in
    them).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_columns(values) or len(keys) != len(values):
        found = f"{len(values)} values" if is_columns(values) else type(values).__name__
        raise TypeError(f"expected two columns of equal length, found {len(keys)} keys and {found}")
    keys, values = _whole(keys), _whole(values)
    binary = pa.large_binary()
    if not is_json(write):
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        return pa.array([write(*pair) + b"\n" for pair in pairs], binary)
    # All at once: each join copies what it is given.
    parts = [*_encode_json(keys), b"\t", *_encode_json(values), b"\n"]
    parts = [pa.scalar(part, binary) if type(part) is bytes else part for part in parts]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", binary))


def _whole(column: Any) -> Any:
    """A column as one array of its values; those of a Table come in chunks."""
    column = column.combine_chunks() if hasattr(column, "chunks") else column
    return column.dictionary_decode() if hasattr(column, "dictionary") else column


def _encode_json(column: "pa.Array") -> list[Any]:
    """The pieces that, joined row by row, give JSON: arrays, and bytes that are in every row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, binary = column.type, pa.large_binary()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        encoded = column.cast(pa.large_string()).cast(binary)
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        encoded = pa.array([json.dumps(item).encode() for item in column.to_pylist()], binary)
    elif _needs_no_escape(column):
        text = column.cast(pa.large_string()).cast(binary)
        if not column.null_count:
            return [b'"', text, b'"']
        mark, nothing = pa.scalar(b'"', binary), pa.scalar(b"", binary)
        encoded = pc.binary_join_element_wise(mark, text, mark, nothing)
    else:
        texts = ("null" if text is None else quote(text) for text in column.to_pylist())
        encoded = pa.array([text.encode() for text in texts], binary)
    return [encoded.fill_null(b"null")]


def _needs_no_escape(column: Any) -> bool:
    """Whether JSON writes the strings as they are: printable ASCII but quote and backslash."""
    content = arrow_layout(column)[1]
    if not len(content):
        return True
    if content.min() < 0x20 or content.max() > 0x7E:
        return False
    return not ((content == 0x22) | (content == 0x5C)).any()


def arrow_layout(column: Any) -> tuple[Any, Any]:
    """Offsets, from 0 on, and bytes of a string or binary array, for kernels."""
    import numpy as np
    import pyarrow as pa

    kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, buffer, data = column.buffers()
    if not len(column) or buffer is None:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    every = np.frombuffer(buffer, np.int64 if large else np.int32)
    offsets = every[column.offset : column.offset + len(column) + 1]
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return offsets - offsets[0], content[offsets[0] : offsets[-1]]


def decode_lines(read: Read, block: bytes, order: str | None = None) -> Any:
    """The columns ``key`` and ``value`` of some lines, as a ``pyarrow.RecordBatch``.

    Integers are int64, or uint64 where they do not fit; strings are string, numbers with a point
    double; other values have the type that Arrow infers.

    ``read``: The ``read`` of a protocol.
    ``block``: Whole lines.
    ``order`` ("keys", "lines"): Sort by the bytes of the key, keeping the order within one key, or
      by those of the value too.

    Raises DataError (keys or values have no type in common that Arrow knows).
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ["key", "value"]
    parts = _split_fields(block) if is_json(read) else None
    if parts is not None:
        raw = [parts.take(pa.array(np.arange(start, len(parts), 2))) for start in (0, 1)]
        if order:
            # Arrow's sort is stable.
            by = [(name, "ascending") for name in (names if order == "lines" else names[:1])]
            rows = pc.sort_indices(pa.RecordBatch.from_arrays(raw, names), sort_keys=by)
            raw = [column.take(rows) for column in raw]
        loads = read.__self__._loads  # type: ignore[attr-defined]
        columns = [_decode_json(*named, loads) for named in zip(names, raw, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=names)
    lines = block.removesuffix(b"\n").split(b"\n") if block else []
    if order:
        parts = 3 if order == "lines" else 1
        lines.sort(key=lambda line: line.partition(b"\t")[:parts])
    pairs = [read(line.rstrip(b"\r\n")) for line in lines]
    columns = [_array(name, [pair[n] for pair in pairs]) for n, name in enumerate(names)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _split_fields(block: bytes) -> Any:
    """Raw keys and values in turn; None if a line has not exactly one TAB."""
    import numpy as np
    import pyarrow as pa

    if block and not block.endswith(b"\n"):
        block += b"\n"
    content = np.frombuffer(block, np.uint8)
    is_end = (content == 0x09) | (content == 0x0A)
    ends = np.flatnonzero(is_end)
    if len(ends) % 2 or (content[ends[::2]] != 0x09).any() or (content[ends[1::2]] != 0x0A).any():
        return None
    offsets = np.concatenate([[0], ends + 1 - np.arange(1, len(ends) + 1)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content[~is_end])]
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)


def _decode_json(name: str, raw: Any, loads: Callable[[bytes], Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(raw):
        return pa.array([], pa.null())
    # Casts fail if this is not UTF-8, or no number of 64 bits.
    with contextlib.suppress(pa.ArrowInvalid):
        offsets, content = arrow_layout(raw)
        text = raw.cast(pa.large_string())
        if _are_strings(offsets, content):
            inner = pc.binary_slice(raw, 1, -1).cast(pa.large_string())
            return inner if len(content) >= 1 << 31 else inner.cast(pa.string())
        with contextlib.suppress(pa.ArrowInvalid):
            if _are_integers(offsets, content):
                return text.cast(pa.int64())
        if pc.all(pc.match_substring_regex(text, _FLOAT)).as_py():
            return text.cast(pa.float64())
    decoder = Decoder(loads)
    return _array(name, [decoder[item] for item in raw.to_pylist()])


def _are_strings(offsets: Any, content: Any) -> bool:
    """Whether all are strings in JSON without escapes."""
    import numpy as np

    if np.diff(offsets).min() < 2:
        return False
    is_mark = content == 0x22
    return bool(
        is_mark[offsets[:-1]].all()
        and is_mark[offsets[1:] - 1].all()
        and np.count_nonzero(is_mark) == 2 * (len(offsets) - 1)
        and content.min() >= 0x20
        and not (content == 0x5C).any()
    )


def _are_integers(offsets: Any, content: Any) -> bool:
    """Whether all are integers in JSON: a sign perhaps, and digits without a zero in front."""
    import numpy as np

    lengths = np.diff(offsets)
    if not lengths.min():
        return False
    is_negative = content[offsets[:-1]] == 0x2D
    others = np.count_nonzero((content < 0x30) | (content > 0x39))
    digits = lengths - is_negative
    if others != np.count_nonzero(is_negative) or not digits.min():
        return False
    first = content[offsets[:-1] + is_negative]
    return not ((first == 0x30) & (digits > 1)).any()


def _array(name: str, items: list[Any]) -> Any:
    import pyarrow as pa

    try:
        try:
            return pa.array(items)
        except OverflowError:
            return pa.array(items, pa.uint64())
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
        raise DataError(
            f"a batch has one type for each column, and its column {name!r} has none: {error}. "
            "A reducer that takes one key at a time takes everything"
        ) from error
