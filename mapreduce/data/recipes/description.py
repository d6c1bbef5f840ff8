"""A description of the columns of a table, for people who decide what to do with them."""

import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data.batch import Array
from mapreduce.data.recipes import kinds as kinds_of
from mapreduce.data.recipes import quantiles
from mapreduce.data.recipes.summary import Column, Numbers, Summary, Texts, distinct
from mapreduce.report.text import aligned
from mapreduce.support.words import count

#: The largest ratio of standard deviations that is not worth a word.
SCALES = 100
#: Rows of which ids can be told, and the share of them that differ.
_ID_ROWS, _ID_SHARE = 20, 0.99
#: The share of fields that look like numbers of which it is said.
_NUMBERS_SHARE = 0.9
_FREQUENT = 3


def describe(
    summary: Summary, kinds: Mapping[str, str], leaks: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Types, missing and different values, ranges and most frequent values of all columns.

    ``summary`` is a detailed one, ``leaks`` what :func:`leaks` has found. Returns JSON: ``rows``,
    ``columns`` with an object for each, and ``notes``, a list of texts. Quantiles are off by up to
    :data:`mapreduce.data.recipes.quantiles.RELATIVE_ERROR` of their value.
    """
    columns = {
        name: _column(name, column, kinds[name], summary.rows, (leaks or {}).get(name))
        for name, column in summary.columns.items()
    }
    notes = [f"{name}: {note}" for name, column in columns.items() for note in column["notes"]]
    spread = {
        name: column["deviation"]
        for name, column in columns.items()
        if column["kind"] == "number" and column["deviation"] and not column["suspected_id"]
    }
    if spread:
        small, large = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
        if spread[large] > SCALES * spread[small]:
            notes.append(
                f"scales differ: the standard deviation of {large} is {spread[large]:.3g}, that of "
                f"{small} {spread[small]:.3g}. 'gradreduce data import' standardises them"
            )
    return {
        "rows": summary.rows,
        "columns": columns,
        "quantiles_relative_error": quantiles.RELATIVE_ERROR,
        "notes": notes,
    }


def _column(name: str, column: Column, kind: str, rows: int, leak: str | None) -> dict[str, Any]:
    hashes = column.hashes if column.hashes is not None else np.empty(0, np.uint64)
    count, exact = distinct(hashes)
    if isinstance(column, Texts) and column.values is not None:
        count, exact = len(column.values), True
    count = min(count, column.rows)
    many = column.rows >= _ID_ROWS and count >= _ID_SHARE * column.rows
    found: dict[str, Any] = {
        "kind": kind.partition(":")[0].removesuffix("?"),
        "missing": column.missing,
        "distinct": count,
        "distinct_is_exact": exact,
        "notes": [],
    }
    notes = found["notes"]
    if ":" in kind:
        found["format"], _, zone = kind.partition(":")[2].partition("@")
        if zone:
            found["zone"] = zone
        if "|" in kind:
            notes.append(f"its dates may be {found['format'].replace('|', ' or ')}")
    whole = isinstance(column, Texts) or (column.whole and kind.startswith("number"))
    advice = _number_advice(name, column) if isinstance(column, Texts) else None
    found["suspected_id"] = bool(many and whole and column.rows and advice is None)
    if not column.rows:
        notes.append("all of its fields are missing")
    elif count == 1:
        same = "all fields that are not missing are the same"
        notes.append(same if column.missing else "it is the same in all rows")
    elif advice is not None:
        notes.append(advice)
    elif found["suspected_id"]:
        own = shlex.quote(name)
        notes.append(f"nearly all values differ: say --id {own} if it is one, or --drop {own}")
    if leak is not None:
        notes.append(leak)
    if isinstance(column, Numbers):
        found |= _numbers(column)
    elif column.values is not None:
        most = sorted(column.values.items(), key=lambda pair: (-pair[1], pair[0]))[:_FREQUENT]
        found["most_frequent"] = dict(most)
        if column.words and 2 * column.numeric > column.rows and advice is None:
            notes.append(
                f"{column.numeric:,} of its fields are numbers, others are not: "
                f"{', '.join(map(repr, column.words[:5]))}"
            )
    return found


def _number_advice(name: str, column: Texts) -> str | None:
    """What to say if nearly all fields, or those known, are numbers with other signs in them."""
    words = column.values or dict.fromkeys(column.words, 1)
    texts, counts = pa.array([*words], pa.string()), np.array([*words.values()])
    values, others = kinds_of.numbers(texts)
    bare = kinds_of.cleaned(texts)
    like = pc.match_substring_regex(bare, "^[+-]?[0-9][0-9.,_]*$").to_numpy(zero_copy_only=False)
    examples = texts.filter(pa.array(others & like)).to_pylist()
    is_given = others | ~np.isnan(values)
    advice = kinds_of.number_advice(examples, shlex.quote(name))
    if advice is None or counts[like].sum() < _NUMBERS_SHARE * counts[is_given].sum():
        return None
    rest = texts.filter(pa.array(others & ~like)).to_pylist()[:3]
    advice += "".join(f" and --na {shlex.quote(word)}" for word in rest)
    shown = ", ".join(map(repr, examples[:3]))
    return f"its fields look like numbers, such as {shown}: say {advice} if they are"


def _numbers(column: Numbers) -> dict[str, Any]:
    if not column.rows or column.sketch is None:
        return {"deviation": None}
    quarters = {
        name: column.sketch.quantile(share)
        for name, share in (("lower_quartile", 0.25), ("median", 0.5), ("upper_quartile", 0.75))
    }
    deviation = float(np.sqrt(column.squares / column.weight)) if column.weight else 0.0
    return {
        "least": column.least,
        **quarters,
        "most": column.most,
        "mean": column.mean,
        "deviation": deviation,
    }


def leaks(columns: Mapping[str, Any], label: str) -> dict[str, str]:
    """Columns that give the label away, by some rows.

    A column does if one number, or the sign of a difference, tells the label of every row: numbers
    that are correlated with a numeric label by more than 0.999; numbers whose ranges do not overlap
    between any two of the classes; names that always come with one class, and several times.
    """
    target = columns[label]
    others = {name: column for name, column in columns.items() if name != label}
    is_number = isinstance(target, np.ndarray)
    codes = _codes(target)
    if is_number and len(np.unique(codes)) > 20:
        found = {name: _correlation(column, target) for name, column in others.items()}
        return {
            name: f"it is correlated with {label} by {value:.4f}: does it give it away?"
            for name, value in found.items()
            if abs(value) > 0.999
        }
    return {
        name: f"it tells {label} in the first {len(codes):,} rows: does it give it away?"
        for name, column in others.items()
        if len(codes) >= _ID_ROWS and _tells(column, codes)
    }


def _codes(column: Any) -> Array:
    """A number for each different value of a column, -1 where it is missing."""
    if isinstance(column, np.ndarray):
        _, codes = np.unique(column, return_inverse=True)
        return np.where(np.isnan(column), -1, codes)
    found: Array = pc.fill_null(column.dictionary_encode().indices, -1).to_numpy()
    return found


def _correlation(column: Any, target: Array) -> float:
    if not isinstance(column, np.ndarray):
        return 0.0
    both = ~np.isnan(column) & ~np.isnan(target)
    x, y = column[both], target[both]
    if len(x) < _ID_ROWS or not x.std() or not y.std():
        return 0.0
    return float(((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std()))


def _tells(column: Any, codes: Array) -> bool:
    known = codes >= 0
    classes = np.unique(codes[known])
    if len(classes) < 2:
        return False
    if isinstance(column, np.ndarray):
        known &= ~np.isnan(column)
        if not known.any():
            return False
        order = np.flatnonzero(known)[np.argsort(codes[known], kind="stable")]
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        least, most = (
            end.reduceat(column[order], starts).tolist() for end in (np.minimum, np.maximum)
        )
        ends = zip(least, most, strict=True)
        return all(left[1] < right[0] for left, right in pairwise(sorted(ends)))
    own = _codes(column)
    known &= own >= 0
    pairs = np.unique(np.stack([own[known], codes[known]]), axis=1)
    levels = len(np.unique(own[known]))
    return pairs.shape[1] == levels and levels >= len(classes) and 4 * levels <= known.sum()


def as_text(found: Mapping[str, Any]) -> str:
    """The description as a table for a terminal."""
    heads = ("column", "kind", "missing", "distinct", "values")
    rows = [heads]
    for name, column in found["columns"].items():
        missing = column["missing"]
        share = f"{missing:,} ({missing / max(found['rows'], 1):.1%})" if missing else ""
        about = "" if column["distinct_is_exact"] else "about "
        distinct = f"{about}{column['distinct']:,}"
        rows.append((name, column["kind"], share, distinct, _values(column)))
    lines = [count(found["rows"], "row"), "", *aligned(rows, left=len(heads))]
    return "\n".join([*lines, *([""] if found["notes"] else []), *found["notes"]])


def _values(column: Mapping[str, Any]) -> str:
    if "most_frequent" in column:
        return ", ".join(f"{value} ({count:,})" for value, count in column["most_frequent"].items())
    if column.get("median") is None:
        return ""
    names = ("least", "lower_quartile", "median", "upper_quartile", "most")
    numbers = [column[name] for name in names]
    if column["kind"] == "date":
        whole = all(column[end] % 86400 == 0 for end in ("least", "most"))
        shown = [str(np.datetime64(int(numbers[i]), "s")) for i in (0, 2, 4)]
        return " .. ".join(one[: 10 if whole else 16] for one in shown)
    return " .. ".join(f"{number:.6g}" for number in numbers)
