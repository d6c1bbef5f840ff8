"""How the importer keeps rows in files of its own until they are sorted: Arrow's record batches.

Features become columns of bytes, and texts stay texts, whatever layout the rows have.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data import csr
from mapreduce.data.batch import Array, Block, Csr


def flat(table: Any, name: str) -> Array:
    """A column without missing values as an array."""
    found: Array = table.column(name).to_numpy()
    return found


def _row_bytes(rows: Array) -> Any:
    """Rows of an array as Arrow's bytes of one length."""
    rows = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    width = rows.shape[1] * rows.itemsize
    buffers = [None, pa.py_buffer(rows.view(np.uint8).reshape(-1) if width else b"")]
    return pa.Array.from_buffers(pa.binary(width), len(rows), buffers)


def _unfixed(
    table: Any, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], places: Array
) -> Array:
    """The array of :func:`_row_bytes`, its rows at these places."""
    rows = math.prod(shape) * dtype.itemsize
    out = np.empty((len(places), rows), np.uint8)
    to = np.empty_like(places)
    to[places] = np.arange(len(places))
    start = 0
    for chunk in table.column(name).chunks:
        content = np.frombuffer(chunk.buffers()[1] or b"", np.uint8)
        content = content[chunk.offset * rows : (chunk.offset + len(chunk)) * rows]
        out[to[start : start + len(chunk)]] = content.reshape(len(chunk), rows)
        start += len(chunk)
    found: Array = out.view(dtype).reshape(-1, *shape)
    return found


class _DenseForm:
    """How dense features are stored in a bucket."""

    def __init__(self, features: Array) -> None:
        self._dtype, self._shape = features.dtype, features.shape[1:]

    def batch(self, columns: dict[str, Array], features: Array, places: Array | None) -> Any:
        features = features if places is None else features[places]
        return pa.record_batch({**columns, "features": _row_bytes(features)})

    def features(self, table: Any, places: Array) -> Array:
        return _unfixed(table, "features", self._dtype, self._shape, places)


class _SparseForm:
    """How sparse features are stored in a bucket."""

    def __init__(self, features: Csr) -> None:
        self._dtype, self._columns = features.dtype, features.columns

    def batch(self, columns: dict[str, Array], features: Csr, places: Array | None) -> Any:
        features = features if places is None else csr.take(features, places)
        used = slice(features.indptr[0], features.indptr[-1])
        offsets = (features.indptr - used.start).astype(np.int64)
        stored = {}
        for name, array in (("indices", features.indices), ("values", features.values)):
            content = np.ascontiguousarray(array[used])
            buffers = [None, pa.py_buffer(offsets * array.itemsize), pa.py_buffer(content)]
            stored[name] = pa.Array.from_buffers(pa.large_binary(), len(features), buffers)
        return pa.record_batch({**columns, **stored})

    def features(self, table: Any, places: Array) -> Csr:
        lengths = pc.binary_length(table.column("indices")).to_numpy() // 4
        indices, values = (
            np.concatenate([_content(chunk, dtype) for chunk in table.column(name).chunks])
            for name, dtype in (("indices", np.dtype(np.int32)), ("values", self._dtype))
        )
        return csr.take(csr.from_lengths(lengths, indices, values, self._columns), places)


def _content(chunk: Any, dtype: np.dtype[Any]) -> Array:
    """The numbers in an Arrow array of bytes, one after another."""
    _, offsets, content = chunk.buffers()
    ends = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    return np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]].view(dtype)


class _BlockForm:
    """How the blocks of a table are stored in a bucket."""

    def __init__(self, block: Block) -> None:
        self._width, self._names = block.numbers.shape[1], list(block.texts)

    def batch(self, columns: dict[str, Array], block: Block, places: Array | None) -> Any:
        numbers, texts = block.numbers, [block.texts[name] for name in self._names]
        if places is not None:
            at = pa.array(places)
            numbers, texts = numbers[places], [text.take(at) for text in texts]
        named = {f"text {i}": text for i, text in enumerate(texts)}
        return pa.record_batch({**columns, "numbers": _row_bytes(numbers), **named})

    def features(self, table: Any, places: Array) -> Block:
        if self._width:
            shape = (self._width,)
            numbers = _unfixed(table, "numbers", np.dtype(np.float64), shape, places)
        else:
            numbers = np.empty((len(places), 0))
        at = pa.array(places)
        texts = {
            name: pa.concat_arrays(table.column(f"text {i}").take(at).chunks)
            for i, name in enumerate(self._names)
        }
        return Block(numbers, texts)


def owner_batches(
    form: Any, columns: dict[str, Array], features: Any, owners: Array, count: int
) -> list[tuple[int, Any]]:
    """Record batches of the rows of each of ``count`` owners that has some; owners are (rows,)."""
    # NumPy sorts short integers by counting them.
    places = np.argsort(owners.astype(np.min_scalar_type(count - 1)), kind="stable")
    batch = form.batch({n: column[places] for n, column in columns.items()}, features, places)
    ends = np.cumsum(np.bincount(owners, minlength=count)).tolist()
    return [
        (owner, batch.slice(start, end - start))
        for owner, (start, end) in enumerate(pairwise([0, *ends]))
        if start < end
    ]


def form_of(features: Array | Csr | Block) -> Any:
    """How features like these are stored: record batches of rows, and features of their tables."""
    if isinstance(features, Block):
        return _BlockForm(features)
    return _SparseForm(features) if isinstance(features, Csr) else _DenseForm(features)
