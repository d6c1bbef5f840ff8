"""A row's bits do not depend on the rows beside it, nor on where they are in memory."""

import numpy as np
import pytest

from kernels.cpu import dense
from kernels.cpu.convolution import convolve
from kernels.cpu.dots import dots
from kernels.cpu.invariant import Invariant
from kernels.cpu.recurrent import GATES, KEPT, recurrent

DTYPES = [np.float32, np.float64]
#: Outputs that fill vectors and that do not; terms of several parts.
SHAPES = [(1, 1), (5, 2), (17, 1), (16, 1), (784, 10), (100, 1), (33, 16), (40, 23), (2500, 9)]


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_affine_is_batch_invariant_and_right(shape, dtype):
    kernels, (terms, outputs) = Invariant(), shape
    x, weight, bias = (
        numbers(203, terms, dtype=dtype),
        numbers(*shape, dtype=dtype),
        numbers(outputs),
    )
    bias = bias.astype(dtype)

    def affine(rows, relu=False):
        return kernels.affine(rows, weight, bias, np.empty((len(rows), outputs), dtype), relu)

    whole = affine(x)
    exact = x.astype(np.longdouble) @ weight.astype(np.longdouble) + bias
    size = np.abs(x).astype(np.longdouble) @ np.abs(weight).astype(np.longdouble) + np.abs(bias)
    assert (np.abs(whole - exact) <= terms * np.finfo(dtype).eps * size).all()
    for count in (1, 2, 3, 5, 6, 7, 97, 100):
        for start in range(0, 203, count):
            assert (affine(x[start : start + count]) == whole[start : start + count]).all()
    assert (affine(x[::-1].copy())[::-1] == whole).all()
    assert (affine(x, relu=True) == np.maximum(whole, 0)).all()
    assert affine(x[:0]).shape == (0, outputs)


def test_infinite_and_missing_numbers_stay_in_their_row():
    x, weight, kernels = numbers(20, 50), numbers(50, 12), Invariant()
    x[3, 7], x[4, 49] = np.inf, np.nan
    for part in (weight, weight[:, :1].copy()):
        out = kernels.affine(
            x, part, np.zeros(part.shape[1], x.dtype), np.empty((20, part.shape[1]), x.dtype), False
        )
        assert [*np.flatnonzero(~np.isfinite(out).all(axis=1))] == [3, 4]


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("units", [3, 8])
def test_recurrent_is_batch_invariant_and_as_with_blas(kind, units):
    kernels, width = Invariant(), GATES[kind] * units
    x = numbers(70, 5, 6)
    parameters = [
        numbers(*shape, seed=i)
        for i, shape in enumerate([(6, width), (units, width), (width,), (width,)])
    ]

    def states(rows, function):
        out = np.empty((len(rows), 5, units), x.dtype)
        return function(
            kind, rows, *parameters, out, np.empty((len(rows), 5, KEPT[kind] * units), x.dtype)
        )

    whole = states(x, kernels.recurrent)
    np.testing.assert_allclose(whole, states(x, recurrent), rtol=1e-4, atol=1e-5)
    for start, stop in ((0, 1), (1, 8), (8, 70)):
        assert (states(x[start:stop].copy(), kernels.recurrent) == whole[start:stop]).all()


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("channels", [1, 6])
def test_convolutions_are_batch_invariant(padding, channels):
    x, weight = numbers(40, 9, 9, channels), numbers(5, 5, channels, 10)
    side = 5 + 2 * padding

    def outputs(images):
        return convolve(
            images, weight, np.empty((len(images), side, side, 10), x.dtype), 1, padding
        )

    whole = outputs(x)
    for start, stop in ((0, 1), (1, 8), (8, 40)):
        assert (outputs(x[start:stop].copy()) == whole[start:stop]).all()


def test_weights_that_are_held_are_read_once_and_others_each_time():
    kernels, params = Invariant(), numbers(60)
    x, other, out = numbers(4, 6), numbers(6, 10), np.empty((4, 10), np.float32)
    weight, zero = params.reshape(6, 10), np.zeros(10, np.float32)
    kernels.hold(params)
    before = kernels.affine(x, weight, zero, out, False).copy()
    kernels.affine(x, other, zero, out, False)
    other *= 2
    np.testing.assert_allclose(
        kernels.affine(x, other, zero, out, False), x @ other, rtol=1e-5, atol=1e-5
    )
    params *= 2
    assert (kernels.affine(x, weight, zero, out, False) == before).all()
    kernels.hold(params)
    assert (kernels.affine(x, weight, zero, out, False) == 2 * before).all()


def test_arrays_of_other_types_are_widened_as_blas_does():
    kernels, x, weight = Invariant(), numbers(5, 7), numbers(7, 3, dtype=np.float64)
    for dtype, tolerance in ((np.float16, 1e-2), (np.float32, 1e-5), (np.float64, 1e-12)):
        out = np.empty((5, 3), dtype)
        kernels.affine(x, weight, np.zeros(3), out, False)
        np.testing.assert_allclose(out, x @ weight, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("outputs", [1, 7, 64])
def test_any_layout_gives_the_numbers_of_the_usual_one(outputs):
    kernels, x, weight = Invariant(), numbers(30, 64), numbers(64, outputs)
    bias = numbers(outputs)

    def affine(x, weight, out):
        return kernels.affine(x, weight, bias, out, False)

    expected = affine(x, weight, np.empty((30, outputs), np.float32)).copy()
    packed = np.zeros(30, [("x", np.float32, 64), ("more", np.uint8, 1)])
    packed["x"] = x
    many = numbers(64, 3 * outputs)
    many[:, outputs : 2 * outputs] = weight
    for rows in (
        x,
        np.asfortranarray(x),
        np.repeat(x, 2, axis=1)[:, ::2],
        packed["x"],
        x[::-1][::-1],
    ):
        for factor in (weight, np.asfortranarray(weight), many[:, outputs : 2 * outputs]):
            beside = np.full((30, outputs + 2), 5, np.float32)
            for out in (np.empty((30, outputs), np.float32), beside[:, 1:-1]):
                assert (affine(rows, factor, out) == expected).all()
            assert (beside[:, [0, -1]] == 5).all()
    assert (
        affine(x, weight[::-1], np.empty_like(expected))
        == affine(x, weight[::-1].copy(), np.empty_like(expected))
    ).all()


def test_weights_and_their_transposed_ones_are_told_apart():
    kernels, params = Invariant(), numbers(144)
    kernels.hold(params)
    x, zero, out = numbers(5, 12), np.zeros(12, np.float32), np.empty((5, 12), np.float32)
    weight = params.reshape(12, 12)
    for _ in range(2):
        for factor in (weight, weight.T):
            found = kernels.affine(x, factor, zero, out, False)
            np.testing.assert_allclose(found, x @ factor, rtol=1e-5, atol=1e-5)


def test_arrays_that_do_not_match_are_refused():
    kernels, x, weight, out = (
        Invariant(),
        numbers(2, 3),
        numbers(3, 4),
        np.empty((2, 4), np.float32),
    )
    with pytest.raises(ValueError, match=r"affine: bias has shape \(3,\), expected \(4,\)"):
        kernels.affine(x, weight, np.zeros(3), out, False)
    with pytest.raises(ValueError, match="product: expected"):
        kernels.product(x[:, :2], weight, out)
    with pytest.raises(ValueError, match="product: expected"):
        kernels.product(x, weight, out[:1])
    with pytest.raises(ValueError, match="side by side"):
        kernels.product(numbers(3, 2).T, weight, out)
    with pytest.raises(ValueError, match="dots: weight has shape"):
        dots(x, numbers(4), np.empty(2, np.float32))


def test_blas_is_not_batch_invariant():
    """Else nothing here would show what the kernels are for."""
    x, weight = numbers(512, 784), numbers(784, 128)
    out = dense.affine(x, weight, np.zeros(128, x.dtype), np.empty((512, 128), x.dtype), relu=False)
    alone = [
        dense.affine(
            x[i : i + 1], weight, np.zeros(128, x.dtype), np.empty((1, 128), x.dtype), relu=False
        )[0]
        for i in range(8)
    ]
    assert any((one != row).any() for one, row in zip(alone, out, strict=False))
