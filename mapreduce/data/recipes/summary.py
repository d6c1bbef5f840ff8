"""What is known about the columns of some rows: statistics that combine along a tree."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data import order
from mapreduce.data.batch import Array
from mapreduce.data.hashing import murmur3
from mapreduce.data.recipes import kinds, quantiles
from mapreduce.data.recipes.quantiles import Sketch
from mapreduce.reduction import exact
from mapreduce.reduction.message import Message

#: The most different texts that are counted one by one, and the most characters of them together.
MOST_VALUES, MOST_CHARACTERS = 10_000, 1 << 20
#: Hashes kept to estimate how many different values there are: an error of about 2 %.
HASHES = 2048
#: For messages: so many texts, and so many of their characters.
_SHOWN_WORDS, _SHOWN_CHARACTERS = 8, 40
_FLOATS = ("least", "most")

Sums = tuple[int, int, int, int]


@dataclass(frozen=True)
class Numbers:
    """A column of numbers, booleans (0 and 1) or dates (seconds since 1970).

    ``rows``, ``missing``: Rows with and without a number.
    ``least``, ``most``: NaN if there is no number.
    ``sums``: Those of the weights of both kinds of rows, of the weighted numbers and of their
      squares, by :mod:`mapreduce.reduction.exact`; -1 where squares would overflow.
    ``whole``: Whether all are integers, if that was asked for; for dates, whether none has a time
      of day.
    ``hashes``: The least hashes of the different numbers; see :func:`distinct`.
    """

    rows: int
    missing: int
    least: float
    most: float
    sums: Sums
    whole: bool
    sketch: Sketch | None
    hashes: Array | None

    @property
    def weight(self) -> float:
        """The sum of the weights of rows with a number."""
        return exact.rounded(self.sums[0])

    @property
    def missing_weight(self) -> float:
        """The sum of the weights of rows without one."""
        return exact.rounded(self.sums[1])

    @property
    def mean(self) -> float:
        """The weighted mean; 0 without weight."""
        return self.sums[2] / self.sums[0] if self.sums[0] else 0.0

    @property
    def squares(self) -> float:
        """The weighted sum of squared differences from the mean, infinite if it overflows."""
        weight, _, first, second = self.sums
        if second < 0 or not weight:
            return np.inf if second < 0 else 0.0
        return exact.rounded(max(0, second * weight - first * first) // weight)


@dataclass(frozen=True)
class Texts:
    """A column of texts.

    ``values``: How often each text comes; None if there are too many.
    ``hashes``: The least hashes of the different texts.
    ``numeric``, ``absent``: Rows whose text is a number, and those where it would stand for a
      missing number.
    ``spaced``, ``word_count``: Rows whose text has a space in it, and the words of these texts.
    ``vocabulary``: The least hashes of the different words.
    ``words``: The first texts in sorted order that are not numbers, cut if they are long.
    ``forms``: See :func:`mapreduce.data.recipes.kinds.date_forms`; of texts that stand for no
      missing one.
    """

    rows: int
    missing: int
    values: dict[str, int] | None
    hashes: Array
    vocabulary: Array
    numeric: int
    absent: int
    spaced: int
    word_count: int
    words: tuple[str, ...]
    forms: dict[str, tuple[int, str]]


Column = Numbers | Texts


@dataclass(frozen=True)
class Summary:
    """Statistics of some rows.

    ``kinds``: The kind of each column, as these rows alone show it.
    ``columns``: Statistics by the columns' names; empty if the kinds differ from those that were
      expected, since all rows must be read again then.
    """

    rows: int
    kinds: dict[str, str]
    columns: dict[str, Column]


def numbers(
    values: Array, weights: Array | None, unit: float | None, *, sketched: bool, hashed: bool
) -> Numbers:
    """The statistics of numbers (rows,), float64, NaN where one is missing.

    ``whole`` says whether all are multiples of the ``unit``, if there is one.
    """
    missing, missing_weight = 0, 0
    # The least of numbers is NaN if one of them is.
    if len(values) and np.isnan(values.min()):
        is_missing = np.isnan(values)
        missing = int(is_missing.sum())
        missing_weight = _weight_of(missing, None if weights is None else weights[is_missing])
        values = values[~is_missing]
        weights = None if weights is None else weights[~is_missing]
    rows = len(values)
    least, most = (float(values.min()), float(values.max())) if rows else (np.nan, np.nan)
    whole = unit is None or bool((np.floor(values / unit) * unit == values).all())
    # Zeros have one sign.
    own = _hashes(order.keys_of(0, 0, (values + 0.0).view(np.int64))) if hashed else None
    found = quantiles.sketch(values, weights) if sketched else None
    sums = _weight_of(rows, weights), missing_weight, *_moments(values, weights)
    return Numbers(rows, missing, least, most, sums, whole, found, own)


def _weight_of(rows: int, weights: Array | None) -> int:
    return rows * exact.ONE if weights is None else exact.total(weights)


def _moments(values: Array, weights: Array | None) -> tuple[int, int]:
    """The sums of numbers and of their squares, weighted."""
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = [values], exact.square(values)
        if weights is not None:
            first = exact.product(weights, values)
            second = [part for one in second for part in exact.product(weights, one)]
        try:
            return sum(map(exact.total, first)), sum(map(exact.total, second))
        except (OverflowError, ValueError):
            # Squares beyond 1e308 are refused when the recipe is fitted, if it needs them.
            return sum(map(exact.total, map(np.nan_to_num, first))), -1


def texts(column: Any, plain: Callable[[Any], Any] = lambda fields: fields) -> Texts:
    """The statistics of texts (rows,), null if missing; ``plain`` rewrites numbers among them."""
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    counts = np.bincount(
        encoded.indices.drop_null().to_numpy(zero_copy_only=False), minlength=len(distinct)
    )
    values, others = kinds.numbers(plain(distinct))
    absent = np.isnan(values) & ~others
    spaced = pc.match_substring(distinct, " ").to_numpy(zero_copy_only=False)
    start = pc.utf8_slice_codeunits(distinct, 0, _SHOWN_CHARACTERS)
    is_long = pc.not_equal(pc.binary_length(start), pc.binary_length(distinct))
    shown = pc.if_else(is_long, pc.binary_join_element_wise(start, "…", ""), start)
    owners, words = kinds.words(distinct.filter(pa.array(spaced)))
    return Texts(
        len(column) - column.null_count,
        column.null_count,
        _value_counts(distinct, counts),
        _text_hashes(distinct),
        _text_hashes(words.unique()),
        int(counts[~others & ~absent].sum()),
        int(counts[absent].sum()),
        int(counts[spaced].sum()),
        int(counts[spaced][owners].sum()),
        tuple(sorted(set(shown.filter(pa.array(others)).to_pylist()))[:_SHOWN_WORDS]),
        kinds.date_forms(distinct.filter(pa.array(~absent)), counts[~absent]),
    )


def _value_counts(values: Any, counts: Array) -> dict[str, int] | None:
    characters = pc.sum(pc.utf8_length(values), min_count=0).as_py()
    if len(values) > MOST_VALUES or characters > MOST_CHARACTERS:
        return None
    return dict(zip(values.to_pylist(), counts.tolist(), strict=True))


def _text_hashes(texts: Any) -> Array:
    # Two hashes of 32 bits make one of 64.
    low, high = (murmur3(texts, seed).astype(np.uint64) for seed in (0, 1))
    return _hashes((high << np.uint64(32)) | low)


def _hashes(found: Array) -> Array:
    return np.unique(found)[:HASHES]


def distinct(hashes: Array) -> tuple[int, bool]:
    """How many different values there are, and whether that is exact.

    From the ``k``-th smallest of hashes that are spread evenly: Z. Bar-Yossef and others, "Counting
    distinct elements in a data stream", 2002. The relative standard error is ``1 / sqrt(k - 2)``.
    """
    if len(hashes) < HASHES:
        return len(hashes), True
    return round((HASHES - 1) * 2.0**64 / float(hashes[-1])), False


def combine(left: Summary, right: Summary) -> Summary:
    """The statistics of the rows of both."""
    names = left.kinds
    joined = {name: kinds.join(names[name], right.kinds[name]) for name in names}
    columns: dict[str, Column] = {}
    if left.columns and right.columns:
        columns = {name: _join(left.columns[name], right.columns[name]) for name in left.columns}
    return Summary(left.rows + right.rows, joined, columns)


def _join(left: Column, right: Column) -> Column:
    if isinstance(left, Texts) and isinstance(right, Texts):
        return Texts(
            left.rows + right.rows,
            left.missing + right.missing,
            _add_counts(left.values, right.values),
            _hashes(np.concatenate([left.hashes, right.hashes])),
            _hashes(np.concatenate([left.vocabulary, right.vocabulary])),
            left.numeric + right.numeric,
            left.absent + right.absent,
            left.spaced + right.spaced,
            left.word_count + right.word_count,
            tuple(sorted({*left.words, *right.words})[:_SHOWN_WORDS]),
            _forms(left.forms, right.forms),
        )
    assert isinstance(left, Numbers) and isinstance(right, Numbers), "columns of one kind"
    both = left.hashes is not None and right.hashes is not None
    return Numbers(
        left.rows + right.rows,
        left.missing + right.missing,
        float(np.fmin(left.least, right.least)),
        float(np.fmax(left.most, right.most)),
        _sums(left.sums, right.sums),
        left.whole and right.whole,
        quantiles.merge(left.sketch, right.sketch) if left.sketch and right.sketch else None,
        _hashes(np.concatenate([left.hashes, right.hashes])) if both else None,
    )


def _sums(left: Sums, right: Sums) -> Sums:
    weight, missing, first, second = map(operator.add, left, right)
    return weight, missing, first, -1 if min(left[3], right[3]) < 0 else second


def _add_counts(left: dict[str, int] | None, right: dict[str, int] | None) -> dict[str, int] | None:
    if left is None or right is None:
        return None
    total = dict(left)
    for value, count in right.items():
        total[value] = total.get(value, 0) + count
    few = len(total) <= MOST_VALUES and sum(map(len, total)) <= MOST_CHARACTERS
    return total if few else None


def _forms(
    left: dict[str, tuple[int, str]], right: dict[str, tuple[int, str]]
) -> dict[str, tuple[int, str]]:
    both = {form: (left[form], right[form]) for form in left if form in right}
    joined = {form: (a[0] + b[0], min(a[1], b[1])) for form, (a, b) in both.items()}
    return {**left, **right, **joined}


def to_message(summary: Summary) -> Message:
    columns: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for place, (name, column) in enumerate(summary.columns.items()):
        content: dict[str, Any] = dict(vars(column))
        for part in ("sketch", "hashes", "vocabulary"):
            if (found := content.pop(part, None)) is not None:
                for i, array in enumerate(found if part == "sketch" else (found,)):
                    arrays[f"{place}.{part}.{i}"] = array
        if isinstance(column, Numbers):
            # JSON has no NaN, and no infinite number.
            arrays[f"{place}.floats"] = np.array([content.pop(name) for name in _FLOATS])
        columns[name] = content
    rest = {"rows": summary.rows, "kinds": summary.kinds}
    return Message({**rest, "columns": columns}, arrays)


def from_message(message: Message) -> Summary:
    columns: dict[str, Column] = {}
    for place, (name, content) in enumerate(message.meta["columns"].items()):

        def array(part: str, place: int = place) -> Array | None:
            return message.arrays.get(f"{place}.{part}")

        floats, cells = array("floats"), array("sketch.0")
        if floats is None:
            content["words"] = tuple(content["words"])
            content["forms"] = {form: tuple(found) for form, found in content["forms"].items()}
            hashes = {part: array(f"{part}.0") for part in ("hashes", "vocabulary")}
            columns[name] = Texts(**content, **hashes)  # type: ignore[arg-type]
        else:
            content["sums"] = tuple(content["sums"])
            found = None if cells is None else Sketch(cells, array("sketch.1"))  # type: ignore[arg-type]
            given = dict(zip(_FLOATS, floats.tolist(), strict=True))
            columns[name] = Numbers(**content, **given, sketch=found, hashes=array("hashes.0"))
    rest = {name: message.meta[name] for name in ("rows", "kinds")}
    return Summary(**rest, columns=columns)


def of(
    rows: int,
    found: Mapping[str, str],
    values: Mapping[str, Any],
    weights: Array | None,
    *,
    detailed: bool = False,
    plain: Callable[[Any], Any] = lambda fields: fields,
) -> Summary:
    """The statistics of a block, by the columns' kinds, in ``found``, and values.

    Values are arrays (rows,), float64, or Arrow's texts, trimmed. ``detailed`` is for a
    description: sketches and hashes of all columns. ``plain`` makes numbers among texts as a
    program writes them.
    """
    columns: dict[str, Column] = {}
    for name, column in values.items():
        if isinstance(column, np.ndarray):
            kind = found[name]
            columns[name] = numbers(
                column,
                weights,
                86400.0 if kind.startswith("date") else 1.0 if detailed else None,
                # Of booleans and dates it is not known beforehand whether one is missing.
                sketched=detailed or kind != "number",
                hashed=detailed,
            )
        else:
            columns[name] = texts(column, plain)
    return Summary(rows, dict(found), columns)
