"""libsvm, also called svmlight: a line for each example, ``label index:value ... # comment``.

The format of SVM-light (T. Joachims) and LIBSVM (C.-C. Chang and C.-J. Lin). Blocks of whole lines
are compared with a pattern and their numbers are read all at once; if anything is wrong with a
block, its lines are examined one by one for the error to report.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.data import csr
from mapreduce.data.batch import Array
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import check_sources, open_source, unpacked_size
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20
MOST_LINE_BYTES = 256 << 20
MOST_FEATURES = 2**31 - 1
_INDEX = re.compile(rb"([0-9]{1,10}):")
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
    form = _Form(task, np.dtype(dtype), features, int(not zero_based))
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


def _blocks(path: AnyPath) -> Iterator[tuple[int, bytes]]:
    """Whole lines, without comments, ending in a line feed; with the number of the first."""
    number = 1
    rest: list[bytes] = []
    with open_source(path) as file:
        while part := file.read(BLOCK_BYTES):
            end = part.rfind(b"\n") + 1
            if end:
                block = b"".join([*rest, part[:end]])
                yield number, _without_comments(block)
                number += block.count(b"\n")
                rest = []
            rest.append(part[end:])
            if sum(map(len, rest)) > MOST_LINE_BYTES:
                raise DataError(
                    f"{path}, line {number}: expected at most {MOST_LINE_BYTES} bytes in a line. "
                    f"Is it a text file?"
                )
        if last := b"".join(rest):
            yield number, _without_comments(last + b"\n")


def _without_comments(block: bytes) -> bytes:
    return _COMMENT.sub(b"", block) if b"#" in block else block


def _largest_index(path: AnyPath) -> int:
    """The largest index of a file, -1 if it has none; malformed lines are reported later."""
    largest = -1
    for _, block in _blocks(path):
        largest = max([largest, *map(int, _INDEX.findall(block))])
    return largest


@dataclass(frozen=True)
class _Form:
    """How the lines of the files are to be read."""

    task: str | None
    dtype: np.dtype[np.generic]
    features: int
    base: int

    def rows(self, path: AnyPath) -> Iterator[Rows]:
        for number, block in _blocks(path):
            rows = self._parse(block)
            if rows is None:
                raise self._fault(block, path, number)
            yield rows

    def _parse(self, block: bytes) -> Rows | None:
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

    def _fault(self, block: bytes, path: AnyPath, number: int) -> DataError:
        """The error of the first malformed line."""
        for line_number, line in enumerate(block.split(b"\n"), number):
            if (fields := line.split()) and (fault := self._fault_of(*fields)):
                expected, found = fault
                shown = found[:40].decode("utf-8", "backslashreplace")
                return DataError(
                    f"{path}, line {line_number}: expected {expected}, found {shown!r}"
                )
        raise AssertionError("no line is malformed")

    def _fault_of(self, label: bytes, *pairs: bytes) -> tuple[str, bytes] | None:
        """What is expected and what is found, if a line is malformed."""
        if b":" in label:
            return "a label before the first index:value", label
        if not _IS_NUMBER.fullmatch(label) or not math.isfinite(float(label)):
            return "a finite number as label", label
        if self.task == "classification" and not _are_classes(np.array([float(label)])).all():
            return "an integer as class (numbers to be predicted need --task regression)", label
        before = -1
        for pair in pairs:
            index, colon, value = pair.partition(b":")
            if index == b"qid":
                return "no qid, since groups of rows are not supported: remove those fields", pair
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
                if not np.isfinite(self.dtype.type(float(value))):
                    return f"index:value with a finite {self.dtype.name} as value", pair
        return None


def _are_classes(labels: Array) -> Array:
    """Which numbers (n,) are integers that a float64 holds exactly."""
    are: Array = (labels == np.floor(labels)) & (np.abs(labels) < 2**53)
    return are
