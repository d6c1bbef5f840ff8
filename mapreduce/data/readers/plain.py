"""Blocks in which no field is missing, and each category is one of the training data."""

from typing import Any, Self

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Block
from mapreduce.data.fields import is_valid
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.readers.table import Leaf, Table
from mapreduce.data.recipes.fitted import FittedRecipe

#: The most rows of which each text is looked up by itself.
MOST_ROWS = 512


class PlainReader:
    """Reads small blocks of typed columns in one pass, for a model that knows their fields.

    A user need not know anything about these, and they have the features that
    :class:`mapreduce.data.readers.reader.Reader` gives them, which reads all other blocks.
    """

    def __init__(self, like: FittedRecipe) -> None:
        self._numbers, self._levels = like.numbers, like.levels

    @classmethod
    def of(cls, table: Table, like: FittedRecipe) -> Self | None:
        """The reader of a table's blocks for a model, if its columns are of such types."""
        if not isinstance(table, ParquetTable) or like.recipe.hash_bits is not None:
            return None
        are = (_is_plain(table.types[each.name], each.kind) for each in like.columns)
        return cls(like) if all(are) else None

    def block(self, leaf: Leaf) -> Block | None:
        """The fields of a block; texts are the places of their categories. None if a field is
        missing, unknown, or not finite, or there are many rows.
        """
        rows = leaf.content
        if not 0 < len(rows) <= MOST_ROWS:
            return None
        numbers, texts = np.empty((len(rows), len(self._numbers))), {}
        for place, name in enumerate(self._numbers):
            if (column := rows.column(name)).null_count:
                return None
            numbers[:, place] = column.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore", invalid="ignore"):
            # It is finite only if all numbers are.
            if not np.isfinite(numbers.sum()):
                return None
        for name, levels in self._levels.items():
            if not is_valid(column := rows.column(name)):
                return None
            places = [*map(levels.get, column.to_pylist())]
            if None in places:
                return None
            texts[name] = np.array(places)
        return Block(numbers, texts)


def _is_plain(kind: Any, wanted: str) -> bool:
    """Whether fields of an Arrow type are such of a kind as they are."""
    types = pa.types
    if wanted == "category":
        return bool(types.is_string(kind) or types.is_large_string(kind)) or (
            types.is_dictionary(kind) and _is_plain(kind.value_type, wanted)
        )
    if wanted == "boolean":
        return bool(types.is_boolean(kind))
    return wanted == "number" and bool(types.is_integer(kind) or types.is_floating(kind))
