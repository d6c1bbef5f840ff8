"""Statistics of columns; oracles: the statistics of all rows at once, NumPy and Python's counts."""

import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mapreduce.data.recipes import quantiles, summary
from mapreduce.data.recipes.fitted import fit
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.recipes.summary import Summary
from mapreduce.reduction.message import decode, encode

NUMBERS = st.floats(-1e6, 1e6) | st.integers(-9, 9).map(float) | st.just(math.nan)
TEXTS = st.sampled_from(["a", "b c", "C, b", "12", "NA", "x,y", "Zürich", None]) | st.text(
    max_size=3
)
ROWS = st.lists(
    st.tuples(NUMBERS, NUMBERS, TEXTS.map(lambda text: (text or "").strip() or None)), max_size=40
)
KINDS = {"n": "number?", "d": "date:YYYY-MM-DD", "t": "text"}


def words_of(text):
    """Its words, letters and digits in lower case."""
    return re.findall(r"[^\W]+", text.lower())


def summary_of(rows, weights=None, detailed=True):
    values = {
        "n": np.array([row[0] for row in rows], np.float64),
        "d": np.array([row[1] for row in rows], np.float64),
        "t": pa.array([row[2] for row in rows], pa.string()),
    }
    return summary.of(len(rows), KINDS, values, weights, detailed=detailed)


def plain(found):
    """All of a summary that is exact."""
    result = {"rows": found.rows, "kinds": found.kinds}
    for name, column in found.columns.items():
        content = dict(vars(column))
        for inexact in ("mean", "squares", "weight", "missing_weight"):
            content.pop(inexact, None)
        for part in ("sketch", "hashes", "vocabulary"):
            if content.get(part) is not None:
                content[part] = [np.round(array, 6).tolist() for array in content[part]]
        result[name] = {key: repr(value) for key, value in content.items()} | {
            "values": content.get("values") and sorted(content["values"].items())
        }
    return result


def close(one, other):
    assert plain(one) == plain(other)
    for name in ("n", "d"):
        left, right = one.columns[name], other.columns[name]
        size = max(abs(left.least), abs(left.most), 1) if left.rows else 1
        assert left.weight == pytest.approx(right.weight, rel=1e-12)
        assert left.mean == pytest.approx(right.mean, rel=1e-12, abs=1e-12 * size)
        assert left.squares == pytest.approx(
            right.squares, rel=1e-9, abs=1e-12 * size * size * max(left.rows, 1)
        )


@settings(max_examples=30)
@given(ROWS, st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_the_summaries_of_parts_make_that_of_the_whole(rows, cuts, weighted):
    random = np.random.default_rng(len(rows))
    weights = random.random(len(rows)) if weighted else None
    places = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    places = places if len(places) > 1 else [0, 0]
    parts = [
        summary_of(rows[a:b], None if weights is None else weights[a:b])
        for a, b in pairwise(places)
    ]
    from_left = parts[0]
    for part in parts[1:]:
        from_left = summary.combine(from_left, part)
    from_right = parts[-1]
    for part in parts[-2::-1]:
        from_right = summary.combine(part, from_right)
    close(from_left, from_right)
    close(from_left, summary_of(rows, weights))


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from([math.nan, -3.0, 0.5, 2.0, 1e3]), st.integers(0, 3)), min_size=1
    ),
    st.sampled_from(["mean", "median", "indicator"]),
)
def test_a_weight_repeats_a_row(weighted, missing):
    """The numbers that a recipe is fitted to, and what stands for a missing one."""
    values, weights = np.array(weighted, np.float64).T
    repeated = np.repeat(values, weights.astype(int))
    columns = [
        summary.numbers(rows, given, None, sketched=True, hashed=False)
        for rows, given in ((values, weights), (repeated, None))
    ]
    one, other = columns
    sums = [(c.weight, c.missing_weight, *map(np.ndarray.tolist, c.sketch)) for c in columns]
    assert sums[0] == sums[1]
    assert (one.mean, one.squares) == pytest.approx((other.mean, other.squares))
    if one.weight:
        fitted = [
            fit(Recipe(missing=missing), Summary(len(values), {"x": "number?"}, {"x": c}), "rows")
            for c in columns
        ]
        # What stands for a missing number is used where one is.
        used = ["mean", "scale", *(["fill"] if one.missing_weight else [])]
        numbers = [[getattr(f.columns[0], name) for name in used] for f in fitted]
        assert numbers[0] == pytest.approx(numbers[1])


def test_a_median_of_weights_is_that_of_any_multiple_of_them():
    values = np.array([1.0, 2, 3, 4])
    for weights, median in (([1, 1, 1, 1], 2.5), ([1, 0, 3, 1], 3), ([0.1, 0.2, 0.3, 0.6], 3.5)):
        for times in (1, 0.1, 1e-9, 1e9):
            assert quantiles.sketch(values, times * np.array(weights)).median() == median


@settings(max_examples=30)
@given(ROWS, st.booleans())
def test_a_message_has_it_all(rows, detailed):
    whole = summary_of(rows, detailed=detailed)
    message = summary.to_message(whole)
    again = summary.from_message(decode(encode(message)))
    assert isinstance(again, Summary)
    assert plain(again) == plain(whole)
    for name in ("n", "d"):
        for moment in ("mean", "squares", "weight", "missing_weight"):
            assert getattr(again.columns[name], moment) == getattr(whole.columns[name], moment)


@settings(max_examples=30)
@given(ROWS)
def test_numbers_and_texts_are_counted(rows):
    found = summary_of(rows)
    numbers = np.array([row[0] for row in rows if not math.isnan(row[0])])
    column = found.columns["n"]
    assert (column.rows, column.missing) == (len(numbers), len(rows) - len(numbers))
    if len(numbers):
        assert (column.least, column.most) == (numbers.min(), numbers.max())
        assert column.mean == pytest.approx(numbers.mean(), rel=1e-12, abs=1e-9)
        assert column.squares / len(numbers) == pytest.approx(numbers.var(), rel=1e-9, abs=1e-9)
        assert column.whole == all(value == int(value) for value in numbers)
    counts = Counter(row[2] for row in rows if row[2] is not None)
    texts = found.columns["t"]
    assert texts.values == dict(counts)
    assert texts.missing == sum(row[2] is None for row in rows)
    assert texts.spaced == sum(count for text, count in counts.items() if " " in text)
    assert summary.distinct(texts.hashes) == (len(counts), True)
    assert summary.distinct(column.hashes) == (len(np.unique(numbers)), True)
    # Python has other small letters for a few of the others.
    if not all(map(str.isascii, counts)):
        return
    words = [word for text in counts.elements() if " " in text for word in words_of(text)]
    assert texts.word_count == len(words)
    assert summary.distinct(texts.vocabulary) == (len({*words}), True)


@settings(max_examples=100)
@given(
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50),
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]),
    st.integers(0, 50),
)
def test_quantiles_are_near(values, share, cut):
    numbers = np.array(values)
    found = quantiles.sketch(numbers)
    low, high = (np.quantile(numbers, share, method=method) for method in ("lower", "higher"))
    error = quantiles.RELATIVE_ERROR * max(abs(low), abs(high)) + 2.0**-1030
    # Below 2**-1022 there are fewer digits.
    assert low - error <= found.quantile(share) <= high + error
    if low == high:
        assert abs(found.quantile(share)) <= abs(low)
    merged = quantiles.merge(quantiles.sketch(numbers[:cut]), quantiles.sketch(numbers[cut:]))
    assert all(np.array_equal(*arrays) for arrays in zip(merged, found, strict=True))


@given(st.lists(st.integers(-2047, 2047), min_size=1, max_size=60))
def test_quantiles_of_small_integers_are_exact(values):
    found = quantiles.sketch(np.array(values, np.float64))
    for share in (0, 0.25, 0.5, 1):
        assert found.quantile(share) == np.quantile(values, share)
    assert found.median() == np.median(values)


def test_an_empty_sketch_has_no_quantiles():
    with pytest.raises(ValueError, match="empty column"):
        quantiles.sketch(np.empty(0)).quantile(0.5)


def test_numbers_too_large_for_their_squares():
    column = summary.numbers(np.array([1e200, -1e200]), None, None, sketched=True, hashed=False)
    assert column.squares == np.inf
    both = summary.combine(
        Summary(2, {"x": "number"}, {"x": column}), Summary(2, {"x": "number"}, {"x": column})
    )
    assert not np.isfinite(both.columns["x"].squares)
    message = decode(encode(summary.to_message(both)))
    assert not np.isfinite(summary.from_message(message).columns["x"].squares)
