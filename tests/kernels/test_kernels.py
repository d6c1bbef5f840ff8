"""Every kernel on every device against the oracles."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from arrays import assert_sums, normal
from devices import DEVICES, SIMULATED
from kernels import dispatch

pytestmark = pytest.mark.every_case

DTYPES = ("float32", "float64")
SHAPES = [(1, 1, 1), (1, 7, 3), (5, 1, 2), (33, 17, 1), (64, 65, 33), (3, 300, 2)]
if SIMULATED:
    SHAPES = [(1, 1, 1), (1, 7, 3), (5, 1, 2), (13, 7, 1), (13, 14, 7), (3, 40, 2)]
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
        out = np.full(shape, np.nan, dtype)
        assert kernel("scale")(x, 1 / 255, out) is out
        assert_same_bits(out, naive.scale(x, 1 / 255, dtype))

    def test_takes_read_only_features(self, kernel, dtype):
        x = np.arange(6, dtype=np.uint8).reshape(2, 3)
        x.flags.writeable = False
        out = np.empty((2, 3), dtype)
        assert_same_bits(
            kernel("scale")(x, 0.5, out), np.array([[0, 0.5, 1], [1.5, 2, 2.5]], dtype)
        )

    def test_other_shapes_are_refused(self, kernel, dtype):
        with pytest.raises(ValueError, match=r"scale: out has shape \(3, 2\), expected \(2, 3\)"):
            kernel("scale")(np.zeros((2, 3), dtype), 1.0, np.zeros((3, 2), dtype))


class TestDense:
    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize(("rows", "inputs", "outputs"), [*SHAPES, (0, 3, 2)])
    def test_affine(self, kernel, dtype, rows, inputs, outputs, relu):
        x, weight = normal(1, (rows, inputs), dtype), normal(2, (inputs, outputs), dtype)
        bias, out = normal(3, outputs, dtype), np.full((rows, outputs), np.nan, dtype)
        assert kernel("affine")(x, weight, bias, out, relu=relu) is out
        magnitude = naive.affine(abs(x), abs(weight), abs(bias))
        assert_sums(out, naive.affine(x, weight, bias, relu), magnitude, inputs)

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

    @pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
    def test_affine_gradient(self, kernel, dtype, rows, inputs, outputs):
        x, delta = normal(1, (rows, inputs), dtype), normal(2, (rows, outputs), dtype)
        weight_grad = np.full((inputs, outputs), np.nan, dtype)
        bias_grad = np.full(outputs, np.nan, dtype)
        kernel("affine_gradient")(x, delta, weight_grad, bias_grad)
        expected, _ = naive.affine_gradient(x, delta)
        magnitude, _ = naive.affine_gradient(abs(x), abs(delta))
        assert_sums(weight_grad, expected, magnitude, rows)
        assert_same_bits(bias_grad, naive.column_sums(delta))

    def test_gradient_of_no_rows_is_zero(self, kernel, dtype):
        weight_grad, bias_grad = np.full((3, 2), 7, dtype), np.full(2, 7, dtype)
        empty = np.empty((0, 3), dtype), np.empty((0, 2), dtype)
        kernel("affine_gradient")(*empty, weight_grad, bias_grad)
        assert not weight_grad.any()
        assert not bias_grad.any()

    @pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
    def test_relu_backward(self, kernel, dtype, rows, inputs, outputs):
        delta, weight = normal(1, (rows, outputs), dtype), normal(2, (inputs, outputs), dtype)
        activation = np.maximum(normal(3, (rows, inputs), dtype), 0)
        out = np.full((rows, inputs), np.nan, dtype)
        assert kernel("relu_backward")(delta, weight, activation, out) is out
        expected = naive.relu_backward(delta, weight, activation)
        magnitude = naive.relu_backward(abs(delta), abs(weight), activation)
        assert_sums(out, expected, magnitude, outputs)

    @pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
    def test_affine_input_gradient(self, kernel, dtype, rows, inputs, outputs):
        delta, weight = normal(1, (rows, outputs), dtype), normal(2, (inputs, outputs), dtype)
        out = np.full((rows, inputs), np.nan, dtype)
        assert kernel("affine_input_gradient")(delta, weight, out) is out
        no_bias = np.zeros(inputs)
        expected = naive.affine(delta, weight.T, no_bias)
        assert_sums(out, expected, naive.affine(abs(delta), abs(weight.T), no_bias), outputs)

    def test_relu_backward_keeps_the_gradient_of_a_nan(self, kernel, dtype):
        activation = np.array([[math.nan, 0.0, -0.0, 5e-45, math.inf]], dtype)
        ones = np.ones((1, 1), dtype), np.ones((5, 1), dtype)
        out = kernel("relu_backward")(*ones, activation, np.empty((1, 5), dtype))
        smallest = float(activation[0, 3] > 0)
        np.testing.assert_array_equal(out, [[1, 0, 0, smallest, 1]])


class TestHalf:
    """Arrays stored as float16: computed as if they were float32, and rounded once."""

    @staticmethod
    def assert_stored(found, exact, magnitude, terms):
        """Within the roundings of float32 sums, and half a unit in float16's last place."""
        assert found.dtype == np.float16
        slack = (terms + 2) * np.finfo(np.float32).eps * np.abs(magnitude)
        slack += np.abs(exact) * 2.0**-11 + 2.0**-25
        assert np.all(np.abs(found.astype(float) - exact) <= slack)

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize(("rows", "inputs", "outputs"), [*SHAPES, (0, 3, 2)])
    def test_affine(self, kernel, rows, inputs, outputs, relu):
        x, weight = normal(1, (rows, inputs), "float16"), normal(2, (inputs, outputs), "float16")
        bias, out = normal(3, outputs, "float16"), np.full((rows, outputs), np.nan, "float16")
        assert kernel("affine")(x, weight, bias, out, relu=relu) is out
        exact = naive.affine(x, weight, bias, relu)
        magnitude = naive.affine(abs(x), abs(weight), abs(bias))
        self.assert_stored(out, exact, magnitude, inputs)
        # The outputs of a network, which are not stored as float16.
        wide = np.full((rows, outputs), np.nan, "float32")
        kernel("affine")(x, weight, bias, wide, relu=relu)
        assert_sums(wide, exact, magnitude, inputs)
        assert_same_bits(wide.astype("float16"), out)

    @pytest.mark.parametrize(("rows", "inputs", "outputs"), [*SHAPES, (0, 3, 2)])
    def test_gradients(self, kernel, rows, inputs, outputs):
        x, delta = normal(1, (rows, inputs), "float16"), normal(2, (rows, outputs), "float16")
        weight = normal(3, (inputs, outputs), "float16")
        weight_grad, bias_grad = np.full_like(weight, np.nan), np.full(outputs, np.nan, "float16")
        kernel("affine_gradient")(x, delta, weight_grad, bias_grad)
        magnitude = naive.affine_gradient(abs(x), abs(delta))
        for found, exact, size in zip(
            (weight_grad, bias_grad), naive.affine_gradient(x, delta), magnitude, strict=True
        ):
            self.assert_stored(found, exact, size, rows)
        active, out = np.maximum(x, 0), np.full_like(x, np.nan)
        assert kernel("relu_backward")(delta, weight, active, out) is out
        magnitude = naive.relu_backward(abs(delta), abs(weight), active)
        self.assert_stored(out, naive.relu_backward(delta, weight, active), magnitude, outputs)
        assert kernel("affine_input_gradient")(delta, weight, out) is out
        no_bias = np.zeros(inputs)
        magnitude = naive.affine(abs(delta), abs(weight.T), no_bias)
        self.assert_stored(out, naive.affine(delta, weight.T, no_bias), magnitude, outputs)

    @pytest.mark.parametrize("stored", ["uint8", "float32"])
    def test_scale(self, kernel, stored):
        x = (np.arange(250).reshape(5, 50)).astype(stored)
        out = np.full(x.shape, np.nan, "float16")
        assert kernel("scale")(x, 1 / 255, out) is out
        assert_same_bits(out, naive.scale(x, 1 / 255, "float32").astype("float16"))

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

    def test_certain_rows_have_no_loss(self, kernel, dtype):
        logits = np.array([[0, 2000], [-3000, 0]], dtype)
        loss = kernel("softmax_cross_entropy")(logits, np.array([1, 1], np.int32))
        assert loss == 0.0
        assert not logits.any()

    def test_a_wrong_certain_row_has_a_finite_loss(self, kernel, dtype):
        logits = np.array([[0, 2000]], dtype)
        assert kernel("softmax_cross_entropy")(logits, np.array([0], np.int32)) == 2000.0
        np.testing.assert_array_equal(logits, [[-1, 1]])

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

    def test_equal_logits(self, kernel, dtype):
        logits = np.full((3, 8), 1e30, dtype)
        loss = kernel("softmax_cross_entropy")(logits, np.array([0, 3, 7], np.int32))
        assert loss == pytest.approx(3 * math.log(8), rel=1e-15)
        np.testing.assert_array_equal(logits, np.full((3, 8), 1 / 8) - np.eye(8)[[0, 3, 7]])

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

    def test_minus_infinity_is_a_class_of_probability_zero(self, kernel, dtype):
        logits = np.array([[1, -math.inf, 1]], dtype)
        np.testing.assert_array_equal(kernel("softmax")(logits.copy()), [[0.5, 0, 0.5]])
        cross_entropy = kernel("softmax_cross_entropy")
        right, wrong = (np.array([label], np.int32) for label in (0, 1))
        assert cross_entropy(logits.copy(), right) == pytest.approx(math.log(2), rel=1e-15)
        assert cross_entropy(logits.copy(), wrong) == math.inf
        nothing = np.full((1, 3), -math.inf, dtype)
        assert math.isnan(cross_entropy(nothing, right))

    def test_the_first_of_equal_logits_is_predicted(self, kernel, dtype):
        logits = np.array([[1, 3, 3], [5, 5, 5], [0, 0, 2]], dtype)
        for labels, correct in (([1, 0, 2], 3), ([2, 1, 0], 0)):
            assert kernel("score")(logits.copy(), np.array(labels, np.int32))[1] == correct

    @pytest.mark.parametrize("name", ["softmax_cross_entropy", "score"])
    @pytest.mark.parametrize(("logits", "labels"), [((2, 3), 3), ((2, 3), 1), ((6,), 6)])
    def test_shapes_that_do_not_match(self, kernel, dtype, name, logits, labels):
        with pytest.raises(ValueError, match=f"{name}: logits .* do not match"):
            kernel(name)(np.zeros(logits, dtype), np.zeros(labels, np.int32))


class TestReduce:
    @pytest.mark.parametrize("size", [0, 1, 3, 1000, 4099])
    def test_add_into(self, kernel, dtype, size):
        left, right = normal(1, size, dtype), normal(2, size, dtype)
        expected, before = naive.add(left, right), right.copy()
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

    @pytest.mark.parametrize(
        ("shape", "other"), [(3, "float32"), (4, "float64"), ((1, 4), "float32")]
    )
    def test_add_into_refuses_what_differs(self, kernel, shape, other):
        with pytest.raises(ValueError, match=r"add_into: .* differ"):
            kernel("add_into")(np.zeros(4, np.float32), np.zeros(shape, other))

    @pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 9000])
    @pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
    def test_first_non_finite(self, kernel, dtype, size, bad):
        first_non_finite = kernel("first_non_finite")
        values = np.full(size, np.finfo(dtype).max)
        values = values.astype(dtype)
        assert first_non_finite(values) == -1
        for place in {0, size // 2, 4095, 4096, size - 1} & set(range(size)):
            values[place:][::5] = bad
            found = first_non_finite(values)
            assert found == naive.first_non_finite(values) == place
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

    @pytest.mark.parametrize(
        ("masks", "blocks"), [((3,), (2, 5)), ((2,), (2, 4)), ((2,), (5, 2)), ((1,), (1, 127))]
    )
    def test_shapes_that_do_not_match(self, masks, blocks):
        payload = np.zeros((1, 127) if 127 in blocks else (2, 5), np.uint8)
        arrays = [payload, np.zeros(masks, np.uint8), np.zeros(blocks, np.uint8)]
        with pytest.raises(ValueError, match="mask_blocks: payload"):
            dispatch.get("mask_blocks")(*arrays)
        if 127 not in blocks:
            with pytest.raises(ValueError, match=r"unmask_blocks: payload .* do not match"):
                dispatch.get("unmask_blocks")(*arrays[1:], payload)
