"""Where the records of CSV end: a field in quotes may go over several lines."""

import codecs
import csv as csv_module
from itertools import pairwise

import numpy as np

from hdfs_utils.paths import AnyPath
from kernels import dispatch
from kernels.records import CR, FIELD, LF, PLAIN, RECORD, is_quoted
from mapreduce.data.batch import Array
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError

LONGEST_LINE = 64 << 20
BOM = b"\xef\xbb\xbf"

#: Encodings in which a byte from 0x40 on may be the second one of a sign.
_DOUBLE = {"shift_jis", "cp932", "shift_jis_2004", "shift_jisx0213", "big5", "big5hkscs", "cp950"}
_DOUBLE |= {"gbk", "gb18030", "cp949", "johab", "hz"}


def fields_of(record: str, recipe: Recipe) -> list[str]:
    """The fields of a record, without blanks around them; errors are those of ``csv.Error``."""
    # The limit is the process's. What a quote left open takes for a field is longer than it.
    csv_module.field_size_limit(max(csv_module.field_size_limit(), len(record)))
    reader = csv_module.reader([record], delimiter=recipe.delimiter, quotechar=recipe.quote)
    return [field.strip() for field in next(reader, [])]


class RecordEnds:
    """Finds the ends of records in the parts of a text, one after the other.

    ``recipe``: Its ``delimiter`` and ``quote``. ``end``: The byte at the end of a record.
    ``state``: One of :mod:`kernels.records`, in which the first byte is read; later, the next one.

    ``number``: Records that :meth:`of` has seen the end of. ``wrong``: The number of records before
    one in which quotes were left open as it seems, or None: a text over several lines goes on after
    them.
    """

    def __init__(self, recipe: Recipe, end: bytes = b"\n", state: int = RECORD) -> None:
        self._delimiter, self._quote = recipe.delimiter.encode(), recipe.quote.encode()
        self._end = end
        # Half of a sign may look like a delimiter: then each line is taken for a record.
        is_double = codecs.lookup(recipe.encoding).name in _DOUBLE
        self._has_lines = is_double and max(recipe.delimiter, recipe.quote) >= "@"
        self.state, self._has_ended = state, True
        self.number = 0
        self.wrong: int | None = None

    @property
    def is_between(self) -> bool:
        """Whether no record is begun."""
        return self.state == RECORD and self._has_ended

    @property
    def is_open(self) -> bool:
        """Whether quotes are open."""
        return is_quoted(self.state)

    def first(self, part: bytes) -> int:
        """The place in the next part behind the first end of a record; 0 if there is none."""
        if self._has_quotes(part):
            found = self.of(part)
            return int(found[0]) if len(found) else 0
        self._skip(part)
        return part.find(self._end) + 1

    def _has_quotes(self, part: bytes) -> bool:
        # Most files have none, and lines are found ten times as fast.
        return not self._has_lines and (self.state > PLAIN or self._quote in part)

    def _skip(self, part: bytes) -> None:
        self._has_ended = part.endswith(self._end)
        if last := part[-1:]:
            is_field = last == self._delimiter
            self.state = FIELD if is_field else RECORD if last[0] in (LF, CR) else PLAIN

    def of(self, part: bytes) -> Array:
        """The places (n,) in the next part behind the ends of records."""
        if not self._has_quotes(part):
            found: Array = np.flatnonzero(np.frombuffer(part, np.uint8) == self._end[0]) + 1
            self._skip(part)
        else:
            self._has_ended = part.endswith(self._end)
            signs = self._delimiter[0], self._quote[0], self._end[0]
            found, self.state, wrong = dispatch.get("record_ends")(part, *signs, self.state)
            if wrong >= 0 and self.wrong is None:
                self.wrong = self.number + wrong
        self.number += len(found)
        return found


def row_ends(content: bytes, recipe: Recipe) -> Array:
    """The places (n,) behind the ends of rows, whichever line end each has."""
    ends = RecordEnds(recipe).of(content)
    if b"\r" in content:
        found = RecordEnds(recipe, b"\r").of(content)
        follows = np.frombuffer(content + b"\0", np.uint8)[found]
        ends = np.union1d(ends, found[follows != LF])
    return ends


def rows_in(content: bytes, recipe: Recipe) -> int:
    """How many rows, which are no empty lines, end in a text."""
    edges = [0, *row_ends(content, recipe).tolist()]
    return sum(bool(content[a:b].strip(b"\r\n")) for a, b in pairwise(edges))


def check_line(path: AnyPath, size: int, is_open: bool = False) -> None:
    """Raise a DataError for a line of more bytes than memory should hold.

    ``is_open``: Whether it is a field in quotes that does not end.
    """
    if size > LONGEST_LINE:
        what, advice = "a line", "Is it a text file, each of whose rows ends with a line feed?"
        if is_open:
            what, advice = "a field in quotes", "Is a quote left open? Close it, or say --quote"
        raise DataError(f"{path}: {what} is longer than {LONGEST_LINE >> 20} MiB. {advice}")
