"""Comma-separated values: numbers, and a column of labels."""

import csv as csv_module
import io
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

    The first line is a header if any of its fields is not a number. Every column but the label's
    must hold finite numbers.

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
        No files, or no such column.
    DataError
        The files' columns differ. While the rows are read: a row has too few or too many fields,
        or a feature is empty, not a number or not finite; the message names file and row.
    """
    if not paths:
        raise UsageError("no source: name the CSV files")
    header, columns = _columns(paths[0])
    for path in paths[1:]:
        other_header, other = _columns(path)
        if (other if other_header else len(other)) != (columns if header else len(columns)):
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


def _columns(path: Path) -> tuple[bool, list[str]]:
    """Whether a file has a header, and the names of its columns (numbers from 1 on without)."""
    with open_source(path) as file:
        try:
            line = io.TextIOWrapper(file, "utf-8-sig", newline="").readline()
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error}") from error
    fields = next(csv_module.reader([line]), [])
    if not fields:
        raise DataError(f"{path} is empty: expected rows of numbers")
    header = not all(_is_number(field) for field in fields)
    names = [field.strip() for field in fields]
    if header and len(set(names)) != len(names):
        raise DataError(f"{path}: two columns have the same name in {_preview(names)}")
    return header, names if header else [str(i + 1) for i in range(len(fields))]


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
                    convert_options=csv.ConvertOptions(column_types=types),
                ) as reader,
            ):
                for batch in reader:
                    yield _rows(batch, target, dtype, path, row, columns)
                    row += batch.num_rows
        except pa.ArrowInvalid as error:
            _find_bad_row(path, header, columns, target)
            raise DataError(f"{path}, after row {row}: {error}") from error


def _find_bad_row(path: Path, header: bool, columns: list[str], target: int | None) -> None:
    """Raise an error that names the first row that is malformed."""
    with open_source(path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
        lines = (line for line in csv_module.reader(text) if line)
        for row, fields in enumerate(lines):
            if header and not row:
                continue
            number = row + 1 - header
            if len(fields) != len(columns):
                raise DataError(
                    f"{path}, row {number}: expected {len(columns)} fields, found {len(fields)}"
                )
            for i, field in enumerate(fields):
                if i != target and not _is_number(field):
                    raise _bad_value(path, number, columns[i], repr(field))


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
    blank = pc.equal(pc.utf8_trim_whitespace(column), "")
    if column.null_count or pc.any(blank).as_py():
        row = pc.index(pc.fill_null(blank, True), True).as_py()
        raise DataError(f"{path}, row {first + row + 1}, column {name}: expected a label")
    return column.to_numpy(zero_copy_only=False).astype(str)
