"""libsvm, also called svmlight: a line for each example, ``label index:value ... # comment``.

The format of SVM-light (T. Joachims) and LIBSVM (C.-C. Chang and C.-J. Lin). Blocks of whole lines
are compared with a pattern and their numbers are read all at once; if anything is wrong with a
block, its lines are examined one by one for the error to report.
"""

import hashlib
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from hdfs_utils.paths import AnyPath, stamp_of
from mapreduce.data import csr
from mapreduce.data.batch import Array
from mapreduce.data.importer import Finished, Rows, Source
from mapreduce.data.readers.files import check_sources, open_stretch, unpacked_size
from mapreduce.data.readers.table import BadField, Stretch, check_rows
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20
MOST_LINE_BYTES = 256 << 20
MOST_FEATURES = 2**31 - 1
_INDEX = re.compile(rb"([0-9]{1,10}):")
_ROW = re.compile(rb"(?m)^[ \t\r\f\v]*\S")
_COMMENT = re.compile(rb"#[^\n]*")
_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_IS_NUMBER = re.compile(_NUMBER)
_NAMED = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
# A first word that is no number, or another one that is no index and number. Without possessive
# quantifiers: before Python 3.11.5 they may match what they should not (its issue 106052).
_WRONG = re.compile(
    rb"(?m)^[ \t\r\f\v]*(?=\S)(?!N(?!\S))|(?<=\S)[ \t\r\f\v]+(?=\S)(?![0-9]+:N(?!\S))".replace(
        b"N", _NUMBER
    )
)


def source(
    paths: Sequence[AnyPath],
    task: str | None,
    dtype: str,
    features: int | None = None,
    zero_based: bool = False,
) -> Source:
    """Rows of one or more libsvm files, gzipped or not, kept sparse.

    ``task`` ("classification", "regression", None): Labels are integers, the classes; or numbers to
      be predicted; or left out.
    ``dtype`` ("float32", "float64"): dtype of the values as stored.
    ``features``: Number of columns. Default: as many as the largest index asks for, for which the
      files are read once more.
    ``zero_based``: Whether the first column has the index 0, and not 1.

    Raises UsageError (no files, or a number of features that is out of range), DataError (no index
    gives the number of features. While the rows are read: a label is missing, not a number, or not
    an integer for a class; an index is not a number, out of range, or not above the one before; a
    value is not a finite number; the line has a ``qid``. The message names file and line).
    """
    check_sources(paths, "the libsvm files")
    if features is None:
        features = min(max(map(_largest_index, paths)) + zero_based, MOST_FEATURES)
        if features < 1:
            raise DataError(
                f"{', '.join(map(str, paths))}: found no row with an index, so that the number of "
                f"features is not known. Say it with --features"
            )
    if not 1 <= features <= MOST_FEATURES:
        raise UsageError(f"--features: expected 1 to {MOST_FEATURES}, found {features}")
    form = Form(task, dtype, features, int(not zero_based))
    return Source(
        chunks=(rows for path in paths for rows in form.rows(path)),
        shape=(features,),
        scale=1.0,
        bytes=sum(unpacked_size(path) for path in paths),
        description={
            "format": "libsvm",
            "files": [path.name for path in paths],
            "zero_based": zero_based,
        },
    )


def _blocks(path: AnyPath, start: int = 0, stop: int = sys.maxsize) -> Iterator[tuple[int, bytes]]:
    """Whole lines, from a byte that begins one up to another; with the number of the first."""
    number, at = 1, start
    rest: list[bytes] = []
    with open_stretch(path, start) as file:
        while part := file.read(min(BLOCK_BYTES, stop - at)):
            at += len(part)
            end = part.rfind(b"\n") + 1
            if end:
                block = b"".join([*rest, part[:end]])
                yield number, block
                number += block.count(b"\n")
                rest = []
            rest.append(part[end:])
            if sum(map(len, rest)) > MOST_LINE_BYTES:
                raise DataError(
                    f"{path}, line {number}: expected at most {MOST_LINE_BYTES} bytes in a line. "
                    f"Is it a text file?"
                )
        if last := b"".join(rest):
            yield number, last


def _without_comments(block: bytes) -> bytes:
    return _COMMENT.sub(b"", block) if b"#" in block else block


def _largest_index(path: AnyPath) -> int:
    """The largest index of a file, -1 if it has none; malformed lines are reported later."""
    largest = -1
    for _, block in _blocks(path):
        largest = max([largest, *map(int, _INDEX.findall(_without_comments(block)))])
    return largest


@dataclass(frozen=True)
class Form:
    """How the lines of the files are to be read; ``base`` is the index of the first column."""

    task: str | None
    dtype: str
    features: int
    base: int

    #: No column of it identifies rows, as one that a recipe names.
    id: ClassVar[None] = None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def rows(self, path: AnyPath) -> Iterator[Rows]:
        for number, block in _blocks(path):
            text = _without_comments(block)
            rows = self.parse(text)
            if rows is None:
                line, _, why = self.fault(text)
                raise DataError(f"{path}, line {number + line}: {why}")
            yield rows

    def parse(self, block: bytes) -> Rows | None:
        """The rows of a block; None if anything in it is wrong."""
        if _WRONG.search(block):
            return None
        text = block.replace(b":", b" ")
        words = map(bytes.split, text.split(b"\n"))
        widths = np.array([len(line) for line in words if line], np.int64)
        numbers = np.fromiter(map(float, text.split()), np.float64)
        is_label = np.zeros(len(numbers), bool)
        is_label[np.cumsum(widths) - widths] = True
        labels = numbers[is_label]
        indices, values = numbers[~is_label].reshape(-1, 2).T
        with np.errstate(over="ignore"):
            values = values.astype(self.dtype)
        columns = np.clip(indices - self.base, -1, MOST_FEATURES).astype(np.int32)
        rows = csr.from_lengths(widths // 2, columns, values, self.features)
        if csr.check(rows) or not (np.isfinite(values).all() and np.isfinite(labels).all()):
            return None
        if self.task == "classification":
            return Rows(rows, labels.astype(np.int64)) if _are_classes(labels).all() else None
        return Rows(rows, None if self.task is None else labels)

    def fault(self, block: bytes) -> tuple[int, int, str]:
        """The first malformed line of a block, how many rows are before it, and what is wrong."""
        row = 0
        for number, line in enumerate(block.split(b"\n")):
            if fields := line.split():
                if fault := self._fault_of(*fields):
                    expected, found = fault
                    shown = found[:40].decode("utf-8", "backslashreplace")
                    return number, row, f"expected {expected}, found {shown!r}"
                row += 1
        raise AssertionError("no line is malformed")

    def _fault_of(self, label: bytes, *pairs: bytes) -> tuple[str, bytes] | None:
        """What is expected and what is found, if a line is malformed."""
        if b":" in label:
            return "a label before the first index:value", label
        if not _IS_NUMBER.fullmatch(label) or not math.isfinite(float(label)):
            return "a finite number as label", label
        if self.task == "classification" and not _are_classes(np.array([float(label)])).all():
            numbers = "numbers to be predicted need --task regression and a model of numbers"
            return f"an integer as class ({numbers}, such as linear)", label
        before = -1
        for pair in pairs:
            index, colon, value = pair.partition(b":")
            if index == b"qid":
                return "no qid, since there are no groups of rows: make a copy without it", pair
            if not colon or not index.isdigit():
                return "index:value", pair
            column = int(index) - self.base
            if column < 0:
                return "an index from 1 on (--zero-based, if the first is 0)", pair
            if column >= self.features:
                last = self.features - 1 + self.base
                return f"an index from {self.base} to {last} (--features {self.features})", pair
            if column <= before:
                return f"an index above the one before, {before + self.base}", pair
            before = column
            if not _IS_NUMBER.fullmatch(value) and not _NAMED.fullmatch(value):
                return "index:value with a number as value", pair
            with np.errstate(over="ignore"):
                if not np.isfinite(np.dtype(self.dtype).type(float(value))):
                    return f"index:value with a finite {self.dtype} as value", pair
        return None


@dataclass(frozen=True)
class Lines:
    """The rows of a file for a model: what predicts it takes this for a reading of a table."""

    path: AnyPath
    recipe: Form

    counts: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    format: ClassVar = "libsvm"
    has_names: ClassVar = False
    task: ClassVar[None] = None

    @property
    def table(self) -> Self:
        """It is its own."""
        return self

    @property
    def paths(self) -> list[AnyPath]:
        return [self.path]

    @cached_property
    def stamps(self) -> tuple[str, ...]:
        """See :attr:`mapreduce.data.readers.reading.Reading.stamps`."""
        return (stamp_of(self.path),)

    def index(self, digest: Any) -> Iterator[Stretch]:
        """See :meth:`mapreduce.data.readers.table.Table.index`; malformed rows count, too."""
        at = 0
        for _, block in _blocks(self.path):
            digest.update(hashlib.sha256(block).digest())
            rows = len(_ROW.findall(_without_comments(block)))
            yield Stretch(0, at, at + len(block), rows)
            at += len(block)

    def part(self, stretch: Stretch, first: int, total: int) -> Iterator[Rows]:
        """See :meth:`mapreduce.data.readers.reading.Reading.part`."""
        rows = 0
        for _, block in _blocks(self.path, stretch.start, stretch.stop):
            text = _without_comments(block)
            found = self.recipe.parse(text)
            if found is None:
                _, row, why = self.recipe.fault(text)
                raise BadField(row, "", why).error(self.path, first + rows)
            if count := len(found.features):
                yield replace(found, numbers=np.arange(total + rows, total + rows + count))
            rows += count
        check_rows(self.path, stretch, first, rows)

    def finish(self) -> Finished:
        width, size = self.recipe.features, np.dtype(self.recipe.dtype).itemsize
        return Finished(b"", width, size, None, _as_they_are)

    def add(self, counts: object) -> None:
        """Nothing is counted."""

    def notes(self) -> list[str]:
        return []


def _as_they_are(rows: Any) -> Any:
    return rows


def _are_classes(labels: Array) -> Array:
    """Which numbers (n,) are integers that a float64 holds exactly."""
    are: Array = (labels == np.floor(labels)) & (np.abs(labels) < 2**53)
    return are
