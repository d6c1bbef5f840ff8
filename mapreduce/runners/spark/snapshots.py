"""DataFrames of Spark as files: their rows, in the order of their content.

Rows of a DataFrame have no order. Here all columns order them, so that rows that are equal may
change places. Only calls of DataFrames are used, and no row passes this process.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.publish import new_file
from mapreduce.data.readers.parquet import block_rows
from mapreduce.errors import DataError, GradreduceError, UsageError
from mapreduce.runners.spark import contexts
from mapreduce.support.suggest import did_you_mean

#: Blocks of a file, each of which is a row group.
_FILE_BLOCKS = 4
#: As many columns is a list, whose length the schema does not tell.
_LIST_COLUMNS = 4096
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_PLAIN = (*_NUMBERS, "decimal", "boolean", "date", "timestamp", "timestamp_ntz")
UTC = pa.timestamp("us", "UTC")


def is_list(kind: Any) -> bool:
    """Whether a type of Spark's holds several numbers: a vector of MLlib, or an array."""
    is_array = kind.typeName() == "array" and kind.elementType.typeName() in _NUMBERS
    return is_array or type(kind).__name__ == "VectorUDT"


def short_names(frame: Any) -> list[str]:
    """Names for the columns of a DataFrame: its own may hold dots, or differ by case alone."""
    return [f"c{number}" for number in range(len(frame.schema.names))]


def check(frame: Any) -> None:
    """Refuse a DataFrame that cannot be read.

    Raises UsageError (no pandas, which Spark needs; its context has stopped), DataError (two
    columns have one name).
    """
    if find_spec("pandas") is None:
        raise UsageError(
            "the DataFrame: Spark hands rows over by pandas, which is not installed. Install it: "
            "pip install 'gradreduce[spark]'"
        )
    context = getattr(frame.sparkSession, "_sc", None)
    if context is not None and context._jsc is None:
        raise UsageError(
            "the DataFrame: expected one of a running context of Spark, found a context that was "
            "stopped. Read the DataFrame again"
        )
    names = frame.schema.names
    if many := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(
            f"the DataFrame: two columns have the name {many[0]!r:.60}. Rename one: df.toDF(...)"
        )


def plain(name: str, column: Any, kind: Any) -> Any:
    """A column of a DataFrame in the form of which a file is made: one zero, and one NaN.

    Raises DataError (its type has no order, or no place in a table).
    """
    from pyspark.sql import functions

    spelled = kind.typeName()
    if spelled in ("float", "double"):
        return _one_zero(column).cast(kind)
    if spelled == "timestamp":
        # Whatever the session's time zone.
        return functions.unix_micros(column)
    if is_list(kind):
        if spelled != "array":
            from pyspark.ml.functions import vector_to_array

            column = vector_to_array(column)
        elif kind.elementType.typeName() not in ("float", "double"):
            return column
        return functions.transform(column, _one_zero)
    if spelled in _PLAIN or (spelled == "string" and kind.simpleString() == "string"):
        return column
    raise DataError(
        f"the DataFrame: column {name!r:.60} is of type {kind.simpleString():.60}: expected "
        f"numbers, texts in Spark's own order, booleans, dates, timestamps, or vectors. Leave it "
        f"out: df.drop({name!r:.60})"
    )


def _one_zero(column: Any) -> Any:
    """Numbers of which -0.0 is 0.0, and all that are not a number are one."""
    from pyspark.sql import functions

    nan, zero = functions.lit(float("nan")), functions.lit(0.0)
    return functions.when(functions.isnan(column), nan).otherwise(column + zero)


def write(frame: Any, folder: Path, order_by: Sequence[str]) -> tuple[list[Path], str]:
    """Write the rows of a DataFrame into Parquet files of a fixed number of rows.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    folder : Path
        On this machine, where the executors are, too.
    order_by : sequence of str
        Columns that order the rows before all others do.

    Returns
    -------
    The files, in the order of their rows, and a digest of them.

    Raises
    ------
    UsageError
        Executors are on other machines; there is no such column; or see :func:`check`.
    DataError
        There are no rows, or a column of another type than a table's.
    GradreduceError
        Spark cannot compute the DataFrame.
    """
    check(frame)
    if "connect" not in type(frame).__module__:
        # Says where executors are.
        contexts.get(None, None)
    fields = frame.schema.fields
    for name in order_by:
        if name not in frame.schema.names:
            raise UsageError(
                f"order_by: the DataFrame has no column {name!r:.60}."
                f"{did_you_mean(name, frame.schema.names)}"
            )
    names = dict(zip(frame.schema.names, short_names(frame), strict=True))
    renamed = frame.toDF(*names.values())
    columns = [
        plain(field.name, renamed[names[field.name]], field.dataType).alias(names[field.name])
        for field in fields
    ]
    first = [names[name] for name in order_by]
    order = [*dict.fromkeys((*first, *names.values()))]
    lists = sum(is_list(field.dataType) for field in fields)
    block = block_rows(len(fields) + _LIST_COLUMNS * lists)
    zoned = [field.name for field in fields if field.dataType.typeName() == "timestamp"]
    try:
        rows, parts = _sorted(renamed.select(*columns), order, folder / "sorted")
        if not rows:
            raise DataError("the DataFrame: expected at least one row, found none")
        cut = Cut(str(folder), tuple(parts), tuple(names), tuple(zoned), block)
        if cut.rows != rows:
            raise UsageError(
                f"the DataFrame: {rows:,} rows were written to {folder}, and this machine has "
                f"{cut.rows:,} of them. Executors must be on this machine"
            )
        numbers = frame.sparkSession.range(0, cut.files, 1, cut.files)
        written = numbers.mapInArrow(cut, "number long, sha256 string").collect()
    except GradreduceError:
        raise
    except Exception as error:  # of Java, which has many
        raise GradreduceError(f"the DataFrame: Spark failed: {contexts.cause(error)}") from error
    digest = hashlib.sha256("".join(row.sha256 for row in sorted(written)).encode())
    return [cut.path(number) for number in range(cut.files)], digest.hexdigest()


def _sorted(frame: Any, order: list[str], place: Path) -> tuple[int, list[tuple[str, int]]]:
    """Write a DataFrame in order, by one action: its rows, and the files and how many each has."""
    from pyspark.sql import Observation, functions

    seen = Observation()
    count = functions.count(functions.lit(1)).alias("rows")
    writer = frame.orderBy(*order).observe(seen, count).write
    options = {"maxRecordsPerFile": 0, "compression": "snappy"}
    writer.options(**options).parquet(f"file://{place}")
    paths = map(str, sorted(place.glob("part-*")))
    return seen.get["rows"], [(path, pq.read_metadata(path).num_rows) for path in paths]


@dataclass(frozen=True)
class Cut:
    """Cuts a snapshot into files of a fixed number of rows, in tasks of Spark.

    ``folder``: Of the files. ``parts``: The files of the snapshot and their rows, in order.
    ``names``: What columns are called. ``zoned``: Those that are a time in UTC.
    ``block``: Rows of a row group.
    """

    folder: str
    parts: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    zoned: tuple[str, ...]
    block: int

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(rows for _, rows in self.parts)

    @property
    def files(self) -> int:
        """How many files there are."""
        return -(-self.rows // (_FILE_BLOCKS * self.block))

    def path(self, number: int) -> Path:
        """A file."""
        return Path(self.folder, f"part-{number:05d}.parquet")

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            digests = [self._write(number) for number in numbers]
            yield pa.RecordBatch.from_pydict({"number": numbers, "sha256": digests})

    def _write(self, number: int) -> str:
        """Write a file; returns its digest."""
        path, rows = self.path(number), _FILE_BLOCKS * self.block
        table = pa.Table.from_batches(self._slices(number * rows, (number + 1) * rows))
        table = table.rename_columns([*self.names]).combine_chunks()
        for name in self.zoned:
            place = self.names.index(name)
            table = table.set_column(place, name, table[name].cast(UTC))
        # Another attempt writes the same.
        with contextlib.suppress(FileExistsError), new_file(path) as temporary:
            table = table.replace_schema_metadata(None)
            pq.write_table(table, temporary, row_group_size=self.block)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _slices(self, first: int, stop: int) -> Iterator[Any]:
        """Rows of the snapshot."""
        start = 0
        for path, rows in self.parts:
            at, start = start, start + rows
            if at >= stop or start <= first:
                continue
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(self.block):
                    low, high = max(first - at, 0), min(stop - at, len(batch))
                    if low < high:
                        yield batch.slice(low, high - low)
                    at += len(batch)
                    if at >= stop:
                        break
