"""Parquet: tables of typed columns, or one column of lists of numbers."""

import base64
import copy
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath
from mapreduce.data import ipc
from mapreduce.data.batch import Array
from mapreduce.data.fields import check_texts, is_number, is_text, without_views, zone_of
from mapreduce.data.readers.files import check_sources
from mapreduce.data.readers.table import (
    Leaf,
    Stretch,
    edges_of_all,
    leaves_of_all,
    preview,
    whole,
)
from mapreduce.data.recipes import kinds
from mapreduce.errors import DataError
from mapreduce.support.reading import reading

_READ_BYTES = 8 << 20
_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 1 << 16
#: Where Arrow keeps the schema that it has written.
ARROW_SCHEMA = b"ARROW:schema"
#: How that begins: a continuation marker, in base 64.
_SCHEMA_START = b"/////"
_PANDAS_INDEX = re.compile("__index_level_[0-9]+__")


class ParquetTable:
    """Parquet files of one schema."""

    format = "parquet"
    has_names = True
    is_typed = True

    def __init__(self, paths: Sequence[AnyPath]) -> None:
        check_sources(paths, "the Parquet files")
        self._describe(paths, [Footer.of(path) for path in paths])

    def _describe(self, paths: Sequence[AnyPath], found: "list[Footer]") -> None:
        self.paths, self._footers = paths, found
        #: Those of all columns of the first file.
        self.schema, self.stored = found[0].schema, found[0].stored
        self.types = found[0].types
        self.names = list(self.types)
        self._new: dict[str, str] = {}
        self.categories: Collection[str] = {
            n for n, kind in self.types.items() if pa.types.is_dictionary(kind)
        }
        #: The number of rows of all files.
        self.rows = sum(footer.rows for footer in found)
        for path, other in zip(paths, found, strict=True):
            if other.types != self.types:
                differing = sorted({name for name, _ in other.types.items() ^ self.types.items()})
                raise DataError(
                    f"{path} and {paths[0]} have different columns or types: "
                    f"{preview(differing)}. Files of one dataset must have one schema"
                )

    def rename(self, names: Mapping[str, str]) -> None:
        self._new |= names
        self.types = {names.get(name, name): kind for name, kind in self.types.items()}
        self.names = list(self.types)
        self.categories = {names.get(name, name) for name in self.categories}

    @property
    def all_names(self) -> list[str]:
        for path, found in zip(self.paths, self._footers, strict=True):
            if odd := {*found.schema.names} ^ {*self.schema.names}:
                wrong = f"{preview(sorted(odd))} is a column of one and not of the other"
                raise DataError(f"{path} and {self.paths[0]}: {wrong}")
        return list(self.schema.names)

    @property
    def size(self) -> int:
        return self.rows * len(self.names) * 12

    def leaves(self, stretch: Stretch | None = None) -> Iterator[Leaf]:
        yield from self._batches(self.names, block_rows(len(self.names)), stretch)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Leaf]:
        """Some columns, in batches of at most so many rows: of one row group, or of small ones."""
        for leaf in self._batches(names, rows):
            for name in names:
                check_texts(leaf.content.column(name), leaf.path, leaf.first, name)
            yield leaf

    def _batches(
        self, names: Sequence[str], rows: int, stretch: Stretch | None = None
    ) -> Iterator[Leaf]:
        paths = self.paths if stretch is None else [self.paths[stretch.file]]
        for path in paths:
            starts = stretch is None or not stretch.start
            with parquet_file(path) as file:
                groups, first = range(file.num_row_groups), 0
                if stretch is not None:
                    before = groups[: stretch.start]
                    first = sum(file.metadata.row_group(group).num_rows for group in before)
                    groups = groups[stretch.start : stretch.stop]
                for some in _together(file.metadata, groups, rows):
                    at: int | None = some[0]
                    own = self._own(names)
                    for batch in file.iter_batches(rows, row_groups=some, columns=own):
                        if self._new:
                            new = [self._new.get(name, name) for name in batch.schema.names]
                            batch = batch.rename_columns(new)
                        yield Leaf(path, starts, batch, at, first=first)
                        starts, at, first = False, None, first + len(batch)

    def _own(self, names: Sequence[str]) -> list[str]:
        """What files call columns."""
        own = {new: name for name, new in self._new.items()}
        return [own.get(name, name) for name in names]

    def pieces(self) -> Sequence[Stretch]:
        return [whole(number) for number in range(len(self.paths))]

    def edges(self, piece: Stretch) -> Array:
        return edges_of_all(self.leaves(piece))

    def leaves_at(self, edges: Sequence[Array]) -> Iterator[Leaf]:
        for path, found in zip(self.paths, edges, strict=True):
            yield from leaves_of_all(path, found)

    def scan(self, names: Sequence[str]) -> Iterator[tuple[Leaf, int, Any]]:
        first = 0
        for leaf in self.batches(names, _BLOCK_ROWS):
            first = 0 if leaf.starts else first
            yield leaf, first, leaf.content
            first += len(leaf.content)

    def records(self) -> Iterator[Any]:
        """All columns as they stand in the files, in the order of the first."""
        for path in self.paths:
            with parquet_file(path) as file:
                for batch in file.iter_batches():
                    columns = batch.select(self.schema.names).columns
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def index(self, name: str | None, digest: Any) -> Iterator[tuple[Stretch, Any]]:
        for number, path in enumerate(self.paths):
            with storage_errors("read", path), path.open("rb") as file:
                while part := file.read(_READ_BYTES):
                    digest.update(part)
            with parquet_file(path) as file:
                first = 0
                for group in range(file.num_row_groups):
                    if name is None:
                        rows = file.metadata.row_group(group).num_rows
                        yield Stretch(number, group, group + 1, rows), None
                        continue
                    own = self._own([name])
                    for batch in file.iter_batches(_BLOCK_ROWS, row_groups=[group], columns=own):
                        check_texts(batch.column(0), path, first, name)
                        column = self._plain(name, path, batch.column(0))
                        first += len(column)
                        yield Stretch(number, group, group + 1, len(column)), column

    def sniff(self, names: Sequence[str], plain: Callable[[str, Any], Any]) -> dict[str, str]:
        found = {name: _kind(self.types[name]) for name in names}
        texts = [n for n, kind in found.items() if kind == "text" and n not in self.categories]
        for leaf in self.batches(texts, _BLOCK_ROWS) if texts else ():
            some = {name: plain(name, leaf.content.column(name)) for name in texts}
            return found | {name: self.kind_of(column) for name, column in some.items()}
        return found

    def kind_of(self, texts: Any) -> str:
        # Texts may be dates and booleans, as in text files, but texts of digits are codes.
        found = kinds.kind_of(texts)
        return "text" if found.startswith("number") else found

    def parse(
        self, leaf: Leaf, expected: Mapping[str, str], others: Sequence[str]
    ) -> dict[str, Any]:
        found = {}
        for name in (*expected, *others):
            check_texts(leaf.content.column(name), leaf.path, leaf.first, name)
            found[name] = self._plain(name, leaf.path, leaf.content.column(name))
        return found

    def is_plain(self, name: str) -> bool:
        """Whether the type of a column is one of a table's."""
        return _kind(self.types[name]) != "unknown"

    def _plain(self, name: str, path: AnyPath, column: Any) -> Any:
        """A column of a file without dictionaries and views, if its type is one of a table's."""
        if not self.is_plain(name):
            raise DataError(
                f"{path}: column {name} is of type {self.types[name]}: expected numbers, texts, "
                f"dates or booleans. Leave it out: --drop {shlex.quote(name)}"
            )
        column = without_views(column)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def block_rows(columns: int) -> int:
    """Rows of a block of so many columns, at most."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // columns))


def _together(metadata: Any, groups: Iterable[int], rows: int) -> Iterator[list[int]]:
    """Consecutive row groups that have at most so many rows together, or one that has more."""
    some: list[int] = []
    count = 0
    for group in groups:
        count += (own := metadata.row_group(group).num_rows)
        if some and count > rows:
            yield some
            some, count = [], own
        some.append(group)
    if some:
        yield some


@contextmanager
def parquet_file(path: AnyPath) -> Iterator[Any]:
    """A Parquet file; what Arrow says of a damaged one becomes a ``DataError``."""
    what, advice = "is not a Parquet file, or damaged", ". Write or fetch it again"
    with (
        reading(str(path), what, pa.ArrowException, UnicodeDecodeError, advice=advice),
        ipc.native(path) as raw,
        pq.ParquetFile(raw, page_checksum_verification=True) as file,
    ):
        yield file


class Footer(NamedTuple):
    """What a file says of itself.

    ``types``: Those of columns by their names, but for the numbers of rows that pandas adds.
      Dictionaries are categories; of other values than texts only the schema that Arrow writes
      beside that of Parquet, ``stored``, tells.
    """

    schema: Any
    stored: bytes | None
    types: dict[str, Any]
    groups: int
    rows: int

    @classmethod
    def of(cls, path: AnyPath) -> Self:
        with parquet_file(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            written, stored = schema, (metadata.metadata or {}).get(ARROW_SCHEMA)
            if stored is not None:
                written = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(stored)))
            _check_footer(metadata, schema, written)
        types = _types(path, schema, written)
        return cls(schema, stored, types, metadata.num_row_groups, metadata.num_rows)


def _types(path: AnyPath, schema: Any, written: Any) -> dict[str, Any]:
    """The types of columns by their names; see :class:`Footer`."""
    if len(set(schema.names)) != len(schema.names):
        raise DataError(f"{path}: two columns have the same name in {', '.join(schema.names)}")
    types = dict(zip(schema.names, schema.types, strict=True))
    for field in written:
        if field.name in types and pa.types.is_dictionary(field.type):
            # How many categories a part has decides how it counts them, and nothing else.
            types[field.name] = pa.dictionary(pa.int32(), field.type.value_type)
    return {n: kind for n, kind in types.items() if not _PANDAS_INDEX.fullmatch(n)}


class MemoryTable(ParquetTable):
    """A ``pyarrow.Table``, as its Parquet file would be, which errors call what is ``shown``."""

    def __init__(self, rows: Any, shown: str) -> None:
        self._rows, path = rows, Path(shown)
        types = _types(path, rows.schema, rows.schema)
        self._describe([path], [Footer(rows.schema, None, types, 1, len(rows))])

    def over(self, rows: Any) -> Self:
        """The same table with other rows of the same schema."""
        found = copy.copy(self)
        found._rows = rows
        return found

    def _batches(
        self, names: Sequence[str], rows: int, stretch: Stretch | None = None
    ) -> Iterator[Leaf]:
        first = 0
        table = self._rows
        if table.schema.names != names or self._new:
            table = table.select(self._own(names)).rename_columns(list(names))
        for batch in table.to_batches(max_chunksize=rows):
            if len(batch):
                yield Leaf(self.paths[0], not first, batch, None if first else 0, first=first)
                first += len(batch)


def _check_footer(metadata: Any, schema: Any, written: Any) -> None:
    """Refuse a footer, which has no checksum, that says two things of one column.

    ``written``: The schema that Arrow had when it wrote the file.
    """
    for key, value in (metadata.metadata or {}).items():
        if value.startswith(_SCHEMA_START) and key != ARROW_SCHEMA:
            raise pa.ArrowInvalid(f"its footer has a schema under the name {key!r}")
    rows = sum(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    if rows != metadata.num_rows:
        raise pa.ArrowInvalid(f"its footer has {metadata.num_rows} rows, and {rows} in its groups")
    # Programs of Java may have renamed or removed columns since Arrow wrote them.
    if "parquet-mr" in metadata.created_by or len(schema) != len(written):
        return
    for own, other in zip(schema, written, strict=True):
        if (name := _name(other)) != own.name:
            raise pa.ArrowInvalid(f"its footer has two names for column {own.name}, also {name}")
        kinds = _stored_kind(own.type), _stored_kind(other.type)
        if kinds[1] not in ("unknown", kinds[0]):
            raise pa.ArrowInvalid(f"its footer has two types for column {own.name}: {kinds}")


def _name(field: Any) -> str:
    """The name of a field, whose bytes may be damaged."""
    try:
        return str(field.name)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def _stored_kind(kind: Any) -> str:
    """The kind of a column, without what Arrow's own schema alone knows of it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _kind(kind).partition(":")[0]


def _kind(kind: Any) -> str:
    if pa.types.is_dictionary(kind):
        return "unknown" if _kind(kind.value_type) == "unknown" else "text"
    if is_number(kind):
        return "number"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        zone = zone_of(kind)
        return "date:YYYY-MM-DD" + f"@{zone}" * bool(zone)
    if pa.types.is_null(kind):
        return "empty"
    return "text" if is_text(kind) else "unknown"
