"""Whether labels are classes, or numbers to be predicted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.paths import AnyPath
from mapreduce.data.fields import is_text
from mapreduce.data.recipes import kinds
from mapreduce.errors import UsageError

#: Labels that are whole numbers are classes if there are not more of them, else it must be said.
MOST_CLASSES = 20


class Looks:
    """How labels look, whatever their order: as classes, or as numbers to be predicted."""

    def __init__(self) -> None:
        self._rows = self._words = 0
        self._whole: set[float] = set()
        self._has_fraction = self._has_type = False

    @classmethod
    def of(cls, seen: Sequence[Any]) -> "Looks":
        """Those of :attr:`seen`."""
        found = cls()
        found._rows, found._words, found._has_fraction, found._has_type, whole = seen
        found._whole = {*map(float, whole)}
        return found

    @property
    def seen(self) -> list[Any]:
        """What is known, as JSON can say it."""
        # JSON has no infinite number.
        whole = [*map(str, sorted(self._whole)[: MOST_CLASSES + 1])]
        return [self._rows, self._words, self._has_fraction, self._has_type, whole]

    def __add__(self, other: "Looks") -> "Looks":
        joined = zip(self.seen[:2], other.seen[:2], strict=True)
        either = zip(self.seen[2:4], other.seen[2:4], strict=True)
        whole = self._whole | other._whole
        return Looks.of([*map(sum, joined), *map(any, either), whole])

    def add(self, column: Any) -> None:
        """See some more labels."""
        if pa.types.is_boolean(column.type) or pa.types.is_temporal(column.type):
            self._has_type = True
            return
        counts = pc.value_counts(column.drop_null())
        rows, found = counts.field("counts").to_numpy(), counts.field("values")
        if is_text(column.type):
            values, _ = kinds.numbers(found)
            self._words += int(rows[np.isnan(values)].sum())
        else:
            values = found.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        self._rows += int(rows.sum())
        values = values[~np.isnan(values)]
        is_whole = values == np.floor(values)
        self._has_fraction |= not is_whole.all()
        self._whole.update(np.unique(values[is_whole])[: MOST_CLASSES + 1].tolist())

    @property
    def task(self) -> str | None:
        """What is to be learnt; None if numbers may be either."""
        if self._has_type or (self._words and 2 * self._words >= self._rows):
            return "classification"
        if self._has_fraction:
            return "regression"
        return "classification" if len(self._whole) <= MOST_CLASSES else None

    def decided(self, path: AnyPath, name: str) -> str:
        """What is to be learnt, or an error that asks for it, once all labels have been seen."""
        if self.task is None:
            raise UsageError(
                f"{path}: the column {name} holds more than {MOST_CLASSES} different whole "
                f"numbers: say --task regression if they are to be predicted as numbers, or --task "
                f"classification if each is a class"
            )
        return self.task


def task_of(column: Any, path: AnyPath, name: str) -> str:
    """Whether labels are classes or numbers, as all of them look."""
    looks = Looks()
    looks.add(column)
    return looks.decided(path, name)
