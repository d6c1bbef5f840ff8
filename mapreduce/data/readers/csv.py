"""Comma-separated values: numbers, and a column of labels."""

import contextlib
import csv as csv_module
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import open_for_arrow, open_source, unpacked_size
from mapreduce.data.readers.tables import DEFAULT_LABEL, Roles, assign, bad_value, preview, texts
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20


def source(
    paths: list[Path],
    label: str | None,
    labelled: bool,
    dtype: str,
    task: str = "classification",
    weights: str | None = None,
    hash_bits: int | None = None,
    drop: Sequence[str] = (),
) -> Source:
    """Rows of one or more CSV files of the same columns, gzipped or not.

    The first line is a header if none of its fields is a number. If some are and some are not,
    ``label`` decides: the name of one of them says that it is a header, a number that it is a row.
    Every column but that of classes must hold finite numbers.

    Parameters
    ----------
    paths : list of Path
    label : str or None
        Name of the label's column, or its number from 1 on where there is no header. None: the
        column ``label`` if there is one, else the last.
    labelled : bool
        False if no column is a label.
    dtype : {"float32", "float64"}
        Of the features as stored.
    task : {"classification", "regression"}
        Whether labels are classes or numbers to be predicted.
    weights : str, optional
        Name or number of a column that says how much each row counts.
    hash_bits : int, optional
        Hash the features to ``2**hash_bits``, see :mod:`mapreduce.data.hashing`. A column is one of
        numbers if all of its fields are, for which the files are read once more; fields may be
        empty.
    drop : sequence of str
        Names or numbers of columns to leave out, whatever they hold.

    Raises
    ------
    UsageError
        No files, no such column, or a first line that may be a header or a row.
    DataError
        The files' columns differ, or two have one name. While the rows are read: a row has too few
        or too many fields, a number is missing, malformed or not finite, a weight is negative, or
        a class is empty or goes over several lines; the message names file and row.
    """
    if not paths:
        raise UsageError("no source: name the CSV files")
    first, more = _first_line(paths[0])
    header = _has_header(first, label, labelled, paths[0])
    columns = _columns(first, more, header, paths[0])
    for path in paths[1:]:
        other = _columns(*_first_line(path), header, path)
        if other != columns:
            raise DataError(
                f"{path} has the columns {preview(other)}, {paths[0]} {preview(columns)}: they "
                f"cannot be in one dataset"
            )
    roles = assign(
        columns,
        paths[0],
        label=label,
        weights=weights,
        labelled=labelled,
        task=task,
        dtype=dtype,
        hash_bits=hash_bits,
        drop=drop,
        kind="names" if header else "numbers, as there is no header,",
    )
    if hash_bits is not None:
        roles = replace(roles, texts=_texts(paths, header, roles))
    return Source(
        chunks=_chunks(paths, header, roles),
        shape=(roles.width(len(roles.features)),),
        scale=1.0,
        bytes=sum(unpacked_size(path) for path in paths),
        description={
            "format": "csv",
            "files": [path.name for path in paths],
            **roles.describe(),
        },
    )


def _first_line(path: Path) -> tuple[list[str], bool]:
    """The fields of the first line, and whether it is not the only one."""
    with open_source(path) as file:
        try:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            line = text.readline()
            fields = [field.strip() for field in next(csv_module.reader([line]), [])]
            more = any(line.strip() for line in text)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error}") from error
        except csv_module.Error as error:
            raise DataError(f"{path}, line 1: {error}") from error
    if not fields:
        found = "starts with an empty line" if line else "is empty"
        raise DataError(f"{path} {found}: expected rows of numbers")
    return fields, more


def _has_header(names: list[str], label: str | None, labelled: bool, path: Path) -> bool:
    numbers = [name for name in names if name and _is_number(name)]
    if all(_is_number(name) for name in names):
        return False
    if not numbers:
        return True
    if labelled and label is not None and label.isdecimal():
        return False
    if labelled and (label or DEFAULT_LABEL) in names:
        return True
    advice = (
        "Name the label's column: --label NAME says that it is a header, --label NUMBER a row"
        if labelled
        else "Give every column a name that is no number, or remove the line"
    )
    raise UsageError(
        f"{path}: the first line, {preview(names)}, has words and numbers, so that it may be a "
        f"header or a row. {advice}"
    )


def _columns(names: list[str], more: bool, header: bool, path: Path) -> list[str]:
    """The names of the columns; numbers from 1 on without a header."""
    if not header:
        return [str(i + 1) for i in range(len(names))]
    if len(set(names)) != len(names):
        raise DataError(f"{path}: two columns have the same name in {preview(names)}")
    if not more:
        raise DataError(f"{path} has no rows after its header, {preview(names)}")
    return names


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return not field.strip()
    return True


def _chunks(paths: list[Path], header: bool, roles: Roles) -> Iterator[Rows]:
    for path in paths:
        row = 0
        for batch in _batches(path, header, roles):
            for column in roles.texts:
                _check_lines(batch.column(column), path, row, roles.names[column])
            yield roles.rows(batch, path, row)
            row += batch.num_rows


def _texts(paths: list[Path], header: bool, roles: Roles) -> frozenset[int]:
    """The columns of features in which a field is neither empty nor a number."""
    as_text = replace(roles, texts=frozenset(range(len(roles.names))))
    found: set[int] = set()
    for path in paths:
        for batch in _batches(path, header, as_text):
            for column in set(roles.features) - found:
                if not _are_numbers(texts(batch.column(column))):
                    found.add(column)
    return frozenset(found)


def _are_numbers(column: Any) -> bool:
    try:
        column.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _check_lines(column: Any, path: Path, first: int, name: str) -> None:
    """Refuse a text that goes over several lines."""
    bad = pc.match_substring_regex(column, "[\r\n]")
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise bad_value(path, first, name, row, "a text over several lines: close its quote")


def _batches(path: Path, header: bool, roles: Roles) -> Iterator[Any]:
    """Record batches of all columns, as numbers or texts."""
    names = [str(i) for i in range(len(roles.names))]
    types = {name: pa.from_numpy_dtype(roles.dtype) for name in names}
    for column in (roles.label, roles.weights):
        if column is not None:
            types[names[column]] = pa.float64()
    for column in roles.words:
        types[names[column]] = pa.string()
    row = 0
    try:
        with (
            open_for_arrow(path) as file,
            csv.open_csv(
                file,
                read_options=csv.ReadOptions(
                    block_size=BLOCK_BYTES, column_names=names, skip_rows=int(header)
                ),
                convert_options=csv.ConvertOptions(column_types=types, null_values=[""]),
            ) as reader,
        ):
            for batch in reader:
                yield batch
                row += batch.num_rows
    except pa.ArrowInvalid as error:
        _find_bad_row(path, header, roles, row)
        raise DataError(f"{path}, after row {row}: {error}") from error


def _find_bad_row(path: Path, header: bool, roles: Roles, first: int) -> None:
    """Raise an error that names the first malformed row, if there is one after row ``first``."""
    columns = roles.names
    with open_source(path) as file, contextlib.suppress(csv_module.Error):
        text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        lines = (line for line in csv_module.reader(text) if line)
        for number, fields in enumerate(lines, 1 - header):
            if number <= first:
                continue
            if len(fields) != len(columns):
                raise DataError(
                    f"{path}, row {number}: expected {len(columns)} fields, found {len(fields)}"
                )
            for i, field in enumerate(fields):
                if i in roles.words:
                    if not _is_utf8(field):
                        kind = "label" if i == roles.label else "field"
                        raise DataError(
                            f"{path}, row {number}, column {columns[i]}: the {kind} {field!r} is "
                            f"not UTF-8 text"
                        )
                elif not (_converts(field) or (roles.hash_bits is not None and not field)):
                    found = f"expected a finite number, found {field!r}"
                    raise bad_value(path, number - 1, columns[i], 0, found)


def _is_utf8(field: str) -> bool:
    try:
        field.encode()
    except UnicodeEncodeError:
        return False
    return True


def _converts(field: str) -> bool:
    """Whether Arrow takes a field for a number; Python takes more, such as 1_000."""
    number = field.strip(" \t")
    return (
        number.isascii() and not re.search(r"[_\s]", number) and number != "" and _is_number(number)
    )
