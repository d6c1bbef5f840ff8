"""Making a dataset: a shuffle of all rows in two streaming passes.

Every row gets a 64-bit key from the seed and its number. The first pass appends the rows to bucket
files by the leading bits of their keys; the second sorts one bucket at a time and cuts the result
into shards. So the order is that of a sort by key, whatever the number of buckets, and memory holds
one bucket however large the source is.

Rows that are split by label are sorted by label first, and then by key: the sorted buckets are
appended to a file for each label, and these are cut into shards, one after another.
"""

import contextlib
import hashlib
import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hdfs_utils.atomic import storage_errors
from hdfs_utils.folders import new_folder
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from mapreduce.data import csr, ids, order, stored
from mapreduce.data.batch import Array, Batch, Block, Csr
from mapreduce.data.classes import Classes
from mapreduce.data.columns import Columns
from mapreduce.data.copying import check_absent
from mapreduce.data.manifest import RECIPE, Listed, ListedIds, Manifest, ShardEntry
from mapreduce.data.shards import rows_per_shard, sparse_row_bytes, write_shard
from mapreduce.errors import DataError
from mapreduce.support.threads import ordered_map

BUCKET_BYTES = 16 << 20
MOST_BUCKETS = 256
#: Each class has a shard of its own, at least, if rows are split by label.
MOST_SPLIT_CLASSES = 10_000


class ReadAgain(Exception):
    """What was read shows that the source has to be read in another way, from its first row on."""


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows of a source.

    ``features``: array (rows, features), uint8, float32 or float64, or Csr, or Block. A block of a
      table becomes features once all rows have been seen.
    ``labels``: array (rows,), or None. Integers and ``str`` are classes; float64 are numbers to be
      predicted.
    ``numbers``: array (rows,), int64, or None. The rows' numbers in the source, if some rows are
      left out.
    ``kept``: Arrow arrays (rows,), by name, of columns that stay unchanged.
    """

    features: Array | Csr | Block
    labels: Array | None
    weights: Array | None = None
    ids: Any = None
    numbers: Array | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """What the blocks of a table become.

    ``recipe``: The file of the recipe.
    ``width``: The number of features.
    ``columns``: The features, if they have names.
    ``row_bytes``: Estimate of the size of a row's features, the same for the same recipe.
    ``features``: Makes features (rows, width) of a block.
    ``is_for_trees``: Whether these are for trees alone; see :class:`.Recipe`.
    """

    recipe: bytes
    width: int
    row_bytes: int
    columns: Columns | None
    features: Callable[[Block], Array | Csr]
    is_for_trees: bool = False


@dataclass(frozen=True)
class Source:
    """The rows of files, as a reader returns them: chunks, and what holds for all chunks.

    The import takes one chunk after another, so it needs memory for one chunk only. A reader runs
    where the command runs, and is not shipped to a cluster. In Python, a source can stand for a
    dataset: ``mapreduce.train(source([Path("line.npz")], "float32"))``.

    ``chunks``: Iterable of :class:`Rows`, all with one layout, dtype, number of features and kind
      of labels, and all with weights or all without. After a :class:`ReadAgain` it can be iterated
      once more.
    ``shape``: Shape of one example. For a table, the shape follows from the recipe.
    ``scale``: Factor by which the stored features are multiplied.
    ``bytes``: Estimate of the size, uncompressed, from which the number of buckets follows. The
      estimate does not change the result.
    ``description``: Format and names of files, for the manifest.
    ``columns``: Names of the columns that are, or become, the features, if columns have names.
    ``finish``: For a source of blocks: a function that says what the blocks become, called after
      the last block.
    ``classes``: All classes, if the source knows the classes: also classes without rows.
    ``typed``: Whether labels have a type: then a text is never a number.
    ``remarks``: Remarks for the user; the list is complete after the last row.
    """

    chunks: Iterable[Rows]
    shape: tuple[int, ...]
    scale: float
    bytes: int
    description: dict[str, Any]
    columns: Columns | None = None
    finish: Callable[[], Finished] | None = None
    classes: Sequence[int | str] | None = None
    typed: bool = False
    remarks: list[str] = field(default_factory=list)


def import_rows(
    source: Source,
    out: Path,
    seed: int,
    like: Sequence[int | str] | None = None,
    *,
    by_label: bool = False,
) -> Manifest:
    """Shuffle a source into a new dataset, whose folder appears under its name when it is complete.

    The folder must not exist before, or be empty. The classes of ``like`` are those of a dataset
    that a model was trained on: no others are expected, and they are of the same kind, numbers or
    texts. With ``by_label`` a shard's rows all have one label: shards are in the order of their
    labels, and the rows of a label in the seed's order.
    """
    check_absent(out)
    with (
        new_folder(out) as partial,
        tempfile.TemporaryDirectory(prefix=".buckets-", dir=partial) as scratch,
    ):
        return Shuffle(source, Path(scratch), seed, like, by_label).save(partial)


class Shuffle:
    """The rows of a source in bucket files, of which a dataset is made, or several.

    ``scratch``: An empty folder for the files. ``keep``: Whether the files stay, for one more
    dataset. All else is as for :func:`import_rows`.
    """

    def __init__(
        self,
        source: Source,
        scratch: Path,
        seed: int,
        like: Sequence[int | str] | None = None,
        by_label: bool = False,
        *,
        keep: bool = False,
    ) -> None:
        self.source, self._keep = source, keep
        wanted = min(MOST_BUCKETS, max(1, source.bytes // BUCKET_BYTES))
        bits = math.ceil(math.log2(wanted))
        for again in itertools.count():
            (folder := scratch / str(again)).mkdir()
            self._buckets = _Buckets(folder, bits, seed, by_label, keep)
            self._classes = Classes(like, source.classes, typed=source.typed)
            try:
                self._ids = self._read(folder)
                return
            except ReadAgain:
                shutil.rmtree(folder)

    def _read(self, folder: Path) -> ListedIds | None:
        """Write all rows into buckets, and their ids into a file, if they have any."""
        source, buckets = self.source, self._buckets

        def numbered() -> Iterator[tuple[Rows, Array]]:
            for rows in source.chunks:
                if not _count(rows.features):
                    continue
                _check_numbers(rows, buckets.read, files_of(source))
                if buckets.by_label:
                    _check_classes(rows.labels, source)
                labels = rows.labels
                if not _is_number(labels):
                    labels = self._classes.codes(labels, rows.weights)
                rows = replace(rows, labels=labels)
                numbers = buckets.count(rows)
                if rows.ids is not None:
                    named.append(numbers, rows.ids)
                yield rows, numbers

        with contextlib.ExitStack() as stack:
            named = stack.enter_context(ids.Writer(folder / ids.FILE))
            stack.callback(buckets.close)
            for parts in ordered_map(lambda one: buckets.bucket_batches(*one), numbered()):
                buckets.write(parts)
        check_some(source, buckets.rows, buckets.weight)
        return named.finish(files_of(source))

    def save(self, folder: Path, source: Source | None = None) -> Manifest:
        """Write a dataset into a folder.

        ``source``: One whose rows are the same, and become other features.
        """
        source, buckets, classes = source or self.source, self._buckets, self._classes
        finished, recipe = finish(source, folder)
        names, ranks = classes.sorted()
        if buckets.by_label and names is not None and len(names) > MOST_SPLIT_CLASSES:
            raise DataError(
                f"{files_of(source)}: there are {len(names):,} classes, each of which would have a "
                f"shard of its own: expected at most {MOST_SPLIT_CLASSES:,}. Do not split by label"
            )
        if self._ids is not None:
            with storage_errors("write", folder):
                (shutil.copyfile if self._keep else os.replace)(
                    buckets.folder / ids.FILE, folder / ids.FILE
                )
        written = _Shards(folder, ranks, buckets, finished)
        shards = tuple(written)
        manifest = described(
            source,
            finished,
            classes,
            shards,
            rows=buckets.rows,
            dtype=written.dtype,
            entries=written.entries if written.sparse else None,
            target=buckets.target,
            weighted=buckets.weight is not None,
            seed=buckets.seed,
            split_by="label" if buckets.by_label else None,
            recipe=recipe,
            ids=self._ids,
        )
        manifest.save(folder)
        return manifest


def check_some(source: Source, rows: int, weight: float | None) -> None:
    """Refuse a source without rows, or whose rows all have the weight 0."""
    if not rows:
        raise DataError(f"{files_of(source)}: expected at least one row, found none")
    if weight == 0:
        raise DataError(f"{files_of(source)}: all weights are 0, so that no row counts")


def finish(source: Source, folder: AnyPath) -> tuple[Finished | None, Listed | None]:
    """What the blocks of a table become, once all have come, and the file that says it."""
    if source.finish is None:
        return None, None
    finished = source.finish()
    put_if_absent(folder / RECIPE, finished.recipe, sync=True)
    return finished, Listed(RECIPE, hashlib.sha256(finished.recipe).hexdigest())


def described(
    source: Source,
    finished: Finished | None,
    classes: Classes,
    shards: tuple[ShardEntry, ...],
    *,
    rows: int,
    dtype: str,
    entries: int | None,
    target: str | None,
    weighted: bool,
    seed: int,
    split_by: str | None,
    recipe: Listed | None,
    ids: ListedIds | None,
) -> Manifest:
    """The manifest of a dataset; ``entries`` are the stored ones of sparse rows."""
    shape = source.shape if finished is None else (finished.width,)
    names, ranks = classes.sorted()
    more = {"split_by": split_by} if split_by else {}
    if finished is not None and finished.is_for_trees:
        more["for"] = "trees"
    return Manifest(
        rows=rows,
        features=math.prod(shape),
        shape=shape,
        dtype=dtype,
        scale=source.scale,
        classes=names,
        seed=seed,
        source={**source.description, **more},
        shards=shards,
        layout="dense" if entries is None else "sparse",
        nonzeros=rows * math.prod(shape) if entries is None else entries,
        target=target,
        class_rows=None if ranks is None else classes.rows(ranks),
        weighted=weighted,
        class_weights=None if ranks is None or not weighted else classes.weights(ranks),
        columns=source.columns if finished is None else finished.columns,
        recipe=recipe,
        ids=ids,
    )


def files_of(source: Source) -> str:
    """The names of a source's files, for a message."""
    return ", ".join(source.description.get("files", ())) or "the source"


def _count(features: Array | Csr | Block) -> int:
    return len(features.numbers) if isinstance(features, Block) else len(features)


def _is_number(labels: Array | None) -> bool:
    return labels is not None and labels.dtype.kind == "f"


def _check_numbers(rows: Rows, first: int, files: str) -> None:
    """Refuse numbers to be predicted and weights that would spoil every sum."""
    checks = [(rows.labels, "label", -np.inf)] if _is_number(rows.labels) else []
    checks.append((rows.weights, "weight", 0.0))
    for numbers, name, least in checks:
        if numbers is not None:
            bad = ~(np.isfinite(numbers) & (numbers >= least))
            if bad.any():
                at = int(bad.argmax())
                row = first + at if rows.numbers is None else int(rows.numbers[at])
                kind = "finite number" if least else "finite number from 0 on"
                raise DataError(
                    f"{files}, row {row + 1} of the source: its {name} is {numbers[at]}: expected "
                    f"a {kind}"
                )


def _check_classes(labels: Array | None, source: Source) -> None:
    """Refuse rows that cannot be split by label."""
    if labels is None:
        raise DataError(
            f"{files_of(source)}: expected labels to split the rows by, found none. Name the "
            f"column of the labels (--label), or do not split by label"
        )
    if _is_number(labels):
        raise DataError(
            f"{files_of(source)}: expected classes to split the rows by, found numbers to be "
            f"predicted. Say that they are classes (--task classification), or do not split by "
            f"label"
        )


class _Buckets:
    """The bucket files of the first pass: Arrow streams of rows.

    A row has its number in the source, from which its key follows, its label and weight, and its
    features: bytes of numbers, and texts.
    """

    def __init__(self, folder: Path, bits: int, seed: int, by_label: bool, keep: bool) -> None:
        self.rows = 0
        self.read = 0
        self.entries = 0
        self.weight: float | None = None
        self.target: str | None = None
        self.seed = seed
        self.by_label = by_label
        self.folder = folder
        self._bits, self._keep = bits, keep
        self._form: Any = None
        self._paths = [folder / f"bucket-{i:03d}" for i in range(1 << bits)]
        self._stack = contextlib.ExitStack()
        self._writers: dict[int, Any] = {}

    def count(self, rows: Rows) -> Array:
        """Count rows that come next, one at least; returns their numbers in the source."""
        features, count = rows.features, _count(rows.features)
        numbers = np.arange(self.read, self.read + count) if rows.numbers is None else rows.numbers
        self.rows += count
        self.read = int(numbers[-1]) + 1
        if isinstance(features, Csr):
            self.entries += int(features.indptr[-1] - features.indptr[0])
        if rows.labels is not None:
            self.target = "number" if _is_number(rows.labels) else "class"
        if rows.weights is not None:
            self.weight = (self.weight or 0.0) + float(rows.weights.sum())
        self._form = self._form or stored.form_of(features)
        return numbers

    def bucket_batches(self, rows: Rows, numbers: Array) -> list[tuple[int, Any]]:
        """The rows of each bucket, as record batches."""
        columns = columns_of(rows, numbers)
        if not self._bits:
            return [(0, self._form.batch(columns, rows.features, None))]
        bucket = (order.keys_of(self.seed, 0, numbers) >> np.uint64(64 - self._bits)).astype(
            np.uint8
        )
        return stored.owner_batches(self._form, columns, rows.features, bucket, len(self._paths))

    def write(self, parts: list[tuple[int, Any]]) -> None:
        """Append the rows of each bucket to its file."""
        for bucket, batch in parts:
            path = self._paths[bucket]
            if bucket not in self._writers:
                self._writers[bucket] = self._stack.enter_context(_stream(path, batch.schema))
            with storage_errors("write", path):
                self._writers[bucket].write_batch(batch)

    def close(self) -> None:
        """End the files."""
        with storage_errors("write", self.folder):
            self._stack.close()

    def sorted(self, finished: Finished | None) -> Iterator[tuple[Batch, Array]]:
        """The rows of one bucket after another, in order of their keys, and their numbers."""

        def read(path: Path) -> tuple[Batch, Array]:
            table = _whole(path, self._keep)
            # All keys differ.
            places = np.argsort(order.keys_of(self.seed, 0, stored.flat(table, "row")))
            return self._rows(table, places, finished)

        return ordered_map(read, self._written())

    def sorted_by_label(
        self, finished: Finished | None, ranks: Array
    ) -> Iterator[Iterator[tuple[Batch, Array]]]:
        """For each label that has rows, in the order ``ranks`` (classes,): as :meth:`sorted`."""
        paths = [self.folder / f"label-{rank}" for rank in range(ranks.max(initial=-1) + 1)]
        written = self._written()
        for parts in ordered_map(lambda path: self._parted_by_label(path, ranks), written):
            for rank, part in parts:
                # Opened for each part, since there may be more labels than a process may open.
                with _stream(paths[rank], part.schema, "ab") as stream:
                    stream.write_table(part)
        for path in paths:
            if path.exists():
                yield ordered_map(
                    lambda table: self._rows(table, np.arange(len(table)), finished), _tables(path)
                )
                path.unlink()

    def _parted_by_label(self, path: Path, ranks: Array) -> list[tuple[int, Any]]:
        """The rows of each label in a bucket, as tables in order of their keys."""
        table = _whole(path, self._keep)
        labels = ranks[stored.flat(table, "label")]
        places = np.lexsort((order.keys_of(self.seed, 0, stored.flat(table, "row")), labels))
        table = table.take(pa.array(places))
        found, starts = np.unique(labels[places], return_index=True)
        ends = [*starts[1:].tolist(), len(table)]
        return [
            (rank, table.slice(start, end - start))
            for rank, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True)
        ]

    def _written(self) -> list[Path]:
        return [self._paths[bucket] for bucket in sorted(self._writers)]

    def _rows(self, table: Any, places: Array, finished: Finished | None) -> tuple[Batch, Array]:
        return rows_of(self._form, table, places, finished)


def columns_of(rows: Rows, numbers: Array) -> dict[str, Array]:
    """What is stored of rows beside their features: their numbers, labels and weights."""
    columns = {"row": numbers, "label": rows.labels, "weight": rows.weights}
    return {name: column for name, column in columns.items() if column is not None}


def rows_of(form: Any, table: Any, places: Array, finished: Finished | None) -> tuple[Batch, Array]:
    """The rows of a table of stored ones at these places, and their numbers."""
    found = form.features(table, places)
    features = finished.features(found) if finished is not None else found
    numbers, labels, weights = (
        stored.flat(table, name)[places] if name in table.column_names else None
        for name in ("row", "label", "weight")
    )
    assert numbers is not None
    return Batch(features, labels, weights=weights), numbers


def _whole(path: Path, keep: bool) -> Any:
    """The table in a file, which is then deleted, unless it is to stay."""
    with storage_errors("read", path):
        with pa.OSFile(os.fsencode(path)) as file, pa.ipc.open_stream(file) as stream:
            table = stream.read_all()
        if not keep:
            path.unlink()
    return table


def _tables(path: Path) -> Iterator[Any]:
    """The tables of a file's streams, one by one."""
    with storage_errors("read", path), pa.OSFile(os.fsencode(path)) as file:
        while file.tell() < file.size():
            with pa.ipc.open_stream(file) as stream:
                yield stream.read_all()


@contextlib.contextmanager
def _stream(path: Path, schema: Any, mode: str = "xb") -> Iterator[Any]:
    with storage_errors("create", path):
        file = path.open(mode)
    with (
        storage_errors("write", path),
        file,
        pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema) as writer,
    ):
        yield writer


class _Shards:
    """Writes the sorted rows as shards; iterating gives their entries for the manifest."""

    def __init__(
        self, folder: Path, ranks: Array | None, buckets: _Buckets, finished: Finished | None
    ) -> None:
        self._folder, self._ranks = folder, ranks
        self._buckets, self._finished = buckets, finished
        self.entries = self._row_bytes = self._size = 0
        self.dtype = ""
        self.sparse = False

    def __iter__(self) -> Iterator[ShardEntry]:
        return ordered_map(self._write, enumerate(self._cut()))

    def _cut(self) -> Iterator[tuple[Batch, Array]]:
        """The rows of one shard after another."""
        if not self._buckets.by_label or self._ranks is None:
            yield from self._cut_pieces(self._buckets.sorted(self._finished))
            return
        for pieces in self._buckets.sorted_by_label(self._finished, self._ranks):
            yield from self._cut_pieces(pieces)

    def _cut_pieces(self, pieces: Iterable[tuple[Batch, Array]]) -> Iterator[tuple[Batch, Array]]:
        pending: list[tuple[Batch, Array]] = []
        for piece in pieces:
            features = piece[0].features
            if not self._size:
                self.dtype, self.sparse = features.dtype.name, isinstance(features, Csr)
                self._row_bytes = self._average(features)
                self._size = rows_per_shard(self._row_bytes)
            if isinstance(features, Csr):
                self.entries += int(features.indptr[-1] - features.indptr[0])
            pending.append(piece)
            if sum(len(numbers) for _, numbers in pending) >= self._size:
                rows, numbers = _join(pending)
                whole = len(numbers) - len(numbers) % self._size
                for start in range(0, whole, self._size):
                    part = slice(start, start + self._size)
                    yield rows[part], numbers[part]
                pending = [(rows[whole:], numbers[whole:])]
        rows, numbers = _join(pending)
        if len(numbers):
            yield rows, numbers

    def _average(self, features: Array | Csr) -> int:
        """The size of a row's features, which does not depend on the number of buckets."""
        if self._finished is not None:
            return self._finished.row_bytes
        size = features.dtype.itemsize
        if isinstance(features, Csr):
            return sparse_row_bytes(self._buckets.rows, self._buckets.entries, size)
        return int(features.shape[1] * size)

    def _write(self, shard: tuple[int, tuple[Batch, Array]]) -> ShardEntry:
        number, (rows, numbers) = shard
        labels = rows.labels
        if labels is not None and self._ranks is not None:
            labels = self._ranks[labels]
        path = self._folder / shard_name(number)
        return write_shard(path, replace(rows, labels=labels), numbers, self._row_bytes)


def shard_name(number: int) -> str:
    """The file of a shard."""
    return f"shard-{number:05d}.arrow"


def _join(parts: list[tuple[Batch, Array]]) -> tuple[Batch, Array]:
    batches, numbers = zip(*parts, strict=True)
    return csr.join(batches), np.concatenate(numbers)
