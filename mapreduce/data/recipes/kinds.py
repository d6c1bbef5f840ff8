"""Kinds of columns: what the fields of a text file look like, and how they are read."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data.batch import Array
from mapreduce.data.fields import MISSING, NUMBER
from mapreduce.errors import DataError

#: The kinds that a recipe can ask for. Dates are followed by their format, and by the time zone on
#: whose clock they are read if they are instants: ``date:DD.MM.YYYY``, ``date:YYYY-MM-DD@UTC``.
KINDS = ("number", "boolean", "date", "category", "text")
#: Words for true and false, in lower case.
TRUE, FALSE = ("true", "yes", "t", "y"), ("false", "no", "f", "n")

_OFFSET = r"Z|[+-]\d{2}(?::?\d{2})?"
_TIME = rf"(?:[ T](\d{{2}}):(\d{{2}})(?::(\d{{2}})(?:\.\d{{1,9}})?)?(?P<z>{_OFFSET})?)?"
_ZONED = rf"([ T]\d{{2}}:[0-9:.]*)(?:{_OFFSET})$"
_DATES = {
    "YYYY-MM-DD": (r"(\d{4})-(\d{2})-(\d{2})" + _TIME, "ymd"),
    "YYYY/MM/DD": (r"(\d{4})/(\d{1,2})/(\d{1,2})" + _TIME, "ymd"),
    "DD.MM.YYYY": (r"(\d{1,2})\.(\d{1,2})\.(\d{4})" + _TIME, "dmy"),
    "DD/MM/YYYY": (r"(\d{1,2})/(\d{1,2})/(\d{4})" + _TIME, "dmy"),
    "MM/DD/YYYY": (r"(\d{1,2})/(\d{1,2})/(\d{4})" + _TIME, "mdy"),
}
#: The formats of dates that are recognised.
DATE_FORMATS = tuple(_DATES)

_LIKE_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d.*)?")

_MISSING_WORDS = pa.array(MISSING, pa.string())
_BOOLEANS = pa.array(TRUE + FALSE)
#: What a number may have around and in it that is not part of it: units of money, spaces, percent.
_ORNAMENT = r"[\s%€$£¥' ]|EUR|USD|GBP|CHF"


def trimmed(column: Any) -> Any:
    """Texts (rows,) without white space around them; null where nothing is left."""
    column = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def kind_of(fields: Any) -> str:
    """The kind of a column of which these are some fields (rows,), texts.

    Returns
    -------
    str
        ``empty`` if all are missing, ``number``, ``number?`` if some are missing, ``boolean``,
        ``date:FORMAT`` (``date:FORMAT|FORMAT`` if the fields do not tell), ``date:FORMAT@UTC`` if
        all have an offset from UTC, or ``text``.
    """
    values = trimmed(pc.unique(fields)).drop_null()
    words = values.filter(pc.invert(pc.is_in(values, _MISSING_WORDS)))
    if not len(words):
        return "empty"
    if _all(pc.match_substring_regex(words, f"^(?:{NUMBER})$")):
        if pc.any(pc.match_substring_regex(words, "^0[0-9]+$")).as_py():
            # Postal codes and the like would lose their zeros.
            return "text"
        return "number" if len(words) == len(values) and not _missing(fields) else "number?"
    if _all(pc.is_in(pc.utf8_lower(words), _BOOLEANS)):
        return "boolean"
    zone = "UTC" if is_zoned(words[:1]).any() else ""
    found = [name for name in DATE_FORMATS if not np.isnan(dates(words, name, zone)).any()]
    return _date(found, zone) if found else "text"


def of_date(kind: str) -> tuple[list[str], str]:
    """The formats that dates of a kind may have, and their time zone, which may be empty."""
    formats, _, zone = kind.removeprefix("date:").partition("@")
    return formats.split("|"), zone


def _date(formats: Sequence[str], zone: str) -> str:
    return f"date:{'|'.join(formats)}" + f"@{zone}" * bool(zone)


def shown(kind: str) -> str:
    """What fields of a kind are, for a message."""
    if not kind.startswith("date:"):
        return kind.rstrip("?")
    formats, zone = of_date(kind)
    return f"date {' or '.join(formats)}" + " with an offset from UTC, such as +00:00" * bool(zone)


def join(left: str, right: str) -> str:
    """The kind of a column, some of whose fields are of one kind and some of another."""
    if left == right:
        return left
    for one, other in ((left, right), (right, left)):
        if one in ("empty", "number") and other == "number?":
            return other
        if one == "empty":
            return "number?" if other == "number" else other
    if left.startswith("date:") and right.startswith("date:"):
        (mine, zone), (theirs, other) = of_date(left), of_date(right)
        both = [name for name in mine if name in theirs]
        if both and zone == other:
            return _date(both, zone)
    return "text"


def _missing(fields: Any) -> bool:
    return bool(trimmed(fields).null_count)


def _all(found: Any) -> bool:
    return bool(pc.all(found, min_count=0).as_py())


def pointed(fields: Any, decimal: str) -> Any:
    """Texts with a point where those of numbers have another decimal sign."""
    if decimal == ".":
        return fields
    are = pc.match_substring_regex(fields, rf"^[+-]?[0-9]*\{decimal}[0-9]+(?:[eE][+-]?[0-9]+)?$")
    # A point is no sign of theirs: 1.5 is no number there.
    others = pc.replace_substring_regex(fields, r"^([+-]?[0-9]*)\.([0-9]+)$", r"\1·\2")
    return pc.if_else(are, pc.replace_substring(fields, decimal, "."), others)


def without_thousands(fields: Any, sign: str) -> Any:
    """Texts without separators of thousands where those of numbers have them."""
    pattern = rf"^[+-]?[0-9]{{1,3}}(?:[{sign}][0-9]{{3}})+(?:[.,][0-9]*)?$"
    are = pc.match_substring_regex(fields, pattern)
    return pc.if_else(are, pc.replace_substring(fields, sign, ""), fields)


def cleaned(fields: Any, thousands: str) -> Any:
    """Texts of numbers without signs of money, per cent, spaces and separators of thousands.

    An amount in brackets, as accountants write it, is negative.
    """
    fields = pc.replace_substring(fields, "\u00a0", "")
    fields = pc.replace_substring_regex(fields, _ORNAMENT, "")
    fields = pc.replace_substring_regex(fields, r"^\(([0-9.,]+)\)$", r"-\1")
    return without_thousands(fields, thousands) if thousands else fields


def numbers(fields: Any) -> tuple[Array, Array]:
    """Numbers (rows,) of texts, NaN where none is read, and which are neither that nor missing."""
    fields = trimmed(fields)
    are = pc.match_substring_regex(fields, f"^(?:{NUMBER})$")
    known = pc.or_(pc.fill_null(are, True), pc.is_in(fields, _MISSING_WORDS))
    found = pc.if_else(are, fields, pa.scalar(None, pa.string())).cast(pa.float64())
    values = found.to_numpy(zero_copy_only=False)
    return values, ~known.to_numpy(zero_copy_only=False) | np.isinf(values)


def is_given(fields: Any) -> Array:
    """Which texts (rows,) are no missing number, boolean or date. Beside texts, NA is Namibia."""
    fields = trimmed(fields)
    missing = pc.or_(pc.is_null(fields), pc.is_in(fields, _MISSING_WORDS))
    found: Array = ~missing.to_numpy(zero_copy_only=False)
    return found


def booleans(fields: Any) -> tuple[Array, Array]:
    """1 and 0 (rows,) of texts, NaN where none is read; and which are neither that nor missing."""
    lower = pc.utf8_lower(trimmed(fields))
    yes, no = (
        pc.is_in(lower, pa.array(words)).to_numpy(zero_copy_only=False) for words in (TRUE, FALSE)
    )
    values = np.where(yes, 1.0, np.where(no, 0.0, np.nan))
    return values, np.isnan(values) & is_given(fields)


def is_zoned(fields: Any) -> Array:
    """Which texts (rows,) end with a time of day and its offset from UTC."""
    found: Array = pc.fill_null(pc.match_substring_regex(fields, _ZONED), False).to_numpy(
        zero_copy_only=False
    )
    return found


def without_zone(fields: Any) -> Any:
    """Texts without the offsets from UTC of their times of day."""
    return pc.replace_substring_regex(fields, _ZONED, r"\1")


def dates(fields: Any, form: str, zone: str = "") -> Array:
    """Seconds since 1970 (rows,), float64, of dates; NaN where there is none of the format.

    They are those of the clock in a time zone, for which each must have an offset from UTC; without
    a zone none may have one.
    """
    pattern, order = _DATES[form]
    encoded = fields.dictionary_encode()
    parts = pc.extract_regex(encoded.dictionary, "^" + _named(pattern, order) + "$")
    values = np.full(len(encoded.dictionary) + 1, np.nan)
    are = pc.is_valid(parts).to_numpy(zero_copy_only=False)
    if are.any():
        values[:-1][are] = _seconds(parts.filter(pa.array(are)), zone)
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary))
    found: Array = values[codes.to_numpy(zero_copy_only=False)]
    return found


def on_clock(times: Any, zone: str) -> Any:
    """Arrow's times with a time zone as those of the clock in another one.

    Raises
    ------
    DataError
        This machine knows no such zone.
    """
    try:
        return pc.local_timestamp(times.cast(pa.timestamp("us", zone), safe=False))
    except pa.ArrowInvalid as error:
        raise DataError(f"the time zone {zone!r} is unknown on this machine: {error}") from error


def _named(pattern: str, order: str) -> str:
    """The pattern with a name for each group, as Arrow wants it."""
    for name in (*order, "H", "M", "S"):
        pattern = pattern.replace("(\\d", f"(?P<{name}>\\d", 1)
    return pattern


def _seconds(parts: Any, zone: str) -> Array:
    def part(name: str) -> Array:
        texts = pc.struct_field(parts, name)
        texts = pc.if_else(pc.equal(texts, ""), "0", texts)
        found: Array = texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return found

    year, month, day = part("y"), part("m"), part("d")
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    hour, minute, second = part("H"), part("M"), part("S")
    valid &= (hour < 24) & (minute < 60) & (second < 61)
    months = (year - 1970) * 12 + np.where(valid, month, 1) - 1
    first = months.astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    # 31 April is no date.
    valid &= days < (first + 1).astype("datetime64[D]").astype(np.int64)
    offsets = pc.struct_field(parts, "z").dictionary_encode()
    valid &= (pc.not_equal(offsets, "").to_numpy(zero_copy_only=False)) == bool(zone)
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    if zone:
        known = np.array([_offset(one) for one in offsets.dictionary.to_pylist()], np.int64)
        seconds -= known[offsets.indices.to_numpy()]
        if zone != "UTC":
            seconds = on_clock(pa.array(seconds, pa.timestamp("s", "UTC")), zone)
            seconds = seconds.cast(pa.int64()).to_numpy() // 10**6
    return np.where(valid, seconds, np.nan)


def _offset(text: str) -> int:
    """Seconds of ``+01:00``, ``+0100`` or ``+01``; none of others."""
    digits = text[1:].replace(":", "").ljust(4, "0")
    size = 3600 * int(digits[:2]) + 60 * int(digits[2:])
    return -size if text.startswith("-") else size


def number_advice(examples: Sequence[str], name: str) -> str | None:
    """Options by which fields of the column ``name``, quoted for a shell, are numbers, or None."""
    found = pa.array(examples, pa.string())
    bare, number = cleaned(found, ""), f"--number {name}"
    if not examples or not np.isnan(numbers(bare)[0]).any():
        return number if examples else None
    for pattern, advice in (
        (r"^[+-]?[0-9]{1,3}(,[0-9]{3})*$", "--thousands , (or --decimal ,)"),
        (r"^[+-]?[0-9]{1,3}(,[0-9]{3})*(\.[0-9]+)?$", "--thousands ,"),
        (r"^[+-]?([0-9]+|[0-9]*,[0-9]+)$", "--decimal ,"),
        (r"^[+-]?[0-9]{1,3}(\.[0-9]{3})*,[0-9]+$", "--decimal , --thousands ."),
    ):
        if _all(pc.match_substring_regex(bare, pattern)):
            return advice if bare.equals(found) else f"{number} and {advice}"
    return None


def date_error(examples: Iterable[str]) -> str | None:
    """What is wrong with fields that look like dates of several formats; None if not all do."""
    by_format: dict[str, str] = {}
    for example in examples:
        one = pa.array([example])
        zone = "UTC" if is_zoned(one)[0] else ""
        formats = [name for name in DATE_FORMATS if not np.isnan(dates(one, name, zone)).any()]
        if not formats and not _LIKE_DATE.fullmatch(example):
            return None
        form = " or ".join(formats) + " with an offset from UTC" * bool(formats and zone)
        by_format.setdefault(form or "none of these", example)
    return ", ".join(f"{example!r} ({form})" for form, example in by_format.items())
