"""Copying the records of a table, as they stand there, into several files."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array
from mapreduce.data.readers.csv import CsvTable
from mapreduce.data.readers.files import check_sources
from mapreduce.data.readers.parquet import ARROW_SCHEMA, ParquetTable
from mapreduce.data.readers.table import Table
from mapreduce.errors import DataError, UsageError

#: Rows of a row group of Parquet.
GROUP_ROWS = 1 << 16

Write = Callable[[Any], None]


def format_of(paths: Sequence[AnyPath]) -> str:
    """Whether files are of Parquet, or of CSV, gzipped or not, as their first bytes say.

    Raises UsageError (some are Parquet, and some are not).
    """
    names = "files of CSV, or files of Parquet"
    check_sources(paths, names)
    kinds = set()
    for path in paths:
        with storage_errors("read", path), path.open("rb") as file:
            kinds.add(file.read(4) == b"PAR1")
    if len(kinds) != 1:
        raise UsageError(f"some files are Parquet, and some are not: name {names}")
    return "parquet" if True in kinds else "csv"


def copy(table: Table, targets: Sequence[Path], parts: Array) -> None:
    """Copy each record, as it is, to the target whose index ``parts`` (rows,) has for it."""
    done = 0
    writer: Any = _parquet if isinstance(table, ParquetTable) else _csv
    with ExitStack() as stack:
        writers = [stack.enter_context(writer(table, path)) for path in targets]
        for records in table.records():
            found = parts[done : done + len(records)]
            done += len(records)
            if done > len(parts):
                break
            for i, write in enumerate(writers):
                write(records.filter(pa.array(found == i)))
    if done != len(parts):
        raise DataError("the files changed while they were read. Run the command again")


def arrange(table: Table, target: Path, rows: Array) -> None:
    """Copy the records of these numbers (rows,), as they are, to a new file, in this order.

    Memory holds what is copied.
    """
    wanted = np.sort(rows)
    pieces: list[Any] = []
    done = 0
    for records in table.records():
        start, stop = np.searchsorted(wanted, (done, done + len(records)))
        pieces.append(records.take(pa.array(wanted[start:stop] - done)))
        done += len(records)
    order = pa.array(np.searchsorted(wanted, rows))
    if isinstance(table, ParquetTable):
        with _parquet(table, target) as write:
            joined = pa.Table.from_batches(pieces).unify_dictionaries()
            for batch in joined.take(order).to_batches():
                write(batch)
        return
    with _csv(cast("CsvTable", table), target) as write:
        write(pa.concat_arrays(pieces).take(order))


@contextmanager
def _csv(table: CsvTable, path: Path) -> Iterator[Write]:
    """What copies records to a new file, behind the header of the first."""
    with storage_errors("write", path), path.open("xb") as file:
        file.write(table.head)

        def write(records: Any) -> None:
            if len(records):
                _, offsets, data = records.buffers()
                bounds = np.frombuffer(offsets, np.int64)[records.offset :]
                with storage_errors("write", path):
                    file.write(memoryview(data)[bounds[0] : bounds[len(records)]])

        yield write
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _parquet(table: ParquetTable, path: Path) -> Iterator[Write]:
    """What copies record batches to a new file of the same schema."""
    pending: list[Any] = []
    with storage_errors("write", path), path.open("xb") as file:
        writer = pq.ParquetWriter(file, table.schema, store_schema=table.stored is None)
        if table.stored is not None:
            # Of categories that are no texts only the schema that was written first knows.
            writer.add_key_value_metadata({ARROW_SCHEMA: table.stored})

        def write(batch: Any, least: int = GROUP_ROWS) -> None:
            pending.append(batch)
            if sum(map(len, pending)) >= least:
                with storage_errors("write", path):
                    writer.write_table(pa.Table.from_batches(pending).unify_dictionaries())
                pending.clear()

        yield write
        if pending:
            write(pending.pop(), 0)
        writer.close()
        os.fsync(file.fileno())
