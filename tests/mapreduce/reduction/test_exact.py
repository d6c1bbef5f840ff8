"""Exact sums; the oracle is ``fractions.Fraction``."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mapreduce.reduction import exact

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e3, 1e3)


def fraction(found):
    return Fraction(found, exact.ONE)


@settings(max_examples=100)
@given(st.lists(NUMBERS, max_size=40))
def test_a_sum_is_exact(values):
    assert fraction(exact.total(np.array(values, np.float64))) == sum(map(Fraction, values))


def test_many_numbers_of_all_sizes():
    random = np.random.default_rng(0)
    values = random.normal(size=20_000) * 2.0 ** random.integers(-60, 60, 20_000)
    assert fraction(exact.total(values)) == sum(map(Fraction, values.tolist()))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), NUMBERS.map(abs)), max_size=30))
def test_sums_by_place(pairs):
    places = np.array([place for place, _ in pairs], np.int64)
    values = np.array([value for _, value in pairs], np.float64)
    expected = [sum(Fraction(v) for p, v in pairs if p == place) for place in range(4)]
    assert list(map(fraction, exact.totals(places, values, 4))) == expected


@settings(max_examples=100)
@given(st.floats(-1e99, 1e99), st.floats(-1e99, 1e99))
def test_products_have_76_bits(one, other):
    left, right = np.array([one]), np.array([other])
    for parts, expected in (
        (exact.square(left), Fraction(one) ** 2),
        (exact.product(left, right), Fraction(one) * Fraction(other)),
    ):
        found = sum(Fraction(float(part[0])) for part in parts)
        # What is below the least float64 is lost.
        assert abs(found - expected) <= abs(expected) / 2**76 + Fraction(1, 2**1070)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_have_no_sum(wrong):
    with pytest.raises((ValueError, OverflowError)):
        exact.total(np.array([1.0, wrong]))


def test_a_sum_beyond_a_float_is_infinite():
    assert exact.rounded(exact.total(np.array([1.7e308, 1.7e308]))) == np.inf
    assert exact.rounded(exact.total(np.array([1e308, -1e308, 0.5]))) == 0.5
