"""Finds all unusable columns of a table at once, with the first unusable field of each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from mapreduce.data.readers.fields import bad_value, parsed, shown, texts
from mapreduce.data.readers.tables import Roles, is_list
from mapreduce.errors import DataError

MOST_COLUMNS = 20


@dataclass
class _Found:
    """The fields of a column: numbers, words, those that cannot be used, and where one is."""

    numbers: int = 0
    words: int = 0
    bad: int = 0
    first: str = ""


class Survey:
    """Looks through files for fields that are missing, or not numbers.

    Parameters
    ----------
    roles : Roles
        Texts and columns that are left out are not examined.
    paths : sequence of Path
    batches : callable
        ``batches(path)`` are the RecordBatches of a file.
    undecided : set of int
        Features that may be numbers or texts: the survey decides.

    Attributes
    ----------
    broken : DataError or None
        Why a file could not be read to its end, and neither could those that follow.
    """

    def __init__(
        self,
        roles: Roles,
        paths: Sequence[Path],
        batches: Callable[[Path], Iterable[Any]],
        undecided: frozenset[int] = frozenset(),
    ) -> None:
        self._roles = roles
        self._undecided = undecided
        others = [i for i in (roles.label, roles.weights) if i is not None]
        self._dtypes: dict[int, Any] = {
            **{i: roles.dtype for i in roles.features if i not in roles.texts},
            **dict.fromkeys(others, np.dtype(np.float64)),
        }
        self._found = {i: _Found() for i in self._dtypes}
        self.broken: DataError | None = None
        try:
            for path in paths:
                first = 0
                for batch in batches(path):
                    for i, found in self._found.items():
                        if not is_list(batch.schema.types[i]):
                            self._add(found, i, batch.column(i), path, first)
                    first += batch.num_rows
        except DataError as error:
            self.broken = error

    def _add(self, found: _Found, i: int, column: Any, path: Path, first: int) -> None:
        if i in self._roles.words:
            bad = pc.is_null(texts(column)).to_numpy(zero_copy_only=False)
        else:
            values, bad = parsed(column, self._dtypes[i])
            missing = np.isnan(values) & ~bad
            found.words += int((bad & np.isnan(values)).sum())
            found.numbers += int((~np.isnan(values)).sum())
            if self._roles.hash_bits is None or i not in self._roles.features:
                bad |= missing
        if bad.any() and not found.bad:
            row = int(bad.argmax())
            is_class = i in self._roles.words
            value = shown(None if is_class else column[row].as_py(), self._dtypes[i])
            kind = "label" if is_class else "finite number"
            expected = f"expected a {kind}, found {value}"
            found.first = str(bad_value(path, first, self._roles.names[i], row, expected))
        found.bad += int(bad.sum())

    @property
    def texts(self) -> frozenset[int]:
        """The undecided columns that do not consist mostly of numbers."""
        return frozenset(
            i for i in self._undecided if self._found[i].numbers <= self._found[i].words > 0
        )

    def error(self) -> DataError | None:
        """The error that lists all unusable columns; None if nothing is wrong."""
        roles = self._roles
        wrong = [i for i, found in self._found.items() if found.bad and i not in self.texts]
        if not wrong:
            return None
        lines = []
        for found in (self._found[i] for i in wrong[:MOST_COLUMNS]):
            lines.append(found.first + (f" ({found.bad:,} such fields)" if found.bad > 1 else ""))
        if len(wrong) > MOST_COLUMNS:
            lines.append(f"… ({len(wrong)} columns)")
        if columns := ",".join(roles.names[i] for i in wrong if i in roles.features):
            ways = ["correct the fields", f"leave the columns out with --drop {columns}"]
            if self._undecided:
                ways.insert(1, f"say --text {columns} if they are texts")
            if roles.hash_bits is None:
                ways.append("hash all features with --hash-bits, where numbers may be missing")
            lines.append(f"Either {', '.join(ways[:-1])}, or {ways[-1]}")
        return DataError("\n".join(lines))
