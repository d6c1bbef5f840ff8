"""Making a dataset: a shuffle of all rows in two streaming passes.

Every row gets a 64-bit key from the seed and its number. The first pass appends the rows to bucket
files by the leading bits of their keys; the second sorts one bucket at a time and cuts the result
into shards. So the order is that of a sort by key, whatever the number of buckets, and memory holds
one bucket however large the source is.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hdfs_utils.atomic import storage_errors, write_all
from hdfs_utils.folders import new_folder
from mapreduce.data import csr, order
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.data.classes import Classes
from mapreduce.data.columns import Columns
from mapreduce.data.copying import check_absent
from mapreduce.data.manifest import Manifest, ShardEntry
from mapreduce.data.shards import rows_per_shard, sparse_row_bytes, write_shard
from mapreduce.errors import DataError

BUCKET_BYTES = 64 << 20
MOST_BUCKETS = 256


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows of a source.

    Attributes
    ----------
    features : array (rows, features), uint8, float32 or float64, or Csr
    labels : array (rows,), or None
        Classes are integers or ``str``; numbers to be predicted are float64.
    weights : array (rows,), float64, or None
    """

    features: Array | Csr
    labels: Array | None
    weights: Array | None = None


@dataclass(frozen=True)
class Source:
    """A source of rows, as its reader found it.

    Attributes
    ----------
    chunks : iterable of Rows
        All of one layout, dtype and number of features, with the same kind of labels; none or all
        have weights.
    shape : tuple of int
        Shape of one example.
    scale : float
        What the stored features are to be multiplied with.
    bytes : int
        Estimate of the size, uncompressed, from which the number of buckets follows. It does not
        change the result.
    description : dict
        For the manifest: format and names of files.
    columns : tuple of Column, optional
        Columns that the features are, or come from, if they have names.
    """

    chunks: Iterable[Rows]
    shape: tuple[int, ...]
    scale: float
    bytes: int
    description: dict[str, Any]
    columns: Columns | None = None


def import_rows(
    source: Source, out: Path, seed: int, like: Sequence[int | str] | None = None
) -> Manifest:
    """Shuffle a source into a new dataset.

    The folder appears under its name when it is complete, and not before.

    Parameters
    ----------
    out : Path
        Must not exist, or be an empty folder.
    like : sequence of int or str, optional
        The classes of a dataset that a model was trained on: no others are expected, and they are
        of the same kind, numbers or texts.

    Raises
    ------
    OutputError
        ``out`` exists already, or its folder cannot be written.
    DataError
        The source has no rows, a number to be predicted or a weight is not finite, a weight is
        negative, or all are 0, or a class is unexpected; also whatever its reader raises.
    StorageError
        The disk is full. Nothing is left behind.
    """
    check_absent(out)
    with new_folder(out) as partial:
        manifest = _shuffle(source, partial, seed, like)
        manifest.save(partial)
    return manifest


def _shuffle(source: Source, folder: Path, seed: int, like: Sequence[int | str] | None) -> Manifest:
    wanted = min(MOST_BUCKETS, max(1, source.bytes // BUCKET_BYTES))
    bits = math.ceil(math.log2(wanted))
    classes = Classes(like)
    with contextlib.ExitStack() as stack:
        buckets = _Buckets(folder, bits, seed, stack)
        for rows in source.chunks:
            _check_numbers(rows, buckets.rows)
            labels = rows.labels if _is_number(rows.labels) else classes.codes(rows.labels)
            buckets.append(rows.features, labels, rows.weights)
        if not buckets.rows:
            raise DataError(f"{_files(source)}: expected at least one row, found none")
        if buckets.weight == 0:
            raise DataError(f"{_files(source)}: all weights are 0, so that no row counts")
        names, ranks = classes.sorted()
        shards = tuple(_write_shards(buckets, folder, ranks))
    features = math.prod(source.shape)
    return Manifest(
        rows=buckets.rows,
        features=features,
        shape=source.shape,
        dtype=buckets.dtype.name,
        scale=source.scale,
        classes=names,
        seed=seed,
        source=source.description,
        shards=shards,
        layout="sparse" if buckets.sparse else "dense",
        nonzeros=buckets.entries if buckets.sparse else buckets.rows * features,
        target=buckets.target,
        class_rows=None if ranks is None else classes.rows(ranks),
        weighted=buckets.weight is not None,
        columns=source.columns,
    )


def _files(source: Source) -> str:
    return ", ".join(source.description.get("files", ())) or "the source"


def _is_number(labels: Array | None) -> bool:
    return labels is not None and labels.dtype.kind == "f"


def _check_numbers(rows: Rows, first: int) -> None:
    """Refuse numbers to be predicted and weights that would spoil every sum."""
    checks = [(rows.labels, "label", -np.inf)] if _is_number(rows.labels) else []
    checks.append((rows.weights, "weight", 0.0))
    for numbers, name, least in checks:
        if numbers is not None:
            bad = ~(np.isfinite(numbers) & (numbers >= least))
            if bad.any():
                row = int(bad.argmax())
                kind = "finite number" if least else "finite number from 0 on"
                raise DataError(
                    f"row {first + row + 1} of the source: its {name} is {numbers[row]}: expected "
                    f"a {kind}"
                )


class _Buckets:
    """The bucket files of the first pass.

    A record is the row's number in the source, from which its key follows, label, weight, and
    features or the number of entries; entries of sparse rows, column and value, are in files of
    their own.
    """

    def __init__(self, folder: Path, bits: int, seed: int, stack: contextlib.ExitStack) -> None:
        self.rows = 0
        self.entries = 0
        self.weight: float | None = None
        self.dtype = np.dtype(np.uint8)
        self.target: str | None = None
        self.sparse = False
        self._columns = 0
        self._bits = bits
        self._seed = seed
        self._record = self._entry = np.dtype([])
        self._stack = stack
        self._folder = folder
        self._files = self._open("bucket")
        self._entry_files: list[tuple[Path, BinaryIO]] = []

    def _open(self, name: str) -> list[tuple[Path, BinaryIO]]:
        files: list[tuple[Path, BinaryIO]] = []
        for i in range(1 << self._bits):
            path = self._folder / f"{name}-{i:03d}"
            with storage_errors("create", path):
                files.append((path, self._stack.enter_context(path.open("xb", buffering=0))))
        return files

    def append(self, features: Array | Csr, labels: Array | None, weights: Array | None) -> None:
        if not self.rows:
            self._begin(features, labels, weights)
        records = np.empty(len(features), self._record)
        records["row"] = np.arange(self.rows, self.rows + len(features))
        if labels is not None:
            records["label"] = labels
        if weights is not None:
            records["weight"] = weights
            self.weight = (self.weight or 0.0) + float(weights.sum())
        self.rows += len(features)
        bucket = (self._keys(records) >> np.uint64(64 - self._bits)) if self._bits else None
        if isinstance(features, Csr):
            records["entries"] = np.diff(features.indptr)
            self._append_entries(features, bucket)
        else:
            records["features"] = features
        self._write(self._files, records, bucket)

    def _keys(self, records: Array) -> Array:
        return order.keys_of(self._seed, 0, records["row"])

    def _begin(self, features: Array | Csr, labels: Array | None, weights: Array | None) -> None:
        self.dtype = features.dtype
        self.sparse = isinstance(features, Csr)
        self._columns = features.shape[1]
        fields: list[Any] = [("row", np.int64)]
        if labels is not None:
            self.target = "number" if _is_number(labels) else "class"
            fields.append(("label", labels.dtype))
        if weights is not None:
            fields.append(("weight", np.float64))
        if self.sparse:
            fields.append(("entries", np.int32))
            self._entry = np.dtype([("index", np.int32), ("value", features.dtype)])
            self._entry_files = self._entry_files or self._open("entries")
        else:
            fields.append(("features", features.dtype, features.shape[1:]))
        self._record = np.dtype(fields)

    def _append_entries(self, features: Csr, bucket: Array | None) -> None:
        used = slice(features.indptr[0], features.indptr[-1])
        entries = np.empty(used.stop - used.start, self._entry)
        entries["index"] = features.indices[used]
        entries["value"] = features.values[used]
        self.entries += len(entries)
        if bucket is not None:
            bucket = np.repeat(bucket, np.diff(features.indptr))
        self._write(self._entry_files, entries, bucket)

    def _write(
        self, files: list[tuple[Path, BinaryIO]], records: Array, bucket: Array | None
    ) -> None:
        for i, (path, file) in enumerate(files):
            with storage_errors("write", path):
                write_all(file, records.data if bucket is None else records[bucket == i].data)

    @property
    def row_bytes(self) -> int:
        """Average size of the features of a row."""
        if self.sparse:
            return sparse_row_bytes(self.rows, self.entries, self.dtype.itemsize)
        return self._columns * self.dtype.itemsize

    def sorted(self) -> Iterator[tuple[Batch, Array]]:
        """The rows of one bucket after another, in order of their keys, and their numbers."""
        for i, file in enumerate(self._files):
            heads = _take_away(file, self._record)
            places = np.argsort(self._keys(heads), kind="stable")
            features: Array | Csr
            if self.sparse:
                entries = _take_away(self._entry_files[i], self._entry)
                indices, values = entries["index"], entries["value"]
                rows = csr.from_lengths(heads["entries"], indices, values, self._columns)
                features = csr.take(rows, places)
            else:
                features = heads["features"][places]
            labels = heads["label"][places] if self.target is not None else None
            weights = heads["weight"][places] if self.weight is not None else None
            yield Batch(features, labels, weights=weights), heads["row"][places]


def _take_away(file: tuple[Path, BinaryIO], dtype: np.dtype[Any]) -> Array:
    """The records of a file, which is deleted."""
    path, stream = file
    with storage_errors("read", path):
        stream.close()
        records: Array = np.fromfile(path, dtype)
        path.unlink()
    return records


def _write_shards(buckets: _Buckets, folder: Path, ranks: Array | None) -> Iterator[ShardEntry]:
    count = 0
    pending: list[tuple[Batch, Array]] = []
    row_bytes = buckets.row_bytes
    size = rows_per_shard(row_bytes)

    def shard(rows: Batch, numbers: Array) -> ShardEntry:
        labels = rows.labels if rows.labels is None or ranks is None else ranks[rows.labels]
        path = folder / f"shard-{count:05d}.arrow"
        return write_shard(path, replace(rows, labels=labels), numbers, row_bytes)

    for piece in buckets.sorted():
        pending.append(piece)
        if sum(len(numbers) for _, numbers in pending) >= size:
            rows, numbers = _join(pending)
            whole = len(numbers) - len(numbers) % size
            for start in range(0, whole, size):
                part = slice(start, start + size)
                yield shard(rows[part], numbers[part])
                count += 1
            pending = [(rows[whole:], numbers[whole:])]
    rows, numbers = _join(pending)
    if len(numbers):
        yield shard(rows, numbers)


def _join(parts: list[tuple[Batch, Array]]) -> tuple[Batch, Array]:
    batches, numbers = zip(*parts, strict=True)
    return csr.join(batches), np.concatenate(numbers)
