"""Making a dataset: a shuffle of all rows in two streaming passes.

Every row gets a 64-bit key from the seed and its number. The first pass appends the rows to bucket
files by the leading bits of their keys; the second sorts one bucket at a time and cuts the result
into shards. So the order is that of a sort by key, whatever the number of buckets, and memory holds
one bucket however large the source is.
"""

import contextlib
import math
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hdfs_utils.publish import remove_leftovers_of, storage_errors, temporary_name, write_all
from mapreduce.data import order
from mapreduce.data.manifest import Manifest, ShardEntry
from mapreduce.data.shards import rows_per_shard, write_shard
from mapreduce.errors import DataError, OutputError

Array = npt.NDArray[Any]

BUCKET_BYTES = 64 << 20
MOST_BUCKETS = 256
_INTEGER = re.compile("0|-?[1-9][0-9]*")


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows of a source.

    Attributes
    ----------
    features : array (rows, features), uint8, float32 or float64
    labels : array (rows,) of integers or strings, or None
    """

    features: Array
    labels: Array | None


@dataclass(frozen=True)
class Source:
    """What a reader found.

    Attributes
    ----------
    chunks : iterable of Rows
        All of one dtype and one number of features.
    shape : tuple of int
        Shape of one example.
    scale : float
        What the stored features are to be multiplied with.
    bytes : int
        Estimate of the size, uncompressed, from which the number of buckets follows. It does not
        change the result.
    description : dict
        For the manifest: format and names of files.
    """

    chunks: Iterable[Rows]
    shape: tuple[int, ...]
    scale: float
    bytes: int
    description: dict[str, Any]


def import_rows(source: Source, out: Path, seed: int) -> Manifest:
    """Shuffle a source into a new dataset.

    The folder appears under its name when it is complete, and not before.

    Parameters
    ----------
    source : Source
    out : Path
        Must not exist, or be an empty folder.
    seed : int

    Raises
    ------
    OutputError
        ``out`` is there already, or its folder cannot be written.
    DataError
        The source has no rows; also whatever its reader raises.
    StorageError
        No space. Nothing is left behind.
    """
    check_absent(out)
    with storage_errors("create", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers_of(out)
        partial = temporary_name(out)
        partial.mkdir()
    try:
        manifest = _shuffle(source, partial, seed)
        manifest.save(partial)
        with storage_errors("create", out):
            partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def check_absent(out: Path) -> None:
    """Refuse to write where something is.

    Raises
    ------
    OutputError
        The path is a file, or a folder that is not empty.
    """
    with storage_errors("create", out):
        if out.is_dir() and not any(out.iterdir()):
            return
        if out.exists():
            raise OutputError(f"{out} exists already. Name another folder, or remove it first")


def _shuffle(source: Source, folder: Path, seed: int) -> Manifest:
    wanted = min(MOST_BUCKETS, max(1, source.bytes // BUCKET_BYTES))
    bits = math.ceil(math.log2(wanted))
    classes = _Classes()
    with contextlib.ExitStack() as stack:
        buckets = _Buckets(folder, bits, stack)
        for rows in source.chunks:
            buckets.append(rows.features, classes.codes(rows.labels), seed)
        if not buckets.rows:
            files = ", ".join(source.description.get("files", ())) or "the source"
            raise DataError(f"{files}: expected at least one row, found none")
        labels, ranks = classes.sorted()
        shards = tuple(_write_shards(buckets, folder, ranks))
    return Manifest(
        rows=buckets.rows,
        features=math.prod(source.shape),
        shape=source.shape,
        dtype=buckets.dtype.name,
        scale=source.scale,
        classes=labels,
        seed=seed,
        source=source.description,
        shards=shards,
    )


class _Classes:
    """Numbers labels as they come; their sorted order is known at the end only."""

    def __init__(self) -> None:
        self._codes: dict[int | str, int] | None = None

    def codes(self, labels: Array | None) -> Array | None:
        if labels is None:
            return None
        if self._codes is None:
            self._codes = {}
        values, inverse = np.unique(labels, return_inverse=True)
        codes = [self._codes.setdefault(value, len(self._codes)) for value in values.tolist()]
        return np.array(codes, np.int32)[inverse]

    def sorted(self) -> tuple[tuple[int | str, ...] | None, Array | None]:
        """The labels in sorted order, and from the code given at first sight to the place there.

        Labels that are all written as integers become integers, so that 10 comes after 9.
        """
        if self._codes is None:
            return None, None
        values: dict[Any, int] = dict(self._codes)
        if all(isinstance(value, str) and _INTEGER.fullmatch(value) for value in values):
            values = {int(value): code for value, code in values.items()}
        labels = tuple(sorted(values))
        ranks = np.empty(len(labels), np.int32)
        for rank, label in enumerate(labels):
            ranks[values[label]] = rank
        return labels, ranks


class _Buckets:
    """The files of the first pass; each record is key, label and features."""

    def __init__(self, folder: Path, bits: int, stack: contextlib.ExitStack) -> None:
        self.rows = 0
        self.dtype = np.dtype(np.uint8)
        self._bits = bits
        self._record = np.dtype([])
        self._paths = [folder / f"bucket-{i:03d}" for i in range(1 << bits)]
        self._files: list[BinaryIO] = []
        for path in self._paths:
            with storage_errors("create", path):
                self._files.append(stack.enter_context(path.open("xb", buffering=0)))

    def append(self, features: Array, codes: Array | None, seed: int) -> None:
        if not self.rows:
            self.dtype = features.dtype
            label = [("label", np.int32)] if codes is not None else []
            self._record = np.dtype(
                [("key", np.uint64), *label, ("features", features.dtype, features.shape[1:])]
            )
        records = np.empty(len(features), self._record)
        records["key"] = order.keys(seed, 0, self.rows, self.rows + len(features))
        records["features"] = features
        if codes is not None:
            records["label"] = codes
        self.rows += len(features)
        bucket = (records["key"] >> np.uint64(64 - self._bits)) if self._bits else 0
        for i, file in enumerate(self._files):
            with storage_errors("write", self._paths[i]):
                write_all(file, records[bucket == i].data if self._bits else records.data)

    def sorted(self) -> Iterator[Array]:
        """The records of one bucket after another, in order of their keys."""
        for file, path in zip(self._files, self._paths, strict=True):
            with storage_errors("read", path):
                file.close()
                records = np.fromfile(path, self._record)
                path.unlink()
            yield records[np.argsort(records["key"], kind="stable")]


def _write_shards(buckets: _Buckets, folder: Path, ranks: Array | None) -> Iterator[ShardEntry]:
    count = 0
    pending: list[Array] = []
    size: int | None = None

    def shard(records: Array) -> ShardEntry:
        labels = None if ranks is None else ranks[records["label"]]
        features = np.ascontiguousarray(records["features"])
        return write_shard(folder / f"shard-{count:05d}.arrow", features, labels)

    for records in buckets.sorted():
        pending.append(records)
        size = size or rows_per_shard(records.dtype["features"].itemsize)
        if sum(map(len, pending)) >= size:
            joined = np.concatenate(pending)
            whole = len(joined) - len(joined) % size
            for start in range(0, whole, size):
                yield shard(joined[start : start + size])
                count += 1
            pending = [joined[whole:]]
    rest = np.concatenate(pending)
    if len(rest):
        yield shard(rest)
