"""Comma-separated values: numbers, and a column of labels."""

import contextlib
import csv as csv_module
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import check_source, open_source, unpacked_size
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20
DEFAULT_LABEL = "label"


def source(paths: list[Path], label: str | None, labelled: bool, dtype: str) -> Source:
    """Rows of one or more CSV files of the same columns, gzipped or not.

    The first line is a header if none of its fields is a number. If some are and some are not,
    ``label`` decides: the name of one of them says that it is a header, a number that it is a row.
    Every column but the label's must hold finite numbers.

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

    Raises
    ------
    UsageError
        No files, no such column, or a first line that may be a header or a row.
    DataError
        The files' columns differ, or two have one name. While the rows are read: a row has too few
        or too many fields, a feature is empty, not a number or not finite, or a label is empty or
        goes over several lines; the message names file and row.
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
                f"{path} has the columns {_preview(other)}, {paths[0]} {_preview(columns)}: they "
                f"cannot be in one dataset"
            )
    target = _label_index(columns, header, label, paths[0]) if labelled else None
    features = len(columns) - (target is not None)
    if not features:
        raise DataError(f"{paths[0]} has no column beside the label's")
    return Source(
        chunks=_chunks(paths, header, columns, target, np.dtype(dtype)),
        shape=(features,),
        scale=1.0,
        bytes=sum(unpacked_size(path) for path in paths),
        description={
            "format": "csv",
            "files": [path.name for path in paths],
            "label": None if target is None else columns[target],
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
        f"{path}: the first line, {_preview(names)}, has words and numbers, so that it may be a "
        f"header or a row. {advice}"
    )


def _columns(names: list[str], more: bool, header: bool, path: Path) -> list[str]:
    """The names of the columns; numbers from 1 on without a header."""
    if not header:
        return [str(i + 1) for i in range(len(names))]
    if len(set(names)) != len(names):
        raise DataError(f"{path}: two columns have the same name in {_preview(names)}")
    if not more:
        raise DataError(f"{path} has no rows after its header, {_preview(names)}")
    return names


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return not field.strip()
    return True


def _label_index(columns: list[str], header: bool, label: str | None, path: Path) -> int:
    if label is None:
        return columns.index(DEFAULT_LABEL) if DEFAULT_LABEL in columns else len(columns) - 1
    if label not in columns:
        kind = "names" if header else "numbers, as there is no header,"
        raise UsageError(
            f"--label {label}: {path} has no such column; its columns' {kind} are "
            f"{_preview(columns)}"
        )
    return columns.index(label)


def _preview(columns: list[str]) -> str:
    shown = ", ".join(columns[:8])
    return shown if len(columns) <= 8 else f"{shown}, … ({len(columns)} columns)"


def _chunks(
    paths: list[Path],
    header: bool,
    columns: list[str],
    target: int | None,
    dtype: np.dtype[Any],
) -> Iterator[Rows]:
    names = [str(i) for i in range(len(columns))]
    types = {name: pa.from_numpy_dtype(dtype) for name in names}
    if target is not None:
        types[names[target]] = pa.string()
    for path in paths:
        check_source(path)
        row = 0
        try:
            with (
                open_source(path) as file,
                csv.open_csv(
                    file,
                    read_options=csv.ReadOptions(
                        block_size=BLOCK_BYTES, column_names=names, skip_rows=int(header)
                    ),
                    convert_options=csv.ConvertOptions(column_types=types, null_values=[""]),
                ) as reader,
            ):
                for batch in reader:
                    yield _rows(batch, target, dtype, path, row, columns)
                    row += batch.num_rows
        except pa.ArrowInvalid as error:
            _find_bad_row(path, header, columns, target, row)
            raise DataError(f"{path}, after row {row}: {error}") from error


def _find_bad_row(
    path: Path, header: bool, columns: list[str], target: int | None, first: int
) -> None:
    """Raise an error that names the first malformed row, if there is one after row ``first``."""
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
                if i == target:
                    if not _is_utf8(field):
                        raise DataError(
                            f"{path}, row {number}, column {columns[i]}: the label {field!r} is "
                            f"not UTF-8 text"
                        )
                elif not _converts(field):
                    raise _bad_value(path, number, columns[i], repr(field))


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


def _rows(
    batch: Any, target: int | None, dtype: np.dtype[Any], path: Path, first: int, names: list[str]
) -> Rows:
    kept = [i for i in range(batch.num_columns) if i != target]
    features = np.empty((batch.num_rows, len(kept)), dtype)
    for place, i in enumerate(kept):
        column = batch.column(i)
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            raise _bad_value(path, first + row + 1, names[i], "nothing")
        features[:, place] = column.to_numpy()
    if not np.isfinite(features).all():
        row, place = np.argwhere(~np.isfinite(features))[0]
        raise _bad_value(path, first + row + 1, names[kept[place]], features[row, place])
    labels = None if target is None else _labels(batch.column(target), path, first, names[target])
    return Rows(features, labels)


def _bad_value(path: Path, row: int, column: str, found: object) -> DataError:
    return DataError(f"{path}, row {row}, column {column}: expected a finite number, found {found}")


def _labels(column: Any, path: Path, first: int, name: str) -> Any:
    column = pc.utf8_trim_whitespace(column)
    # A quote left open would take the rows up to the next quote into one label.
    for bad, expected in (
        (pc.equal(column, ""), "expected a label, found nothing"),
        (pc.match_substring_regex(column, "[\r\n]"), "a label over several lines: close its quote"),
    ):
        if pc.any(bad).as_py():
            row = first + pc.index(bad, True).as_py() + 1
            raise DataError(f"{path}, row {row}, column {name}: {expected}")
    return column.to_numpy(zero_copy_only=False).astype(str)
