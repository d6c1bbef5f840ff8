"""Rows in fixed point: beside sums of Python's integers, which round nothing."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from kernels import dispatch

centred, choose, closest, extremes, gram_parts = map(
    dispatch.get, ("centred", "choose", "closest", "extremes", "gram_parts")
)
move_rows, nearest, row_chances, to_grid = map(
    dispatch.get, ("move_rows", "nearest", "row_chances", "to_grid")
)


def gram(whole, bits):
    """By the kernel and by Python's integers, of whole numbers whose last column is 1."""
    columns = whole.shape[1]
    parts = gram_parts(
        whole.astype(float), np.zeros(columns), np.ones(columns + 1), np.ones(len(whole)), bits
    )
    high, middle, low = (part.astype(object) for part in parts)
    exact = np.column_stack([whole, np.ones(len(whole), np.int64)]).astype(object)
    return high * 4**bits + middle * 2**bits + low, exact.T @ exact


@given(
    arrays(
        np.int64,
        st.tuples(st.integers(1, 9), st.integers(1, 5)),
        elements=st.integers(-(2**39), 2**39),
    ),
    st.integers(1, 20),
)
def test_a_gram_rounds_nothing(whole, bits):
    found, exact = gram(whole >> (40 - 2 * bits), bits)
    assert (found == exact).all()


def test_the_largest_rows_of_a_unit():
    """Partial sums stay below 2**53."""
    whole = np.full((2048, 2), 2**39)
    whole[:, 1] = 2**40 - 2**19
    found, exact = gram(whole, 20)
    assert (found == exact).all()


def test_roots_of_weights_multiply_rows_and_the_last_column():
    rows, roots = np.array([[3.0, 5.0], [2.0, 9.0]], np.float32), np.array([2.0, 0.5])
    parts = gram_parts(rows, np.array([1.0, 1.0]), np.array([4.0, 4.0, 2.0]), roots, 4)
    whole = np.array([[16, 32, 4], [2, 16, 1]])
    assert (
        sum(part << shift for part, shift in zip(parts, (8, 4, 0), strict=True)) == whole.T @ whole
    ).all()


@pytest.mark.parametrize(("rows", "bits"), [(2049, 20), (3, 21), (3, 0)])
def test_a_gram_that_would_round(rows, bits):
    with pytest.raises(ValueError, match=f"gram_parts: {rows} rows of {bits} bits, expected at"):
        gram(np.ones((rows, 2), np.int64), bits)


@given(
    arrays(np.int64, (3, 4, 4), elements=st.integers(-(2**61), 2**61)),
    st.integers(2**40, 2**61),
    st.integers(8, 20),
)
def test_means_and_deviations_to_a_hundred_bits(parts, weight, bits):
    """Beside fractions of Python's integers, which round nothing."""
    parts[0, -1, -1] = weight
    found = centred(*parts, bits)
    high, middle, low = np.triu(parts).astype(object)
    gram = (high << 2 * bits) + (middle << bits) + low
    total, sums = gram[-1, -1], gram[:-1, -1]
    assert found[0] == float(total)
    np.testing.assert_array_max_ulp(found[1], np.array([float(Fraction(s, total)) for s in sums]))
    for i, j in zip(*np.triu_indices(3), strict=True):
        exact = gram[i, j] - Fraction(sums[i] * sums[j], total)
        largest = max(abs(gram[i, j]), abs(Fraction(sums[i] * sums[j], total)))
        error = abs(Fraction(found[2][i, j]) - exact)
        assert error <= abs(exact) / 2**52 + largest / Fraction(2**98)
        assert found[2][j, i] == found[2][i, j]


@given(
    arrays(np.int64, (7, 3), elements=st.integers(-4, 4)),
    arrays(np.int64, (4, 3), elements=st.integers(-4, 4)),
)
def test_the_first_of_the_nearest_centres(whole, centres):
    labels, squares = nearest(whole.astype(float), centres.astype(float))
    distances = ((whole[:, None] - centres) ** 2).sum(axis=2)
    assert (labels == distances.argmin(axis=1)).all()
    assert (squares == distances.min(axis=1)).all()
    labels, squares = closest(whole.astype(np.float32), centres.astype(float))
    assert (labels == distances.argmin(axis=1)).all()
    assert (squares == distances.min(axis=1)).all()


def test_sums_by_label():
    """Rows that move leave the sums that they would have if all were added up anew."""
    random = np.random.default_rng(0)
    rows, weights = random.normal(size=(50, 3)).astype(np.float32), random.random(50)
    shift, factor = np.array([0.5, 0.0, -1.0]), np.array([2.0**30, 2.0**20, 2.0**10, 2.0**8])
    sums, before = np.zeros((5, 4), np.int64), np.full(50, -1, np.int32)
    table = np.column_stack([(rows - shift) * weights[:, None], weights])
    whole = to_grid(table, np.zeros(4), factor)
    for _ in range(3):
        labels = random.integers(0, 5, 50).astype(np.int32)
        move_rows(rows, weights, before, labels, shift, factor, sums)
        expected = [whole[labels == label].sum(axis=0) for label in range(5)]
        assert (sums == np.array(expected)).all()
        before = labels
    with pytest.raises(ValueError, match="move_rows: labels beyond the 3 sums"):
        move_rows(rows, weights, before, labels, shift, factor, sums[:3])


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


def naive_choice(squares, weights, draws):
    """Of each choice: the candidates, and the sum of the squared distances from them."""
    for draws_of_choice in draws.swapaxes(0, 1):
        chosen, left = [], np.ones(len(weights))
        for trials in draws_of_choice:
            sums = np.cumsum(left * weights)
            places = [min((sums <= draw * sums[-1]).sum(), len(weights) - 1) for draw in trials]
            options = [squares[[*chosen, place]].min(axis=0) for place in places]
            best = np.argmin([np.cumsum(option * weights)[-1] for option in options])
            chosen, left = [*chosen, places[best]], options[best]
        yield np.cumsum(left * weights)[-1], chosen


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_the_best_of_several_choices(count):
    random = np.random.default_rng(count)
    places = random.integers(0, 9, (9, 2)).astype(float)
    squares = ((places[:, None] - places) ** 2).sum(axis=2)
    weights, draws = random.integers(0, 4, 9).astype(float), random.random((count, 6, 3))
    expected = min(naive_choice(squares, weights, draws), key=lambda choice: choice[0])
    assert choose(squares, weights, draws).tolist() == expected[1]


def test_a_choice_takes_far_candidates():
    places = np.array([0.0, 1, 50, 51, 100])
    squares = (places[:, None] - places) ** 2
    chosen = choose(squares, np.ones(5), np.random.default_rng(1).random((3, 8, 3)))
    assert sorted(place // 2 for place in chosen) == [0, 1, 2]
    assert squares[:, chosen].min(axis=1).sum() == 2
