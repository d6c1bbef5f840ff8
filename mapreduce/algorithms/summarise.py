"""Statistics of the columns of a table, as one job: what a recipe is fitted to, and descriptions.

A map task parses blocks of the files, and reducers combine what they say along the canonical tree:
the same bits as those of an import, on any runner and for any number of workers.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.algorithms.fold_job import FoldJob, Monoid, run_fold
from mapreduce.data.importer import Source
from mapreduce.data.readers import opening, tables
from mapreduce.data.readers.tables import BadField, Leaf, Misread, Reader, Roles
from mapreduce.data.recipes import summary
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.recipes.summary import Summary
from mapreduce.errors import DataError
from mapreduce.runs.execution import Execution

SUMMARIES = Monoid("the summary", summary.combine, summary.to_message, summary.from_message)


class SummariseJob(FoldJob):
    """Summarises blocks of files, and combines the summaries along the canonical tree."""

    MONOID = SUMMARIES

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--table", default="{}", help="files, recipe and kinds of columns")

    @cached_property
    def _given(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.options.table)
        return found

    @cached_property
    def _reader(self) -> Reader:
        given = self._given
        paths, recipe = [path_of(path) for path in given["files"]], Recipe.parse(given["recipe"])
        table = opening.open_table(paths, given["format"], recipe)
        roles = Roles(*given["roles"])
        return Reader(table, recipe, roles, given["kinds"], detailed=given["detailed"])

    @property
    def leaves(self) -> int:
        leaves: int = self._given["leaves"]
        return leaves

    @cached_property
    def _blocks(self) -> Iterator[tuple[int, Leaf]]:
        return enumerate(self._reader.table.leaves())

    def lift(self, leaf: int) -> Summary:
        # Blocks come in order: those of other tasks are read, and not parsed.
        block = next(block for number, block in self._blocks if number == leaf)
        try:
            found = self._reader.read(block).summary
            assert found is not None, "a reader whose kinds may change summarises"
            return found
        except Misread as error:
            return Summary(0, error.kinds, {})
        except BadField as error:
            shown = self._given["shown"][self._reader.table.paths.index(block.path)]
            place = f"row {error.row + 1} of block {leaf + 1}"
            wrong = f"{shown}, column {error.column}: {error.why} ({place})"
            if self._reader.is_sure(error.column):
                raise DataError(wrong) from error
            return Summary(0, self._reader.kinds, {}, wrong)


def summarise(reader: Reader, execution: Execution) -> tuple[Summary, dict[str, str]]:
    """The statistics of all columns that a reader reads, and their kinds.

    Raises DataError (a field cannot be used), StepFailedException, GradreduceError (as the runner
    does).
    """
    table = reader.table
    execution.check_places(*table.paths)
    execution = execution.for_paths(*table.paths)
    given: dict[str, Any] = {
        "files": [str(path.absolute()) for path in table.paths],
        "shown": [str(path) for path in table.paths],
        "format": table.format,
        "recipe": reader.recipe.to_json(),
        "roles": reader.roles,
        "detailed": reader.detailed,
        "leaves": sum(1 for _ in table.leaves()),
    }
    found = reader.kinds
    while True:
        options = {"--table": json.dumps({**given, "kinds": found})}
        total: Summary = run_fold(SummariseJob, options, given["leaves"], execution)
        if total.columns:
            return total, found
        if total.kinds == found:
            raise DataError(total.wrong)
        found = total.kinds


def described(
    paths: Sequence[AnyPath], kind: str, recipe: Recipe, execution: Execution
) -> tuple[Summary, dict[str, str]]:
    """The detailed statistics of all columns of files, and their kinds.

    Raises UsageError, DataError (see :func:`mapreduce.data.readers.csv.source`).
    """
    everything = replace(recipe, label=None, labelled=False, task=None, missing="mean")
    table = opening.open_table(list(paths), kind, everything)
    roles = Roles(None, None, None, tuple(table.names))
    kinds = tables.expected(table, everything, roles)
    return summarise(Reader(table, everything, roles, kinds, detailed=True), execution)


def first_rows(
    paths: Sequence[AnyPath], kind: str, recipe: Recipe, kinds: dict[str, str], label: str
) -> dict[str, Any]:
    """The columns of the first block: arrays of numbers, or Arrow's texts.

    Raises UsageError (there is no column of labels of this name).
    """
    everything = replace(recipe, label=None, labelled=False, task=None, missing="mean")
    table = opening.open_table(list(paths), kind, everything)
    # For its message.
    tables.roles(table, replace(everything, label=label, labelled=True))
    reader = Reader(table, everything, Roles(None, None, None, tuple(kinds)), kinds, fixed=True)
    block = reader.read(next(iter(table.leaves()))).block
    numbers = [name for name, one in kinds.items() if one != "text"]
    columns = {name: block.numbers[:, place] for place, name in enumerate(numbers)}
    return {**columns, **block.texts}


def source(paths: Sequence[AnyPath], kind: str, recipe: Recipe, execution: Execution) -> Source:
    """The rows of files, whose recipe is fitted by a job; see :func:`described` for errors."""
    table = opening.open_table(list(paths), kind, recipe)
    roles = tables.roles(table, recipe)
    reader = Reader(table, recipe, roles, tables.expected(table, recipe, roles))
    return tables.source(table, recipe, known=summarise(reader, execution))


if __name__ == "__main__":
    SummariseJob.run()
