"""Sparse vectors: whatever kind a sum is of, its bits are those of a sum of dense vectors."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

import naive
from mapreduce.reduction.aggregator import VectorSum, combine
from mapreduce.reduction.message import WireProtocol
from mapreduce.reduction.vectors import DENSITY, SparseVector, add

DTYPES = st.sampled_from(["float32", "float64"])


def random_vector(size, count, dtype="float64", seed=0):
    """A sparse vector with so many elements, of very different sizes; some stored ones are 0."""
    generator = np.random.default_rng(seed)
    indices = np.sort(generator.choice(size, count, replace=False)).astype(np.int32)
    scale = 10.0 ** generator.integers(-6, 7, count)
    values = (generator.standard_normal(count) * scale).astype(dtype)
    # Not -0.0, which no gradient holds: 0.0 + -0.0 is 0.0.
    values[generator.random(count) < 0.1] = 0.0
    return SparseVector(indices, values, size)


@st.composite
def vectors(draw, size=None, dtype=None):
    size = size or draw(st.integers(1, 60))
    count = draw(st.integers(0, size))
    return random_vector(size, count, dtype or draw(DTYPES), draw(st.integers(0, 2**32 - 1)))


@st.composite
def pairs(draw):
    size, dtype = draw(st.integers(1, 60)), draw(DTYPES)
    return draw(vectors(size, dtype)), draw(vectors(size, dtype))


def dense_of(vector):
    if not isinstance(vector, SparseVector):
        return vector
    dense = np.zeros(vector.size, vector.values.dtype)
    dense[vector.indices] = vector.values
    return dense


def parts_of(vector):
    return (vector.indices, vector.values) if isinstance(vector, SparseVector) else (vector,)


def is_valid(vector):
    return (
        vector.indices.dtype == np.int32
        and vector.indices.shape == vector.values.shape
        and bool((np.diff(vector.indices) > 0).all())
        and (not len(vector.indices) or 0 <= vector.indices[0] <= vector.indices[-1] < vector.size)
    )


class TestSlices:
    @given(vectors(), st.data())
    def test_are_those_of_the_dense_vector(self, vector, data):
        start = data.draw(st.integers(0, vector.size))
        stop = data.draw(st.integers(start, vector.size))
        part = vector[start:stop]
        assert is_valid(part)
        assert len(part) == stop - start
        assert part.to_dense().tobytes() == dense_of(vector)[start:stop].tobytes()

    def test_share_memory(self):
        vector = random_vector(50, 20)
        assert np.shares_memory(vector[10:40].values, vector.values)
        assert np.shares_memory(vector[0:40].indices, vector.indices)


class TestSums:
    @given(pairs(), st.tuples(st.booleans(), st.booleans()))
    def test_have_the_bits_of_dense_sums(self, pair, kinds):
        left, right = pair
        expected = dense_of(left) + dense_of(right)
        left, right = (
            dense_of(vector) if is_dense else vector
            for vector, is_dense in zip(pair, kinds, strict=True)
        )
        total = add(left, right)
        assert dense_of(total).dtype == expected.dtype
        assert dense_of(total).tobytes() == expected.tobytes()
        if isinstance(total, SparseVector):
            assert is_valid(total)
            assert kinds == (False, False)

    @given(pairs())
    def test_arguments_stay_as_they_are(self, pair):
        """Parts of records that arrived cannot be written, nor need they."""
        before = [(v.indices.tobytes(), v.values.tobytes()) for v in pair]
        for vector in pair:
            vector.indices.flags.writeable = vector.values.flags.writeable = False
        total = add(*pair)
        assert [(v.indices.tobytes(), v.values.tobytes()) for v in pair] == before
        values = total.values if isinstance(total, SparseVector) else total
        assert values.flags.writeable
        assert not any(np.shares_memory(values, vector.values) for vector in pair)

    @pytest.mark.parametrize("is_left", [False, True])
    def test_a_dense_vector_is_used_again_if_it_can_be_written(self, is_left):
        sparse, dense = random_vector(40, 5), np.arange(40.0)
        expected = dense_of(sparse) + dense
        total = add(dense, sparse) if is_left else add(sparse, dense)
        assert total is dense
        assert total.tobytes() == expected.tobytes()
        dense.flags.writeable = False
        assert add(dense, sparse) is not dense
        assert dense.tobytes() == expected.tobytes()

    @pytest.mark.parametrize("size", [4, 40, 41, 43, 44])
    def test_the_switch_of_kinds(self, size):
        """Sparse up to a quarter of the elements, counted in the union."""
        most = int(DENSITY * size)
        for count in (most, most + 1):
            union = np.arange(count, dtype=np.int32) * 2 % size
            union = np.unique(union).astype(np.int32)[:count]
            half = len(union) // 2 + 1
            left, right = union[:half], union[half - 1 :]
            total = add(
                SparseVector(left, np.ones(len(left)), size),
                SparseVector(right, np.ones(len(right)), size),
            )
            assert isinstance(total, SparseVector) == (len(union) <= DENSITY * size)
            values = dense_of(total)
            assert values[union].tolist() == [2.0 if i == half - 1 else 1.0 for i in range(count)]
            assert values.sum() == len(left) + len(right)

    def test_what_is_not_finite_stays(self):
        left = SparseVector(np.array([1, 5], np.int32), np.array([np.nan, np.inf]), 40)
        right = SparseVector(np.array([5, 9], np.int32), np.array([-np.inf, 1.0]), 40)
        expected = np.zeros(40)
        expected[[1, 5, 9]] = [np.nan, np.nan, 1]
        np.testing.assert_array_equal(add(left, right).to_dense(), expected)

    @given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.integers(1, 30), DTYPES)
    def test_a_tree_over_blocks_has_the_bits_of_the_whole(self, seed, leaves, most, dtype):
        """Kinds change at other places in each block; sums do not."""
        generator = np.random.default_rng(seed)
        size = 60
        items = []
        for leaf in range(leaves):
            vector = random_vector(size, int(generator.integers(0, most)), dtype, seed + leaf)
            items.append(dense_of(vector) if generator.random() < 0.2 else vector)
        expected = naive.tree_sum([dense_of(item).copy() for item in items], np.add)
        for cuts in ([0, size], [0, 20, size], [0, 1, 30, 55, size]):
            parts = []
            for start, stop in pairwise(cuts):
                pieces = [
                    item[start:stop] if isinstance(item, SparseVector) else item[start:stop].copy()
                    for item in items
                ]
                parts.append(dense_of(naive.tree_sum(pieces, add)))
            assert np.concatenate(parts).tobytes() == expected.tobytes()


class TestVectorSum:
    @given(vectors(), st.integers(0, 2**31), st.floats(0, 1e6), st.booleans(), st.booleans())
    def test_the_wire_changes_nothing(self, vector, count, weight, is_dense, more):
        if is_dense:
            vector = dense_of(vector)
            vector[:4] = [-0.0, np.nan, np.inf, 1e-45][: len(vector)]
        extras = {"curvature": np.arange(len(vector)) / 7, "m": np.ones((2, 3))} if more else {}
        item = VectorSum(count, weight, weight / 3, vector, extras)
        line = WireProtocol().write("k", item.to_message())
        found = VectorSum.from_message(WireProtocol().read(line)[1])
        assert (found.count, found.weight, found.loss) == (count, weight, weight / 3)
        assert type(found.vector) is type(vector)
        for one, other in zip(parts_of(found.vector), parts_of(vector), strict=True):
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
        assert len(found.vector) == len(vector)
        assert found.extras.keys() == extras.keys()
        for name, array in extras.items():
            assert found.extras[name].shape == array.shape
            assert found.extras[name].tobytes() == array.tobytes()

    @given(pairs(), st.booleans())
    def test_combine_and_mean(self, pair, is_dense):
        expected = dense_of(pair[0]) + dense_of(pair[1])
        items = (dense_of(vector) if is_dense else vector for vector in pair)
        left, right = (
            VectorSum(count, weight, 0.25 * weight, vector)
            for count, weight, vector in zip((2, 5), (2.5, 5.5), items, strict=True)
        )
        total = combine(left, right)
        assert (total.count, total.weight, total.loss) == (7, 8, 2)
        mean = total.mean()
        assert mean.dtype == expected.dtype
        assert mean.tobytes() == (expected / 8.0).tobytes()

    def test_what_arrived_is_not_changed_by_combining(self):
        """Decoded arrays are views of the record, which cannot be written."""
        sent = VectorSum(3, 3.0, 0.5, np.array([1.0, -0.0, 0.0], np.float32))
        message = WireProtocol().read(WireProtocol().write("k", sent.to_message()))[1]
        before = message.arrays["vector"].tobytes()
        combined = combine(*(VectorSum.from_message(message) for _ in range(2)))
        assert combined.vector.tobytes() == (2 * sent.vector).tobytes()
        assert message.arrays["vector"].tobytes() == before
        assert combined.vector.flags.writeable

    def test_rows_that_all_weigh_nothing_have_a_mean_of_zero(self):
        vector = SparseVector(np.empty(0, np.int32), np.empty(0, np.float32), 5)
        mean = VectorSum(3, 0.0, 0.0, vector).mean()
        assert mean.tobytes() == np.zeros(5, np.float32).tobytes()

    def test_extras_are_added_up_by_name(self):
        left, right = (
            VectorSum(1, 1.0, 0.0, np.ones(3), {"a": np.full(3, c), "b": np.full(1, -c)})
            for c in (0.5, 2.0)
        )
        total = combine(left, right).extras
        assert {name: sums.tolist() for name, sums in total.items()} == {
            "a": [2.5] * 3,
            "b": [-2.5],
        }
        assert left.extras["a"].tolist() == [0.5] * 3
