"""What a table is: files of rows of the same columns, which are read block by block."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array
from mapreduce.errors import DataError


class Leaf(NamedTuple):
    """A block of rows that is not parsed yet.

    ``starts``: Whether it is the first of its file.
    ``content``: For the table that it is from.
    ``at``: Where it begins, as :class:`Stretch` says it; None if only those before tell.
    ``is_doubtful``: Whether quotes in it, or before it, seem to be left open.
    ``first``: Of Parquet, how many rows of its file come before.
    """

    path: AnyPath
    starts: bool
    content: Any
    at: int | None = None
    is_doubtful: bool = False
    first: int = 0


class Stretch(NamedTuple):
    """Blocks that lie together in a file, which can be read without those before.

    ``file``: The number of the file.
    ``start``, ``stop``: Where in it they begin and end: bytes of CSV, as it is unpacked, or row
      groups of Parquet.
    ``rows``: How many they have.
    """

    file: int
    start: int
    stop: int
    rows: int


class Misread(Exception):
    """A block whose fields are not of the kinds that were expected."""

    def __init__(self, found: dict[str, str]) -> None:
        self.kinds = found


class BadField(Exception):
    """A field, or a row if its column is empty, that cannot be used: its row in the block, and why.

    Rows count from 0 on.
    """

    def __init__(self, row: int, column: str, why: str) -> None:
        self.row, self.column, self.why = row, column, why

    def error(self, path: AnyPath | str, first: int) -> DataError:
        """The error for a block of a file that has so many rows before it."""
        where = f", column {self.column}" * bool(self.column)
        return DataError(f"{path}, row {first + self.row + 1}{where}: {self.why}")


class Table(Protocol):
    """Files of rows of the same columns, of which ``categories`` are declared to be such."""

    paths: Sequence[AnyPath]
    names: list[str]
    format: str
    has_names: bool
    is_typed: bool
    categories: Collection[str]

    def leaves(self, stretch: Stretch | None = None) -> Iterator[Leaf]:
        """The blocks, or those of a stretch, in order."""

    def pieces(self) -> Sequence[Stretch]:
        """Parts of the files, in order, each of which a task can look for the blocks in."""

    def edges(self, piece: Stretch) -> Array:
        """What tells, with that of all pieces, where blocks begin: an array (n, k) of int64."""

    def leaves_at(self, edges: Sequence[Array]) -> Iterator[Leaf]:
        """The blocks by the edges of all pieces, without their content.

        Raises DataError (a line is too long).
        """

    def scan(self, names: Sequence[str]) -> Iterator[tuple[Leaf, int, Any]]:
        """The blocks, the rows before each in its file, and record batches of columns as they are.

        Raises DataError (a row is malformed).
        """

    def records(self) -> Iterator[Any]:
        """The rows as they are to be copied, by block."""

    def index(self, name: str | None, digest: Any) -> Iterator[tuple[Stretch, Any]]:
        """The shortest stretches, in order, each with its column of that name, as it is.

        A large one comes several times, each time with some of its rows.

        ``digest``: A hash, which is updated with the content.

        Raises DataError (a row is malformed).
        """

    def parse(
        self, leaf: Leaf, expected: Mapping[str, str], others: Sequence[str]
    ) -> dict[str, Any]:
        """Columns of a block, Arrow arrays: those of the kinds expected, and others as they are.

        Raises Misread (a column of numbers holds something else).
        """

    def sniff(self, names: Sequence[str], plain: Callable[[str, Any], Any]) -> dict[str, str]:
        """The kinds of features in the first block, once ``plain`` has made them plain."""

    def kind_of(self, texts: Any) -> str:
        """The kind of a column of which these are some fields."""

    def rename(self, names: Mapping[str, str]) -> None:
        """Give columns new names."""

    @property
    def all_names(self) -> list[str]:
        """The names also of columns that are no part of the table, but are copied.

        Raises DataError (files differ in them).
        """

    @property
    def size(self) -> int:
        """An estimate of the size, unpacked."""


def check_rows(path: AnyPath, stretch: Stretch, first: int, rows: int) -> None:
    """Raise DataError if a stretch, before which a file has ``first`` rows, has others now."""
    if rows != stretch.rows:
        raise DataError(
            f"{path} changed while it was read: it had {stretch.rows:,} rows from row "
            f"{first + 1:,} on, and has {rows:,} there now. Run the command again, once nobody "
            f"writes to it"
        )


def whole(number: int) -> Stretch:
    """All of a file."""
    return Stretch(number, 0, sys.maxsize, 0)


def edges_of_all(leaves: Iterable[Leaf]) -> Array:
    """The edges of a file that one task reads: where each block begins, or -1, (n, 1)."""
    places = [-1 if leaf.at is None else leaf.at for leaf in leaves]
    return np.array(places, np.int64).reshape(-1, 1)


def leaves_of_all(path: AnyPath, edges: Array) -> Iterator[Leaf]:
    """The blocks that :func:`edges_of_all` has seen."""
    for number, at in enumerate(edges[:, 0].tolist()):
        yield Leaf(path, not number, None, None if at < 0 else at)


def preview(names: Sequence[str], most: int = 8) -> str:
    """Some names, for a message."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} columns)"
