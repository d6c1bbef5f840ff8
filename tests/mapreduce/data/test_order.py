import numpy as np
import pytest
from hypothesis import given, strategies as st

from mapreduce.data import order

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
words = st.integers(0, MASK)


def mix(z):
    """SplitMix64's finaliser, on Python's integers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def naive_key(seed, stream, item):
    base = mix(mix(seed + GOLDEN & MASK) ^ (stream + GOLDEN & MASK))
    return mix(base + item * GOLDEN & MASK)


def test_oracle_is_splitmix64():
    state = 1234567
    outputs = [mix(state + (i + 1) * GOLDEN & MASK) for i in range(3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(words, words, st.integers(0, 2**40), st.integers(0, 20))
def test_keys_equal_integer_arithmetic(seed, stream, start, count):
    keys = order.keys(seed, stream, start, start + count)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [naive_key(seed, stream, start + i) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_permutation(count):
    permuted = order.permutation(5, 0, count)
    assert permuted.dtype == np.int64
    assert sorted(permuted) == list(range(count))
    assert permuted.tolist() == sorted(range(count), key=lambda i: naive_key(5, 0, i))


def test_seeds_and_streams_give_other_permutations():
    orders = [order.permutation(seed, stream, 50) for seed in range(20) for stream in range(20)]
    assert len({tuple(one.tolist()) for one in orders}) == 400


def test_places_are_evenly_spread():
    # Over 4,000 orders each item should come to each of 10 places 400 times, give or take 19.
    orders = np.array([order.permutation(0, stream, 10) for stream in range(4000)])
    for place in orders.T:
        counts = np.bincount(place, minlength=10)
        assert abs(counts - 400).max() < 5 * 19


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range_is_refused(seed):
    with pytest.raises(OverflowError):
        order.keys(seed, 0, 0, 1)
