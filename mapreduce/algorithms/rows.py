"""Rows in fixed point: programs whose first round finds the extremes of the columns."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from hdfs_utils.paths import path_of
from kernels import dispatch
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.data.shards import Dataset
from mapreduce.data.slices import BatchSlices, Slices
from mapreduce.engine.program import Round, Stateful
from mapreduce.engine.sums import Arrays, ExactSum
from mapreduce.errors import DataError, UsageError

Kind = TypeVar("Kind", bound="RowsProgram")

#: Numbers beyond 2**LARGE have squares that no float64 holds, and so have their reciprocals.
LARGE = 500


class Scale(NamedTuple):
    """How numbers become whole ones.

    ``shift``: The middle (columns,) of each column. ``power``: Of 2 (columns,), above the largest
    distance from the middle. ``most``: The largest weight. ``rows``: How many there are.
    """

    shift: Array
    power: Array
    most: float
    rows: int

    @property
    def weight_power(self) -> int:
        """A power of 2 above the largest weight."""
        return int(np.frexp(self.most)[1])


@dataclass(frozen=True)
class RowsProgram(Stateful):
    """Rounds over the rows of a dataset, or of a batch in memory: see :meth:`over`.

    ``data``, ``sha256``: Folder of the dataset, and digest of its manifest.
    """

    data: str
    sha256: str

    #: Rows of a unit, at most.
    unit_rows: ClassVar[int]

    @classmethod
    def over(cls: type[Kind], rows: Dataset | Batch, **fields: Any) -> Kind:
        """The program over these rows."""
        if isinstance(rows, Dataset):
            return cls(str(rows.folder.absolute()), rows.manifest.sha256, **fields)
        found = cls("", "", **fields)
        vars(found).update(slices=BatchSlices(rows, cls.unit_rows))
        return found

    @cached_property
    def slices(self) -> Slices | BatchSlices:
        """The units."""
        return Slices(Dataset(path_of(self.data), self.sha256), self.unit_rows)

    def describe(self) -> str:
        if not self.data:
            raise UsageError(
                f"the program {self.name} has its rows in memory, where tasks of jobs do not find "
                f"them: expected the folder of a dataset"
            )
        return super().describe()

    def units(self, completed: int) -> int:
        return len(self.slices)

    def matrix(self, batch: Batch) -> Array:
        """The columns (rows, columns) of a batch, by default its features."""
        features = batch.features
        if isinstance(features, Csr):
            raise DataError(f"{self._place}: expected dense rows, found sparse ones")
        return np.ascontiguousarray(features if batch.scale == 1.0 else features * batch.scale)

    def unit(self, number: int) -> tuple[Array, Array | None]:
        """The columns of a unit, and the weights of its rows if there are any."""
        batch = self.slices[number]
        return self.matrix(batch), batch.weights

    @property
    def _place(self) -> str:
        return self.data or "the data"

    def _check_weights(self, weights: Array | None) -> None:
        if weights is not None and not (np.isfinite(weights) & (weights >= 0)).all():
            raise DataError(f"{self._place}: expected finite weights of 0 or more")

    def _not_finite(self, unit: int, rows: Array) -> DataError:
        """The error that names the first number of a unit that is not finite."""
        row, column = np.argwhere(~np.isfinite(rows))[0]
        first = self.slices.place(unit)[1]
        return DataError(
            f"{self._place}, row {first + row}, column {column}: expected finite numbers, "
            f"found {rows[row, column]}. Fill or drop what is missing or infinite (NaN)"
        )


@dataclass(frozen=True)
class OverRows(RowsProgram, ExactSum):
    """Sums over rows in fixed point."""

    #: So many that sums of numbers in fixed point are exact in float64.
    unit_rows = 2048
    LARGEST = frozenset({"top", "bottom", "most"})

    def first(self, blocks: int) -> Iterable[Arrays]:
        return [{}] * blocks

    def lift(self, now: Round, unit: int) -> Arrays:
        if now.completed:
            return self.contribution(now, unit)
        rows, weights = self.unit(unit)
        self._check_weights(weights)
        used = rows if weights is None else rows[weights > 0]
        low, high = dispatch.get("extremes")(used)
        if np.isnan(low).any():
            raise self._not_finite(unit, rows)
        most = 1.0 if weights is None else float(weights.max())
        return {
            "top": high,
            "bottom": -low,
            "most": np.array(most),
            "rows": np.array(len(rows), np.int64),
        }

    def finish(self, now: Round, number: int, total: Arrays) -> Arrays:
        if now.completed:
            return self.outcome(now, number, total)
        if not total["most"] > 0:
            raise DataError(f"{self._place}: all weights are 0. Expected some that are not")
        return dict(total)

    @abstractmethod
    def contribution(self, now: Round, unit: int) -> Arrays:
        """What a unit contributes to a later round."""

    @abstractmethod
    def outcome(self, now: Round, number: int, total: Arrays) -> Arrays:
        """The arrays of a block after a later round."""

    def scale(self, now: Round) -> Scale:
        """How numbers become whole ones, by the extremes of the first round.

        Raises DataError (numbers are too large or too small for it: it names their columns).
        """
        if not self._scales:
            high, low = (now.vector(name) for name in ("top", "bottom"))
            most, rows = (now.scalar(name) for name in ("most", "rows"))
            self._scales.append(scale_of(high, -low, most, rows))
        return self._scales[0]

    @cached_property
    def _scales(self) -> list[Scale]:
        """The scale, once it is known: no later round changes it."""
        return []


def scale_of(high: Array, low: Array, most: Array, rows: Array) -> Scale:
    """See :meth:`OverRows.scale`."""
    # Halves, since the difference may overflow.
    shift = low + (high / 2 - low / 2)
    reach = np.maximum(high - shift, shift - low)
    power = np.where(reach > 0, np.frexp(reach)[1], 0).astype(np.int64)
    if (odd := np.flatnonzero((abs(power) > LARGE) | (np.frexp(shift)[1] > LARGE))).size:
        at = int(odd[0])
        raise DataError(
            f"column {at}: its numbers are between {low[at]} and {high[at]}, and squares of these "
            f"or of their distances are no float64. Scale the column{_others(odd)}, or take its "
            f"logarithm"
        )
    return Scale(shift, power, float(most), int(rows))


def _others(columns: Array) -> str:
    return f", and {len(columns) - 1} more" if len(columns) > 1 else ""
