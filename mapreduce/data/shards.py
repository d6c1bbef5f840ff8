"""Reading and writing shards: Arrow IPC files of rows, their labels and weights.

Dense rows are a column ``features``, a fixed-size list of uint8, float32 or float64, so that a
record batch is one C-contiguous matrix. Sparse rows are two columns, ``indices`` (lists of int32,
strictly ascending) and ``values`` (lists of float32 or float64) with the same offsets: a record
batch is a matrix of compressed sparse rows. ``label`` is the index of the class (int32) or a number
(float64), ``weight`` a float64; either may be missing. ``row`` (int64) is the row's number in the
source, from 0 on; training does not use it.

All are used where they lie in the memory-mapped file. Arrow does not notice a flipped bit, so each
record batch's bytes are compared with the digest in the manifest when they are first touched. And
since a digest also fits a stranger's file, all offsets and lengths are checked then.
"""

import contextlib
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, RemotePath, path_of, size_of
from mapreduce.data import ipc, standardisation
from mapreduce.data import manifest as manifests
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.data.csr import check, join
from mapreduce.data.manifest import BatchEntry, Manifest, ShardEntry
from mapreduce.errors import BadRowError, DataError, MemberError, MissingInputError

#: Slices of any usual length end where record batches end.
ROW_UNIT = 2048
BATCH_BYTES = 8 << 20
SHARD_BYTES = 16 << 20


def rows_per_batch(row_bytes: int) -> int:
    """Rows of a record batch: a multiple of 2,048, about 8 MiB."""
    return ROW_UNIT * max(1, BATCH_BYTES // (ROW_UNIT * row_bytes))


def rows_per_shard(row_bytes: int) -> int:
    """Rows of a shard: whole record batches, about 16 MiB."""
    batch = rows_per_batch(row_bytes)
    return batch * max(1, SHARD_BYTES // (batch * row_bytes))


def sparse_row_bytes(rows: int, entries: int, itemsize: int) -> int:
    """Average size of a sparse row: two offsets, and a column and a value for each entry."""
    return 8 + -(-entries * (4 + itemsize) // rows)


def write_shard(path: Path, rows: Batch, source_rows: Array, row_bytes: int) -> ShardEntry:
    """Write a shard, synced to the disk, and describe it for the manifest.

    Parameters
    ----------
    path : Path
        A new file.
    rows : Batch
    source_rows : array (rows,), int64
        Their numbers in the source.
    row_bytes : int
        Average size of a row of the whole dataset, which decides the rows of a record batch.
    """
    features, labels = rows.features, rows.labels
    label = None if labels is None else labels.dtype
    layout = "sparse" if isinstance(features, Csr) else "dense"
    schema = _schema(layout, features.dtype, features.shape[1], label, rows.weights is not None)
    others = [some for some in (labels, rows.weights, source_rows) if some is not None]
    step = rows_per_batch(row_bytes)
    ranges = []
    with storage_errors("write", path), path.open("xb") as file:
        sink = pa.PythonFile(file, mode="w")
        with pa.ipc.new_file(sink, schema) as writer:
            for start in range(0, rows.rows, step):
                piece = slice(start, min(start + step, rows.rows))
                arrays = _arrays(features[piece], schema)
                arrays += [pa.array(some[piece]) for some in others]
                offset = sink.tell()
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                ranges.append((offset, sink.tell() - offset, piece.stop - start))
        file.flush()
        os.fsync(file.fileno())
    return _describe(path, rows.rows, ranges)


def _arrays(features: Array | Csr, schema: Any) -> list[Any]:
    """The columns of a record batch's rows."""
    if not isinstance(features, Csr):
        values = pa.array(features.reshape(-1))
        return [pa.FixedSizeListArray.from_arrays(values, type=schema[0].type)]
    first, last = features.indptr[0], features.indptr[-1]
    offsets = pa.array(features.indptr - first)
    return [
        pa.ListArray.from_arrays(offsets, pa.array(entries[first:last]), type=field.type)
        for entries, field in zip((features.indices, features.values), schema, strict=False)
    ]


def _schema(
    layout: str, dtype: npt.DTypeLike, columns: int, label: npt.DTypeLike | None, weighted: bool
) -> Any:
    def item(kind: npt.DTypeLike) -> Any:
        return pa.field("item", pa.from_numpy_dtype(kind), False)

    if layout == "dense":
        fields = [pa.field("features", pa.list_(item(dtype), columns), False)]
    else:
        fields = [
            pa.field("indices", pa.list_(item(np.int32)), False),
            pa.field("values", pa.list_(item(dtype)), False),
        ]
    if label is not None:
        fields.append(pa.field("label", pa.from_numpy_dtype(label), False))
    if weighted:
        fields.append(pa.field("weight", pa.float64(), False))
    return pa.schema([*fields, pa.field("row", pa.int64(), False)])


def _describe(path: Path, rows: int, ranges: list[tuple[int, int, int]]) -> ShardEntry:
    content = path.read_bytes()
    view = memoryview(content)
    batches = tuple(
        BatchEntry(
            offset, length, count, hashlib.sha256(view[offset : offset + length]).hexdigest()
        )
        for offset, length, count in ranges
    )
    return ShardEntry(
        file=path.name,
        rows=rows,
        bytes=len(content),
        sha256=hashlib.sha256(view).hexdigest(),
        batches=batches,
        rest_sha256=_rest_sha256(view, batches),
    )


def _rest_sha256(view: memoryview, batches: tuple[BatchEntry, ...]) -> str:
    digest = hashlib.sha256()
    position = 0
    for entry in batches:
        digest.update(view[position : entry.offset])
        position = entry.offset + entry.length
    digest.update(view[position:])
    return digest.hexdigest()


class Shard:
    """An open shard.

    Parameters
    ----------
    path : Path or RemotePath
    entry : ShardEntry
        The manifest's entry for the shard.
    manifest : Manifest
        The manifest of the dataset.

    Raises
    ------
    MissingInputError
        The file does not exist.
    DataError
        Its size differs from the manifest's, or the bytes around its record batches do, or its
        columns do.
    """

    def __init__(self, path: AnyPath, entry: ShardEntry, manifest: Manifest) -> None:
        self.path = path
        self.entry = entry
        self._manifest = manifest
        _check_size(path, entry)
        with storage_errors("read", path):
            self._view = self._mapped()
        found = _rest_sha256(self._view, entry.batches)
        if found != entry.rest_sha256:
            raise self._damaged("outside of its record batches", found, entry.rest_sha256)
        self._schema = self._checked_schema()
        self._ends = list(accumulate(batch.rows for batch in entry.batches))
        self._batches: dict[int, tuple[Batch, Array]] = {}

    def _mapped(self) -> memoryview:
        """The file's bytes; for a remote file those around its record batches, and zeros.

        The zeros take no memory; the record batches are read in their place when they are needed.
        """
        if isinstance(self.path, RemotePath):
            self._content = np.zeros(self.entry.bytes, np.uint8)
            position = 0
            for batch in (*self.entry.batches, None):
                end = self.entry.bytes if batch is None else batch.offset
                self._fetch(position, end - position)
                position = end if batch is None else batch.offset + batch.length
            return memoryview(self._content)  # type: ignore[arg-type]
        return memoryview(np.memmap(self.path, np.uint8, "r"))  # type: ignore[arg-type]

    def _fetch(self, offset: int, length: int) -> None:
        """Read a range of a remote file into its place."""
        if length and isinstance(self.path, RemotePath):
            found = self.path.read_range(offset, length)
            if len(found) != length:
                raise DataError(
                    f"{self.path} ended at byte {offset + len(found)} while it was read; the "
                    f"manifest says {self.entry.bytes} bytes. Import the data again"
                )
            self._content[offset : offset + length] = np.frombuffer(found, np.uint8)

    def _checked_schema(self) -> Any:
        manifest = self._manifest
        label = {None: None, "class": np.int32, "number": np.float64}[manifest.target]
        schema = _schema(
            manifest.layout, manifest.dtype, manifest.features, label, manifest.weighted
        )
        expected = schema, len(self.entry.batches)
        try:
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._view)))
            found = f"{reader.num_record_batches} record batches of {reader.schema}"
        except (ValueError, pa.ArrowException, OSError) as error:
            raise DataError(
                f"{self.path} is not a shard: {error}. Import the data again"
            ) from error
        if (reader.schema, reader.num_record_batches) != expected:
            raise self._misfit(found, f"{expected[1]} of {expected[0]}")
        return schema

    def rows(self, start: int, stop: int) -> Batch:
        """Rows ``start`` to ``stop - 1``; not copied if they lie in one record batch.

        Raises
        ------
        DataError
            Bytes of the record batch differ from the digest in the manifest, or a label, a column,
            an offset or a length is out of range.
        """
        parts = [batch[rows] for (batch, _), rows in self._pieces(start, stop)]
        return parts[0] if len(parts) == 1 else join(parts)

    def source_rows(self, start: int, stop: int) -> Array:
        """Numbers (stop - start,), int64, that rows have in the source. Raises as :meth:`rows`."""
        return np.concatenate([own[rows] for (_, own), rows in self._pieces(start, stop)])

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[tuple[Batch, Array], slice]]:
        """The record batches that rows lie in, and where."""
        while start < stop:
            index = bisect_right(self._ends, start)
            if index not in self._batches:
                self._batches[index] = self._read(index)
            first = self._ends[index] - self.entry.batches[index].rows
            end = min(stop, self._ends[index])
            yield self._batches[index], slice(start - first, end - first)
            start = end

    def verify(self) -> None:
        """Compare the whole file with its digest, and its record batches with the manifest.

        Raises
        ------
        DataError
            It differs; the message names the damaged record batch.
        """
        for index in range(len(self.entry.batches)):
            self._read(index)
        found = hashlib.sha256(self._view).hexdigest()
        if found != self.entry.sha256:
            raise self._damaged("", found, self.entry.sha256)

    def _read(self, index: int) -> tuple[Batch, Array]:
        """A record batch and its rows' numbers in the source, as views of the file."""
        self._check(index)
        manifest, entry = self._manifest, self.entry.batches[index]
        content = self._view[entry.offset : entry.offset + entry.length].toreadonly()
        try:
            rows, values = ipc.columns(content, self._schema)
        except ValueError as error:
            raise DataError(
                f"{self.path}: record batch {index} is malformed: {error}. Import the data again"
            ) from error
        if rows != entry.rows:
            raise self._misfit(f"{rows} rows in record batch {index}", str(entry.rows))
        source_rows = values.pop()
        weights = values.pop() if manifest.weighted else None
        labels = values.pop() if manifest.target is not None else None
        self._check_values(labels, weights)
        features = self._features(values, rows)
        return Batch(features, labels, manifest.scale, weights), source_rows

    def _features(self, values: list[Array], rows: int) -> Array | Csr:
        if self._manifest.layout == "dense":
            return values[0].reshape(rows, -1)
        offsets, indices, other_offsets, entries = values
        found = Csr(offsets, indices, entries, self._manifest.features)
        wrong = check(found)
        if wrong is None and not np.array_equal(offsets, other_offsets):
            wrong = "columns and values with different offsets"
        if wrong is None and len(entries) < offsets[-1]:
            wrong = f"{len(entries)} values for {offsets[-1]} columns"
        if wrong is not None:
            expected = f"rows of {self._manifest.features} features, in ascending order"
            raise self._misfit(wrong, expected)
        return found

    def _check_values(self, labels: Array | None, weights: Array | None) -> None:
        classes = self._manifest.classes
        # A kernel would take a label beyond the classes for a place in memory.
        if labels is not None and classes is not None:
            least, most = labels.min(), labels.max()
            if least < 0 or most >= len(classes):
                raise self._misfit(f"labels {least} to {most}", f"{len(classes)} classes")
        if weights is not None and not ((weights >= 0) & (weights < np.inf)).all():
            raise self._misfit("a weight that is negative or not finite", "weights from 0 on")

    def _check(self, index: int) -> None:
        entry = self.entry.batches[index]
        self._fetch(entry.offset, entry.length)
        found = hashlib.sha256(self._view[entry.offset : entry.offset + entry.length]).hexdigest()
        if found != entry.sha256:
            where = (
                f"in record batch {index}, bytes {entry.offset} to {entry.offset + entry.length}"
            )
            raise self._damaged(where, found, entry.sha256)

    def _misfit(self, found: str, expected: str) -> DataError:
        return DataError(
            f"{self.path} holds {found}, the manifest says {expected}: they do not belong "
            f"together. Import the data again"
        )

    def _damaged(self, where: str, found: str, expected: str) -> DataError:
        return DataError(
            f"{self.path} is damaged{' ' if where else ''}{where}: sha256 {found[:16]}…, the "
            f"manifest says {expected[:16]}…. Import the data again"
        )


def _check_size(path: AnyPath, entry: ShardEntry) -> None:
    with storage_errors("read", path):
        if not path.exists():
            advice = "Import the data again"
            if isinstance(path, Path) and not path.is_absolute():
                advice += f". If they are not in {Path.cwd()}, name them by an absolute path"
            raise MissingInputError(
                f"{path} does not exist, though the dataset's manifest names it. {advice}"
            )
        size = size_of(path)
    if size != entry.bytes:
        raise DataError(
            f"{path} has {size} bytes, the manifest says {entry.bytes}: it was truncated or "
            f"replaced. Import the data again"
        )


class Dataset:
    """A dataset's manifest and its shards, opened when they are first asked for.

    Parameters
    ----------
    folder : str, Path or RemotePath
    sha256 : str, optional
        Digest that the dataset must have, from a plan.

    Attributes
    ----------
    manifest : Manifest

    Raises
    ------
    MissingInputError, DataError
        See :func:`mapreduce.data.manifest.load`; or the digest differs.
    hdfs_utils.errors.AddressError
        A text that is no path and no URI.
    """

    def __init__(self, folder: str | AnyPath, sha256: str | None = None) -> None:
        self.folder = path_of(folder) if isinstance(folder, str) else folder
        self._sha256 = sha256
        self._shards: dict[int, Shard] = {}

    @contextlib.contextmanager
    def naming_rows(self, shard: int, start: int) -> Iterator[None]:
        """Name the row of the source in an error about a row of a batch, which starts there."""
        try:
            yield
        except BadRowError as error:
            row = start + error.row
            (number,) = self.shard(shard).source_rows(row, row + 1).tolist()
            raise MemberError(f"{error}, for row {number + 1} of the data") from error

    @cached_property
    def manifest(self) -> Manifest:
        manifest = manifests.load(self.folder)
        if self._sha256 not in (None, manifest.sha256):
            raise DataError(
                f"{self.folder} is not the dataset that the run began with: sha256 "
                f"{manifest.sha256[:16]}…, the plan says {self._sha256:.16}…. Put the old one "
                f"back, or start a new run"
            )
        return manifest

    def check_sizes(self) -> Manifest:
        """The manifest, once the shards are known to be as large as it says.

        What is computed from a manifest takes memory by the numbers of rows and features in it,
        which the sizes of the shards bound.

        Raises
        ------
        DataError, MissingInputError
            The first shard that has another size or is missing.
        """
        for entry in self.manifest.shards:
            _check_size(self.folder / entry.file, entry)
        return self.manifest

    def shard(self, index: int) -> Shard:
        """An open shard, by its place in the manifest."""
        if index not in self._shards:
            entry = self.manifest.shards[index]
            self._shards[index] = Shard(self.folder / entry.file, entry, self.manifest)
        return self._shards[index]

    def verify(self) -> None:
        """Compare every shard, and the statistics of a standardised dataset, with their digests.

        Raises
        ------
        DataError, MissingInputError
            The first file that is damaged or missing.
        """
        if self.manifest.standardised is not None:
            standardisation.load(self.folder, self.manifest)
        for index in range(len(self.manifest.shards)):
            self.shard(index).verify()
