"""What identifies the rows of a dataset: a Parquet file of row numbers and ids, in their order."""

import hashlib
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from kernels import dispatch
from mapreduce.data import ipc
from mapreduce.data.batch import Array
from mapreduce.data.fields import bytes_of
from mapreduce.data.manifest import ListedIds, Manifest, check_listed
from mapreduce.errors import DataError

FILE = "ids.parquet"
#: The columns of the file.
SCHEMA = pa.schema([pa.field("row", pa.int64(), False), pa.field("id", pa.string(), False)])
_GROUP_ROWS = 1 << 16
#: About so many hashes are compared at once.
_SORTED = 1 << 22
#: Integers of 64 bits, written without leading zeros, which would be lost.
_INTEGER = "^(?:0|-?[1-9][0-9]{0,17})$"


class Writer:
    """Writes the ids of rows as they come; without any there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None
        self._writer: Any = None
        self._hashes: Any = None
        self._rest: list[Any] = []
        self._kind = "integer"

    def __enter__(self) -> "Writer":
        return self

    def append(self, rows: Array, ids: Any) -> None:
        """Add rows (n,) and their ids, texts (n,)."""
        with storage_errors("write", self._path):
            if self._writer is None:
                self._hashes = _Runs(self._path.parent)
                self._file = ipc.output_file(self._path)
                self._writer = pq.ParquetWriter(self._file, SCHEMA, compression="zstd")
            self._rest.append(pa.table([rows, ids], schema=SCHEMA))
            self._write(least=_GROUP_ROWS)
            self._hashes.add(_hashes(ids))
        if _kind_of(ids) == "text":
            self._kind = "text"

    def __exit__(self, *error: object) -> None:
        if self._hashes is not None and error[0] is not None:
            self._hashes.close()
        if self._writer is not None:
            with storage_errors("write", self._path), self._file:
                self._write(least=1)
                self._writer.close()

    def _write(self, least: int) -> None:
        """Write rows that make whole groups, wherever blocks end; or all if there are ``least``."""
        if (count := sum(map(len, self._rest))) >= least:
            table = pa.concat_tables(self._rest)
            end = count // least * least
            self._writer.write_table(table.slice(0, end), _GROUP_ROWS)
            self._rest = [table.slice(end)]

    def finish(self, files: str) -> ListedIds | None:
        """The file for the manifest, once it is closed, if no two rows have one id."""
        if self._writer is None:
            return None
        if len(doubtful := self._hashes.pop_repeats()):
            self._check_unique(files, doubtful)
        with storage_errors("read", self._path), self._path.open("rb") as file:
            return ListedIds(FILE, hashlib.file_digest(file, "sha256").hexdigest(), self._kind)

    def _check_unique(self, files: str, doubtful: Array) -> None:
        """Look at the ids themselves that have these hashes."""
        with ipc.native(self._path) as raw, pq.ParquetFile(raw) as file:
            groups = map(file.read_row_group, range(file.num_row_groups))
            table = pa.concat_tables(
                group.filter(pa.array(np.isin(_hashes(group["id"].combine_chunks()), doubtful)))
                for group in groups
            )
        _refuse_repeated(table["row"], table["id"], files)


def kind_of_all(ids: Any, shown: str) -> str:
    """The kind of the ids of a whole table, texts (n,), as :class:`ListedIds` has it.

    Raises DataError (two rows have one id), in which the table is ``shown``.
    """
    _refuse_repeated(pa.array(np.arange(len(ids))), ids, shown)
    return _kind_of(ids)


def _kind_of(ids: Any) -> str:
    are = pc.all(pc.match_substring_regex(ids, _INTEGER), min_count=0).as_py()
    return "integer" if are else "text"


def _refuse_repeated(rows: Any, ids: Any, files: str) -> None:
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        name = repeated[0]["values"].as_py()
        two = rows.filter(pc.equal(ids, name))[:2].to_pylist()
        raise DataError(
            f"{files}: the id {name!r} is that of rows {two[0] + 1} and {two[1] + 1}: expected an "
            f"id for each row. Name another column with --id, or --id '' for none: predictions "
            f"have the rows' numbers anyway"
        )


class _Runs:
    """Hashes of 64 bits in a file, since memory may not hold all of them: ascending runs."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._ends = [0]

    def add(self, hashes: Array) -> None:
        """Add hashes (n,), uint64."""
        self._file.write(np.sort(hashes).tobytes())
        self._ends.append(self._ends[-1] + len(hashes))

    def pop_repeats(self) -> Array:
        """Those that are there several times, ascending; afterwards all are gone."""
        count = 1 + self._ends[-1] // _SORTED
        edges = np.array([number * (1 << 64) // count for number in range(1, count)], np.uint64)
        cuts, found = [], []
        with self._file:
            for start, stop in pairwise(self._ends):
                inner = start + np.searchsorted(self._read(start, stop), edges)
                cuts.append([start, *inner.tolist(), stop])
            for number in range(count):
                parts = [self._read(cut[number], cut[number + 1]) for cut in cuts]
                near = np.sort(np.concatenate(parts))
                found.append(near[1:][near[1:] == near[:-1]])
        return np.concatenate(found)

    def close(self) -> None:
        """Forget all."""
        self._file.close()

    def _read(self, start: int, stop: int) -> Array:
        self._file.seek(8 * start)
        return np.frombuffer(self._file.read(8 * (stop - start)), np.uint64)


def _hashes(texts: Any) -> Array:
    """Hashes (n,), uint64, of texts, an Arrow array (n,)."""
    sums = np.zeros(len(texts), np.uint64)
    dispatch.get("add_hashes")(b"", *bytes_of(texts), sums)
    return sums


def of_rows(folder: AnyPath, manifest: Manifest, rows: Array) -> Any:
    """Ids (n,), an Arrow array of texts or int64, of rows (n,) in ascending order, or None."""
    if manifest.ids is None:
        return None
    path = folder / manifest.ids.file
    check_listed(path, manifest.ids.sha256, "Import the data again")
    try:
        between = [("row", ">=", int(rows[0])), ("row", "<=", int(rows[-1]))]
        with ipc.native(path) as file:
            table = pq.read_table(file, filters=between)
        own = table["row"].to_numpy()
        places = np.searchsorted(own, rows)
        if (places == len(own)).any() or (own[places] != rows).any():
            raise ValueError("it lacks rows of the shards")
        found = table["id"].take(pa.array(places)).combine_chunks()
        return found.cast(pa.int64()) if manifest.ids.kind == "integer" else found
    except (ValueError, KeyError, pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is malformed: {error}. Import the data again") from error
