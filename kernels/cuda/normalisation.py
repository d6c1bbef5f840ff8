"""Moments of channels, and the backward pass of a normalisation by them.

Twins of :mod:`kernels.cpu.normalisation`. Arrays are on the host or on the device. Sums are of
float64, by parts whose number depends on the shape alone.
"""

import numpy as np
from numba import cuda

from kernels.cpu.normalisation import _check_backward
from kernels.cpu.shapes import expect_all
from kernels.cuda import THREADS, blocks, jit
from kernels.cuda.columns import (
    PRODUCTS,
    SQUARES,
    VALUES,
    blocks_of,
    first_row,
    row_step,
    sum_columns,
    width_of,
)
from kernels.cuda.dense import _store
from kernels.cuda.memory import Array, Call


def channel_moments(x: Array, mean: Array, squares: Array) -> None:
    """The mean of each channel, and the sum of squared differences from it."""
    expect_all("channel_moments", x.shape[1:], mean=mean, squares=squares)
    with Call("channel_moments") as call:
        rows, means = call.read(x), call.write(mean)
        sum_columns(call, VALUES, rows, means, divisor=float(x.shape[0]))
        sum_columns(call, SQUARES, rows, call.write(squares), mean=means)


def batch_norm_backward(
    delta: Array,
    z: Array,
    mean: Array,
    inverse: Array,
    weight: Array,
    weight_grad: Array,
    sums: Array,
    out: Array,
    own: bool,
) -> Array:
    """The gradients of ``weight * zhat + bias`` by ``weight`` and ``z``."""
    _check_backward(
        z, delta, out, mean=mean, inverse=inverse, weight=weight, weight_grad=weight_grad, sums=sums
    )
    rows, channels = z.shape
    with Call("batch_norm_backward") as call:
        above, inputs = call.read(delta), call.read(z)
        moments = call.read(mean), call.read(inverse)
        products = call.kept("products", (channels,), np.float64)
        sum_columns(call, PRODUCTS, above, products, inputs, *moments)
        _store[blocks(channels), THREADS](products, call.write(weight_grad))
        share = 1 / rows if own and rows else 0.0
        _batch_norm_backward[blocks_of(rows, channels), THREADS](
            above,
            inputs,
            *moments,
            call.read(weight),
            call.read(sums),
            products,
            share,
            width_of(channels),
            call.write(out),
        )
    return out


@jit
def _batch_norm_backward(delta, z, mean, inverse, weight, sums, products, share, width, out):
    rows, channels = z.shape
    for c in range(cuda.threadIdx.x % width, channels, width):
        factor, shift, slope = weight[c] * inverse[c], sums[c] * share, products[c] * share
        for i in range(first_row(width), rows, row_step(width)):
            zhat = (z[i, c] - mean[c]) * inverse[c]
            out[i, c] = factor * (delta[i, c] - shift - zhat * slope)
