"""The columns of a record batch of an Arrow IPC file that may be anybody's.

A record batch is a message: a marker, the length of its metadata, the metadata, and a body with the
buffers. The metadata, a FlatBuffers table (https://flatbuffers.dev/internals), say where in the
body each buffer is. Arrow takes some of it on trust: a patched length aborts the process or leads
beyond the end of the file, and a compressed buffer gets the memory that it asks for. So it is read
here, and every buffer is compared with the body that it has to lie in.
"""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
#: The content of a buffer, and the number of elements; None means as many as it holds.
_Part = tuple[npt.DTypeLike, int | None]

_FILE_MAGIC = b"ARROW1\0\0"
_SCHEMA, _RECORD_BATCH = 1, 3


def columns(content: memoryview, schema: Any) -> tuple[int, list[Array]]:
    """The values of a record batch, where they lie.

    Parameters
    ----------
    content : memoryview
        The message; before it may come the start of the file with its schema.
    schema : pyarrow.Schema
        Numbers, and lists of them of fixed or of variable length; without nulls.

    Returns
    -------
    int, list of array
        Rows; for each column its values, flat, and before those of lists of variable length the
        offsets (rows + 1,), int32, which may lead anywhere.

    Raises
    ------
    ValueError
        The metadata do not describe such a record batch, or a buffer does not lie in the body.
    """
    try:
        rows, buffers, body = _record_batch(content)
    except struct.error as error:
        raise ValueError(f"its metadata lead beyond their end: {error}") from error
    parts = [part for field in schema for part in _parts(field.type, rows)]
    if rows < 1 or len(buffers) != len(parts):
        raise ValueError(f"{rows} rows in {len(buffers)} buffers, expected {len(parts)} buffers")
    arrays = [_values(body, *buffer, part) for buffer, part in zip(buffers, parts, strict=True)]
    return rows, [array for array in arrays if array is not None]


def _parts(kind: Any, rows: int) -> list[_Part | None]:
    """The content of the buffers of a column; None for the validity bitmap."""
    if pa.types.is_fixed_size_list(kind):
        return [None, None, (kind.value_type.to_pandas_dtype(), rows * kind.list_size)]
    if pa.types.is_list(kind):
        return [None, (np.int32, rows + 1), None, (kind.value_type.to_pandas_dtype(), None)]
    return [None, (kind.to_pandas_dtype(), rows)]


def _values(body: memoryview, offset: int, length: int, part: _Part | None) -> Array | None:
    """The values of a buffer."""
    if part is None:
        if length:
            raise ValueError("values are missing")
        return None
    dtype = np.dtype(part[0])
    size = (length // dtype.itemsize if part[1] is None else part[1]) * dtype.itemsize
    if not (0 <= offset <= offset + length <= len(body) and 0 <= size <= length):
        raise ValueError(
            f"a buffer of {length} bytes, {size} expected, at {offset} of {len(body)} bytes"
        )
    values: Array = np.frombuffer(body, np.uint8)[offset : offset + size].view(dtype)
    # Kernels are compiled for numbers that lie at multiples of their size.
    if not values.flags.aligned:
        raise ValueError(f"a buffer at {offset}, which is not a multiple of {dtype.itemsize}")
    return values


def _record_batch(content: memoryview) -> tuple[int, list[tuple[int, int]], memoryview]:
    """Rows, offset and length of each buffer, and the body of the first record batch."""
    stop = len(_FILE_MAGIC) if content[: len(_FILE_MAGIC)] == _FILE_MAGIC else 0
    kind = _SCHEMA
    while kind == _SCHEMA:
        marker, length = _read(content, "<Ii", stop)
        start, stop = stop + 8, stop + 8 + length
        if marker != 0xFFFFFFFF or not start < stop <= len(content):
            raise ValueError("it does not begin with a message")
        metadata = content[start:stop]
        message = _referred(metadata, 0)
        (kind,) = _read(metadata, "<B", _field(metadata, message, 1))
    if kind != _RECORD_BATCH:
        raise ValueError(f"a message of kind {kind}")
    batch = _referred(metadata, _field(metadata, message, 2))
    if _field(metadata, batch, 3):
        raise ValueError("its buffers are compressed")
    (rows,) = _read(metadata, "<q", _field(metadata, batch, 0))
    vector = _referred(metadata, _field(metadata, batch, 2))
    (count,) = _read(metadata, "<I", vector)
    # Checked before a format for this number of fields is made.
    _read(metadata, "<B", vector + 16 * count)
    numbers = _read(metadata, f"<{2 * count}q", vector + 4)
    return rows, list(zip(numbers[::2], numbers[1::2], strict=True)), content[stop:]


def _read(content: memoryview, code: str, place: int) -> tuple[int, ...]:
    # ``struct`` would count a negative place from the end.
    if place < 0:
        raise struct.error(f"a reference to {place}")
    return struct.unpack_from(code, content, place)


def _referred(content: memoryview, place: int) -> int:
    return place + _read(content, "<I", place)[0]


def _field(content: memoryview, table: int, number: int) -> int:
    """Where a field of a table is; 0, where none can be, if it is not there."""
    fields = table - _read(content, "<i", table)[0]
    entry = 4 + 2 * number
    if entry + 2 > _read(content, "<H", fields)[0]:
        return 0
    (offset,) = _read(content, "<H", fields + entry)
    return table + offset if offset else 0
