"""Comma-separated values: numbers, and a column of labels."""

import contextlib
import csv as csv_module
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.fields import MISSING, NUMBER, bad_value, parsed, shown
from mapreduce.data.readers.files import open_for_arrow, open_source, unpacked_size
from mapreduce.data.readers.tables import (
    DEFAULT_LABEL,
    Roles,
    Wanted,
    assign,
    preview,
    takes_wanted,
)
from mapreduce.errors import DataError, UsageError

BLOCK_BYTES = 4 << 20


@takes_wanted(but=("columns",))
def source(paths: list[Path], *, header: bool | None = None, **options: Any) -> Source:
    """Rows of one or more CSV files of the same columns, gzipped or not.

    The first line is a header if none of its fields is a number. If some are and some are not,
    ``label`` decides: the name of one of them says that it is a header, a number that it is a row.
    Numbers from 0 on, one after the other, may be either, and so may those from 1 on in four
    columns or more. Every column but that of classes must hold finite numbers, or be hashed: then
    it is one of numbers if all of its fields are, but for those that are missing, or of texts if
    not more than half are; finding that out reads the files once more.

    Parameters
    ----------
    paths : list of Path
    header : bool, optional
        Whether the first line is a header.
    **options
        The fields of :class:`mapreduce.data.readers.tables.Wanted`. Without a header, columns
        are named by their numbers from 1 on.

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
    wanted = Wanted(**options)
    first, more = _first_line(paths[0])
    if header is None:
        header = _has_header(first, wanted.label, wanted.labelled, paths[0])
    columns = _columns(first, more, header, paths[0])
    for path in paths[1:]:
        other = _columns(*_first_line(path), header, path)
        if other != columns:
            raise DataError(
                f"{path} has the columns {preview(other)}, {paths[0]} {preview(columns)}: they "
                f"cannot be in one dataset"
            )
    kind = "names" if header else "numbers, as there is no header,"
    roles = assign(columns, paths[0], wanted, kind)
    if roles.hash_bits is not None:
        found = frozenset() if wanted.like else _texts(paths, header, roles)
        roles = replace(roles, texts=roles.texts | found)
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
        # Numbers are names where they are hashed.
        columns=roles.columns() if header or roles.hash_bits is not None else None,
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
    are_numbers = [name in MISSING or _is_number(name) for name in names]
    if all(are_numbers) and not _is_running(names):
        return False
    if not all(are_numbers):
        if not any(name and name not in MISSING and _is_number(name) for name in names):
            return True
        if labelled and label is not None and label.isdecimal():
            return False
        if labelled and (label or DEFAULT_LABEL) in names:
            return True
    raise UsageError(
        f"{path}: the first line, {preview(names)}, may be a header or a row. Say which: --header "
        f"or --no-header"
    )


def _is_running(names: list[str]) -> bool:
    """Whether fields number the columns, as pandas does, with or without those of the rows."""
    names = names[1:] if names[0] == "" else names
    from_zero, from_one = ([str(i) for i in range(k, k + len(names))] for k in (0, 1))
    return len(names) > 1 and (names == from_zero or (len(names) > 3 and names == from_one))


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
                name = roles.names[column]
                _check_lines(batch.column(name), path, row, name)
            yield roles.rows(batch, path, row)
            row += batch.num_rows


def _texts(paths: list[Path], header: bool, roles: Roles) -> frozenset[int]:
    """The features to be hashed that do not consist mostly of numbers."""
    surplus = dict.fromkeys(frozenset(roles.features) - roles.texts, 0)
    with_words = set()
    for path in paths:
        for batch in _batches(path, header, roles):
            for i in surplus:
                values, others = parsed(batch.column(roles.names[i]), roles.dtype)
                words = int((others & np.isnan(values)).sum())
                surplus[i] += int((~np.isnan(values)).sum()) - words
                with_words |= {i} if words else set()
    return frozenset(i for i in with_words if surplus[i] <= 0)


def _check_lines(column: Any, path: Path, first: int, name: str) -> None:
    """Refuse a text that goes over several lines."""
    bad = pc.match_substring_regex(column, "[\r\n]")
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise bad_value(path, first, name, row, "a text over several lines: close its quote")


def _batches(path: Path, header: bool, roles: Roles) -> Iterator[Any]:
    """Record batches of all columns, as numbers or texts."""
    names = roles.names
    types = {name: pa.from_numpy_dtype(roles.dtype) for name in names}
    for column in (roles.label, roles.weights):
        if column is not None:
            types[names[column]] = pa.float64()
    hashed = roles.features if roles.hash_bits is not None else ()
    for column in (*roles.words, *hashed):
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
                if re.search("[\ud800-\udfff]", field):
                    found = f"{field!r} is not UTF-8 text"
                    raise bad_value(path, number - 1, columns[i], 0, found)
                if i not in roles.words and not re.fullmatch(NUMBER, field.strip(" \t")):
                    found = f"expected a finite number, found {shown(field, roles.dtype)}"
                    raise bad_value(path, number - 1, columns[i], 0, found + roles.advice(i))
