"""Tables whose features are one column of lists of numbers, which are taken as they are."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.paths import AnyPath
from mapreduce.data import fields
from mapreduce.data.batch import Array
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.readers.roles import Roles, roles
from mapreduce.data.readers.table import Table
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, UsageError

_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 1 << 16


def source(table: Table, recipe: Recipe) -> Source | None:
    """Rows whose features are the numbers of one column of lists; None if no feature is a list."""
    if not isinstance(table, ParquetTable) or not any(map(_is_list, table.types.values())):
        return None
    found = roles(table, recipe)
    path, wrong = table.paths[0], [n for n in found.features if _is_list(table.types[n])]
    if not wrong:
        return None
    if recipe.na:
        raise UsageError(f"--na: {path} has lists of numbers, in which none may be missing")
    kind = table.types[wrong[0]]
    if len(found.features) > 1 or not fields.is_number(kind.value_type):
        raise DataError(
            f"{path}: column {wrong[0]} is of type {kind}: expected numbers; name it alone with "
            f"--columns, if it holds the features"
        )
    dtype = np.dtype(recipe.dtype)
    length = _length(table, wrong[0], dtype)
    return Source(
        chunks=_chunks(table, recipe, found, length),
        shape=(length,),
        scale=1.0,
        bytes=table.rows * length * (4 + dtype.itemsize),
        description={"format": "parquet", "files": [path.name for path in table.paths]},
        typed=True,
    )


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _length(table: ParquetTable, name: str, dtype: np.dtype[Any]) -> int:
    """The length of the first list."""
    for leaf in table.batches([name], 1):
        length = arrays(leaf.content.column(0), dtype, leaf.path, 0, name).shape[1]
        if not length:
            raise fields.bad_value(
                leaf.path, 0, name, 0, "expected at least one number, found none"
            )
        return int(length)
    return 1


def _chunks(table: ParquetTable, recipe: Recipe, found: Roles, width: int) -> Iterator[Rows]:
    (name,), dtype = found.features, np.dtype(recipe.dtype)
    others = [column for column in found[:3] if column is not None]
    rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // (8 * width)))
    first = 0
    for leaf in table.batches([name, *others], rows):
        first = 0 if leaf.starts else first
        batch, place = leaf.content, (leaf.path, first)
        features = arrays(batch.column(name), dtype, *place, name)
        if features.shape[1] != width:
            wrong = f"expected {width} numbers, found {features.shape[1]}"
            raise fields.bad_value(*place, name, 0, wrong)
        labels = weights = None
        if found.label is not None:
            labels = (
                fields.numbers(batch.column(found.label), np.dtype(np.float64), *place, found.label)
                if recipe.task == "regression"
                else fields.classes(
                    fields.without_views(batch.column(found.label)), *place, found.label
                )
            )
        if found.weights is not None:
            column = batch.column(found.weights)
            weights = fields.numbers(column, np.dtype(np.float64), *place, found.weights)
        ids = None if found.id is None else fields.texts(batch.column(found.id))
        yield Rows(features, labels, weights, ids)
        first += batch.num_rows


def arrays(column: Any, dtype: np.dtype[Any], path: AnyPath, first: int, name: str) -> Array:
    """A column of lists of numbers, all of one length, as an array (rows, length).

    Raises DataError (a list is missing, or not as long as the first, or a number in it is missing
    or not finite).
    """
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise fields.bad_value(path, first, name, row, "expected a list of numbers, found nothing")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    length = int(lengths[0]) if len(lengths) else 0
    if (lengths != length).any():
        row = int((lengths != length).argmax())
        expected = f"expected {length} numbers, as before, found {lengths[row]}"
        raise fields.bad_value(path, first, name, row, expected)
    values = pc.list_flatten(column)
    found, bad = fields.parsed(values, dtype)
    bad |= np.isnan(found)
    if bad.any():
        at = int(bad.argmax())
        value = fields.field_text(values[at].as_py(), dtype)
        expected = f"expected finite numbers, found at place {at % length}: {value}"
        raise fields.bad_value(path, first, name, at // length, expected)
    return found.reshape(len(column), length)
