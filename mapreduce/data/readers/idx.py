"""IDX, the format of MNIST and FashionMNIST.

A big-endian header (two zero bytes, the code of the element's type, the number of dimensions, and
each dimension as an unsigned 32-bit integer), then the elements; described by Y. LeCun, C. Cortes
and C. Burges with the MNIST database.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import check_sources, open_source, read_fully
from mapreduce.errors import DataError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CHUNK_BYTES = 8 << 20


def source(paths: Sequence[AnyPath], labels: AnyPath | None) -> Source:
    """Examples of one or more IDX files of one shape and type, with labels from another.

    Unsigned bytes stay bytes and are scaled to [0, 1]; other types become float32, or float64 if
    they are float64. The file of labels has one dimension, with one integer for each example.

    Raises UsageError (no files of examples), DataError (a header is damaged, or shapes, types or
    numbers of labels do not fit. While the rows are read: a file is truncated or goes on after its
    last element, or a feature is not finite).
    """
    check_sources(paths, "the IDX file of examples")
    headers = [_header(path) for path in paths]
    dtype, (_, *shape) = headers[0]
    for path, (other, (_, *other_shape)) in zip(paths, headers, strict=True):
        if (other, other_shape) != (dtype, shape):
            raise DataError(
                f"{path} holds {other.name} examples of shape {tuple(other_shape)}, {paths[0]} "
                f"{dtype.name} of shape {tuple(shape)}: they cannot be in one dataset"
            )
    if not math.prod(shape):
        raise DataError(
            f"{paths[0]} holds examples of shape {tuple(shape)}, which have no elements"
        )
    rows = sum(dimensions[0] for _, dimensions in headers)
    if labels is not None:
        _check_labels(labels, rows)
    stored = _storage_dtype(dtype)
    return Source(
        chunks=_chunks(paths, labels, stored),
        shape=tuple(shape) or (1,),
        scale=1 / 255 if stored == np.uint8 else 1.0,
        bytes=rows * math.prod(shape) * stored.itemsize,
        description={
            "format": "idx",
            "files": [path.name for path in paths],
            "labels": labels.name if labels else None,
        },
    )


def _storage_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The dtype in which elements of a file are kept."""
    if dtype == np.uint8:
        return np.dtype(np.uint8)
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)


def _header(path: AnyPath) -> tuple[np.dtype[np.generic], list[int]]:
    with open_source(path) as file:
        return _read_header(file, path)


def _read_header(file: BinaryIO, path: AnyPath) -> tuple[np.dtype[np.generic], list[int]]:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not start[3]:
        raise DataError(
            f"{path} is not an IDX file: expected two zero bytes, a type and a number of "
            f"dimensions at offset 0, found {start!r}"
        )
    raw = file.read(4 * start[3])
    if len(raw) < 4 * start[3]:
        raise DataError(
            f"{path} is truncated: its header of {4 + 4 * start[3]} bytes ends at offset "
            f"{4 + len(raw)}"
        )
    return np.dtype(TYPES[start[2]]), list(struct.unpack(f">{start[3]}I", raw))


def _check_labels(path: AnyPath, rows: int) -> None:
    check_sources([path], "the IDX file of labels")
    dtype, dimensions = _header(path)
    if len(dimensions) != 1 or dtype.kind == "f":
        raise DataError(
            f"{path} holds {dtype.name} of shape {tuple(dimensions)}: expected one integer label "
            f"for each example. Are the files of examples and of labels exchanged?"
        )
    if dimensions[0] != rows:
        raise DataError(f"{path} holds {dimensions[0]} labels for {rows} examples")


def _chunks(
    paths: Sequence[AnyPath], labels: AnyPath | None, stored: np.dtype[np.generic]
) -> Iterator[Rows]:
    pending = _blocks([labels], np.dtype(np.int64), 1) if labels else None
    left = np.empty(0, np.int64)
    for features in _blocks(paths, stored, None):
        if pending is None:
            yield Rows(features, None)
            continue
        while len(left) < len(features):
            left = np.concatenate([left, next(pending).reshape(-1)])
        yield Rows(features, left[: len(features)])
        left = left[len(features) :]
    if pending is not None:
        # Reads the labels' file to its end, where damage would show.
        for _ in pending:
            pass


def _blocks(
    paths: Sequence[AnyPath], stored: np.dtype[np.generic], columns: int | None
) -> Iterator[Array]:
    """Matrices of some rows of the files."""
    for path in paths:
        with open_source(path) as file:
            dtype, dimensions = _read_header(file, path)
            offset = 4 + 4 * len(dimensions)
            width = columns or math.prod(dimensions[1:])
            size = width * dtype.itemsize
            remaining = dimensions[0]
            total = offset + remaining * size
            while remaining:
                rows = min(remaining, max(1, CHUNK_BYTES // size))
                raw = read_fully(file, rows * size)
                if len(raw) < rows * size:
                    raise DataError(
                        f"{path} is truncated: its header announces {total} bytes, it ends at "
                        f"offset {offset + len(raw)}"
                    )
                block = np.frombuffer(raw, dtype).reshape(rows, width).astype(stored)
                _check_finite(block, path, dimensions[0] - remaining)
                yield block
                offset += len(raw)
                remaining -= rows
            if file.read(1):
                raise DataError(
                    f"{path} goes on after its {dimensions[0]} examples, beyond offset {total}: "
                    f"its header and its content do not fit"
                )


def _check_finite(block: Array, path: AnyPath, first: int) -> None:
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        row, column = np.argwhere(~np.isfinite(block))[0]
        raise DataError(
            f"{path}: example {first + row}, element {column} is {block[row, column]}: every "
            f"feature must be a finite number"
        )
