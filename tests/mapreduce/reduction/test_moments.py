"""Moments that are merged along the tree."""

import numpy as np
from hypothesis import given, strategies as st

from mapreduce.reduction.aggregator import MOMENTS, VectorSum, combine, merge_moments, moments
from mapreduce.reduction.message import WireProtocol
from mapreduce.reduction.moments import merge
from mapreduce.reduction.tree import Node, TreeFold


def of(values):
    """The moments of an array (values, kinds)."""
    mean = values.mean(axis=0) if len(values) else np.zeros(values.shape[1])
    return moments(len(values), mean, ((values - mean) ** 2).sum(axis=0))


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.floats(-1e6, 1e6),
    st.integers(0, 2**32 - 1),
)
def test_merged_moments_are_those_of_all_values(counts, offset, seed):
    generator = np.random.default_rng(seed)
    parts = [offset + generator.standard_normal((count, 3)) for count in counts]
    fold = TreeFold(len(parts), merge_moments)
    for leaf, part in enumerate(parts):
        fold.add(Node(0, leaf), of(part))
    count, *rest = fold.result()
    expected = of(np.concatenate(parts))
    assert count == expected[0]
    # Sums of squares would lose twelve digits at an offset of a million.
    np.testing.assert_allclose(rest, expected[1:], rtol=1e-8, atol=1e-9)


SOME = st.tuples(st.floats(1e-3, 1e9), st.floats(-1e140, 1e140), st.floats(0, 1e300))


@given(SOME)
def test_a_part_without_weight_changes_no_bit(some):
    """Not even where the squares of the mean are infinite, and of a zero not its sign."""
    for mean in (some[1], -0.0, 1e200):
        part, nothing = (some[0], mean, some[2]), (0.0, 0.0, 0.0)
        for merged in (merge(nothing, part), merge(part, nothing)):
            assert np.array(merged).tobytes() == np.array(part).tobytes()


@given(SOME, SOME)
def test_arrays_have_the_bits_of_numbers(left, right):
    one = merge(left, right)
    many = merge(
        *((part[0], np.array([part[1], 0.0]), np.array([part[2], 0.0])) for part in (left, right))
    )
    assert np.array(one).tobytes() == np.array((many[0], many[1][0], many[2][0])).tobytes()


def test_they_travel_beside_sums_that_are_added():
    parts = [
        VectorSum(1, 1.0, 0.5, np.ones(2), {MOMENTS + "1": of(values), "sums": np.ones(3)})
        for values in (np.array([[1.0], [2.0]]), np.array([[6.0]]))
    ]
    both = combine(*parts)
    np.testing.assert_array_equal(both.extras["sums"], [2, 2, 2])
    np.testing.assert_allclose(both.extras[MOMENTS + "1"], [3, 3, 14])
    protocol = WireProtocol()
    message = protocol.read(protocol.write("key", both.to_message()))[1]
    found = VectorSum.from_message(message).extras
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in both.extras.items()
    }
