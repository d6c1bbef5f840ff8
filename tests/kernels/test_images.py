"""Kernels of convolutional networks on every device: against the oracles, and by differences."""

import math

import numpy as np
import pytest

import naive
from arrays import assert_sums, differences, normal
from devices import SIMULATED
from kernels import dispatch
from quick import cases, pairwise

pytestmark = pytest.mark.every_case

# Rows, height, width, channels; height and width of the filters, and their number; stride, padding.
CONVOLUTIONS = [
    (1, 1, 1, 1, 1, 1, 1, 1, 0),
    (2, 5, 4, 3, 3, 2, 5, 1, 0),
    (3, 6, 7, 2, 3, 3, 4, 2, 1),
    (2, 4, 5, 3, 1, 1, 2, 1, 0),
    (1, 7, 5, 2, 1, 1, 3, 2, 0),
    (2, 3, 3, 1, 3, 3, 2, 1, 3),
    (1, 8, 6, 1, 5, 4, 3, 3, 2),
    (0, 4, 4, 2, 3, 3, 2, 1, 1),
    (1, 34, 2, 1, 32, 2, 3, 2, 1),
]
# More than a vector holds, and what does not fill one.
LARGE = [
    (7, 9, 9, 1, 5, 5, 16, 1, 0),
    (5, 6, 6, 16, 3, 3, 17, 1, 1),
    (3, 7, 8, 5, 3, 3, 40, 2, 1),
    (4, 5, 5, 24, 1, 1, 33, 2, 0),
]
if not SIMULATED:
    CONVOLUTIONS += LARGE
# Rows, height, width, channels; size and stride of the windows.
POOLS = [
    (1, 1, 1, 1, 1, 1),
    (2, 4, 6, 3, 2, 2),
    (2, 5, 5, 2, 2, 2),
    (1, 7, 6, 3, 3, 2),
    (3, 5, 7, 1, 2, 3),
    (0, 4, 4, 2, 2, 2),
    (1, 4, 4, 9, 4, 4),
]
if not SIMULATED:
    POOLS += [(2, 9, 8, 17, 2, 2), (3, 8, 8, 32, 3, 1)]


class TestConvolution:
    @staticmethod
    def operands(rows, height, width, channels, high, wide, filters, stride, padding, dtype):
        x = normal(1, (rows, height, width, channels), dtype)
        weight = normal(2, (high, wide, channels, filters), dtype)
        tall = (height + 2 * padding - high) // stride + 1
        broad = (width + 2 * padding - wide) // stride + 1
        return x, weight, normal(3, (rows, tall, broad, filters), dtype)

    @pytest.mark.parametrize("sizes", CONVOLUTIONS, ids=str)
    def test_against_naive(self, kernel, dtype, sizes):
        x, weight, delta = self.operands(*sizes, dtype)
        steps, out = sizes[7:], np.full_like(delta, np.nan)
        assert kernel("convolve")(x, weight, out, *steps) is out
        magnitude = naive.convolve(abs(x), abs(weight), *steps)
        assert_sums(out, naive.convolve(x, weight, *steps), magnitude, weight[..., 0].size)
        weight_grad, dx = np.full_like(weight, np.nan), np.full_like(x, np.nan)
        assert kernel("convolve_weight_gradient")(x, delta, weight_grad, *steps) is weight_grad
        assert kernel("convolve_input_gradient")(delta, weight, dx, *steps) is dx
        expected = naive.convolve_gradients(x, weight, delta, *steps)
        magnitude = naive.convolve_gradients(abs(x), abs(weight), abs(delta), *steps)
        assert_sums(weight_grad, expected[0], magnitude[0], delta[..., 0].size)
        assert_sums(dx, expected[1], magnitude[1], weight[:, :, 0].size)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_what_is_not_finite_reaches_what_it_is_part_of(self, kernel, dtype, value):
        x, weight, delta = self.operands(2, 5, 5, 2, 3, 3, 3, 1, 0, dtype)
        x[1, 0, 0, 1] = value
        with np.errstate(invalid="ignore"):
            out = kernel("convolve")(x, weight, np.empty_like(delta), 1, 0)
        reached = np.zeros(out.shape, bool)
        reached[1, 0, 0] = True
        np.testing.assert_array_equal(~np.isfinite(out), reached)
        delta[0, 0, 0, 1] = value
        with np.errstate(invalid="ignore"):
            out = kernel("convolve_input_gradient")(delta, weight, np.empty_like(x), 1, 0)
        reached = np.zeros(x.shape, bool)
        reached[0, :3, :3] = True
        np.testing.assert_array_equal(~np.isfinite(out), reached)

    def test_what_lies_below_a_patch_does_not_reach_its_sums(self, kernel, dtype):
        """Tiles of patches may be deeper than a patch: here by some of its 27 numbers."""
        x, weight, delta = self.operands(1, 4, 3, 3, 3, 3, 2, 1, 0, dtype)
        x[0, 3, 0] = math.nan
        out = kernel("convolve")(x, weight, np.empty_like(delta), 1, 0)
        np.testing.assert_array_equal(np.isnan(out), [[[[False] * 2], [[True] * 2]]])

    def test_equal_calls_give_equal_bits(self, kernel, dtype):
        """Whatever was computed in between, and wherever the arrays are."""
        sizes = (1, 3, 3, 3, 3, 3, 4, 1, 1) if SIMULATED else (5, 6, 6, 3, 3, 3, 17, 1, 1)
        found = []
        for shift in (0, 1, 5):
            arrays = [self.shifted(array, shift) for array in self.operands(*sizes, dtype)]
            x, weight, delta = arrays
            kernel("convolve")(*self.operands(1, 3, 4, 2, 5, 5, 3, 1, 2, dtype), 1, 2)
            grad, out = self.shifted(weight, shift), self.shifted(x, shift)
            results = [
                kernel("convolve_weight_gradient")(x, delta, grad, 1, 1),
                kernel("convolve_input_gradient")(delta, weight, out, 1, 1),
                kernel("convolve")(x, weight, delta, 1, 1),
            ]
            found.append(b"".join(result.tobytes() for result in results))
        assert len(set(found)) == 1

    @staticmethod
    def shifted(array, elements):
        """A copy at another alignment."""
        memory = np.empty(array.size + elements, array.dtype)[elements:]
        memory[:] = array.ravel()
        return memory.reshape(array.shape)


class TestPooling:
    @staticmethod
    def operands(rows, height, width, channels, size, stride, dtype):
        """Small integers, many of which are equal, and a NaN."""
        x = np.floor(2 * normal(1, (rows, height, width, channels), dtype))
        if x.size > 5:
            x.reshape(-1)[[2, 5]] = math.nan
        tall, broad = (height - size) // stride + 1, (width - size) // stride + 1
        return x, normal(2, (rows, tall, broad, channels), dtype)

    @pytest.mark.parametrize("sizes", POOLS, ids=str)
    def test_max(self, kernel, dtype, sizes):
        x, delta = self.operands(*sizes, dtype)
        steps = sizes[4:]
        out, places = np.full_like(delta, 7), np.full(delta.shape, 99, np.uint8)
        assert kernel("max_pool")(x, out, places, *steps) is out
        expected, expected_places = naive.max_pool(x, *steps)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(places, expected_places)
        dx = np.full_like(x, np.nan)
        assert kernel("max_pool_backward")(delta, places, dx, *steps) is dx
        expected = naive.max_pool_backward(delta, places, x.shape, *steps)
        magnitude = naive.max_pool_backward(abs(delta), places, x.shape, *steps)
        assert_sums(dx, expected, magnitude, steps[0] ** 2)

    @pytest.mark.parametrize("sizes", POOLS, ids=str)
    def test_average(self, kernel, dtype, sizes):
        x, delta = self.operands(*sizes, dtype)
        x, steps = np.nan_to_num(x), sizes[4:]
        out, dx = np.full_like(delta, np.nan), np.full_like(x, np.nan)
        assert kernel("average_pool")(x, out, *steps) is out
        terms = steps[0] ** 2 + 1
        magnitude = naive.average_pool(abs(x), *steps)
        assert_sums(out, naive.average_pool(x, *steps), magnitude, terms)
        assert kernel("average_pool_backward")(delta, dx, *steps) is dx
        expected = naive.average_pool_backward(delta, x.shape, *steps)
        magnitude = naive.average_pool_backward(abs(delta), x.shape, *steps)
        assert_sums(dx, expected, magnitude, terms)

    @pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 4, 5, 7), (0, 2, 2, 3), (2, 8, 8, 33)])
    def test_global_average(self, kernel, dtype, shape):
        x, delta = normal(1, shape, dtype), normal(2, (shape[0], shape[3]), dtype)
        out, dx = np.full_like(delta, np.nan), np.full_like(x, np.nan)
        assert kernel("global_average")(x, out) is out
        places = shape[1] * shape[2]
        expected, magnitude = (a.mean(axis=(1, 2), dtype="float64") for a in (x, abs(x)))
        assert_sums(out, expected, magnitude, places + 1)
        assert kernel("global_average_backward")(delta, dx) is dx
        expected = np.broadcast_to(delta[:, None, None] / places, shape)
        assert_sums(dx, expected, abs(expected), 1)

    def test_nan_is_seen_in_a_mean(self, kernel, dtype):
        x = np.zeros((2, 4, 4, 2), dtype)
        x[1, 0, 3, 1] = math.nan
        out = kernel("average_pool")(x, np.empty((2, 2, 2, 2), dtype), 2, 2)
        assert np.argwhere(np.isnan(out)).tolist() == [[1, 0, 1, 1]]
        out = kernel("global_average")(x, np.empty((2, 2), dtype))
        assert np.argwhere(np.isnan(out)).tolist() == [[1, 1]]


class TestScaleShift:
    SHAPES = ((1, 1, 1, 1), (3, 5, 4, 3), (2, 6, 6, 8), (0, 2, 2, 3), (5, 1, 1, 10), (2, 4, 7, 17))

    @staticmethod
    def operands(shape, dtype, scaled):
        # Quarters, whose products and sums are exact, so that equal values are equal.
        z, scale, shift = (
            np.floor(4 * normal(seed, size, "float64")) / 4
            for seed, size in ((1, shape), (2, shape[3:]), (3, shape[3:]))
        )
        if z.size > 4:
            z.reshape(-1)[4] = math.nan
        return z.astype(dtype), scale.astype(dtype) if scaled else None, shift.astype(dtype)

    @cases("shape, pool, scaled, relu", *pairwise(SHAPES, (1, 2, 3), (True, False), (True, False)))
    def test_against_naive(self, kernel, dtype, shape, pool, scaled, relu):
        z, scale, shift = self.operands(shape, dtype, scaled)
        rows, height, width, channels = shape
        pooled = (rows, height // pool, width // pool, channels)
        out, places = np.full(pooled, 7, dtype), np.full(pooled, 99, np.uint8)
        given = None if pool == 1 else places
        assert kernel("scale_shift")(z, scale, shift, out, given, relu, pool) is out
        ones = np.ones(channels)
        expected, expected_places = naive.scale_shift(
            z, ones if scale is None else scale, shift, relu, pool
        )
        np.testing.assert_array_equal(out, expected)
        if pool > 1:
            np.testing.assert_array_equal(places, expected_places)
        delta, dz = normal(4, pooled, dtype), np.full_like(z, np.nan)
        sums = np.full(channels, np.nan, dtype)
        assert kernel("scale_shift_backward")(delta, out, given, dz, sums, relu, pool) is dz
        expected, expected_sums = naive.scale_shift_backward(
            delta, out, expected_places, shape, relu, pool
        )
        np.testing.assert_array_equal(dz, expected)
        magnitude = np.abs(expected).sum(axis=(0, 1, 2))
        assert_sums(sums, expected_sums, magnitude, delta.size)

    @pytest.mark.parametrize("relu", [False, True])
    def test_in_place(self, kernel, dtype, relu):
        z, scale, shift = self.operands((3, 5, 4, 3), dtype, True)
        apart = kernel("scale_shift")(z, scale, shift, np.empty_like(z), None, relu, 1)
        assert kernel("scale_shift")(z, scale, shift, z, None, relu, 1) is z
        np.testing.assert_array_equal(z, apart)
        delta, sums = normal(4, z.shape, dtype), np.empty((2, 3), dtype)
        dz = np.empty_like(z)
        kernel("scale_shift_backward")(delta, z, None, dz, sums[0], relu, 1)
        found = kernel("scale_shift_backward")(delta, z, None, delta, sums[1], relu, 1)
        np.testing.assert_array_equal(found, dz)
        np.testing.assert_array_equal(sums[0], sums[1])

    def test_sums_are_taken_in_the_order_of_the_rows(self, dtype):
        """On the CPU: a GPU's are those of parts."""
        delta = normal(1, (9, 3, 3, 20), dtype)
        out, sums = np.ones_like(delta), np.empty(20, dtype)
        backward = dispatch.get("scale_shift_backward")
        backward(delta, out, None, np.empty_like(delta), sums, True, 1)
        assert sums.tobytes() == naive.column_sums(delta.reshape(-1, 20)).tobytes()


class TestBatchNorm:
    EPSILON = 1e-5
    SHAPES = ((1, 1), (2, 3), (7, 5), (13, 7) if SIMULATED else (40, 17))

    @staticmethod
    def moments(kernel, z):
        mean, squares = np.full((2, z.shape[1]), np.nan)
        kernel("channel_moments")(z, mean, squares)
        return mean, squares

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_moments(self, kernel, dtype, shape):
        x = normal(1, shape, dtype) + dtype.type(100)
        for found, expected in zip(self.moments(kernel, x), naive.channel_moments(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-20)

    def test_moments_of_what_is_not_finite(self, kernel, dtype):
        x = normal(1, (4, 3), dtype)
        x[2, 1] = math.inf
        for found in self.moments(kernel, x):
            np.testing.assert_array_equal(np.isfinite(found), [True, False, True])

    @pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
    @pytest.mark.parametrize("own", [False, True])
    def test_gradients_by_differences(self, kernel, shape, own):
        rows, channels = shape
        z, delta = normal(1, shape, "float64"), normal(2, shape, "float64")
        weight, bias = normal(3, channels, "float64"), normal(4, channels, "float64")
        mean, squares = self.moments(kernel, z)
        inverse = 1 / np.sqrt(squares / rows + self.EPSILON)

        def loss():
            if own:
                return float(np.vdot(naive.batch_norm(z, weight, bias, self.EPSILON), delta))
            return float(np.vdot(weight * ((z - mean) * inverse) + bias, delta))

        out, weight_grad = np.full_like(z, np.nan), np.full(channels, np.nan)
        sums = delta.sum(axis=0)
        arguments = (delta, z, mean, inverse, weight, weight_grad, sums, out, own)
        assert kernel("batch_norm_backward")(*arguments) is out
        np.testing.assert_allclose(weight_grad, differences(loss, weight), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(out, differences(loss, z), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("own", [False, True])
    def test_float32_in_place(self, kernel, own):
        z, delta = normal(1, (40, 17), "float32"), normal(2, (40, 17), "float32")
        weight, sums = normal(3, 17, "float32"), delta.sum(axis=0)
        mean, squares = self.moments(kernel, z)
        inverse = 1 / np.sqrt(squares / 40 + self.EPSILON)
        found, exact = np.empty(17, "float32"), np.empty(17)
        wide = [array.astype("float64") for array in (delta, z, weight, sums)]
        expected = kernel("batch_norm_backward")(
            *wide[:2], mean, inverse, wide[2], exact, wide[3], np.empty((40, 17)), own
        )
        kernel("batch_norm_backward")(delta, z, mean, inverse, weight, found, sums, delta, own)
        np.testing.assert_allclose(delta, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
