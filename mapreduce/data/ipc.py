"""Bytes for Arrow's readers, and columns of a record batch of an IPC file that may be anybody's."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array

_FILE_MAGIC = b"ARROW1\0\0"


def stream(content: bytes) -> Any:
    """A copy of bytes in Arrow's own memory, as a file to read from.

    Readers of whole tables have threads, which give the memory back some time after the table is
    there. For Python's memory they need Python's lock, and the process is aborted if it ends in
    that moment (github.com/apache/arrow/issues/34314).
    """
    buffer = pa.allocate_buffer(len(content))
    np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(content, np.uint8)
    return pa.BufferReader(buffer)


def native(path: AnyPath) -> Any:
    """A file to read from, Arrow's own where that can be: see :func:`stream`."""
    return pa.OSFile(os.fsencode(path)) if isinstance(path, Path) else path.open("rb")


def output_file(path: Path) -> Any:
    """A file to write to, whose name need not be Unicode, as it must be where Arrow opens it."""
    return pa.OSFile(os.fsencode(path), "wb")


def columns(content: memoryview, schema: Any) -> tuple[int, list[Array]]:
    """The values of a record batch, where they lie.

    ``content`` is the message, before which may come the start of the file with its schema. That
    has numbers, and lists of them of fixed or of variable length; without nulls.

    Returns the number of rows; and for each column its values, flat, and before those of lists of
    variable length the offsets (rows + 1,), int32. Raises ValueError (it is not such a record
    batch, or a buffer or an offset leads beyond its end).
    """
    stream = pa.BufferReader(pa.py_buffer(content))
    if content[: len(_FILE_MAGIC)] == _FILE_MAGIC:
        stream.seek(len(_FILE_MAGIC))
    try:
        message = pa.ipc.read_message(stream)
        if message.type == "schema":
            message = pa.ipc.read_message(stream)
        if _is_compressed(message.metadata):
            # A few bytes of them can ask for any amount of memory.
            raise ValueError("its buffers are compressed")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, struct.error) as error:
        raise ValueError(str(error)) from error
    if not batch.num_rows:
        raise ValueError("it has no rows")
    arrays = [array for column in batch.columns for array in _values(column)]
    # Kernels are compiled for numbers that lie at multiples of their size.
    if not all(array.flags.aligned for array in arrays):
        raise ValueError("a buffer does not lie at a multiple of its elements' size")
    return batch.num_rows, arrays


def _is_compressed(metadata: Any) -> bool:
    """Whether a message's header, a ``RecordBatch`` of Arrow's Message.fbs, has a ``compression``.

    https://flatbuffers.dev/internals describes the bytes of tables.
    """

    def field(table: int, number: int) -> int:
        """Where a field of a table is; 0 if it has none."""
        vtable: int = table - struct.unpack_from("<i", metadata, table)[0]
        entry = 4 + 2 * number
        if entry >= struct.unpack_from("<H", metadata, vtable)[0]:
            return 0
        offset: int = struct.unpack_from("<H", metadata, vtable + entry)[0]
        return offset and table + offset

    def pointed(place: int) -> int:
        offset: int = struct.unpack_from("<I", metadata, place)[0]
        return place + offset

    return bool(field(pointed(field(pointed(0), 2)), 3))


def _values(column: Any) -> list[Array]:
    if column.null_count:
        raise ValueError("values are missing")
    if pa.types.is_list(column.type):
        return [column.offsets.to_numpy(), *_values(column.values)]
    if pa.types.is_fixed_size_list(column.type):
        # As flatten(), which would load Arrow's functions.
        size = column.type.list_size
        return _values(column.values.slice(column.offset * size, len(column) * size))
    return [column.to_numpy()]
