"""Statistics of the columns of a table, as one job: what a recipe is fitted to, and descriptions.

A map task parses blocks of the files, and reducers combine what they say along the canonical tree:
the same bits as those of an import, on any runner and for any number of workers.
"""

import json
import secrets
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.data.importer import Source
from mapreduce.data.readers import opening, reading
from mapreduce.data.readers.reader import Reader, expected
from mapreduce.data.readers.roles import Roles, roles
from mapreduce.data.readers.table import BadField, Leaf, Misread, Stretch, Table
from mapreduce.data.recipes import summary
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.recipes.summary import Summary
from mapreduce.engine.executor import total
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import DataError
from mapreduce.executors.chain import Chain
from mapreduce.runs.execution import Execution

#: A description has not more of them.
_MOST_MARKS = 256


class Mark(NamedTuple):
    """A block from which a table can be read on: its number, its file's, and where it begins."""

    block: int
    file: int
    at: int


def marks_of(leaves: Iterable[Leaf]) -> tuple[int, tuple[Mark, ...]]:
    """The number of blocks, and marks at equal distances, at most 256."""
    found: list[Mark] = []
    count, file, step = 0, -1, 1
    for leaf in leaves:
        file += leaf.starts
        if leaf.at is not None and not count % step:
            found.append(Mark(count, file, leaf.at))
        if len(found) > _MOST_MARKS:
            found, step = found[::2], 2 * step
        count += 1
    return count, tuple(found)


class _Blocks:
    """The blocks of a table by number: read from a mark on, and parsed by who asks for them."""

    def __init__(self, table: Table, marks: Sequence[Mark]) -> None:
        self._table, self._marks = table, marks
        self._rest: Iterator[tuple[int, Leaf]] = iter(())
        self._next = 0

    def __getitem__(self, wanted: int) -> Leaf:
        place = bisect_right(self._marks, wanted, key=lambda mark: mark.block)
        mark = self._marks[place - 1] if place else None
        if not self._next or wanted < self._next or (mark and mark.block > self._next):
            self._rest = enumerate(self._from(mark), mark.block if mark else 0)
        self._next = wanted + 1
        return next(block for number, block in self._rest if number == wanted)

    def _from(self, mark: Mark | None) -> Iterator[Leaf]:
        if mark is None:
            yield from self._table.leaves()
            return
        for file in range(mark.file, len(self._table.paths)):
            at = mark.at if file == mark.file else 0
            yield from self._table.leaves(Stretch(file, at, sys.maxsize, 0))


@dataclass(frozen=True)
class Summarise(Sum):
    """Summarises blocks of files, and combines the summaries along the canonical tree.

    ``files`` are their paths, and ``shown`` how errors call them. What follows makes a
    :class:`Reader`. ``blocks`` is how many blocks the files have, and ``marks`` where some begin.
    ``token`` is unlike that of any other job, since files may change.
    """

    files: tuple[str, ...]
    shown: tuple[str, ...]
    format: str
    recipe: str
    roles: Roles
    kinds: dict[str, str]
    detailed: bool
    blocks: int
    marks: tuple[Mark, ...]
    token: str

    name = "summarise"
    MONOID = Monoid("the summary", summary.combine, summary.to_message, summary.from_message)

    @classmethod
    def of(cls, reader: Reader) -> "Summarise":
        """The summary of all columns that a reader reads."""
        table = reader.table
        blocks, marks = marks_of(table.leaves())
        return cls(
            files=tuple(str(path.absolute()) for path in table.paths),
            shown=tuple(str(path) for path in table.paths),
            format=table.format,
            recipe=json.dumps(reader.recipe.to_json()),
            roles=reader.roles,
            kinds=reader.kinds,
            detailed=reader.detailed,
            blocks=blocks,
            marks=marks,
            token=secrets.token_hex(8),
        )

    @cached_property
    def _reader(self) -> Reader:
        paths = [path_of(path) for path in self.files]
        recipe = Recipe.parse(json.loads(self.recipe))
        table = opening.open_table(paths, self.format, recipe)
        return Reader(table, recipe, self.roles, self.kinds, detailed=self.detailed)

    @cached_property
    def _blocks(self) -> _Blocks:
        return _Blocks(self._reader.table, self.marks)

    def units(self, completed: int) -> int:
        return self.blocks

    def lift(self, completed: int, unit: int) -> Summary:
        block = self._blocks[unit]
        try:
            found = self._reader.read(block).summary
            assert found is not None, "a reader whose kinds may change summarises"
            return found
        except Misread as error:
            return Summary(0, error.kinds, {})
        except BadField as error:
            shown = self.shown[self._reader.table.paths.index(block.path)]
            wrong = error.error(shown, self._rows_before(unit, block))
            if self._reader.is_sure(error.column):
                raise wrong from error
            return Summary(0, self._reader.kinds, {}, str(wrong))

    def _rows_before(self, unit: int, block: Leaf) -> int:
        """How many rows the file of a block has before it."""
        table, first = self._reader.table, 0
        if not block.starts:
            for _, before, batch in islice(table.scan(table.names[:1]), unit):
                first = before + len(batch)
        return first


def summarise(reader: Reader, execution: Execution) -> tuple[Summary, dict[str, str]]:
    """The statistics of all columns that a reader reads, and their kinds."""
    table = reader.table
    execution.check_places(*table.paths)
    execution = execution.for_paths(*table.paths)
    program = Summarise.of(reader)
    while True:
        found: Summary = total(program, Chain(execution))
        if found.columns:
            return found, program.kinds
        if found.kinds == program.kinds:
            raise DataError(found.wrong)
        program = replace(program, kinds=found.kinds)


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
    if label is not None:
        # For its message.
        roles(table, replace(everything, label=label, labelled=True))
    features = Roles(None, None, None, tuple(table.names))
    kinds = expected(table, everything, features)
    reader = Reader(table, everything, features, kinds, detailed=True)
    total, kinds = summarise(reader, execution)
    if label is None:
        return total, kinds, {}
    block = replace(reader, kinds=kinds, fixed=True).read(next(iter(table.leaves()))).block
    numbers = [name for name, one in kinds.items() if one != "text"]
    columns = {name: block.numbers[:, place] for place, name in enumerate(numbers)}
    return total, kinds, {**columns, **block.texts}


def source(paths: Sequence[AnyPath], kind: str, recipe: Recipe, execution: Execution) -> Source:
    """The rows of files, whose recipe is fitted by a job; see :func:`described` for errors."""
    table = opening.open_table(list(paths), kind, recipe)
    found = roles(table, recipe)
    reader = Reader(table, recipe, found, expected(table, recipe, found))
    return reading.source(table, recipe, known=summarise(reader, execution))
