"""Parquet: columns of numbers, or one column of lists of numbers, and a column of labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mapreduce.data.columns import Column, misfit
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.fields import bad_value
from mapreduce.data.readers.files import check_source
from mapreduce.data.readers.tables import Roles, Wanted, assign, is_list, lists, takes_wanted
from mapreduce.errors import DataError, UsageError
from mapreduce.support.reading import reading

BLOCK_BYTES = 4 << 20


@takes_wanted()
def source(paths: list[Path], **options: Any) -> Source:
    """Rows of one or more Parquet files of one schema.

    Features are columns of numbers, or one column of lists of numbers. Those that are hashed may be
    numbers, texts or dates.

    Parameters
    ----------
    paths : list of Path
    **options
        The fields of :class:`mapreduce.data.readers.tables.Wanted`.

    Raises
    ------
    UsageError
        No files, or no such column.
    DataError
        A file is not a Parquet file, the files' schemas differ, or a column cannot be used as it is
        to be. While the rows are read: a file is damaged, or a value is missing or not finite; the
        message names file, row and column.
    """
    if not paths:
        raise UsageError("no source: name the Parquet files")
    schema = _schema(paths[0])
    for path in paths[1:]:
        _check_same(_schema(path), schema, path, paths[0])
    wanted = Wanted(**options)
    roles = assign(schema.names, paths[0], wanted)
    if roles.hash_bits is not None and not wanted.like:
        words = {i for i in roles.features if _is_word(schema.types[i])}
        roles = replace(roles, texts=roles.texts | words)
    _check_types(schema, roles, paths[0])
    columns_read = len(roles.features)
    width = roles.width(columns_read)
    if is_list(schema.types[roles.features[0]]):
        columns_read = width = _list_length(paths, roles)
    return Source(
        chunks=_chunks(paths, roles, columns_read),
        shape=(width,),
        scale=1.0,
        bytes=sum(_rows(path) for path in paths) * columns_read * (4 + roles.dtype.itemsize),
        description={
            "format": "parquet",
            "files": [path.name for path in paths],
            **roles.describe(),
        },
        columns=None if is_list(schema.types[roles.features[0]]) else roles.columns(),
    )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A Parquet file; what Arrow says of a damaged one becomes a ``DataError``."""
    check_source(path)
    what, advice = "is not a Parquet file, or damaged", ". Write or fetch it again"
    with (
        reading(str(path), what, pa.ArrowException, advice=advice),
        path.open("rb") as raw,
        pq.ParquetFile(raw, page_checksum_verification=True) as file,
    ):
        yield file


def _schema(path: Path) -> Any:
    with _opened(path) as file:
        schema = file.schema_arrow.remove_metadata()
    if len(set(schema.names)) != len(schema.names):
        raise DataError(f"{path}: two columns have the same name in {', '.join(schema.names)}")
    return schema


def _rows(path: Path) -> int:
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def _check_same(schema: Any, first: Any, path: Path, first_path: Path) -> None:
    columns, expected = (
        tuple(Column(field.name, str(field.type)) for field in one) for one in (schema, first)
    )
    if columns != expected:
        raise DataError(
            f"{path} and {first_path} have different columns: "
            f"{misfit(columns, expected) or 'their order'}. Files of one dataset must have one "
            f"schema"
        )


def _is_numeric(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_word(kind: Any) -> bool:
    """Whether a column is hashed as texts: those, and dates and times."""
    return _is_text(kind) or bool(pa.types.is_temporal(kind))


def _check_types(schema: Any, roles: Roles, path: Path) -> None:
    """Raise a ``DataError`` if columns cannot be what they are to be."""
    wrong: list[str] = []

    def refuse(column: int, expected: str) -> None:
        name, kind = roles.names[column], schema.types[column]
        wrong.append(f"column {name} is of type {kind}: expected {expected}")

    one = len(roles.features) == 1
    for i in roles.features:
        kind = schema.types[i]
        if roles.hash_bits is not None:
            if not (_is_numeric(kind) or _is_word(kind)):
                refuse(i, "numbers, texts or dates. Name the features with --columns")
        elif not (_is_numeric(kind) or (one and is_list(kind) and _is_numeric(kind.value_type))):
            advice = (
                "; name it alone with --columns, if it holds the features"
                if is_list(kind)
                else ". Name the features with --columns, others with --drop, or say --hash-bits"
            )
            refuse(i, f"numbers{advice}")
    if roles.weights is not None and not _is_numeric(schema.types[roles.weights]):
        refuse(roles.weights, "numbers as weights")
    if roles.label is not None:
        kind = schema.types[roles.label]
        if roles.task == "regression" and not _is_numeric(kind):
            refuse(roles.label, "numbers to be predicted")
        elif not (_is_numeric(kind) or _is_text(kind)):
            refuse(roles.label, "integers or strings as classes. Name another with --label")
    if wrong:
        raise DataError(f"{path}: " + "\n".join(wrong))


def _list_length(paths: list[Path], roles: Roles) -> int:
    """The length of the first list."""
    (column,) = roles.features
    for path in paths:
        with _opened(path) as file:
            for batch in file.iter_batches(batch_size=1, columns=[roles.names[column]]):
                name = roles.names[column]
                length: int = lists(batch.column(0), roles.dtype, path, 0, name).shape[1]
                if not length:
                    raise bad_value(path, 0, name, 0, "expected at least one number, found none")
                return length
    return 1


def _chunks(paths: list[Path], roles: Roles, width: int) -> Iterator[Rows]:
    others = [column for column in (roles.label, roles.weights) if column is not None]
    used = [roles.names[column] for column in sorted([*roles.features, *others])]
    batch_size = max(1, min(1 << 16, BLOCK_BYTES // (8 * width)))
    for path in paths:
        first = 0
        with _opened(path) as file:
            for batch in file.iter_batches(batch_size=batch_size, columns=used):
                rows = roles.rows(batch, path, first)
                if rows.features.shape[1] != roles.width(width):
                    found = f"expected {width} numbers, found {rows.features.shape[1]}"
                    raise bad_value(path, first, roles.names[roles.features[0]], 0, found)
                yield rows
                first += batch.num_rows
