"""Pooling of images: of each window the largest value, or the mean.

Arrays are C-contiguous, of float32 or float64, the same for all arguments of a call. Images are
(rows, height, width, channels). There is no padding: what lies beyond the last whole window is not
looked at, and has no gradient.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import Array, expect
from kernels.cpu.windows import pool_windows

Places = npt.NDArray[np.uint8]


def max_pool(x: Array, out: Array, places: Places, size: int, stride: int) -> Array:
    """The largest value of each window, which is at most 16 by 16. NaN counts as the largest.

    ``out`` has ``(height - size) // stride + 1`` windows down, and so across. ``places``, uint8, of
    its shape, is overwritten: where in its window, row by row, the first of the largest values is.
    """
    _check("max_pool", x, out, size, stride)
    _check_places("max_pool", places, out, size)
    # Of values times one, and plus a negative zero, not a bit changes.
    channels, kind = x.shape[3], x.dtype
    ones, zeros = np.ones(channels, kind), np.full(channels, -0.0, kind)
    pool_windows(x, ones, zeros, np.nan, out, places, size, stride)
    return out


def max_pool_backward(delta: Array, places: Places, out: Array, size: int, stride: int) -> Array:
    """The gradient of :func:`max_pool` by its images: each window's goes to its largest value."""
    _check("max_pool_backward", out, delta, size, stride)
    _check_places("max_pool_backward", places, delta, size)
    out.fill(0)
    _max_pool_backward(delta, places, out, size, stride)
    return out


@jit
def _max_pool_backward(delta, places, out, size, stride):
    rows, height, width, channels = delta.shape
    for n in range(rows):
        for i in range(height):
            for j in range(width):
                for c in range(channels):
                    u, v = divmod(places[n, i, j, c], size)
                    out[n, i * stride + u, j * stride + v, c] += delta[n, i, j, c]


def average_pool(x: Array, out: Array, size: int, stride: int) -> Array:
    """The mean of each window, its sum taken row by row; ``out`` is as for :func:`max_pool`."""
    _check("average_pool", x, out, size, stride)
    _average_pool(x, out, size, stride, out.dtype.type(1 / size**2))
    return out


@jit
def _average_pool(x, out, size, stride, share):
    rows, height, width, channels = out.shape
    for n in range(rows):
        for i in range(height):
            for j in range(width):
                for c in range(channels):
                    out[n, i, j, c] = 0
                for u in range(size):
                    for v in range(size):
                        for c in range(channels):
                            out[n, i, j, c] += x[n, i * stride + u, j * stride + v, c]
                for c in range(channels):
                    out[n, i, j, c] *= share


def average_pool_backward(delta: Array, out: Array, size: int, stride: int) -> Array:
    """The gradient of :func:`average_pool` by its images: an equal share for all of a window."""
    _check("average_pool_backward", out, delta, size, stride)
    out.fill(0)
    _average_pool_backward(delta, out, size, stride, out.dtype.type(1 / size**2))
    return out


@jit
def _average_pool_backward(delta, out, size, stride, share):
    rows, height, width, channels = delta.shape
    for n in range(rows):
        for i in range(height):
            for j in range(width):
                for u in range(size):
                    for v in range(size):
                        for c in range(channels):
                            out[n, i * stride + u, j * stride + v, c] += share * delta[n, i, j, c]


def global_average(x: Array, out: Array) -> Array:
    """The mean of each channel of each image, (rows, channels)."""
    rows, height, width, channels = x.shape
    expect("global_average", "out", out, (rows, channels))
    pixels = height * width
    _global_average(x.reshape(rows, pixels, channels), out, out.dtype.type(1 / pixels))
    return out


@jit
def _global_average(x, out, share):
    rows, pixels, channels = x.shape
    for n in range(rows):
        for c in range(channels):
            out[n, c] = 0
        for i in range(pixels):
            for c in range(channels):
                out[n, c] += x[n, i, c]
        for c in range(channels):
            out[n, c] *= share


def global_average_backward(delta: Array, out: Array) -> Array:
    """The gradient of :func:`global_average` by its images: an equal share for all pixels."""
    rows, height, width, channels = out.shape
    expect("global_average_backward", "delta", delta, (rows, channels))
    np.multiply(delta[:, None, None], delta.dtype.type(1 / (height * width)), out=out)
    return out


def _check(kernel: str, x: Array, out: Array, size: int, stride: int) -> None:
    rows, height, width, channels = x.shape
    tall, broad = (height - size) // stride + 1, (width - size) // stride + 1
    if out.shape != (rows, tall, broad, channels) or min(tall, broad) < 1:
        raise ValueError(
            f"{kernel}: images {x.shape} in windows of {size}, stride {stride}, give "
            f"{(rows, tall, broad, channels)}, found {out.shape}"
        )


def _check_places(kernel: str, places: Places, out: Array, size: int) -> None:
    expect(kernel, "places", places, out.shape)
    if size > 16:
        raise ValueError(
            f"{kernel}: windows of {size}: expected at most 16, whose places a byte holds"
        )
