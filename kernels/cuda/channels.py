"""What follows a product, in one pass: a scale and a shift of each channel, ReLU, max pooling.

Twins of :mod:`kernels.cpu.channels`. Arrays are on the host or on the device; sums are of float64.
"""

import math

from numba import cuda

from kernels.cpu.channels import _checked
from kernels.cpu.shapes import expect
from kernels.cuda import THREADS, jit
from kernels.cuda.columns import KEPT, VALUES, blocks_of, first_row, row_step, sum_columns, width_of
from kernels.cuda.memory import Array, Call
from kernels.cuda.pooling import grid, lanes, place_of, work


def scale_shift(
    z: Array,
    scale: Array | None,
    shift: Array,
    out: Array,
    places: Array | None,
    relu: bool,
    pool: int,
) -> Array:
    """``out = max_pool(relu(z * scale + shift))``."""
    places = _checked("scale_shift", z, out, places, pool)
    channels = z.shape[3:]
    expect("scale_shift", "shift", shift, channels)
    is_scaled = scale is not None
    if scale is None:
        scale = shift
    expect("scale_shift", "scale", scale, channels)
    with Call("scale_shift") as call:
        before, after, how = call.read(z), call.write(out), (is_scaled, relu)
        factors = call.read(scale), call.read(shift)
        if pool == 1:
            _scale_shift[_grid(z)](
                _matrix(before), *factors, _matrix(after), *how, width_of(*channels)
            )
        else:
            _scale_shift_pool[grid(out)](before, *factors, after, call.write(places), *how, pool)
    return out


@jit
def _scale_shift(z, scale, shift, out, is_scaled, relu, width):
    rows, channels = z.shape
    zero = z.dtype.type(0)
    for c in range(cuda.threadIdx.x % width, channels, width):
        factor = scale[c] if is_scaled else z.dtype.type(1)
        for i in range(first_row(width), rows, row_step(width)):
            value = z[i, c] * factor + shift[c]
            out[i, c] = zero if relu and value <= 0 else value


@jit
def _scale_shift_pool(z, scale, shift, out, places, is_scaled, relu, pool):
    zero = z.dtype.type(0)
    for index in range(cuda.grid(1), work(out), cuda.gridsize(1)):
        n, i, j, c = place_of(index, out)
        while c < out.shape[3]:
            factor = scale[c] if is_scaled else z.dtype.type(1)
            best, first = zero, 0
            for u in range(pool):
                for v in range(pool):
                    value = z[n, i * pool + u, j * pool + v, c] * factor + shift[c]
                    value = zero if relu and value <= 0 else value
                    # A NaN is larger than what is not, and no value is larger than it.
                    if u + v == 0 or value > best or (value != value and best == best):
                        best, first = value, u * pool + v
            out[n, i, j, c] = best
            places[n, i, j, c] = first
            c += lanes(out)


def scale_shift_backward(
    delta: Array, out: Array, places: Array | None, dz: Array, sums: Array, relu: bool, pool: int
) -> Array:
    """The gradient of :func:`scale_shift` by ``z * scale + shift``, and its sums."""
    places = _checked("scale_shift_backward", dz, delta, places, pool)
    channels = dz.shape[3:]
    expect("scale_shift_backward", "out", out, delta.shape)
    expect("scale_shift_backward", "sums", sums, channels)
    with Call("scale_shift_backward") as call:
        above, after, below = call.read(delta), call.read(out), call.write(dz)
        matrices = _matrix(above), _matrix(after)
        sum_columns(call, KEPT if relu else VALUES, matrices[0], call.write(sums), matrices[1])
        if pool == 1:
            _scale_shift_backward[_grid(dz)](*matrices, _matrix(below), relu, width_of(*channels))
        else:
            _scale_shift_pool_backward[grid(dz)](above, after, call.read(places), below, relu, pool)
    return dz


@jit
def _scale_shift_backward(delta, out, dz, relu, width):
    rows, channels = delta.shape
    for c in range(cuda.threadIdx.x % width, channels, width):
        for i in range(first_row(width), rows, row_step(width)):
            is_off = relu and out[i, c] <= 0
            dz[i, c] = dz.dtype.type(0) if is_off else delta[i, c]


@jit
def _scale_shift_pool_backward(delta, out, places, dz, relu, pool):
    for index in range(cuda.grid(1), work(dz), cuda.gridsize(1)):
        n, y, x, c = place_of(index, dz)
        i, j, place = y // pool, x // pool, y % pool * pool + x % pool
        has_window = i < delta.shape[1] and j < delta.shape[2]
        while c < dz.shape[3]:
            value = dz.dtype.type(0)
            if has_window and places[n, i, j, c] == place:
                is_off = relu and out[n, i, j, c] <= 0
                value = dz.dtype.type(0) if is_off else delta[n, i, j, c]
            dz[n, y, x, c] = value
            c += lanes(dz)


def _matrix(images: Array) -> Array:
    """Images as (rows * height * width, channels); no copy."""
    return images.reshape((math.prod(images.shape[:-1]), images.shape[-1]))


def _grid(images: Array) -> tuple[int, int]:
    return blocks_of(math.prod(images.shape[:-1]), images.shape[-1]), THREADS
