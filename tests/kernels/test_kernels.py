"""Every kernel on every device against the oracles."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import naive
from arrays import assert_sums, normal
from devices import DEVICES, SIMULATED
from kernels import dispatch
from quick import cases

pytestmark = pytest.mark.every_case

DTYPES = ("float32", "float64")
SHAPES = [(0, 3, 2), (1, 1, 1), (1, 7, 3), (5, 1, 2), (33, 17, 1), (64, 65, 33), (3, 300, 2)]
if SIMULATED:
    SHAPES = [(0, 3, 2), (1, 1, 1), (1, 7, 3), (5, 1, 2), (13, 7, 1), (13, 14, 7), (3, 40, 2)]
LABEL_DTYPES = ("uint8", "int32", "int64")
LF, CR = b"\n\r"


def assert_same_bits(found, expected):
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


class TestScale:
    @pytest.mark.parametrize("stored", ["uint8", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(1, 1), (3, 5), (0, 4), (7, 131)])
    def test_against_naive(self, kernel, dtype, stored, shape):
        x = (normal(1, shape, "float64") * 100).astype(np.int64).astype(stored)
        # As a dataset's.
        x.flags.writeable = False
        out = np.full(shape, np.nan, dtype)
        assert kernel("scale")(x, 1 / 255, out) is out
        assert_same_bits(out, naive.scale(x, 1 / 255, dtype))
        if stored != "float64":
            out = np.full(shape, np.nan, "float16")
            assert kernel("scale")(x, 1 / 255, out) is out
            assert_same_bits(out, naive.scale(x, 1 / 255, "float32").astype("float16"))


@pytest.fixture(params=["float16", "float32", "float64"])
def stored(request):
    return np.dtype(request.param)


class TestDense:
    """Arrays stored as float16 are computed as if they were float32, and rounded once."""

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
    def test_affine(self, kernel, stored, rows, inputs, outputs, relu):
        x, weight = normal(1, (rows, inputs), stored), normal(2, (inputs, outputs), stored)
        bias, out = normal(3, outputs, stored), np.full((rows, outputs), np.nan, stored)
        assert kernel("affine")(x, weight, bias, out, relu=relu) is out
        exact = naive.affine(x, weight, bias, relu)
        magnitude = naive.affine(abs(x), abs(weight), abs(bias))
        assert_sums(out, exact, magnitude, inputs)
        if stored == np.float16:
            # The outputs of a network, which are not stored as float16.
            wide = np.full((rows, outputs), np.nan, "float32")
            kernel("affine")(x, weight, bias, wide, relu=relu)
            assert_sums(wide, exact, magnitude, inputs)
            assert_same_bits(wide.astype("float16"), out)

    @pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
    def test_gradients(self, kernel, stored, rows, inputs, outputs):
        x, delta = normal(1, (rows, inputs), stored), normal(2, (rows, outputs), stored)
        weight = normal(3, (inputs, outputs), stored)
        weight_grad, bias_grad = np.full_like(weight, np.nan), np.full(outputs, np.nan, stored)
        kernel("affine_gradient")(x, delta, weight_grad, bias_grad)
        exact = naive.affine_gradient(x, delta)
        magnitude = naive.affine_gradient(abs(x), abs(delta))
        assert_sums(weight_grad, exact[0], magnitude[0], rows)
        assert_sums(bias_grad, exact[1], magnitude[1], rows)
        if stored != np.float16:
            assert_same_bits(bias_grad, naive.column_sums(delta))
        active, out = np.maximum(x, 0), np.full_like(x, np.nan)
        assert kernel("relu_backward")(delta, weight, active, out) is out
        magnitude = naive.product(abs(delta), abs(weight.T))
        assert_sums(out, naive.relu_backward(delta, weight, active), magnitude, outputs)
        assert kernel("affine_input_gradient")(delta, weight, out) is out
        assert_sums(out, naive.product(delta, weight.T), magnitude, outputs)

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_affine_keeps_what_is_not_finite(self, kernel, dtype, value, relu):
        x, weight = normal(1, (5, 4), dtype), abs(normal(2, (4, 3), dtype))
        x[2, 1] = value
        bias, out = np.zeros(3, dtype), np.empty((5, 3), dtype)
        with np.errstate(invalid="ignore"):
            kernel("affine")(x, weight, bias, out, relu=relu)
        assert np.isfinite(out[[0, 1, 3, 4]]).all()
        expected = 0.0 if relu and value < 0 else value
        np.testing.assert_array_equal(out[2], np.full(3, expected))

    def test_relu_backward_keeps_the_gradient_of_a_nan(self, kernel, dtype):
        activation = np.array([[math.nan, 0.0, -0.0, 5e-45, math.inf]], dtype)
        ones = np.ones((1, 1), dtype), np.ones((5, 1), dtype)
        out = kernel("relu_backward")(*ones, activation, np.empty((1, 5), dtype))
        smallest = float(activation[0, 3] > 0)
        np.testing.assert_array_equal(out, [[1, 0, 0, smallest, 1]])

    def test_what_float16_cannot_hold(self, kernel):
        x = np.array([[65519, 65520, -1e9, 2.0**-24, 2.0**-25, math.nan]], "float32")
        out = np.empty(x.shape, "float16")
        kernel("scale")(x, 1.0, out)
        expected = [[65504, math.inf, -math.inf, 2.0**-24, 0, math.nan]]
        np.testing.assert_array_equal(out, expected)
        # Sums have room for more: only what is stored overflows.
        ones, large = np.ones((1, 3), "float16"), np.array([[6e4], [6e4], [-6e4]], "float16")
        sums, bias = np.empty((1, 1), "float16"), np.zeros(1, "float16")
        assert kernel("affine")(ones, large, bias, sums, relu=False)[0, 0] == large[0, 0]
        ones[0, 2] = 0
        assert kernel("affine")(ones, large, bias, sums, relu=False)[0, 0] == math.inf


class TestSoftmax:
    @settings(max_examples=4 if SIMULATED else 40)
    @given(
        rows=st.integers(0, 9 if SIMULATED else 40),
        classes=st.integers(1, 40),
        spread=st.sampled_from([0.01, 1.0, 30.0, 1e4]),
        labels=st.sampled_from(LABEL_DTYPES),
        seed=st.integers(0, 2**32 - 1),
    )
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("device", DEVICES)
    def test_against_naive(self, device, dtype, rows, classes, spread, labels, seed):
        logits = normal(seed, (rows, classes), dtype) * np.dtype(dtype).type(spread)
        label = np.random.default_rng(seed).integers(0, classes, rows).astype(labels)
        loss, gradient = naive.softmax_cross_entropy(logits, label)
        probabilities = naive.softmax(logits)
        # The differences from the largest logit are rounded; none is beyond 16 spreads.
        eps = np.finfo(dtype).eps
        slack = eps * (16 * spread + classes + 4)
        found = {name: logits.copy() for name in ("softmax_cross_entropy", "softmax", "score")}
        got = dispatch.get("softmax_cross_entropy", device)(found["softmax_cross_entropy"], label)
        assert type(got) is float
        assert abs(got - loss) <= rows * slack + 1e-14 * loss
        error = abs(found["softmax_cross_entropy"] - gradient)
        assert np.all(error <= slack * probabilities + eps)
        assert dispatch.get("softmax", device)(found["softmax"]) is found["softmax"]
        assert np.all(abs(found["softmax"] - probabilities) <= slack * probabilities + eps)
        scored = dispatch.get("score", device)(found["score"], label)
        assert scored == (got, naive.correct(logits, label))

    @cases(
        "logits, labels, loss, probabilities",
        # Certain rows have no loss, or a finite one.
        ([[0, 2000], [-3000, 0]], [1, 1], 0.0, [[0, 1], [0, 1]]),
        ([[0, 2000]], [0], 2000.0, [[0, 1]]),
        ([[1e30] * 8] * 3, [0, 3, 7], 3 * math.log(8), [[1 / 8] * 8] * 3),
        # Minus infinity is a class of probability zero.
        ([[1, -math.inf, 1]], [0], math.log(2), [[0.5, 0, 0.5]]),
        ([[1, -math.inf, 1]], [1], math.inf, [[0.5, 0, 0.5]]),
        ([[-math.inf] * 3], [0], math.nan, [[math.nan] * 3]),
    )
    def test_limits(self, kernel, dtype, logits, labels, loss, probabilities):
        logits, labels = np.array(logits, dtype), np.array(labels, np.int32)
        np.testing.assert_array_equal(kernel("softmax")(logits.copy()), probabilities)
        found = kernel("softmax_cross_entropy")(logits, labels)
        assert found == pytest.approx(loss, rel=1e-15, nan_ok=True)
        expected = np.array(probabilities) - np.eye(logits.shape[1])[labels]
        np.testing.assert_array_equal(logits, expected)

    def test_sums_are_taken_in_float64(self, kernel, dtype):
        cross_entropy = kernel("softmax_cross_entropy")
        # Each of the small exponentials is below half a unit in the last place of a float32 1.
        many = 5000 if SIMULATED else 100_000
        logits = np.array([[0, *[-17.5] * many]], dtype)
        loss = cross_entropy(logits, np.array([0], np.int32))
        assert loss == pytest.approx(math.log1p(many * math.exp(-17.5)), rel=1e-6)
        # At 2**27 a float32 has no room for the losses of the other rows.
        rows = 100 if SIMULATED else 1000
        logits = np.array([[0, 2**27], *[[0, 3]] * rows], dtype)
        loss = cross_entropy(logits, np.zeros(rows + 1, np.int32))
        others = rows * (3 + math.log1p(math.exp(-3)))
        assert loss - 2**27 == pytest.approx(others, rel=1e-7)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    @pytest.mark.parametrize("place", range(4))
    @pytest.mark.parametrize("label", range(4))
    def test_not_finite_spoils_its_row_alone(self, kernel, dtype, bad, place, label):
        logits = normal(1, (3, 4), dtype)
        logits[1, place] = bad
        expected = naive.softmax(logits)
        assert np.isnan(expected[1]).all()
        labels = np.full(3, label, np.int32)
        gradient = logits.copy()
        assert math.isnan(kernel("softmax_cross_entropy")(gradient, labels))
        assert math.isnan(kernel("score")(logits.copy(), labels)[0])
        expected[:, label] -= 1
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)

    def test_the_first_of_equal_logits_is_predicted(self, kernel, dtype):
        logits = np.array([[1, 3, 3], [5, 5, 5], [0, 0, 2]], dtype)
        for labels, correct in (([1, 0, 2], 3), ([2, 1, 0], 0)):
            assert kernel("score")(logits.copy(), np.array(labels, np.int32))[1] == correct


class TestReduce:
    @pytest.mark.parametrize("size", [0, 1, 3, 1000, 4099])
    def test_add_into(self, kernel, dtype, size):
        left, right = normal(1, size, dtype), normal(2, size, dtype)
        expected, before = left + right, right.copy()
        assert kernel("add_into")(left, right) is left
        assert_same_bits(left, expected)
        assert_same_bits(right, before)

    def test_add_into_propagates(self, kernel, dtype):
        left = np.array([math.nan, math.inf, math.inf, -0.0, -0.0], dtype)
        right = np.array([1, 1, -math.inf, -0.0, 0.0], dtype)
        with np.errstate(invalid="ignore"):
            kernel("add_into")(left, right)
        np.testing.assert_array_equal(left, [math.nan, math.inf, math.nan, 0, 0])
        assert np.signbit(left[3:]).tolist() == [True, False]

    @pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 9000])
    @pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
    def test_first_non_finite(self, kernel, dtype, size, bad):
        first_non_finite = kernel("first_non_finite")
        values = np.full(size, np.finfo(dtype).max)
        values = values.astype(dtype)
        assert first_non_finite(values) == -1
        for place in {0, size // 2, 4095, 4096, size - 1} & set(range(size)):
            values[place:][::5] = bad
            assert first_non_finite(values) == naive.first_non_finite(values) == place
            values[:] = np.finfo(dtype).tiny / 2


@pytest.mark.skipif(SIMULATED, reason="these kernels run on the host")
class TestBlocks:
    @given(
        rows=st.integers(0, 4),
        width=st.integers(0, 126),
        alphabet=st.sampled_from([bytes(range(256)), b"\n\r\x00\x07\x1a", b"\n", b"\r"]),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_against_naive(self, rows, width, alphabet, seed):
        generator = np.random.default_rng(seed)
        self.check(generator.choice(np.frombuffer(alphabet, np.uint8), (rows, width)))

    @pytest.mark.parametrize("width", [64, 125, 126])
    @pytest.mark.parametrize("left_over", [1, 77, 248])
    def test_hardest_blocks(self, width, left_over):
        """A byte rules out two masks; these are of distinct pairs, so that few masks are left."""
        pairs = [byte for byte in range(256) if byte < byte ^ LF ^ CR]
        hard = [byte for byte in pairs if byte not in (0, left_over)]
        ruled_out = {byte ^ char for byte in hard[-width:] for char in (LF, CR)}
        assert len(ruled_out) == 2 * len(hard[-width:])
        self.check(np.array([hard[:width], hard[-width:]], np.uint8))

    @staticmethod
    def check(payload):
        rows, width = payload.shape
        masks, blocks = np.full(rows, 99, np.uint8), np.full((rows, width), 99, np.uint8)
        dispatch.get("mask_blocks")(payload, masks, blocks)
        assert masks.tolist() == [naive.mask(block.tolist()) for block in payload]
        assert not set(b"\n\r") & {*masks.tolist(), *blocks.ravel().tolist()}
        assert blocks.tolist() == [
            [byte ^ mask for byte in block]
            for block, mask in zip(payload.tolist(), masks.tolist(), strict=True)
        ]
        back = np.full((rows, width), 99, np.uint8)
        dispatch.get("unmask_blocks")(masks, blocks, back)
        assert_same_bits(back, payload)
