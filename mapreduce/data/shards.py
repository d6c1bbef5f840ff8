"""Reading and writing shards: Arrow IPC files with ``features`` and ``label`` columns.

``features`` is a fixed-size list of uint8, float32 or float64, so that a record batch is one
C-contiguous matrix that is used where it lies in the memory-mapped file; ``label`` is the index of
the class, int32. Arrow does not notice a flipped bit, so each record batch's bytes are compared
with the digest in the manifest when they are first touched.
"""

import hashlib
import os
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hdfs_utils.publish import storage_errors
from mapreduce.data import manifest as manifests
from mapreduce.data.batch import Batch
from mapreduce.data.manifest import BatchEntry, Manifest, ShardEntry
from mapreduce.errors import DataError, MissingInputError

Array = npt.NDArray[Any]

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


def write_shard(path: Path, features: Array, labels: Array | None) -> ShardEntry:
    """Write a shard, synced to the disk, and describe it for the manifest.

    Parameters
    ----------
    path : Path
        A new file.
    features : array (rows, features), uint8, float32 or float64
    labels : array (rows,), int32, or None
    """
    rows, columns = features.shape
    schema = _schema(features.dtype, columns, labels is not None)
    step = rows_per_batch(features.itemsize * columns)
    ranges = []
    with storage_errors("write", path), path.open("xb") as file:
        sink = pa.PythonFile(file, mode="w")
        with pa.ipc.new_file(sink, schema) as writer:
            for start in range(0, rows, step):
                stop = min(start + step, rows)
                values = pa.array(features[start:stop].reshape(-1))
                arrays = [pa.FixedSizeListArray.from_arrays(values, type=schema[0].type)]
                if labels is not None:
                    arrays.append(pa.array(labels[start:stop]))
                offset = sink.tell()
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                ranges.append((offset, sink.tell() - offset, stop - start))
        file.flush()
        os.fsync(file.fileno())
    return _describe(path, rows, ranges)


def _schema(dtype: npt.DTypeLike, columns: int, labelled: bool) -> Any:
    element = pa.field("item", pa.from_numpy_dtype(dtype), False)
    fields = [pa.field("features", pa.list_(element, columns), False)]
    if labelled:
        fields.append(pa.field("label", pa.int32(), False))
    return pa.schema(fields)


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
    path : Path
    entry : ShardEntry
        What the manifest says of it.
    manifest : Manifest
        Of the dataset.

    Raises
    ------
    MissingInputError
        The file does not exist.
    DataError
        Its size differs from the manifest's, or the bytes around its record batches do, or its
        columns do.
    """

    def __init__(self, path: Path, entry: ShardEntry, manifest: Manifest) -> None:
        self.path = path
        self.entry = entry
        self._manifest = manifest
        with storage_errors("read", path):
            if not path.exists():
                raise MissingInputError(
                    f"{path} does not exist, though the dataset's manifest names it. Import the "
                    f"data again"
                )
            size = path.stat().st_size
            if size != entry.bytes:
                raise DataError(
                    f"{path} has {size} bytes, the manifest says {entry.bytes}: it was truncated "
                    f"or replaced. Import the data again"
                )
            self._view = memoryview(np.memmap(path, np.uint8, "r"))  # type: ignore[arg-type]
        found = _rest_sha256(self._view, entry.batches)
        if found != entry.rest_sha256:
            raise self._damaged("outside of its record batches", found, entry.rest_sha256)
        self._reader = self._open()
        self._ends = list(accumulate(batch.rows for batch in entry.batches))
        self._batches: dict[int, Batch] = {}

    def _open(self) -> Any:
        manifest = self._manifest
        labelled = manifest.classes is not None
        expected = _schema(manifest.dtype, manifest.features, labelled), len(self.entry.batches)
        try:
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._view)))
        except pa.ArrowInvalid as error:
            raise DataError(f"{self.path} is no shard: {error}. Import the data again") from error
        if (reader.schema, reader.num_record_batches) != expected:
            raise self._misfit(
                f"{reader.num_record_batches} record batches of {reader.schema}",
                f"{expected[1]} of {expected[0]}",
            )
        return reader

    def rows(self, start: int, stop: int) -> Batch:
        """Rows ``start`` to ``stop - 1``; not copied if they lie in one record batch.

        Raises
        ------
        DataError
            Bytes of the record batch differ from the digest in the manifest.
        """
        parts = []
        while start < stop:
            index = bisect_right(self._ends, start)
            batch = self._batch(index)
            first = self._ends[index] - batch.rows
            end = min(stop, self._ends[index])
            labels = None if batch.labels is None else batch.labels[start - first : end - first]
            parts.append(Batch(batch.features[start - first : end - first], labels, batch.scale))
            start = end
        if len(parts) == 1:
            return parts[0]
        with_labels = [part.labels for part in parts if part.labels is not None]
        return Batch(
            np.concatenate([part.features for part in parts]),
            np.concatenate(with_labels) if with_labels else None,
            self._manifest.scale,
        )

    def verify(self) -> None:
        """Compare the whole file with its digest.

        Raises
        ------
        DataError
            It differs; the message names the damaged record batch.
        """
        for index in range(len(self.entry.batches)):
            self._check(index)
        found = hashlib.sha256(self._view).hexdigest()
        if found != self.entry.sha256:
            raise self._damaged("", found, self.entry.sha256)

    def _batch(self, index: int) -> Batch:
        if index not in self._batches:
            self._check(index)
            record_batch = self._reader.get_batch(index)
            if record_batch.num_rows != (rows := self.entry.batches[index].rows):
                raise self._misfit(
                    f"{record_batch.num_rows} rows in record batch {index}", str(rows)
                )
            features = record_batch.column("features").flatten().to_numpy()
            labels = None
            if self._manifest.classes is not None:
                labels = record_batch.column("label").to_numpy()
                # A kernel would take a label beyond the classes for a place in memory.
                if labels.min() < 0 or labels.max() >= len(self._manifest.classes):
                    raise self._misfit(
                        f"labels {labels.min()} to {labels.max()}",
                        f"{len(self._manifest.classes)} classes",
                    )
            self._batches[index] = Batch(
                features.reshape(record_batch.num_rows, -1), labels, self._manifest.scale
            )
        return self._batches[index]

    def _check(self, index: int) -> None:
        entry = self.entry.batches[index]
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


class Dataset:
    """A dataset's manifest and its shards, opened when they are first asked for.

    Parameters
    ----------
    folder : Path

    Attributes
    ----------
    manifest : Manifest

    Raises
    ------
    MissingInputError, DataError
        See :func:`mapreduce.data.manifest.load`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shards: dict[int, Shard] = {}

    @cached_property
    def manifest(self) -> Manifest:
        return manifests.load(self.folder)

    def shard(self, index: int) -> Shard:
        """An open shard, by its place in the manifest."""
        if index not in self._shards:
            entry = self.manifest.shards[index]
            self._shards[index] = Shard(self.folder / entry.file, entry, self.manifest)
        return self._shards[index]

    def verify(self) -> None:
        """Compare every shard with its digest.

        Raises
        ------
        DataError, MissingInputError
            The first shard that is damaged or missing.
        """
        for index in range(len(self.manifest.shards)):
            self.shard(index).verify()
