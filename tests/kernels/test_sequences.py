"""Kernels of sequences against the oracles, and their gradients against differences."""

import math
import threading

import numpy as np
import pytest

import naive
from arrays import differences, normal
from kernels import dispatch
from kernels.cpu.recurrent import GATES, KEPT

# They have no twin on CUDA.
pytestmark = pytest.mark.every_case

#: Rows, steps, inputs, units.
SHAPES = [(1, 1, 1, 1), (3, 1, 2, 4), (1, 5, 3, 1), (2, 4, 1, 3), (5, 7, 6, 11)]


class Layer:
    """A recurrent layer with random parameters."""

    def __init__(self, kind, shape, dtype="float64", seed=0):
        self.kind = kind
        rows, steps, inputs, units = shape
        width = GATES[kind] * units
        self.x = normal(seed, (rows, steps, inputs), dtype)
        shapes = [(inputs, width), (units, width), (width,), (width,)]
        self.parameters = [normal(seed + i, one, dtype) for i, one in enumerate(shapes, 1)]
        self.kept = np.full((rows, steps, KEPT[kind] * units), np.nan, dtype)
        self.out = np.full((rows, steps, units), np.nan, dtype)

    def forward(self):
        return dispatch.get("recurrent")(self.kind, self.x, *self.parameters, self.out, self.kept)

    def backward(self, delta, needs_input=True):
        self.forward()
        grads = [np.full_like(one, np.nan) for one in self.parameters]
        below = np.full_like(self.x, np.nan) if needs_input else None
        weights = self.parameters[:2]
        dispatch.get("recurrent_backward")(
            self.kind, delta, self.x, *weights, self.out, self.kept, *grads, below
        )
        return [*grads, below] if needs_input else grads


@pytest.mark.parametrize("kind", GATES)
class TestRecurrent:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_against_naive(self, kind, shape, dtype):
        layer = Layer(kind, shape, dtype)
        assert layer.forward() is layer.out
        expected = naive.recurrent(kind, layer.x, *layer.parameters)
        # States lie within (-1, 1); a step's rounding errors go on into the steps after it.
        np.testing.assert_allclose(layer.out, expected, atol=400 * np.finfo(dtype).eps, rtol=0)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_gradients_by_differences(self, kind, shape):
        layer = Layer(kind, shape)
        delta = normal(9, layer.out.shape, "float64")
        found = layer.backward(delta)
        for got, at in zip(found, [*layer.parameters, layer.x], strict=True):
            expected = differences(lambda: float((layer.forward() * delta).sum()), at)
            np.testing.assert_allclose(got, expected, atol=1e-6, rtol=1e-6)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_gradients_in_single_precision(self, kind, shape):
        single, double = Layer(kind, shape, "float32"), Layer(kind, shape)
        double.x = single.x.astype("float64")
        double.parameters = [one.astype("float64") for one in single.parameters]
        delta = normal(9, single.out.shape, "float32")
        pairs = zip(single.backward(delta), double.backward(delta.astype("float64")), strict=True)
        for got, expected in pairs:
            assert got.dtype == np.float32
            scale = max(1.0, abs(expected).max())
            np.testing.assert_allclose(got, expected, atol=1e-4 * scale, rtol=0)

    def test_the_gradient_by_the_input_may_be_left_out(self, kind):
        layer = Layer(kind, (3, 4, 2, 5))
        delta = normal(9, layer.out.shape, "float64")
        with_input, without = layer.backward(delta), layer.backward(delta, needs_input=False)
        assert len(without) == 4
        for one, other in zip(with_input, without, strict=False):
            assert one.tobytes() == other.tobytes()

    def test_a_row_keeps_its_nan(self, kind):
        layer = Layer(kind, (3, 4, 2, 5))
        layer.x[1, 2, 0] = math.nan
        found = layer.forward()
        assert np.isfinite(found[[0, 2]]).all()
        assert np.isfinite(found[1, :2]).all()
        assert np.isnan(found[1, 2:]).all()

    def test_gates_that_saturate(self, kind):
        layer = Layer(kind, (2, 3, 2, 4))
        layer.parameters[0] *= 1e6
        expected = naive.recurrent(kind, layer.x, *layer.parameters)
        np.testing.assert_allclose(layer.forward(), expected, atol=1e-12)
        assert all(np.isfinite(one).all() for one in layer.backward(np.ones(layer.out.shape)))

    def test_no_rows(self, kind):
        layer = Layer(kind, (0, 3, 2, 4))
        assert layer.forward().shape == (0, 3, 4)
        assert not any(one.any() for one in layer.backward(np.empty((0, 3, 4))))

    def test_calls_of_other_shapes_and_threads_leave_the_bits(self, kind):
        layer, other = Layer(kind, (3, 4, 2, 5), "float32"), Layer(kind, (4, 2, 3, 6), "float32")
        delta = normal(9, layer.out.shape, "float32")
        expected = [one.tobytes() for one in layer.backward(delta)]
        other.backward(np.ones_like(other.out))
        found = []
        thread = threading.Thread(target=lambda: found.extend(layer.backward(delta)))
        thread.start()
        thread.join()
        assert [one.tobytes() for one in found] == expected


class TestEmbedding:
    TOKENS = np.array([[0, 3, 3], [1, 0, 3]])

    def test_against_naive(self, dtype):
        weight, out = normal(1, (4, 5), dtype), np.full((2, 3, 5), np.nan, dtype)
        assert dispatch.get("embed")(self.TOKENS, weight, out) is out
        np.testing.assert_array_equal(out, naive.embed(self.TOKENS, weight))

    def test_gradient(self, dtype):
        delta, found = normal(2, (2, 3, 5), dtype), np.full((4, 5), np.nan, dtype)
        dispatch.get("embed_gradient")(self.TOKENS, delta, found)
        expected = naive.embed_gradient(self.TOKENS, delta, 4)
        np.testing.assert_allclose(found, expected, atol=8 * np.finfo(dtype).eps)
        assert not found[2].any()


class TestLayerNorm:
    SHAPES = ((1, 1), (3, 1), (1, 6), (4, 7), (0, 3))

    def run(self, x, weight, bias):
        moments = np.empty(len(x)), np.empty(len(x))
        out = np.full_like(x, np.nan)
        assert dispatch.get("layer_norm")(x, weight, bias, out, *moments) is out
        return out, moments

    @pytest.mark.parametrize("shape", SHAPES)
    def test_against_naive(self, shape, dtype):
        x, weight, bias = (normal(i, shape[i > 0 :], dtype) for i in range(3))
        expected = naive.layer_norm(x, weight, bias)
        np.testing.assert_allclose(
            self.run(x, weight, bias)[0], expected, atol=20 * np.finfo(dtype).eps
        )

    @pytest.mark.parametrize("shape", SHAPES)
    def test_gradients_by_differences(self, shape):
        x, weight, bias = (normal(i, shape[i > 0 :], "float64") for i in range(3))
        delta = normal(4, shape, "float64")
        moments = self.run(x, weight, bias)[1]
        grads = np.full_like(weight, np.nan), np.full_like(weight, np.nan)
        below = delta.copy()
        kernel = dispatch.get("layer_norm_backward")
        assert kernel(below, x, weight, *moments, *grads, below) is below
        for got, at in zip((below, *grads), (x, weight, bias), strict=True):
            expected = differences(lambda: float((self.run(x, weight, bias)[0] * delta).sum()), at)
            np.testing.assert_allclose(got, expected, atol=1e-6, rtol=1e-6)

    def test_a_large_mean_costs_no_digits(self):
        x = normal(1, (3, 50), "float64") + 1e7
        ones = np.ones(50)
        expected = naive.layer_norm(x, ones, 0 * ones)
        np.testing.assert_allclose(self.run(x, ones, 0 * ones)[0], expected, atol=1e-7)

    def test_a_row_keeps_its_nan(self, dtype):
        x = normal(1, (3, 4), dtype)
        x[1, 2] = math.nan
        found, _ = self.run(x, np.ones(4, dtype), np.zeros(4, dtype))
        assert np.isnan(found).any(axis=1).tolist() == [False, True, False]
