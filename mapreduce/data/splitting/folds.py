"""Folds of a table for cross-validation: which rows are in which, by their content or their ids.

A row's key is as in :mod:`mapreduce.data.splitting`. The rows of each class are dealt in the order
of their keys, and rows of one key come into one fold. So folds, and the order of the rows within
each, are the same for any order of the table's rows.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapreduce.data import splitting
from mapreduce.data.batch import Array
from mapreduce.data.readers.labels import Looks
from mapreduce.data.readers.table import Table
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.splitting.records import arrange
from mapreduce.errors import DataError
from mapreduce.support.words import count as count_of


class Folds(NamedTuple):
    """The rows of each fold in the order of their keys, and a digest of the table's content."""

    rows: list[Array]
    sha256: str

    def write(self, table: Table, folder: Path, suffix: str) -> None:
        """Copy each fold's records, in their order, to a file ``fold-N`` of a folder."""
        for number, rows in enumerate(self.rows, 1):
            arrange(table, folder / f"fold-{number}{suffix}", rows)


def task_of(table: Table, recipe: Recipe, label: str) -> str:
    """Whether labels are classes or numbers; what the recipe says, or how all of them look.

    Raises DataError (a label is missing, unless the recipe drops such rows), UsageError (they may
    be either).
    """
    looks = Looks()
    for leaf, first, batch in table.scan([label]):
        column = batch.column(label)
        if recipe.missing_label == "error":
            splitting.words_of(column, (leaf.path, first), label)
        looks.add(column)
    return recipe.task or looks.decided(table.paths[0], label)


def deal(
    table: Table, recipe: Recipe, label: str | None, count: int, seed: int, group: str | None = None
) -> Folds:
    """Deal the rows into folds, those of each class of a column ``label`` by themselves.

    Rows of one ``group`` come into one fold. Without one, ids decide where the recipe has them.

    Raises DataError (there are fewer different rows than folds, one class alone, a class all of
    whose rows would be in one fold, or two rows of one id).
    """
    decides, is_filled = group or recipe.id, recipe.missing_label == "drop"
    keys, codes, classes = splitting.keys_and_classes(
        table, None, decides, label, seed, recipe.decimal, fill=is_filled
    )
    content = keys
    if decides:
        content = splitting.keys_and_classes(table, None, None, None, seed, recipe.decimal)[0]
    path, folds = table.paths[0], np.empty(len(keys), np.int64)
    if label and len({*classes} - {""}) < 2:
        raise DataError(f"{path}: expected two classes or more in column {label}, found {classes}")
    # Rows of one key are dealt with the first of their classes, by name.
    values, places = np.unique(keys, return_inverse=True)
    if decides and not group and len(values) < len(keys):
        twice = np.flatnonzero(np.bincount(places)[places] > 1)
        one, other = np.flatnonzero(places == places[twice[0]])[:2] + 1
        raise DataError(
            f"{path}: rows {one:,} and {other:,} have one id in column {decides}: expected an id "
            f"for each row. To keep them in one fold, say --group {decides}, and not --id"
        )
    ranks = splitting.ranks_of_keys(keys, codes, classes)
    for rank in range(len(classes)):
        own = np.flatnonzero(ranks == rank)
        values, places_of, counts = np.unique(keys[own], return_inverse=True, return_counts=True)
        if len(own):
            # By the middle of the rows of one key; small classes do not all begin with one fold.
            middle = 2 * counts.cumsum() - counts
            dealt = (middle * count // (2 * len(own)) + int(values[0] % np.uint64(count))) % count
            folds[own] = dealt[places_of]
    same = f" of one {f'value in column {decides}' if decides else 'content'}"
    for code, name in enumerate(classes):
        own = np.flatnonzero(codes == code)
        if label and name and len({*folds[own].tolist()}) < 2:
            raise DataError(
                f"{path}: the class {name!r} would be in one fold alone: expected two different "
                f"rows of it or more, found {count_of(len(own), 'row')}{same * (len(own) > 1)}. "
                f"Leave the class out"
            )
    rows = [np.flatnonzero(folds == number) for number in range(count)]
    if not all(map(len, rows)):
        different = f"different values in column {decides}" if decides else "different rows"
        raise DataError(
            f"{path}: expected rows for each of {count} folds, found {len(np.unique(keys))} "
            f"{different}. Take fewer folds (--folds)"
        )
    rows = [each[np.lexsort((content[each], keys[each]))] for each in rows]
    return Folds(rows, hashlib.sha256(np.sort(content).tobytes()).hexdigest())
