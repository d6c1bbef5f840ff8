"""What identifies the rows of a dataset: a Parquet file of row numbers and ids, in their order."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from mapreduce.data import ipc
from mapreduce.data.batch import Array
from mapreduce.data.hashing import murmur3
from mapreduce.data.manifest import ListedIds, Manifest, read_listed
from mapreduce.errors import DataError

FILE = "ids.parquet"
_SCHEMA = pa.schema([pa.field("row", pa.int64(), False), pa.field("id", pa.string(), False)])
_GROUP_ROWS = 1 << 16
#: Integers of 64 bits, written without leading zeros, which would be lost.
_INTEGER = "^(?:0|-?[1-9][0-9]{0,17})$"


class Writer:
    """Writes the ids of rows as they come; without any there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._hashes: list[Array] = []
        self._kind = "integer"

    def __enter__(self) -> "Writer":
        return self

    def append(self, rows: Array, ids: Any) -> None:
        """Add rows (n,) and their ids, texts (n,)."""
        with storage_errors("write", self._path):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, _SCHEMA, compression="zstd")
            self._writer.write_table(pa.table([rows, ids], schema=_SCHEMA), _GROUP_ROWS)
        if not pc.all(pc.match_substring_regex(ids, _INTEGER), min_count=0).as_py():
            self._kind = "text"
        low, high = (murmur3(ids, seed).astype(np.uint64) for seed in (0, 1))
        self._hashes.append((high << np.uint64(32)) | low)

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            with storage_errors("write", self._path):
                self._writer.close()

    def finish(self, files: str) -> ListedIds | None:
        """The file for the manifest, once it is closed; ``files`` are those of the source.

        Raises DataError (two rows have one id).
        """
        if self._writer is None:
            return None
        hashes = np.sort(np.concatenate(self._hashes))
        if (hashes[1:] == hashes[:-1]).any():
            self._check_unique(files)
        with storage_errors("read", self._path), self._path.open("rb") as file:
            return ListedIds(FILE, hashlib.file_digest(file, "sha256").hexdigest(), self._kind)

    def _check_unique(self, files: str) -> None:
        """Two hashes are equal: look at the ids themselves."""
        table = pq.read_table(self._path)
        counts = pc.value_counts(table["id"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(repeated):
            name = repeated[0]["values"].as_py()
            rows = table["row"].filter(pc.equal(table["id"], name))[:2].to_pylist()
            raise DataError(
                f"{files}: the id {name!r} is that of rows {rows[0] + 1} and {rows[1] + 1}: "
                f"expected an id for each row. Name another column with --id, or none: predictions "
                f"have the rows' numbers anyway"
            )


def of_rows(folder: AnyPath, manifest: Manifest, rows: Array) -> Any:
    """Ids (n,), an Arrow array of texts or int64, of rows (n,) in ascending order, or None.

    Raises DataError, MissingInputError (the file is damaged or gone, or lacks a row).
    """
    if manifest.ids is None:
        return None
    path = folder / manifest.ids.file
    content = read_listed(path, manifest.ids.sha256, "Import the data again")
    try:
        between = [("row", ">=", int(rows[0])), ("row", "<=", int(rows[-1]))]
        table = pq.read_table(ipc.stream(content), filters=between)
        own = table["row"].to_numpy()
        places = np.searchsorted(own, rows)
        if (places == len(own)).any() or (own[places] != rows).any():
            raise ValueError("it lacks rows of the shards")
        found = table["id"].take(pa.array(places)).combine_chunks()
        return found.cast(pa.int64()) if manifest.ids.kind == "integer" else found
    except (ValueError, KeyError, pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is malformed: {error}. Import the data again") from error
