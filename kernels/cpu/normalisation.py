"""Moments of channels, and the backward pass of a normalisation by them (Ioffe and Szegedy 2015).

Rows are all places of all images: an array (rows, channels), C-contiguous, of float32 or float64,
the same for all arguments of a call that are not said to be float64. The forward pass is a scale
and a shift: :func:`kernels.cpu.channels.scale_shift`.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import Array, expect_all

Double = npt.NDArray[np.float64]


def channel_moments(x: Array, mean: Double, squares: Double) -> None:
    """The mean of each channel of rows, and the sum of squared differences from it.

    Sums are of float64, row after row, in two passes. ``mean`` and ``squares``, (channels,),
    float64, are overwritten; by NaN if there are no rows.
    """
    expect_all("channel_moments", x.shape[1:], mean=mean, squares=squares)
    _channel_moments(x, mean, squares)


@jit
def _channel_moments(x, mean, squares):
    rows, channels = x.shape
    for c in range(channels):
        mean[c] = 0
        squares[c] = 0
    for i in range(rows):
        for c in range(channels):
            mean[c] += x[i, c]
    for c in range(channels):
        mean[c] /= rows
    for i in range(rows):
        for c in range(channels):
            difference = x[i, c] - mean[c]
            squares[c] += difference * difference


def batch_norm_backward(
    delta: Array,
    z: Array,
    mean: Double,
    inverse: Double,
    weight: Array,
    weight_grad: Array,
    sums: Array,
    out: Array,
    own: bool,
) -> Array:
    """The gradients of ``weight * zhat + bias`` by ``weight`` and ``z``, for rows of channels.

    ``zhat = (z - mean) * inverse``. The gradient by ``weight`` is ``sum(delta * zhat)``. That by
    ``z`` is ``weight * inverse * (delta - sums / rows - zhat * weight_grad / rows)`` if the moments
    are those of these rows, their ``own``, and ``weight * inverse * delta`` if they were given.

    ``mean`` and ``inverse``, one by the standard deviation, are of float64; ``sums`` are those of
    ``delta`` over the rows. ``weight_grad`` is overwritten, and ``out`` may be ``delta``.
    """
    _check_backward(
        z, delta, out, mean=mean, inverse=inverse, weight=weight, weight_grad=weight_grad, sums=sums
    )
    products = np.zeros(z.shape[1], np.float64)
    _products(delta, z, mean, products)
    products *= inverse
    weight_grad[...] = products
    factor = weight * inverse
    share = 1 / len(z) if own and len(z) else 0.0
    slope = -factor * inverse * products * share
    if out is not delta:
        np.copyto(out, delta)
    _combine(out, z, factor, slope, -slope * mean - factor * sums * share)
    return out


@jit
def _products(delta, z, mean, products):
    rows, channels = z.shape
    for i in range(rows):
        for c in range(channels):
            products[c] += delta[i, c] * (z[i, c] - mean[c])


@jit
def _combine(delta, z, factor, slope, shift):
    # In place: an array more and the compiler would not take vectors.
    rows, channels = z.shape
    for i in range(rows):
        for c in range(channels):
            delta[i, c] = factor[c] * delta[i, c] + slope[c] * z[i, c] + shift[c]


def _check_backward(z: Array, delta: Array, out: Array, **columns: Array) -> None:
    expect_all("batch_norm_backward", z.shape[1:], **columns)
    expect_all("batch_norm_backward", z.shape, delta=delta, out=out)
