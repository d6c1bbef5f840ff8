"""Rows in fixed point: beside sums of Python's integers, which round nothing."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from kernels import dispatch

add_rows, extremes, gram_parts, nearest, row_chances, to_grid = map(
    dispatch.get, ("add_rows", "extremes", "gram_parts", "nearest", "row_chances", "to_grid")
)


@given(
    arrays(
        np.int64,
        st.tuples(st.integers(1, 9), st.integers(1, 5)),
        elements=st.integers(-(2**39), 2**39),
    ),
    st.integers(1, 20),
)
def test_a_gram_rounds_nothing(whole, bits):
    whole >>= 40 - 2 * bits
    high, middle, low = (part.astype(object) for part in gram_parts(whole.astype(float), bits))
    exact = whole.astype(object)
    assert (high * 4**bits + middle * 2**bits + low == exact.T @ exact).all()


def test_the_largest_rows_of_a_unit():
    """Partial sums stay below 2**53."""
    whole = np.full((2048, 2), 2.0**39)
    whole[:, 1] = 2.0**40 - 2.0**19
    high, middle, low = (part.astype(object) for part in gram_parts(whole, 20))
    exact = whole.astype(np.int64).astype(object)
    assert (high * 2**40 + middle * 2**20 + low == exact.T @ exact).all()


@pytest.mark.parametrize(("rows", "bits"), [(2049, 20), (3, 21), (3, 0)])
def test_a_gram_that_would_round(rows, bits):
    with pytest.raises(ValueError, match=f"gram_parts: {rows} rows of {bits} bits, expected at"):
        gram_parts(np.ones((rows, 2)), bits)


@given(
    arrays(np.int64, (7, 3), elements=st.integers(-4, 4)),
    arrays(np.int64, (4, 3), elements=st.integers(-4, 4)),
)
def test_the_first_of_the_nearest_centres(whole, centres):
    labels, squares = nearest(whole.astype(float), centres.astype(float))
    distances = ((whole[:, None] - centres) ** 2).sum(axis=2)
    assert (labels == distances.argmin(axis=1)).all()
    assert (squares == distances.min(axis=1)).all()


def test_sums_by_label():
    random = np.random.default_rng(0)
    rows, labels = random.normal(size=(50, 3)).astype(np.float32), np.arange(50, dtype=np.int32) % 4
    shift, factor = np.array([0.5, 0.0, -1.0]), np.array([2.0**30, 2.0**20, 2.0**10])
    sums = np.zeros((5, 3), np.int64)
    add_rows(rows, labels, shift, factor, sums)
    whole = to_grid(rows, shift, factor)
    assert (whole == np.rint((rows.astype(float) - shift) * factor)).all()
    expected = [whole[labels == label].sum(axis=0) for label in range(5)]
    assert (sums == np.array(expected)).all()
    with pytest.raises(ValueError, match="add_rows: labels beyond the 3 sums"):
        add_rows(rows, labels, shift, factor, sums[:3])


def test_extremes_and_what_is_not_finite():
    rows = np.array([[1, -5, 0], [3, np.nan, np.inf], [-2, 8, 4]], np.float32)
    low, high = extremes(rows)
    np.testing.assert_array_equal(low, [-2, np.nan, np.nan])
    np.testing.assert_array_equal(high, [3, np.nan, np.nan])
    low, high = extremes(np.array([[7], [254], [1]], np.uint8))
    assert (low[0], high[0]) == (1, 254)


def test_chances_follow_from_a_row_alone():
    whole = np.random.default_rng(1).integers(-50, 50, (400, 3)).astype(float)
    chances = row_chances(whole, 7)
    order = np.random.default_rng(2).permutation(400)
    assert (row_chances(whole[order], 7) == chances[order]).all()
    assert (row_chances(whole, 8) != chances).all()
    assert 0 < chances.min() < 0.02 < 0.98 < chances.max() < 1
    assert len(np.unique(chances)) == len(np.unique(whole, axis=0))
    # Evenly spread: the largest gap from a straight line, by Kolmogorov and Smirnov.
    assert np.abs(np.sort(chances) - np.arange(400) / 400).max() < 0.08
