"""Random numbers and dropout on every device: equal bits everywhere, and those of the oracle."""

import math

import numpy as np
import pytest

import naive
from arrays import normal
from kernels import dispatch
from quick import cases, pairwise

pytestmark = pytest.mark.every_case

SHAPES = [(0, 3), (2, 0), (1, 1), (5, 3), (3, 4), (2, 13), (1, 70)]
PLACES = [(0, 0), (1, 2**32 - 2), (2**64 - 1, 2**62), (0x0123456789ABCDEF, 41)]


class TestUniform:
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize(("key", "row"), PLACES)
    def test_against_naive(self, kernel, key, row, shape):
        out = np.full(shape, np.nan)
        assert kernel("uniform")(key, row, out) is out
        np.testing.assert_array_equal(out, naive.random_words(key, row, shape) / 2**32)

    def test_they_are_spread_evenly(self):
        numbers = np.sort(dispatch.get("uniform")(3, 5, np.empty((40, 500))).reshape(-1))
        # Kolmogorov and Smirnov's statistic is above this once in 10,000 times.
        steps = np.arange(numbers.size) / numbers.size
        assert abs(numbers - steps).max() * math.sqrt(numbers.size) < 2.23


class TestDropout:
    @cases("shape, place, rate", *pairwise(SHAPES, PLACES, [0, 0.25, 1 / 3, 0.9]))
    def test_against_naive(self, kernel, dtype, shape, place, rate):
        x, out = normal(1, shape, dtype), np.full(shape, np.nan, dtype)
        key, row = place
        assert kernel("dropout")(x, key, row, rate, out) is out
        assert out.tobytes() == naive.dropout(x, key, row, rate).tobytes()
        assert kernel("dropout")(x, key, row, rate, x) is x
        assert x.tobytes() == out.tobytes()

    def test_the_word_of_the_rate_is_kept(self, kernel, dtype):
        """A word that equals the rate's keeps its number."""
        word = naive.random_word(7, 3, 1)
        x = np.ones((1, 4), dtype)
        equal = kernel("dropout")(x, 7, 3, word / 2**32, np.empty_like(x))
        above = kernel("dropout")(x, 7, 3, (word + 1) / 2**32, np.empty_like(x))
        assert (equal[0, 1] > 0, above[0, 1]) == (True, 0)

    def test_nan_is_seen_where_it_is_kept(self, kernel, dtype):
        x, out = np.full((1, 60), np.nan, dtype), np.empty((1, 60), dtype)
        out = kernel("dropout")(x, 1, 0, 0.5, out)
        kept = naive.dropout(np.ones((1, 60), dtype), 1, 0, 0.5) != 0
        assert np.array_equal(np.isnan(out), kept)
        assert not out[~kept].any()
