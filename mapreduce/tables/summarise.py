"""What must be known of all rows of a table, as one job: what a recipe is fitted to, descriptions.

A map task parses blocks of the files, and reducers combine what they say along the canonical tree:
the same bits as those of an import, on any runner and for any number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from hdfs_utils.paths import AnyPath
from mapreduce.data.columns import column_of
from mapreduce.data.readers import opening, survey
from mapreduce.data.readers.reader import Reader
from mapreduce.data.readers.reading import Reading
from mapreduce.data.readers.roles import fit_names, roles
from mapreduce.data.readers.survey import Survey
from mapreduce.data.readers.table import Leaf
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.recipes.summary import Summary
from mapreduce.engine.executor import total
from mapreduce.engine.program import Round
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.runs.execution import Execution
from mapreduce.tables.tables import (
    BlockProgram,
    blocks_of,
    chain_for,
    described_by,
    leaves_of,
)


@dataclass(frozen=True)
class Summarise(BlockProgram, Sum):
    """Surveys blocks of files, and combines what they say along the canonical tree.

    ``looks``, ``digested``: See :meth:`mapreduce.data.readers.reading.Reading.survey`.
    ``detailed``: Whether it is for a description.
    """

    looks: bool
    detailed: bool
    digested: bool

    name = "summarise"
    MONOID = Monoid("the summary", survey.combine, survey.to_message, survey.from_message)

    @cached_property
    def _reading(self) -> Reading:
        return self.reading(detailed=self.detailed)

    def lift(self, now: Round, unit: int) -> Survey:
        with self.as_shown():
            block = self.block(unit)
            return self._reading.survey(block, unit, looks=self.looks, digested=self.digested)


class Surveyed(NamedTuple):
    """The blocks of a table, without their content, and what is known of all of them."""

    leaves: list[Leaf]
    survey: Survey


def surveyed(
    reading: Reading,
    execution: Execution,
    *,
    detailed: bool = False,
    digested: bool = False,
) -> Surveyed:
    """Survey all rows of a table by jobs, until the reading knows what it has to.

    Raises UsageError, DataError (see :meth:`mapreduce.data.readers.reading.Reading.settle`).
    """
    if reading.like is not None:
        execution.check_places(reading.like.place)
    leaves = leaves_of(reading, execution)
    while True:
        program = Summarise(
            **described_by(reading),
            **blocks_of(reading, leaves),
            looks=not reading.knows_task,
            detailed=detailed,
            digested=digested,
        )
        found: Survey = total(program, chain_for(reading, execution, len(leaves)))
        if reading.settle(found, leaves):
            return Surveyed(leaves, found)


def described(
    paths: Sequence[AnyPath],
    kind: str,
    recipe: Recipe,
    execution: Execution,
    label: str | None = None,
) -> tuple[Summary, dict[str, str], dict[str, Any]]:
    """The detailed statistics of all columns of files, their kinds, and, if there is a label, the
    columns of the first block: arrays of numbers, or Arrow's texts.

    Raises UsageError, DataError (see :func:`mapreduce.data.readers.opening.rows_of`; or no column
    is called as the label).
    """
    everything = replace(recipe, label=None, labelled=False, task=None, missing="mean")
    table = opening.open_table(list(paths), kind, everything)
    everything = fit_names(table, everything)
    if label is not None:
        label = column_of(label, table.names)
        # For its message.
        roles(table, replace(everything, label=label, labelled=True))
    reading = Reading(table, everything, detailed=True)
    total = surveyed(reading, execution, detailed=True).survey.summary
    if label is None:
        return total, reading.kinds, {}
    reader = Reader(table, everything, reading.roles, reading.kinds, fixed=True)
    block = reader.read(next(iter(table.leaves()))).block
    numbers = [name for name, one in reading.kinds.items() if one != "text"]
    columns = {name: block.numbers[:, place] for place, name in enumerate(numbers)}
    return total, reading.kinds, {**columns, **block.texts}
