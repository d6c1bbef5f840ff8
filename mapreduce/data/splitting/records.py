"""Tables in files: their columns, and their records as they stand there."""

import codecs
import csv as csv_module
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from mapreduce.data import ipc
from mapreduce.data.batch import Array
from mapreduce.data.fields import NUMBER
from mapreduce.data.readers.csv import check_delimiter, check_line
from mapreduce.data.readers.files import check_sources, open_source
from mapreduce.data.readers.parquet import ARROW_SCHEMA, opened
from mapreduce.data.readers.records import BOM, RecordEnds, fields_of, filled, first_record
from mapreduce.data.readers.tables import preview
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20
#: Rows of a row group of Parquet.
GROUP_ROWS = 1 << 16
_START_BYTES = 1 << 16
_CR = ord("\r")

#: File, its rows before these, and a record batch of some columns.
Columns = Iterator[tuple[AnyPath, int, Any]]
Write = Callable[[Any], None]


def open_files(paths: Sequence[AnyPath], recipe: Recipe) -> "CsvFiles | ParquetFiles":
    """Files of CSV, gzipped or not, or of Parquet, as their first bytes say.

    ``recipe``: Its ``delimiter``, ``quote``, ``encoding``, ``decimal`` and ``header`` are those of
    CSV files. A header that is None is one if no field of the first line is a number.

    Raises UsageError (no files, files of both kinds, or a first line that may be a header or a
    row), MissingInputError, DataError (a file is missing or damaged, the files' columns differ, or
    two have one name).
    """
    names = "files of CSV, or files of Parquet"
    check_sources(paths, names)
    kinds = set()
    for path in paths:
        with storage_errors("read", path), path.open("rb") as file:
            kinds.add(file.read(4) == b"PAR1")
    if len(kinds) != 1:
        raise UsageError(f"some files are Parquet, and some are not: name {names}")
    return ParquetFiles(paths) if True in kinds else CsvFiles(paths, recipe)


def copy(files: "CsvFiles | ParquetFiles", targets: Sequence[Path], parts: Array) -> None:
    """Copy each record, as it is, to the target whose index ``parts`` (rows,) has for it."""
    done = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(files.writer(path)) for path in targets]
        for records in files.records():
            found = parts[done : done + len(records)]
            done += len(records)
            if done > len(parts):
                break
            for i, write in enumerate(writers):
                write(records.filter(pa.array(found == i)))
    if done != len(parts):
        raise DataError("the files changed while they were read. Run the command again")


class CsvFiles:
    """CSV files, gzipped or not; without a header columns are named by numbers from 1 on."""

    def __init__(self, paths: Sequence[AnyPath], recipe: Recipe) -> None:
        self._paths, self._recipe = paths, recipe
        self.suffix = ".tsv" if recipe.delimiter == "\t" else ".csv"
        header, lines = recipe.header, []
        for path in paths:
            with open_source(path) as file:
                lines.append(self._first_record(path, file)[0])
        heads = [self._fields(line, f"{p}, line 1") for p, line in zip(paths, lines, strict=True)]
        if header is not False:
            check_delimiter(paths[0], heads[0])
        plain = [name.replace(recipe.decimal, ".") for name in heads[0]]
        if header is None and any(name and re.fullmatch(NUMBER, name) for name in plain):
            raise UsageError(
                f"{paths[0]}: the first line, {preview(heads[0])}, may be a header or a row. Say "
                f"which: --header or --no-header"
            )
        if header is False:
            heads = [[str(i + 1) for i in range(len(names))] for names in heads]
        self.names = _common(paths, heads)
        self._head = b"" if header is False else lines[0]
        self._end = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"

    def columns(self, wanted: Sequence[str]) -> Columns:
        """Some columns, as texts."""
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()), include_columns=list(wanted)
        )
        recipe = self._recipe
        # This row is missing if a quote is left open at the end of a block.
        last = recipe.delimiter.join(["0"] * len(self.names)).encode() + b"\n"
        parse = csv.ParseOptions(delimiter=recipe.delimiter, quote_char=recipe.quote)
        is_utf8 = codecs.lookup(recipe.encoding).name == "utf-8"
        for path, first, block, records in self._blocks():
            try:
                text = block if is_utf8 else block.decode(recipe.encoding).encode()
                content = ipc.stream(text + last)
                options = csv.ReadOptions(
                    use_threads=False, block_size=content.size() + 1, column_names=self.names
                )
                table = csv.read_csv(content, options, parse, convert)
                problem = "expected one row on each line"
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                table, problem = (), str(error)
            if len(table) != len(records) + 1:
                for number, record in enumerate(records, first + 1):
                    self._check(record.as_py(), f"{path}, row {number}")
                raise DataError(f"{path}, after row {first}: {problem}")
            (batch,) = table.slice(0, len(records)).combine_chunks().to_batches()
            yield path, first, batch

    def _check(self, record: bytes, place: str) -> None:
        fields = self._fields(record, place)
        if len(fields) != len(self.names):
            raise DataError(f"{place}: expected {len(self.names)} fields, found {len(fields)}")

    def _fields(self, line: bytes, place: str) -> list[str]:
        recipe = self._recipe
        try:
            return fields_of(line.removeprefix(BOM).decode(recipe.encoding), recipe, strict=True)
        except UnicodeDecodeError as error:
            advice = "Say --encoding, such as latin-1 or cp1252"
            raise DataError(f"{place} is not {recipe.encoding} text: {error}. {advice}") from error
        except csv_module.Error as error:
            problem = f"{error}. Expected fields whose quotes are closed"
            if "new-line" in str(error):
                problem = "a carriage return within: expected lines that end with LF"
            raise DataError(f"{place}: {problem}") from error

    def records(self) -> Iterator[Any]:
        """All records but headers and empty lines."""
        return (records for _, _, _, records in self._blocks())

    def _blocks(self) -> Iterator[tuple[AnyPath, int, bytes, Any]]:
        """File, its rows before a block of whole records, the block, and its records."""
        for path in self._paths:
            first = 0
            for block, ends in self._whole_records(path):
                if len(records := _records(block, ends)):
                    yield path, first, block, records
                    first += len(records)

    def _first_record(self, path: AnyPath, file: BinaryIO) -> tuple[bytes, bytes]:
        """The first record, and what was read behind it."""
        check, start = partial(check_line, path), file.read(_START_BYTES)
        line, rest, is_open = first_record(
            file, start, RecordEnds(self._recipe), BLOCK_BYTES, check
        )
        if is_open:
            raise self._left_open(path, "line 1")
        if not line.removeprefix(BOM).strip():
            raise DataError(f"{path} is empty, or starts with an empty line: expected a table")
        return line if line.endswith(b"\n") else line + b"\n", rest

    def _whole_records(self, path: AnyPath) -> Iterator[tuple[bytes, Array]]:
        """Blocks of whole records, and the places behind their ends."""
        records = RecordEnds(self._recipe)
        with open_source(path) as file:
            line, chunk = self._first_record(path, file)
            if not self._head:
                chunk = line.removeprefix(BOM) + chunk
            rest, row = b"", 1
            while chunk := chunk or file.read(BLOCK_BYTES):
                ends = records.of(chunk) + len(rest)
                block, chunk = rest + chunk, b""
                cut = int(ends[-1]) if len(ends) else 0
                if records.wrong is not None:
                    some = ends[: len(ends) - records.number + records.wrong]
                    raise self._left_open(path, f"row {row + filled(block, some)}")
                if cut:
                    yield block[:cut], ends
                    row += len(_records(block[:cut], ends))
                rest = block[cut:]
                check_line(path, len(rest), records.is_open)
            if records.is_open:
                raise self._left_open(path, f"row {row}")
            if rest:
                rest = rest if rest.endswith(b"\n") else rest + self._end
                yield rest, np.array([len(rest)])

    def _left_open(self, path: AnyPath, place: str) -> DataError:
        quote = self._recipe.quote
        return DataError(
            f"{path}, {place}: a quote, {quote}, is left open. Close it, or say --quote"
        )

    @contextmanager
    def writer(self, path: Path) -> Iterator[Write]:
        """What copies records to a new file, behind the header of the first."""
        with storage_errors("write", path), path.open("xb") as file:
            file.write(self._head)

            def write(records: Any) -> None:
                if len(records):
                    _, offsets, data = records.buffers()
                    bounds = np.frombuffer(offsets, np.int64)[records.offset :]
                    with storage_errors("write", path):
                        file.write(memoryview(data)[bounds[0] : bounds[len(records)]])

            yield write
            file.flush()
            os.fsync(file.fileno())


class ParquetFiles:
    """Parquet files of one schema."""

    suffix = ".parquet"

    def __init__(self, paths: Sequence[AnyPath]) -> None:
        self._paths = paths
        schemas, stored = [], None
        for path in paths:
            with opened(path) as file:
                schemas.append(file.schema_arrow)
                stored = stored or (file.metadata.metadata or {}).get(ARROW_SCHEMA)
        # Of categories that are no texts only the schema that was written first knows.
        self._schema, self._stored = schemas[0], stored
        self.names = _common(paths, [schema.names for schema in schemas])
        for path, schema in zip(paths, schemas, strict=True):
            if not schema.equals(self._schema):
                raise DataError(f"{path} and {paths[0]} have columns of different types")

    def columns(self, wanted: Sequence[str]) -> Columns:
        """Some columns, of the types that the schema says."""
        for path in self._paths:
            first = 0
            with opened(path) as file:
                for batch in file.iter_batches(columns=list(wanted)):
                    yield path, first, batch
                    first += len(batch)

    def records(self) -> Iterator[Any]:
        """All columns, as record batches."""
        return (batch for _, _, batch in self.columns(self.names))

    @contextmanager
    def writer(self, path: Path) -> Iterator[Write]:
        """What copies record batches to a new file of the same schema."""
        pending: list[Any] = []
        with storage_errors("write", path), path.open("xb") as file:
            writer = pq.ParquetWriter(file, self._schema, store_schema=self._stored is None)
            if self._stored is not None:
                writer.add_key_value_metadata({ARROW_SCHEMA: self._stored})

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


def _common(paths: Sequence[AnyPath], heads: Sequence[list[str]]) -> list[str]:
    """The names of the columns of all files."""
    for path, names in zip(paths, heads, strict=True):
        if len(set(names)) != len(names):
            raise DataError(f"{path}: two columns have the same name in {preview(names)}")
        if names != heads[0]:
            raise DataError(
                f"{path} has the columns {preview(names)}, {paths[0]} {preview(heads[0])}: they "
                f"cannot be split together"
            )
    return heads[0]


def _records(block: bytes, ends: Array) -> Any:
    """The records of a block, with their ends, but empty lines: an array of Arrow's."""
    data, offsets = np.frombuffer(block, np.uint8), np.append(np.int64(0), ends)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    lines = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    sizes = np.diff(offsets)
    empty = (sizes == 1) | ((sizes == 2) & (data[offsets[:-1]] == _CR))
    return lines.filter(pa.array(~empty)) if empty.any() else lines
