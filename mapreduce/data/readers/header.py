"""The first line of a CSV file: where it ends, and whether it has the names of the columns."""

import csv as csv_module
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import normalize

from hdfs_utils.paths import AnyPath
from mapreduce.data.fields import MISSING
from mapreduce.data.readers.files import open_source
from mapreduce.data.readers.records import BOM, RecordEnds, check_line, fields_of
from mapreduce.data.readers.roles import DEFAULT_LABEL
from mapreduce.data.readers.table import preview
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, UsageError

#: So much of a file shows how its lines end.
_START_BYTES = 1 << 16
ENCODINGS = "Say --encoding, such as latin-1 or cp1252"


class FirstLine(NamedTuple):
    """The first record of a file.

    ``record``: As it stands there, with a byte order mark and its end.
    ``end``: The byte at the ends of lines.
    ``is_followed``: Whether more than empty lines follow.
    """

    record: bytes
    end: bytes
    fields: list[str]
    is_followed: bool


def first_line(path: AnyPath, recipe: Recipe, size: int) -> FirstLine:
    """Read the first line; ``size`` bytes at once, if it is long.

    Raises DataError (it is empty, its quotes are left open, or it is no text in the encoding).
    """
    with open_source(path) as file:
        start = part = file.read(_START_BYTES)
        if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start:
            raise DataError(
                f"{path} is UTF-16 text, or none. If it is text, convert it: "
                f"iconv -f utf-16 -t utf-8 {path} > NEW"
            )
        mark = BOM if start.startswith(BOM) else b""
        start = start.removeprefix(BOM)
        end = _end_of(start, recipe)
        records = RecordEnds(recipe, end)
        cut = records.first(start)
        while part and not cut:
            check_line(path, len(start), records.is_open)
            part = file.read(size)
            found = records.first(part)
            cut = len(start) + found if found else 0
            start += part
        is_open = (not cut and records.is_open) or records.wrong == 0
        cut = cut or len(start)
        try:
            line = start[:cut].removesuffix(end).decode(recipe.encoding)
            fields = [] if is_open else fields_of(line, recipe)
            parts = iter(lambda: file.read(_START_BYTES), b"")
            is_followed = bool(start[cut:].strip()) or any(part.strip() for part in parts)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is not {recipe.encoding} text: {error}. {ENCODINGS}"
            ) from error
        except csv_module.Error as error:
            raise DataError(f"{path}, line 1: {error}") from error
    if is_open:
        raise DataError(
            f"{path}, line 1: a quote, {recipe.quote}, is left open. Close it, or say --quote"
        )
    if not fields:
        what = "starts with an empty line" if start else "is empty"
        raise DataError(f"{path} {what}: expected rows of fields")
    return FirstLine(mark + start[:cut], end, fields, is_followed)


def names_in(first: FirstLine, path: AnyPath, is_header: bool) -> list[str]:
    """The names of the columns; numbers from 1 on without a header."""
    if not is_header:
        return [str(i + 1) for i in range(len(first.fields))]
    names = [name or f"column {i + 1}" for i, name in enumerate(first.fields)]
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(
            f"{path}: two columns have the same name, {twice}, in {preview(names)}. Give them "
            f"different names in the first line"
        )
    if len(names) == 1 and (found := re.search("[;\t|]", names[0])):
        sign = "$" * (found.group() == "\t") + repr(found.group())
        raise DataError(
            f"{path} has one column, {names[0]!r}. Say --delimiter {sign} if that is what "
            f"separates its fields"
        )
    return names


def _end_of(start: bytes, recipe: Recipe) -> bytes:
    """The byte at the ends of lines: CR only if there is no LF outside of quotes."""
    if b"\r" not in start:
        return b"\n"
    found = {end: len(RecordEnds(recipe, end).of(start)) for end in (b"\r", b"\n")}
    return b"\r" if found[b"\r"] and not found[b"\n"] else b"\n"


def has_header(names: list[str], recipe: Recipe, path: AnyPath, known: Sequence[str]) -> bool:
    """Whether they are names; see :func:`mapreduce.data.readers.opening.rows_of`."""
    if recipe.header is not None:
        return recipe.header
    names = [name.replace(recipe.decimal, ".") for name in names]
    numbers = [name for name in names if name and name not in MISSING and _is_number(name)]
    are_all = all(name in MISSING or _is_number(name) for name in names)
    if not numbers and not are_all:
        return True
    said = {recipe.weights, recipe.id, *recipe.drop, *recipe.only, *recipe.columns, *known}
    if recipe.labelled:
        said.add(recipe.label or DEFAULT_LABEL)
    said = {normalize("NFC", name) for name in said if name}
    names = [normalize("NFC", name) for name in names]
    places = {str(i + 1) for i in range(len(names))}
    is_header, is_row = bool(said & {*names} - places), bool(said & places - {*names})
    if is_header != is_row:
        return is_header
    if are_all and not is_header and not _is_running(names):
        return False
    raise UsageError(
        f"{path}: the first line, {preview(names)}, may be a header or a row. Put the names of "
        f"the columns there. Or say which it is: --header or --no-header"
    )


def _is_running(names: list[str]) -> bool:
    """Whether fields number the columns, as pandas does, with or without those of the rows.

    Years, one after the other, may do so, too.
    """
    names = names[1:] if names[0] == "" else names
    from_zero, from_one = ([str(i) for i in range(k, k + len(names))] for k in (0, 1))
    years = [name for name in sorted({*names}) if re.fullmatch("(?:1[89]|20)[0-9]{2}", name)]
    return len(names) > 1 and (
        names in (from_zero, years) or (len(names) > 3 and names == from_one)
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return not field.strip()
    return True
