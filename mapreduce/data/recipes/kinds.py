"""Kinds of columns: what the fields of a text file look like, and how they are read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data.batch import Array
from mapreduce.data.fields import MISSING_WORDS, MOST_CHARACTERS, NUMBER, parsed, texts
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

_LIKE_DATE = "|".join(rf"[0-9]{{1,4}}{s}[0-9]{{1,2}}{s}[0-9]{{1,4}}" for s in ("-", "/", "[.]"))
_MONTH = "(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
_MONTH += "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)[.]?"
_DAY, _YEAR = "[0-9]{1,2}(?:st|nd|rd|th)?", "(?:1[6-9]|20|21)[0-9]{2}"
_LIKE_DATE += (
    rf"|(?:{_DAY}[-/ .]+)?{_MONTH}[-/ ,]*(?:{_YEAR}|[0-9]{{2}})|{_MONTH} *{_DAY},? *{_YEAR}"
)
_LIKE_DATE += rf"|{_YEAR}[-/ ](?:(?:0[1-9]|1[0-2])|{_MONTH}(?:[-/ ]{_DAY})?)|[01]?[0-9]/{_YEAR}"
#: Decimal signs and separators of thousands, the more likely first.
_SIGNS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", "_"))

_BOOLEANS = pa.array(TRUE + FALSE)
#: What a number may have around and in it that is not part of it: units of money, spaces, percent.
_ORNAMENT = r"[\s%€$£¥'’\x{a0}\x{2007}\x{2009}\x{202f}]|EUR|USD|GBP|CHF"


def kind_of(fields: Any) -> str:
    """The kind of a column of which these are some fields (rows,), texts.

    Returns ``empty`` if all are missing, ``number``, ``number?`` if some are missing, ``boolean``,
    ``date:FORMAT`` (``date:FORMAT|FORMAT`` if the fields do not tell), ``date:FORMAT@UTC`` if all
    have an offset from UTC, or ``text``.
    """
    values = texts(pc.unique(fields)).drop_null()
    words = values.filter(pc.invert(pc.is_in(values, MISSING_WORDS)))
    if not len(words):
        return "empty"
    if _all(pc.match_substring_regex(words, f"^(?:{NUMBER})$")):
        if has_codes(words):
            return "text"
        return "number" if len(words) == len(values) and not _missing(fields) else "number?"
    if _all(pc.is_in(pc.utf8_lower(words), _BOOLEANS)):
        return "boolean"
    zone = "UTC" if pc.match_substring_regex(words[0], _ZONED).as_py() else ""
    found = [name for name in DATE_FORMATS if not np.isnan(dates(words, name, zone)).any()]
    return _date(found, zone) if found else "text"


def of_date(kind: str) -> tuple[list[str], str]:
    """The formats that dates of a kind may have, and their time zone, which may be empty."""
    formats, _, zone = kind.removeprefix("date:").partition("@")
    return formats.split("|"), zone


def _date(formats: Sequence[str], zone: str) -> str:
    return f"date:{'|'.join(formats)}" + f"@{zone}" * bool(zone)


def kind_text(kind: str) -> str:
    """What fields of a kind are, for a message."""
    what, _, zone = kind.rstrip("?").replace(":", " ").replace("|", " or ").partition("@")
    return what + " with an offset from UTC, such as +00:00" * bool(zone)


def has_codes(fields: Any) -> bool:
    """Whether some texts are postal codes and the like, which would lose their zeros as numbers."""
    return bool(pc.any(pc.match_substring_regex(fields, r"^\s*0[0-9]+\s*$")).as_py())


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
    return bool(texts(fields).null_count)


def _all(found: Any) -> bool:
    return bool(pc.all(found, min_count=0).as_py())


def signed(fields: Any, decimal: str, thousands: str = "") -> Any:
    """Texts in which numbers that are written with other signs are as a program writes them."""
    if thousands:
        groups = f"(?:[{thousands}][0-9]{{3}})+|(?:[{thousands}][0-9]{{2}})+[{thousands}][0-9]{{3}}"
        pattern = rf"^[+-]?[0-9]{{1,3}}(?:{groups})(?:[{decimal}][0-9]*)?$"
        are = pc.match_substring_regex(fields, pattern)
        fields = pc.if_else(are, pc.replace_substring(fields, thousands, ""), fields)
    if decimal == ".":
        return fields
    are = pc.match_substring_regex(fields, rf"^[+-]?[0-9]*\{decimal}[0-9]+(?:[eE][+-]?[0-9]+)?$")
    # A point is no sign of theirs: 1.5 is no number there.
    others = pc.replace_substring_regex(fields, r"^([+-]?[0-9]*)\.([0-9]+)$", r"\1·\2")
    return pc.if_else(are, pc.replace_substring(fields, decimal, "."), others)


def cleaned(fields: Any) -> Any:
    """Texts of numbers without signs of money, per cent, and spaces.

    An amount in brackets, as accountants write it, is negative.
    """
    fields = pc.replace_substring_regex(fields, _ORNAMENT, "")
    fields = pc.replace_substring(fields, "−", "-")
    return pc.replace_substring_regex(fields, r"^\(([0-9.,]+)\)$", r"-\1")


def numbers(fields: Any) -> tuple[Array, Array]:
    """Numbers (rows,) of texts, NaN where none is read, and which are neither that nor missing."""
    return parsed(fields, np.dtype(np.float64))


def is_given(fields: Any) -> Array:
    """Which texts (rows,) are no missing number, boolean or date. Beside texts, NA is Namibia."""
    fields = texts(fields)
    missing = pc.or_(pc.is_null(fields), pc.is_in(fields, MISSING_WORDS))
    found: Array = ~missing.to_numpy(zero_copy_only=False)
    return found


def booleans(fields: Any) -> tuple[Array, Array]:
    """1 and 0 (rows,) of texts, NaN where none is read; and which are neither that nor missing."""
    lower = pc.utf8_lower(texts(fields))
    yes, no = (
        pc.is_in(lower, pa.array(words)).to_numpy(zero_copy_only=False) for words in (TRUE, FALSE)
    )
    values = np.where(yes, 1.0, np.where(no, 0.0, np.nan))
    return values, np.isnan(values) & is_given(fields)


def words(fields: Any) -> tuple[Array, Any]:
    """The words of texts, in lower case: the number of each word's text, and the words."""
    split = pc.split_pattern_regex(pc.utf8_lower(fields), r"[^\pL\pN_]+")
    owners, flat = pc.list_parent_indices(split).to_numpy(), pc.list_flatten(split)
    are = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    return owners[are], flat.filter(pa.array(are))


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
    parts = pc.extract_regex(encoded.dictionary, "^" + _name_groups(pattern, order) + "$")
    values = np.full(len(encoded.dictionary) + 1, np.nan)
    are = pc.is_valid(parts).to_numpy(zero_copy_only=False)
    if are.any():
        values[:-1][are] = _seconds(parts.filter(pa.array(are)), zone)
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary))
    found: Array = values[codes.to_numpy(zero_copy_only=False)]
    return found


def on_clock(times: Any, zone: str) -> Any:
    """Arrow's times with a time zone as those of the clock in another one that is known here."""
    try:
        return pc.local_timestamp(times.cast(pa.timestamp("us", zone), safe=False))
    except pa.ArrowInvalid as error:
        raise DataError(f"the time zone {zone!r} is unknown on this machine: {error}") from error


def _name_groups(pattern: str, order: str) -> str:
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


def as_hashed(values: Array, kind: str) -> Any:
    """A column (rows,) as it is hashed: numbers, or the texts of booleans and dates.

    The texts do not depend on how a file writes them: ``true``, ``2024-02-29``, or with a time of
    day ``2024-02-29 12:30:00``, and ``Z`` at the end of an instant.
    """
    if kind == "number":
        return values
    missing = np.isnan(values)
    if kind == "boolean":
        return pc.if_else(pa.array(values == 1, mask=missing), "true", "false")
    seconds = np.floor(np.where(missing, 0.0, values)).astype(np.int64)
    texts = pa.array(seconds, pa.timestamp("s"), mask=missing).cast(pa.string())
    texts = pc.replace_substring(texts, " 00:00:00", "")
    return pc.binary_join_element_wise(texts, "Z", "") if of_date(kind)[1] else texts


def number_advice(
    examples: Sequence[str], name: str, decimal: str = ".", thousands: str = ""
) -> str | None:
    """Options by which fields of the column ``name``, quoted for a shell, are numbers, or None.

    The fields are no numbers with the signs that are said already.
    """
    found = pa.array(examples, pa.string())

    def are_read(fields: Any, decimal: str, thousands: str) -> bool:
        values, _ = numbers(signed(fields, decimal, thousands))
        return bool(len(values)) and not np.isnan(values).any()

    for fields, own in ((found, ""), (cleaned(found), f"--number {name}")):
        if are_read(fields, decimal, thousands):
            return own
        ways = [
            f"--decimal {signs[0]} " * (signs[0] != decimal)
            + f"--thousands {signs[1] or repr('')}" * (signs[1] != thousands)
            for signs in _SIGNS
            if signs[1] in "".join(examples) and are_read(fields, *signs)
        ]
        if ways:
            advice = " (or ".join(way.rstrip() for way in ways[:2]) + ")" * (len(ways) > 1)
            return f"{own} and {advice}" if own else advice
    return None


def date_forms(fields: Any, counts: Array) -> dict[str, tuple[int, str]]:
    """How often different texts (n,), with their counts, are dates of each format, and which first.

    Those that look like a date and are none are ``none of these``, and all others ``""``.
    """
    like = pc.match_substring_regex(fields, f"^(?:{_LIKE_DATE})(?:[ T][0-9].*)?$")
    are_like = like.to_numpy(zero_copy_only=False)
    texts, forms = fields.filter(like), np.full(len(fields), "", object)
    own = np.full(len(texts), "", object)
    for zone, end in (("", ""), ("UTC", " with an offset from UTC")):
        for name in DATE_FORMATS:
            are = ~np.isnan(dates(texts, name, zone))
            own[are] = [f"{form} or {name}{end}" if form else name + end for form in own[are]]
    forms[are_like] = np.where(own == "", "none of these", own)
    found = {}
    for form in sorted({*forms.tolist()}):
        are = forms == form
        first = pc.min_max(fields.filter(pa.array(are)))["min"].as_py()
        found[form] = int(counts[are].sum()), first[:MOST_CHARACTERS]
    return found


def date_error(forms: Mapping[str, tuple[int, str]], rows: int) -> str | None:
    """What is wrong with fields most of which look like dates of :func:`date_forms`; else None."""
    if 2 * sum(count for form, (count, _) in forms.items() if form) <= rows:
        return None
    shown = sorted((text, form) for form, (_, text) in forms.items())
    return ", ".join(f"{text!r} ({form or 'none of these'})" for text, form in shown)
