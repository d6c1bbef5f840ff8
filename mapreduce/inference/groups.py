"""The metrics of each value of a column: tallies of groups of rows, by their numbers.

A dataset knows its features alone, so the column is read from the file of the table: each row of
the source gets the number of its value, a byte, which tasks read.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.paths import AnyPath, path_of, stamp_of
from hdfs_utils.publish import put_if_absent
from mapreduce.data import csr, fields
from mapreduce.data.batch import Array
from mapreduce.data.columns import column_of
from mapreduce.data.readers import TABLES, opening
from mapreduce.data.readers.roles import fit_names
from mapreduce.data.readers.table import preview
from mapreduce.data.shards import Dataset
from mapreduce.data.slices import Slices
from mapreduce.engine.executor import total
from mapreduce.engine.program import Round
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import MissingInputError, UsageError
from mapreduce.inference import raw, report
from mapreduce.inference.base import ModelProgram
from mapreduce.inference.metrics import Report
from mapreduce.inference.predictor import SLICE_ROWS
from mapreduce.inference.report import Tally
from mapreduce.inference.request import Request
from mapreduce.reduction.message import Message, decode, encode
from mapreduce.support.suggest import did_you_mean
from mapreduce.tables.tables import change_error

#: Most values of the column, without the missing one.
MOST_GROUPS = 100
_UNIT_ROWS = 32 * SLICE_ROWS

#: Tallies by the number of the value.
Tallies = dict[int, Tally]


def _combine(left: Tallies, right: Tallies) -> Tallies:
    both = {number: left[number] + right[number] for number in left.keys() & right.keys()}
    found = dict(sorted({**left, **right, **both}.items()))
    # All curves together have no more bins than those of one report.
    while sum(len(tally.curves.keys) for tally in found.values()) > report.MOST_BINS:
        longest = max(found, key=lambda number: len(found[number].curves.keys))
        found[longest] = found[longest].coarser()
    return found


def _to_message(tallies: Tallies) -> Message:
    frames = {str(n): encode(report.to_message(tally)) for n, tally in tallies.items()}
    return Message({}, {n: np.frombuffer(frame, np.uint8) for n, frame in frames.items()})


def _from_message(message: Message) -> Tallies:
    frames = message.arrays.items()
    return {int(n): report.from_message(decode(frame.tobytes())) for n, frame in frames}


@dataclass(frozen=True)
class GroupTallies(ModelProgram, Sum):
    """Tallies the rows of each value of a column; ``codes`` is the file of :class:`Groups`."""

    codes: str

    name = "report-groups"
    MONOID = Monoid("the groups", _combine, _to_message, _from_message)

    @cached_property
    def _codes(self) -> Array:
        return np.frombuffer(path_of(self.codes).read_bytes(), np.uint8)

    @property
    def slices(self) -> Slices:
        """The data in slices that are long enough for some rows of each group."""
        return Slices(self.dataset, _UNIT_ROWS)

    def units(self, completed: int) -> int:
        return len(self.slices)

    def lift(self, now: Round, unit: int) -> Tallies:
        shard, start, stop = self.slices.place(unit)
        rows = self.inference.batch(shard, start, stop)
        codes = self._codes[self.dataset.shard(shard).source_rows(start, stop)]
        found = {}
        for code in np.unique(codes).tolist():
            places = np.flatnonzero(codes == code)
            pieces = np.split(places, range(SLICE_ROWS, len(places), SLICE_ROWS))
            tallies = (report.tally_of(self.inference, csr.pick(rows, at)) for at in pieces)
            found[code] = reduce(Tally.__add__, tallies)
        return found


@dataclass(frozen=True)
class Groups:
    """The values of a column of a file.

    ``column``: Its name.
    ``values``: As they stand in the file, in the order of their numbers; None if one is missing.
    ``codes``: A file of the number of each row's value, a byte.
    ``drop``: The column, which the model need not know.
    ``data``, ``stamp``: The file, and its :func:`hdfs_utils.paths.stamp_of` before it was read.
    """

    column: str
    values: tuple[str | None, ...]
    codes: AnyPath
    drop: tuple[str, ...]
    data: AnyPath
    stamp: str

    def add_to(self, found: Report, request: Request) -> Report:
        """A report on the dataset that the file became, with a report on each group.

        Raises DataError (the file has changed meanwhile).
        """
        if stamp_of(self.data) != self.stamp:
            raise change_error(str(self.data), "Evaluate it again")
        program = GroupTallies.of(request, codes=str(self.codes))
        tallies: Tallies = total(program, request.executor(self.codes))
        is_weighted = Dataset(request.data).manifest.weighted
        # Of rows without any weight, nothing is known.
        reports = {
            self.values[number]: report.report_of(tally, request.fitted, is_weighted)
            for number, tally in tallies.items()
            if tally.score.weight
        }
        ordered = sorted(reports.items(), key=lambda one: (-one[1].weight, one[0] or ""))
        return replace(found, by=self.column, groups=dict(ordered))


@contextlib.contextmanager
def of_file(request: Request, column: str) -> Iterator[Groups]:
    """The values of a column of a table's file, which this process reads.

    Raises
    ------
    UsageError
        ``data`` is not such a file, has no such column, or one of too many values.
    """
    data = request.data
    if not data.exists():
        raise MissingInputError(f"{data} does not exist")
    kind = opening.format_of([data]) if data.is_file() else None
    if kind is None or kind not in TABLES:
        raise UsageError(
            f"--by {column}: expected the file of a table, CSV or Parquet, which has the columns "
            f"as they were; {data} is another one. Name the file that it was imported from"
        )
    like, stamp = raw.recipe_of(request), stamp_of(data)
    _, recipe = opening.request([data], request.reading, like, kind)
    table = opening.open_table([data], kind, recipe, like)
    fit_names(table, recipe, like)
    column = column_of(column, table.names)
    if column not in table.names:
        raise UsageError(
            f"--by {column}: {data} has no such column; it has {preview(table.names)}."
            f"{did_you_mean(column, table.names)}"
        )
    numbers: dict[str | None, int] = {}
    codes = [
        _codes(block.column(0), recipe.na, numbers, column) for *_, block in table.scan([column])
    ]
    # Features, labels and weights are read in any case, and others left out where some are named.
    is_known = like.recipe.only or column in (one.name for one in like.columns)
    drop = () if is_known else (column,)
    with request.scratch() as place:
        place.mkdir()
        put_if_absent(place / "codes", *(part.tobytes() for part in codes))
        yield Groups(column, tuple(numbers), place / "codes", drop, data, stamp)


def _codes(column: Any, na: tuple[str, ...], numbers: dict[str | None, int], name: str) -> Array:
    """The number of each field's value, array (rows,), uint8; new values get the next numbers."""
    try:
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        found = fields.texts(column, na).dictionary_encode(null_encoding="encode")
    except pa.ArrowException:
        raise UsageError(
            f"--by {name}: expected a column of texts, numbers, dates or booleans, found the type "
            f"{column.type}"
        ) from None
    own = [numbers.setdefault(value, len(numbers)) for value in found.dictionary.to_pylist()]
    if len(numbers.keys() - {None}) > MOST_GROUPS:
        some = ", ".join(repr(value) for value in [*numbers][:3])
        raise UsageError(
            f"--by {name}: expected at most {MOST_GROUPS} different values, found more: {some}, …. "
            f"Name a column of few, or add one to the file that puts values together"
        )
    codes: Array = np.array(own, np.uint8)[found.indices.to_numpy(zero_copy_only=False)]
    return codes
