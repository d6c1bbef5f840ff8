"""Compressed updates: the same values for any blocks, and nothing is lost but for a round."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import naive
from mapreduce.errors import NonFiniteError, UsageError, WireError
from mapreduce.reduction.compression import WARM_UP, TopK, parse
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.reduction.tree import PAGE
from mapreduce.reduction.vectors import SparseVector, dense
from quick import cases

FORMATS = ["fp16", "onebit", "topk:0.001", "topk:0.3"]
LATE = len(WARM_UP)
SIZES = [1, 7, 8, 1000, PAGE, PAGE + 1, 3 * PAGE - 5]

formats = st.sampled_from(FORMATS)
dtypes = st.sampled_from(["float32", "float64"])


def random_vector(size, seed, dtype="float32", most=30):
    """Numbers of very different sizes, many of which are equal in magnitude, zero or -0.0."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(size) * 10.0 ** generator.uniform(-most, most, size)
    few = np.sort(generator.choice([0.0, -0.0, 1.5, -1.5, 3e-4], size))
    return np.where(generator.random(size) < 0.5, few, values).astype(dtype)


vectors = st.builds(
    random_vector, st.sampled_from(SIZES), st.integers(0, 2**32 - 1), dtypes, st.integers(0, 30)
)


def largest(dtype):
    return float(np.finfo(dtype).max)


def decoded(text, packed, size, dtype):
    return parse(text).decode(packed.arrays, size, dtype)


def first(text, update, completed=LATE):
    """What the first round compresses, and what is decoded of it."""
    packed, residual, sent = parse(text).compress(update, np.zeros_like(update), completed)
    return decoded(text, packed, len(update), update.dtype), residual, sent


def exact(values):
    """The last values, which are enough of them, as fractions."""
    return [Fraction(float(value)) for value in values[-1000:]]


class TestFormats:
    @settings(max_examples=25)
    @given(vectors)
    def test_fp16(self, update):
        found, residual, sent = first("fp16", update)
        assert sent is None
        np.testing.assert_array_equal(found, naive.half_pages(update))
        # The largest magnitudes keep eleven bits.
        assert np.all(abs(residual) <= np.maximum(abs(update) / 2048, abs(update).max() * 2.0**-39))

    @settings(max_examples=25)
    @given(vectors)
    def test_onebit(self, update):
        found, _, sent = first("onebit", update)
        assert sent is None
        expected = naive.one_bit_pages(update.astype(float))
        np.testing.assert_allclose(found, np.clip(expected, -3.4e38, 3.4e38), rtol=1e-5)

    @settings(max_examples=25)
    @given(vectors, st.sampled_from([0.001, 0.3, 1.0]))
    def test_topk(self, update, ratio):
        found, _, sent = first(f"topk:{ratio}", update)
        count = max(1, round(ratio * len(update)))
        assert isinstance(found, SparseVector)
        assert found.indices.dtype == sent.dtype == np.int32
        assert found.values.dtype == update.dtype
        assert sent.tolist() == found.indices.tolist() == naive.largest(update, count)
        np.testing.assert_array_equal(found.values, update[sent].astype(np.float32))

    def test_topk_sends_no_negative_zero(self):
        """It is all that sums of sparse and of dense vectors differ by."""
        found, residual, _ = first("topk:1", np.array([-1e-60, 1.0]))
        assert found.values.tolist() == [0, 1]
        assert not np.signbit(found.values[0])
        assert residual.tolist() == [-1e-60, 0]

    @pytest.mark.parametrize("text", FORMATS)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("size", [PAGE + 3])
    def test_extremes(self, text, dtype, size):
        """The largest and the smallest numbers of the dtype, in pages of their own."""
        tiny = float(np.finfo(dtype).smallest_subnormal)
        for scale in (largest(dtype), 3 * tiny):
            update = np.zeros(size, dtype)
            update[3::5], update[4::7] = scale, -scale
            found, residual, _ = first(text, update)
            assert np.isfinite(dense(found)).all()
            assert np.isfinite(residual).all()
            if text == "fp16":
                np.testing.assert_allclose(found, update, rtol=1e-3)

    @pytest.mark.parametrize("text", FORMATS)
    def test_zeros_are_zeros(self, text):
        found, residual, _ = first(text, np.zeros(PAGE + 3))
        assert not dense(found).any()
        assert not residual.any()

    @pytest.mark.parametrize("text", FORMATS)
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_is_not_finite_is_refused(self, text, value):
        update, residual = np.zeros(PAGE + 3), np.zeros(PAGE + 3)
        for vector in (update, residual):
            vector[PAGE + 1] = value
            with pytest.raises(NonFiniteError, match=rf"element {PAGE + 1} of an update is "):
                parse(text).compress(update, residual, 0)
            vector[PAGE + 1] = 0.0

    def test_sums_that_overflow_are_refused(self):
        update = np.full(4, 3e38, np.float32)
        with pytest.raises(NonFiniteError, match="element 0 of an update is 3e"):
            parse("fp16").compress(update, update, 0)

    @pytest.mark.parametrize("text", FORMATS)
    def test_arguments_stay_as_they_are(self, text):
        update, residual = random_vector(50, 0, most=3), random_vector(50, 1, most=3)
        before = update.tobytes(), residual.tobytes()
        update.flags.writeable = residual.flags.writeable = False
        found = parse(text).compress(update, residual, 0)
        assert (update.tobytes(), residual.tobytes()) == before
        assert found.residual.flags.writeable


class TestBlocks:
    @settings(max_examples=25)
    @given(formats, vectors, st.lists(st.integers(0, 3), max_size=2))
    def test_have_the_values_of_the_whole(self, text, update, cuts):
        size = len(update)
        packed = parse(text).compress(update, np.zeros_like(update), LATE).packed
        whole = dense(decoded(text, packed, size, update.dtype))
        edges = [0, *(PAGE * cut for cut in sorted({*cuts}) if 0 < PAGE * cut < size), size]
        for start, stop in pairwise(edges):
            block = packed.block(start, stop)
            line = WireProtocol().write("k", Message({}, block))
            arrays = WireProtocol().read(line)[1].arrays
            part = parse(text).decode(arrays, stop - start, update.dtype)
            assert dense(part).tobytes() == whole[start:stop].tobytes()

    @pytest.mark.parametrize("text", FORMATS)
    def test_arrays_of_another_block_are_refused(self, text):
        packed = parse(text).compress(np.ones(2 * PAGE), np.zeros(2 * PAGE), 0).packed
        with pytest.raises(WireError, match=f"a compressed block of {PAGE} elements: expected arr"):
            parse(text).decode(packed.arrays, PAGE, "float64")


class TestErrorFeedback:
    @settings(max_examples=25)
    @given(formats, vectors, st.integers(0, 2**32 - 1), st.integers(0, LATE))
    def test_nothing_is_lost(self, text, update, seed, completed):
        residual = random_vector(len(update), seed, update.dtype)
        packed, after, sent = parse(text).compress(update, residual, completed)
        found = dense(decoded(text, packed, len(update), update.dtype))
        wanted = update + residual
        assert after.tobytes() == (wanted - found).tobytes()
        if text != "onebit":
            parts = zip(exact(found), exact(after), strict=True)
            assert [a + b for a, b in parts] == exact(wanted)
        if sent is not None:
            assert not np.delete(found, sent).any()
            assert np.delete(after, sent).tobytes() == np.delete(wanted, sent).tobytes()

    @pytest.mark.parametrize(("text", "most"), [("fp16", 0.01), ("onebit", 15), ("topk:0.05", 15)])
    def test_what_is_left_does_not_grow(self, text, most):
        """The mean of what is decoded tends to that of the updates, since their sums stay close."""
        generator = np.random.default_rng(0)
        size, rounds = 400, 200
        drift = generator.uniform(-1, 1, size)
        residual, sums, expected = np.zeros(size), np.zeros(size), np.zeros(size)
        for completed in range(rounds):
            update = drift + generator.standard_normal(size)
            packed, residual, _ = parse(text).compress(update, residual, completed)
            sums += dense(decoded(text, packed, size, "float64"))
            expected += update
        np.testing.assert_allclose(sums + residual, expected, rtol=1e-9, atol=1e-9)
        assert abs(residual).max() < most
        assert abs(expected).max() > 10 * 15


class TestWarmUp:
    def test_the_ratio_falls_by_epochs(self):
        topk = parse("topk:0.001", rounds_per_epoch=3)
        assert isinstance(topk, TopK)
        counts = [topk.count(1_000_000, completed) for completed in range(15)]
        expected = [250_000, 62_500, 15_625, 4_000, 1_000]
        assert counts == [count for count in expected for _ in range(3)]
        assert topk.count(1_000_000, 10**7) == 1_000

    def test_a_round_may_take_several_epochs(self):
        topk = TopK(0.001, rounds_per_epoch=0.5)
        assert [topk.count(1000, completed) for completed in range(4)] == [250, 16, 1, 1]

    def test_it_sends_no_less_than_was_asked_for(self):
        assert [TopK(0.1).count(1000, completed) for completed in range(3)] == [250, 100, 100]
        assert [TopK(1.0).count(1000, completed) for completed in range(2)] == [1000, 1000]


class TestBytes:
    @cases("text, least", ("fp16", 1.95), ("onebit", 28), ("topk:0.001", 270))
    @pytest.mark.parametrize("blocks", [1, 3])
    def test_lines_are_shorter(self, text, least, blocks):
        """All bytes on the wire, those of an update of three times 400,000 float32 numbers."""
        size = 1_200_000
        update = np.random.default_rng(0).standard_normal(size, np.float32)
        packed = parse(text).compress(update, np.zeros_like(update), LATE).packed
        edges = [0, *(PAGE * (24 * block) for block in range(1, blocks)), size]
        lines = [
            WireProtocol().write("000", Message({"node": [0, 0]}, packed.block(start, stop)))
            for start, stop in pairwise(edges)
        ]
        assert 4 * size >= least * sum(map(len, lines))

    @pytest.mark.parametrize("text", FORMATS)
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("completed", [0, LATE])
    def test_their_number_is_known_before(self, text, size, completed):
        update = random_vector(size, 0)
        packed = parse(text).compress(update, np.zeros_like(update), completed).packed
        found = sum(array.nbytes for array in packed.arrays.values())
        assert parse(text).nbytes(size, completed) == found


WRONG = """fp32 FP16 fp16:2 onebit:3 topk topk: topk:0 topk:2 topk:-0.1 topk:nan topk:inf topk:half
topk:0.1:2 fp16,onebit"""


@pytest.mark.parametrize("text", ["", " fp16", *WRONG.split()])
def test_specifications_that_are_wrong(text):
    with pytest.raises(UsageError, match=r"expected fp16, onebit, or topk:RATIO .* found '.*'"):
        parse(text)
