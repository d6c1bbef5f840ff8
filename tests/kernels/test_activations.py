"""Activations and their derivatives on every device."""

import math

import numpy as np
import pytest

import naive

pytestmark = pytest.mark.every_case

NAMES = ("relu", "leaky-relu", "tanh", "sigmoid", "gelu")
SLOPE = 0.125
#: Of an odd number of dimensions and elements, and none.
SHAPES = [(0, 3), (1,), (3, 5, 7), (2, 3, 3, 5)]


def numbers(shape, dtype):
    spread = 10.0 ** np.random.default_rng(1).uniform(-6, 1.3, shape)
    return (np.random.default_rng(2).choice([-1, 1], shape) * spread).astype(dtype)


def expected(name, x):
    return naive.activation(name, x.astype("float64"), SLOPE)


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_against_naive(self, kernel, dtype, name, shape):
        x, out = numbers(shape, dtype), np.full(shape, np.nan, dtype)
        assert kernel("activate")(name, x, out, SLOPE) is out
        # GELU's oracle cancels where x is negative.
        slack = 1e-15 if name == "gelu" else 0
        assert np.all(abs(out - expected(name, x)) <= 4 * np.finfo(dtype).eps * abs(out) + slack)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_derivative_is_that_of_differences(self, kernel, name, shape):
        x, delta = numbers(shape, "float64"), numbers(shape, "float64")[::-1]
        delta, step = np.ascontiguousarray(delta), 1e-6
        # No step crosses the corner of ReLU.
        x[abs(x) < 2 * step] = 0.5
        out = np.full(shape, np.nan)
        assert kernel("activate_backward")(name, delta, x, expected(name, x), out, SLOPE) is out
        slopes = (expected(name, x + step) - expected(name, x - step)) / (2 * step)
        assert np.all(abs(out - delta * slopes) <= 1e-6 * (1 + abs(delta)))

    def test_in_place(self, kernel, dtype, name):
        x = numbers((5, 7), dtype)
        y = kernel("activate")(name, x, np.empty_like(x), SLOPE)
        back = kernel("activate_backward")(name, x, x, y, np.empty_like(x), SLOPE)
        delta, again = x.copy(), x.copy()
        assert kernel("activate_backward")(name, delta, x, y, delta, SLOPE) is delta
        assert kernel("activate")(name, again, again, SLOPE) is again
        assert (delta.tobytes(), again.tobytes()) == (back.tobytes(), y.tobytes())

    def test_what_is_not_finite(self, kernel, dtype, name):
        x = np.array([math.nan, math.inf, -math.inf, 0.0], dtype)
        limits = {"tanh": (1, -1, 0), "sigmoid": (1, 0, 0.5), "leaky-relu": (math.inf, -math.inf)}
        y = kernel("activate")(name, x, np.empty_like(x), SLOPE)
        infinite = limits.get(name, (math.inf, 0))
        np.testing.assert_array_equal(y[: 1 + len(infinite)], [math.nan, *infinite])
        back = kernel("activate_backward")(name, np.ones_like(x), x, y, np.empty_like(x), SLOPE)
        at_nan = 1.0 if "relu" in name else math.nan
        ends = {"relu": (1, 0, 0), "leaky-relu": (1, SLOPE, SLOPE), "gelu": (1, 0, 0.5)}
        ends |= {"tanh": (0, 0, 1), "sigmoid": (0, 0, 0.25)}
        np.testing.assert_array_equal(back, [at_nan, *ends[name]])


def test_small_numbers_keep_their_digits(kernel):
    x = np.array([1e-12, -3e-9, 5e-324, -0.0])
    assert kernel("activate")("tanh", x, np.empty_like(x)).tobytes() == x.tobytes()
    # The gate is 1/2 there, and next to 0 far below.
    gelu = kernel("activate")("gelu", np.array([1e-12, -9.0, -1e200]), np.empty(3))
    assert gelu[0] == pytest.approx(5e-13, rel=1e-11)
    score = 2 * math.sqrt(2 / math.pi) * (9 + 0.044715 * 9**3)
    assert gelu[1:].tolist() == pytest.approx([-9 * math.exp(-score), 0], rel=1e-13)
