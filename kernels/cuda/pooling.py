"""Pooling of images: of each window the largest value, or the mean.

Twins of :mod:`kernels.cpu.pooling`. Arrays are on the host or on the device. Gradients are sums
over the windows that a place lies in, in their order: no two threads add to one number.
"""

import math

from numba import cuda

from kernels.cpu.pooling import _check, _check_places
from kernels.cpu.shapes import expect
from kernels.cuda import SIMULATED, THREADS, blocks, inline, jit
from kernels.cuda.memory import Array, Call

#: Channels that a thread computes at a place, which it looks for once.
EACH = 2 if SIMULATED else 4


def grid(images: Array) -> tuple[int, int]:
    """Blocks and threads for each place of images, and its channels."""
    return blocks(math.prod(images.shape[:3]) * -(-images.shape[3] // EACH)), THREADS


def max_pool(x: Array, out: Array, places: Array, size: int, stride: int) -> Array:
    """The largest value of each window."""
    _check("max_pool", x, out, size, stride)
    _check_places("max_pool", places, out, size)
    with Call("max_pool") as call:
        arguments = call.read(x), call.write(out), call.write(places)
        _max_pool[grid(out)](*arguments, size, stride)
    return out


@jit
def _max_pool(x, out, places, size, stride):
    for index in range(cuda.grid(1), work(out), cuda.gridsize(1)):
        n, i, j, c = place_of(index, out)
        while c < out.shape[3]:
            best, first = x[n, i * stride, j * stride, c], 0
            for u in range(size):
                for v in range(size):
                    value = x[n, i * stride + u, j * stride + v, c]
                    # A NaN is larger than what is not, and no value is larger than it.
                    if value > best or (value != value and best == best):
                        best, first = value, u * size + v
            out[n, i, j, c] = best
            places[n, i, j, c] = first
            c += lanes(out)


def max_pool_backward(delta: Array, places: Array, out: Array, size: int, stride: int) -> Array:
    """The gradient of :func:`max_pool` by its images: each window's goes to its largest value."""
    _check("max_pool_backward", out, delta, size, stride)
    _check_places("max_pool_backward", places, delta, size)
    with Call("max_pool_backward") as call:
        arguments = call.read(delta), call.read(places), call.write(out)
        _max_pool_backward[grid(out)](*arguments, size, stride)
    return out


@jit
def _max_pool_backward(delta, places, out, size, stride):
    for index in range(cuda.grid(1), work(out), cuda.gridsize(1)):
        n, y, x, c = place_of(index, out)
        above, below = _windows(y, size, stride, delta.shape[1])
        before, after = _windows(x, size, stride, delta.shape[2])
        while c < out.shape[3]:
            total = out.dtype.type(0)
            for i in range(above, below):
                for j in range(before, after):
                    if places[n, i, j, c] == (y - i * stride) * size + x - j * stride:
                        total += delta[n, i, j, c]
            out[n, y, x, c] = total
            c += lanes(out)


def average_pool(x: Array, out: Array, size: int, stride: int) -> Array:
    """The mean of each window, its sum taken row by row."""
    _check("average_pool", x, out, size, stride)
    share = out.dtype.type(1 / size**2)
    with Call("average_pool") as call:
        arguments = call.read(x), call.write(out)
        _average_pool[grid(out)](*arguments, size, stride, share)
    return out


@jit
def _average_pool(x, out, size, stride, share):
    for index in range(cuda.grid(1), work(out), cuda.gridsize(1)):
        n, i, j, c = place_of(index, out)
        while c < out.shape[3]:
            total = out.dtype.type(0)
            for u in range(size):
                for v in range(size):
                    total += x[n, i * stride + u, j * stride + v, c]
            out[n, i, j, c] = total * share
            c += lanes(out)


def average_pool_backward(delta: Array, out: Array, size: int, stride: int) -> Array:
    """The gradient of :func:`average_pool` by its images: an equal share for all of a window."""
    _check("average_pool_backward", out, delta, size, stride)
    share = out.dtype.type(1 / size**2)
    with Call("average_pool_backward") as call:
        arguments = call.read(delta), call.write(out)
        _average_pool_backward[grid(out)](*arguments, size, stride, share)
    return out


@jit
def _average_pool_backward(delta, out, size, stride, share):
    for index in range(cuda.grid(1), work(out), cuda.gridsize(1)):
        n, y, x, c = place_of(index, out)
        above, below = _windows(y, size, stride, delta.shape[1])
        before, after = _windows(x, size, stride, delta.shape[2])
        while c < out.shape[3]:
            total = out.dtype.type(0)
            for i in range(above, below):
                for j in range(before, after):
                    total += share * delta[n, i, j, c]
            out[n, y, x, c] = total
            c += lanes(out)


def global_average(x: Array, out: Array) -> Array:
    """The mean of each channel of each image."""
    rows, height, width, channels = x.shape
    expect("global_average", "out", out, (rows, channels))
    share = out.dtype.type(1 / (height * width))
    with Call("global_average") as call:
        arguments = call.read(x), call.write(out)
        _global_average[blocks(out.size), THREADS](*arguments, share)
    return out


@jit
def _global_average(x, out, share):
    _, height, width, channels = x.shape
    for index in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        n, c = index // channels, index % channels
        total = out.dtype.type(0)
        for i in range(height):
            for j in range(width):
                total += x[n, i, j, c]
        out[n, c] = total * share


def global_average_backward(delta: Array, out: Array) -> Array:
    """The gradient of :func:`global_average` by its images: an equal share for all places."""
    rows, height, width, channels = out.shape
    expect("global_average_backward", "delta", delta, (rows, channels))
    share = out.dtype.type(1 / (height * width))
    with Call("global_average_backward") as call:
        arguments = call.read(delta), call.write(out)
        _global_average_backward[grid(out)](*arguments, share)
    return out


@jit
def _global_average_backward(delta, out, share):
    for index in range(cuda.grid(1), work(out), cuda.gridsize(1)):
        n, y, x, c = place_of(index, out)
        while c < out.shape[3]:
            out[n, y, x, c] = delta[n, c] * share
            c += lanes(out)


@inline
def lanes(images):
    # Threads of a place, and so the channels from one of a thread's to the next.
    return (images.shape[3] + EACH - 1) // EACH


@inline
def work(images):
    return images.shape[0] * images.shape[1] * images.shape[2] * lanes(images)


@inline
def place_of(index, images):
    # Row, line, place in the line, and a thread's first channel: neighbours have neighbouring ones.
    _, height, width, _ = images.shape
    position, c = index // lanes(images), index % lanes(images)
    line, j = position // width, position % width
    return line // height, line % height, j, c


@inline
def _windows(place, size, stride, stop):
    # The first window that ends after a place of a line, and the first that begins after it.
    return max(0, (place - size) // stride + 1), min(place // stride + 1, stop)
