"""libsvm, also called svmlight: a line for each example, ``label index:value ... # comment``.

The format of SVM-light (T. Joachims) and LIBSVM (C.-C. Chang and C.-J. Lin). Blocks of the file are
taken apart by NumPy, on the bytes, and their numbers are read by Arrow. Whatever is unusual in a
block sends it to :func:`_parse_line`, which is slow, exact, and names what is wrong.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from mapreduce.data import csr
from mapreduce.data.batch import Array, Csr
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import open_source, unpacked_size
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20
MOST_LINE_BYTES = 256 << 20
MOST_FEATURES = 2**31 - 1
_USUAL = b"0123456789+-.eE: \t\r\n"
_SPACES = bytes.maketrans(b"\t\r", b"  ")
_COMMENT = re.compile(rb"#[^\n]*")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAMED = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)


def source(
    paths: list[Path],
    task: str | None,
    dtype: str,
    features: int | None = None,
    zero_based: bool = False,
) -> Source:
    """Rows of one or more libsvm files, gzipped or not, kept sparse.

    Parameters
    ----------
    paths : list of Path
    task : {"classification", "regression", None}
        Labels are integers, the classes; or numbers to be predicted; or left out.
    dtype : {"float32", "float64"}
        dtype of the values as stored.
    features : int, optional
        Number of columns. Default: as many as the largest index asks for, for which the files are
        read once more.
    zero_based : bool
        Whether the first column has the index 0, and not 1.

    Raises
    ------
    UsageError
        No files, or a number of features that is out of range.
    DataError
        No index gives the number of features. While the rows are read: a label is missing,
        not a number, or not an integer for a class; an index is not a number, out of range, or not
        above the one before; a value is not a finite number; the line has a ``qid``. The message
        names file and line.
    """
    if not paths:
        raise UsageError("no source: name the libsvm files")
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


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
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


def _largest_index(path: Path) -> int:
    """The largest index of a file, -1 if it has none; malformed lines are reported later."""
    largest = -1
    for _, block in _blocks(path):
        raw = np.frombuffer(block, np.uint8)
        colons = np.flatnonzero(raw == ord(":"))
        numbers = np.zeros(len(colons), np.int64)
        for place in range(10):
            digits = raw[np.maximum(colons - 1 - place, 0)] - np.uint8(ord("0"))
            more = (digits <= 9) & (colons > place)
            colons, digits, numbers = colons[more], digits[more], numbers[more]
            if not len(colons):
                break
            numbers += digits * np.int64(10**place)
            largest = max(largest, int(numbers.max()))
    return largest


class _Form:
    """How the lines of the files are to be read."""

    def __init__(
        self, task: str | None, dtype: np.dtype[np.generic], features: int, base: int
    ) -> None:
        self._task = task
        self._dtype = dtype
        self._features = features
        self._base = base

    def rows(self, path: Path) -> Iterator[Rows]:
        for number, block in _blocks(path):
            yield self._parse(block) or self._parse_lines(block, path, number)

    def _rows(self, labels: Array, lengths: Array, indices: Array, values: Array) -> Rows:
        kept = None if self._task is None else labels
        if self._task == "classification":
            kept = labels.astype(np.int64)
        return Rows(csr.from_lengths(lengths, indices, values, self._features), kept)

    def _parse(self, block: bytes) -> Rows | None:
        """The rows of a block; None if anything about it is unusual."""
        if block.translate(None, _USUAL):
            return None
        raw = np.frombuffer(block.translate(_SPACES), np.uint8)
        tokens = _tokens(raw)
        if tokens is None:
            return None
        starts, ends, first, is_index = tokens
        indices = _digits(raw, starts[is_index], ends[is_index])
        numbers = _numbers(raw, starts[~is_index], ends[~is_index])
        if indices is None or numbers is None:
            return None
        is_label = first[~is_index]
        labels = numbers[is_label]
        with np.errstate(over="ignore"):
            values = numbers[~is_label].astype(self._dtype)
        indices -= self._base
        places = np.flatnonzero(first)
        lengths = np.diff(places, append=len(first)) // 2
        if not (np.isfinite(values).all() and np.isfinite(labels).all()):
            return None
        if self._task == "classification" and not _are_classes(labels).all():
            return None
        if len(indices) and (indices.min() < 0 or indices.max() >= self._features):
            return None
        rows = self._rows(labels, lengths, indices.astype(np.int32), values)
        assert isinstance(rows.features, Csr)
        return rows if csr.check(rows.features) is None else None

    def _parse_lines(self, block: bytes, path: Path, number: int) -> Rows:
        """The same, line by line.

        Raises
        ------
        DataError
            A line is malformed.
        """
        labels: list[float] = []
        lengths: list[int] = []
        indices: list[int] = []
        values: list[float] = []
        for line_number, line in enumerate(block.split(b"\n"), number):
            if fields := line.split():
                columns, entries = self._parse_line(fields, f"{path}, line {line_number}", labels)
                lengths.append(len(columns))
                indices += columns
                values += entries
        return self._rows(
            np.array(labels, np.float64),
            np.array(lengths, np.int64),
            np.array(indices, np.int32),
            np.array(values, self._dtype),
        )

    def _parse_line(
        self, fields: list[bytes], where: str, labels: list[float]
    ) -> tuple[list[int], list[float]]:
        """Columns and values of a line, whose label goes to the others."""

        def fail(expected: str, found: bytes) -> NoReturn:
            shown = found[:40].decode("utf-8", "backslashreplace")
            raise DataError(f"{where}: expected {expected}, found {shown!r}")

        label, *pairs = fields
        if b":" in label:
            fail("a label before the first index:value", label)
        if not _NUMBER.fullmatch(label) or not math.isfinite(float(label)):
            fail("a finite number as label", label)
        if self._task == "classification" and not _are_classes(np.array([float(label)])).all():
            fail("an integer as class (numbers to be predicted need --task regression)", label)
        labels.append(float(label))
        columns: list[int] = []
        values: list[float] = []
        for pair in pairs:
            index, colon, value = pair.partition(b":")
            if index == b"qid":
                fail("no qid, since groups of rows are not supported: remove those fields", pair)
            if not colon or not index.isdigit():
                fail("index:value", pair)
            column = int(index) - self._base
            if not 0 <= column < self._features:
                last = self._features - 1 + self._base
                if column < 0:
                    fail("an index from 1 on (--zero-based, if the first is 0)", pair)
                fail(f"an index from {self._base} to {last} (--features {self._features})", pair)
            if columns and column <= columns[-1]:
                fail(f"an index above the one before, {columns[-1] + self._base}", pair)
            if not _NUMBER.fullmatch(value) and not _NAMED.fullmatch(value):
                fail("index:value with a number as value", pair)
            with np.errstate(over="ignore"):
                stored = self._dtype.type(float(value))
            if not np.isfinite(stored):
                fail(f"index:value with a finite {self._dtype.name} as value", pair)
            columns.append(column)
            values.append(float(value))
        return columns, values


def _are_classes(labels: Array) -> Array:
    """Which numbers (n,) are integers that a float64 holds exactly."""
    are: Array = (labels == np.floor(labels)) & (np.abs(labels) < 2**53)
    return are


def _tokens(raw: Array) -> tuple[Array, Array, Array, Array] | None:
    """Where labels, indices and values start and end.

    Parameters
    ----------
    raw : array (bytes,), uint8
        Whole lines, with no other white space than spaces.

    Returns
    -------
    starts, ends : array (tokens,)
    first : array (tokens,), bool
        Whether it is the first of its line, the label.
    is_index : array (tokens,), bool
        Whether a colon and a value follow.
    """
    colon = raw == ord(":")
    line_feed = raw == ord("\n")
    inside = ~(colon | line_feed | (raw == ord(" ")))
    edges = np.flatnonzero(np.diff(inside, prepend=False))
    starts, ends = edges[::2], edges[1::2]
    lines = np.searchsorted(np.flatnonzero(line_feed), starts)
    first = np.diff(lines, prepend=-1) > 0
    is_index = colon[ends]
    is_value = np.zeros(len(starts), bool)
    is_value[1:] = is_index[:-1] & (starts[1:] == ends[:-1] + 1)
    usual = (is_index.astype(np.uint8) + is_value + first == 1).all()
    if not usual or is_value.sum() != is_index.sum() or is_index.sum() != colon.sum():
        return None
    return starts, ends, first, is_index


def _digits(raw: Array, starts: Array, ends: Array) -> Array | None:
    """Numbers (tokens,), int64, of up to ten digits and nothing else; None if one is not so."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > 10:
        return None
    numbers = np.zeros(len(starts), np.int64)
    for place in range(longest):
        digits = raw[np.maximum(ends - 1 - place, 0)] - np.uint8(ord("0"))
        there = lengths > place
        if (digits[there] > 9).any():
            return None
        numbers += np.where(there, digits, 0) * np.int64(10**place)
    return numbers


def _numbers(raw: Array, starts: Array, ends: Array) -> Array | None:
    """Numbers (tokens,), float64; None if Arrow does not take one for a number."""
    # Not every version of Arrow knows a plus; none should take what is left of +-1.
    plus = raw[starts] == ord("+")
    starts = starts + plus
    if np.isin(raw[starts[plus]], np.frombuffer(b"+-", np.uint8)).any():
        return None
    edges = np.zeros(len(raw) + 1, np.int8)
    edges[starts] = 1
    edges[ends] -= 1
    text = raw[np.cumsum(edges[:-1], dtype=np.int8).view(bool)]
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    try:
        strings = pa.Array.from_buffers(pa.string(), len(starts), buffers)
        numbers: Array = strings.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return numbers
