"""Programs over the files of a table, whose tasks read no more of them than their own blocks.

An import by tasks runs four of them, one after another. ``find-blocks`` finds where the blocks of a
CSV file begin, although a line feed may be inside quotes (:mod:`mapreduce.data.readers.edges`).
``summarise`` makes a survey of all rows (:mod:`mapreduce.data.readers.survey`), from which the
shard of every row follows (:func:`mapreduce.data.order.cuts`). If the table has ids, ``name-rows``
writes them (:mod:`mapreduce.data.ids`). ``shuffle`` sends the rows of a shard to one reducer, which
sorts and writes them.
"""

import contextlib
import json
import secrets
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, path_of, stamp_of
from mapreduce.data.batch import Array
from mapreduce.data.readers import opening
from mapreduce.data.readers.libsvm import Lines
from mapreduce.data.readers.reading import Known, Reading
from mapreduce.data.readers.table import Leaf, Stretch, Table
from mapreduce.data.recipes import fitted
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.engine.executor import total
from mapreduce.engine.program import Program, Round
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import DataError, MissingInputError
from mapreduce.executors.chain import Chain
from mapreduce.models.fitted import recipe_in
from mapreduce.reduction.message import Message
from mapreduce.runs.execution import Execution

#: A description has not more of them.
_MOST_MARKS = 256
#: Blocks of a task, where there are many: 128 MiB, as much as a block of HDFS.
_TASK_BLOCKS = 32


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


class Blocks:
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


@contextlib.contextmanager
def name_files(files: Iterable[str], names: Iterable[str]) -> Iterator[None]:
    """Let errors call files as the user does: tasks work in folders of their own."""
    try:
        yield
    except (DataError, MissingInputError) as error:
        text = str(error)
        for path, name in zip(files, names, strict=True):
            text = text.replace(path, name)
        raise type(error)(text) from error


@dataclass(frozen=True)
class TableProgram(Program):
    """A program over the files of a table.

    ``files`` are their paths, ``shown`` how errors call them, and ``stamps`` what they were at
    first (:attr:`mapreduce.data.readers.reading.Reading.stamps`). ``format`` and ``recipe`` say how
    to read them. ``token`` is unlike that of any other job.
    """

    files: tuple[str, ...]
    shown: tuple[str, ...]
    stamps: tuple[str, ...]
    format: str
    recipe: str
    token: str

    #: What to do if a file has changed.
    again: ClassVar = "Run the command again"

    @cached_property
    def given(self) -> Recipe:
        """The recipe."""
        return Recipe.parse(json.loads(self.recipe))

    @cached_property
    def table(self) -> Table:
        """The table."""
        with self.as_shown():
            return opening.open_table([*map(path_of, self.files)], self.format, self.given)

    @contextlib.contextmanager
    def as_shown(self) -> Iterator[None]:
        """See :func:`name_files`."""
        with name_files(self.files, self.shown):
            yield

    def check_unchanged(self, number: int) -> None:
        """Raise a DataError if a file that was read is not what it was at first."""
        shown = self.shown[number]
        with storage_errors("read", shown):
            if stamp_of(path_of(self.files[number])) != self.stamps[number]:
                raise change_error(shown, self.again)


def change_error(shown: str, again: str) -> DataError:
    """The error for a file that is not what it was at first."""
    return DataError(f"{shown} changed while it was read. {again}, once nobody writes to it")


def described_by(reading: Reading | Lines) -> dict[str, Any]:
    """The fields of a :class:`TableProgram`."""
    table, content = reading.table, {**reading.recipe.to_json(), "task": reading.task}
    if table.format == "csv":
        # Tasks need not decide again.
        content["header"] = table.has_names
    return {
        "files": tuple(str(path.absolute()) for path in table.paths),
        "shown": tuple(map(str, table.paths)),
        "stamps": reading.stamps,
        "format": table.format,
        "recipe": json.dumps(content),
        "token": secrets.token_hex(8),
    }


def _joined(left: list[Array], right: list[Array]) -> list[Array]:
    return left + right


def _to_message(edges: list[Array]) -> Message:
    return Message({}, {str(number): one for number, one in enumerate(edges)})


def _from_message(message: Message) -> list[Array]:
    return [*message.arrays.values()]


@dataclass(frozen=True)
class FindBlocks(TableProgram, Sum):
    """Finds where the blocks of files begin; ``pieces`` is in how many the table has them looked
    for.
    """

    pieces: int

    name = "find-blocks"
    MONOID = Monoid("the places of blocks", _joined, _to_message, _from_message)

    def units(self, completed: int) -> int:
        return self.pieces

    def lift(self, now: Round, unit: int) -> list[Array]:
        piece = self.table.pieces()[unit]
        with self.as_shown():
            found = self.table.edges(piece)
        self.check_unchanged(piece.file)
        return [found]


def leaves_of(reading: Reading, execution: Execution) -> list[Leaf]:
    """The blocks of a table, without their content, which tasks have looked for."""
    table = reading.table
    pieces = len(table.pieces())
    program = FindBlocks(**described_by(reading), pieces=pieces)
    found: list[Array] = total(program, chain_for(reading, execution, pieces))
    return [*table.leaves_at(found)]


def chain_for(
    reading: Reading, execution: Execution, units: int, reducers: int = 0, *others: AnyPath
) -> Chain:
    """Jobs over a table's files and other paths: as many tasks as workers, or more for much."""
    paths = (*reading.table.paths, *others)
    execution.check_places(*paths)
    # As many for each worker.
    waves = -(-units // (_TASK_BLOCKS * execution.workers))
    tasks = min(units, waves * execution.workers)
    return Chain(execution.for_paths(*paths), tasks, min(reducers, execution.workers))


@dataclass(frozen=True)
class BlockProgram(TableProgram):
    """A program whose units are the blocks of a table.

    ``blocks``: How many there are. ``marks``: Where some begin. ``kinds``: Of the columns.
    ``like``: The file of the recipe to take as it is, or "".
    """

    blocks: int
    marks: tuple[Mark, ...]
    kinds: dict[str, str]
    like: str

    def units(self, completed: int) -> int:
        return self.blocks

    @cached_property
    def _blocks(self) -> Blocks:
        return Blocks(self.table, self.marks)

    def block(self, unit: int) -> Leaf:
        """A block, of a file that is what it was."""
        found = self._blocks[unit]
        self.check_unchanged(self.table.paths.index(found.path))
        return found

    def reading(self, fitted: FittedRecipe | None = None, *, detailed: bool = False) -> Reading:
        """How the table is read; ``fitted`` is its own recipe, if that is known."""
        known: Known = (self.kinds, fitted)
        with self.as_shown():
            like = recipe_at(self.like) if self.like else None
            return Reading(self.table, self.given, like, known, detailed=detailed)


def blocks_of(reading: Reading, leaves: Sequence[Leaf]) -> dict[str, Any]:
    """The other fields of a :class:`BlockProgram`."""
    blocks, marks = marks_of(leaves)
    like = reading.like.place if reading.like else ""
    assert bool(like) == (reading.like is not None), "tasks could not read the recipe"
    return {"blocks": blocks, "marks": marks, "kinds": reading.kinds, "like": like}


def recipe_at(place: str) -> FittedRecipe:
    """The recipe in a file of its own, which is text, or in that of a model."""
    path = path_of(place)
    with storage_errors("read", path):
        content = path.read_bytes()
    if b"\0" not in content[:8]:
        return fitted.load(content, path)
    recipe = recipe_in(content, path)
    assert recipe is not None, "another file than before"
    return recipe
