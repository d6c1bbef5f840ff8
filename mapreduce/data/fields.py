"""Fields of columns: numbers, texts, and what stands for a missing number."""

import contextlib
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array
from mapreduce.errors import DataError

#: What to do about rows without a label.
NO_LABEL = ". Say --missing-label drop to leave such rows out"
#: Characters of a class.
LONGEST_CLASS = 1000
#: Characters of a field that a message shows.
MOST_CHARACTERS = 40

#: What stands for a missing number, beside nothing at all: the words of ``pandas.read_csv``.
MISSING = (
    *("NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NaN", "nan", "-NaN", "-nan"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "NULL", "null", "None"),
)

MISSING_WORDS = pa.array(MISSING, pa.string())

#: A number as Arrow reads it.
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?i:nan|inf|infinity)"


def texts(column: Any, words: Sequence[str] = ()) -> Any:
    """A column as texts without white space around them; null where nothing is left, or a word."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_time = pa.types.is_timestamp(column.type) or pa.types.is_time(column.type)
    column = column if column.type == pa.string() else column.cast(pa.string())
    column = pc.utf8_trim_whitespace(column)
    if is_time:
        # The same time is the same text, whatever the unit.
        zeros = r"(?:(\.[0-9]*[1-9])0+|\.0+)([Z+-].*)?$"
        column = pc.replace_substring_regex(column, zeros, r"\1\2")
    are = pc.is_in(column, pa.array(["", *words])) if words else pc.equal(column, "")
    return pc.if_else(are, pa.scalar(None, pa.string()), column)


def check_texts(column: Any, path: object, first: int, name: str) -> None:
    """Refuse a column of texts, if that is what it is, with bytes that are not UTF-8.

    See :func:`numbers` for the parameters.
    """
    if not is_text(column.type) or is_valid(column):
        return
    own = column.dictionary if pa.types.is_dictionary(column.type) else column
    kind = pa.large_binary() if pa.types.is_large_string(own.type) else pa.binary()
    if not pa.types.is_string_view(own.type) and not is_valid(own.cast(kind)):
        # Its offsets are damaged, which is another error: nothing of it can be read.
        return
    found = "a name beyond its dictionary"
    row = 0
    with contextlib.suppress(pa.lib.ArrowIndexError):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        row = bisect_left(range(len(column)), True, key=lambda at: not is_valid(column[: at + 1]))
        # No row may have the name that is wrong.
        if row == len(column):
            return
        raw = column[row : row + 1].cast(pa.binary())[0].as_py()
        found = repr(raw[:MOST_CHARACTERS])
    wrong = f"expected text in UTF-8, found {found}. Write the file again with its texts in UTF-8"
    raise bad_value(path, first, name, row, wrong)


def is_valid(column: Any) -> bool:
    """Whether an Arrow array holds what its type says."""
    try:
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def bytes_of(column: Any) -> tuple[Array, Array]:
    """Where each of some texts (n,) begins, (n + 1,), and their bytes, for kernels."""
    _, offsets, data = pa.concat_arrays([column]).cast(pa.string()).buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1) if len(column) else np.zeros(1, int)
    return bounds, np.frombuffer(data or b"", np.uint8)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def zone_of(kind: Any) -> str:
    """The time zone of an Arrow type; empty if it has none."""
    return kind.tz or "" if pa.types.is_timestamp(kind) else ""


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def plain_type(kind: Any) -> Any:
    """An Arrow type with texts in the place of views of texts, which data frames of Polars have."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type))
    return pa.string() if pa.types.is_string_view(kind) else kind


def without_views(column: Any) -> Any:
    """An array of :func:`plain_type`."""
    if not pa.types.is_dictionary(column.type) and not pa.types.is_string_view(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        names = without_views(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, names)
    return column.cast(plain_type(column.type))


def parsed(column: Any, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """The numbers of an Arrow column (rows,) of numbers, booleans or texts.

    Returns them, an array (rows,) of the dtype, NaN where one is missing; and which fields (rows,)
    are neither a finite number of the dtype nor missing.
    """
    words: Array = np.zeros(len(column), bool)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column, words = _parsed_texts(texts(column), pa.from_numpy_dtype(dtype))
    with np.errstate(over="ignore"):
        values = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return values, words | np.isinf(values)


def _parsed_texts(column: Any, kind: Any) -> tuple[Any, Array]:
    # A failing cast takes far longer than looking first.
    are = pc.match_substring_regex(column, f"^(?:{NUMBER})$")
    if pc.all(are, min_count=0).as_py():
        return column.cast(kind), np.zeros(len(column), bool)
    words = pc.invert(pc.or_(pc.fill_null(are, True), pc.is_in(column, MISSING_WORDS)))
    found = pc.if_else(are, column, pa.scalar(None, pa.string())).cast(kind)
    return found, words.to_numpy(zero_copy_only=False)


def ids_of(column: Any, path: AnyPath, first: int, name: str, rows: Array | None = None) -> Any:
    """A column of ids as texts (rows,); see :func:`classes` for the parameters."""
    found = texts(column)
    if found.null_count:
        row = pc.index(pc.is_null(found), True).as_py()
        row = row if rows is None else int(rows[row])
        raise bad_value(path, first, name, row, "expected an id, found nothing")
    return found


class BadValue(DataError):
    """A field that cannot be used: its row in the block, from 0 on, its column, and why."""

    row, column, why = 0, "", ""


def bad_value(path: object, first: int, name: str, row: int, found: str) -> BadValue:
    """The error for the row ``first + row``, counted from 1 on."""
    error = BadValue(f"{path}, row {first + row + 1}, column {name}: {found}")
    error.row, error.column, error.why = row, name, found
    return error


def numbers(column: Any, dtype: np.dtype[Any], path: AnyPath, first: int, name: str) -> Array:
    """A column of numbers as an array (rows,).

    ``path``, ``first``, ``name``: File, rows of the file before these, and name of the column, for
      messages.

    Raises DataError (one is missing, or not finite as a number of the dtype).
    """
    found, bad = parsed(column, dtype)
    bad |= np.isnan(found)
    if bad.any():
        row = int(bad.argmax())
        value = field_text(column[row].as_py(), dtype)
        raise bad_value(path, first, name, row, f"expected a finite number, found {value}")
    return found


def field_text(value: Any, dtype: np.dtype[Any]) -> str:
    """Show a field that is not a finite number of a dtype, for a message."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, str) and not re.fullmatch(NUMBER, value.strip()):
        return repr(value[:MOST_CHARACTERS]) + "…" * (len(value) > MOST_CHARACTERS)
    with np.errstate(over="ignore"):
        number = dtype.type(value)
    if dtype != np.float32 or np.isnan(number):
        return str(float(value))
    return f"{float(value)}; numbers beyond 3.4e38 overflow float32: take --dtype float64"


def classes(column: Any, path: AnyPath, first: int, name: str, rows: Array | None = None) -> Array:
    """A column of classes as an array (rows,) of integers, or of ``str`` objects.

    ``rows`` are the numbers of the rows after the first, if some were left out. A class may not be
    missing, long, of several lines, or a number but no integer.
    """

    def bad(row: int, found: str) -> DataError:
        return bad_value(path, first, name, row if rows is None else int(rows[row]), found)

    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise bad(row, f"expected a label, found nothing{NO_LABEL}")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_floating(column.type):
        found: Array = column.to_numpy(zero_copy_only=False).astype(np.float64)
        whole = (found == np.floor(found)) & (np.abs(found) < 2**53)
        if not whole.all():
            row = int((~whole).argmax())
            expected = (
                f"expected an integer or a name as class, found {found[row]} (numbers to be "
                f"predicted need --task regression and a model of numbers, such as linear)"
            )
            raise bad(row, expected)
        return found.astype(np.int64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        integers: Array = column.to_numpy()
        return integers
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise bad(0, f"expected integers or texts as classes, found the type {column.type}")
    column = pc.utf8_trim_whitespace(column)
    # A quote left open would take the rows up to the next quote into one label.
    for wrong, expected in (
        (pc.equal(column, ""), f"expected a label, found nothing{NO_LABEL}"),
        (
            pc.match_substring_regex(column, "[\r\n]"),
            "a label over several lines: close its quote, or drop the line ends",
        ),
    ):
        if pc.any(wrong).as_py():
            raise bad(pc.index(wrong, True).as_py(), expected)
    lengths = pc.utf8_length(column).to_numpy()
    if (lengths > LONGEST_CLASS).any():
        row = int(lengths.argmax())
        expected = (
            f"expected a class of at most {LONGEST_CLASS:,} characters, found {lengths[row]:,}. Is "
            f"it the column of labels, and are all quotes closed?"
        )
        raise bad(row, expected)
    # Not NumPy's own texts, each of which takes the space of the longest.
    names: Array = column.to_numpy(zero_copy_only=False)
    return names
