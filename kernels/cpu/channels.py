"""What follows a product, in one pass: a scale and a shift of each channel, ReLU, max pooling.

Arrays are C-contiguous, of float32 or float64, the same for all arguments of a call. Images are
(rows, height, width, channels); rows without places are given as (rows, 1, 1, channels).
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import Array, expect
from kernels.cpu.windows import pool_windows, unpool_windows

Places = npt.NDArray[np.uint8]

#: Numbers that stay in the first-level cache.
_PART = 2048
#: Stands for the places that a call without pooling does not have.
_NO_PLACES = np.empty((0, 0, 0, 0), np.uint8)


def scale_shift(
    z: Array,
    scale: Array | None,
    shift: Array,
    out: Array,
    places: Places | None,
    relu: bool,
    pool: int,
) -> Array:
    """``out = max_pool(relu(z * scale + shift))``.

    ``scale`` and ``shift`` are (channels,); None is a scale of 1. ``pool`` is the size of the
    windows, at most 16; 1 takes all, and then ``out`` may be ``z``. ``places``, uint8, of the shape
    of ``out``, is overwritten: where in its window, row by row, the first of the largest values is.
    """
    places = _checked("scale_shift", z, out, places, pool)
    channels = z.shape[3:]
    expect("scale_shift", "shift", shift, channels)
    if scale is None:
        scale = np.ones(channels, z.dtype)
    expect("scale_shift", "scale", scale, channels)
    if pool == 1:
        _scale_shift(z.reshape(-1, *channels), scale, shift, out.reshape(-1, *channels), relu)
    else:
        pool_windows(z, scale, shift, 0.0 if relu else np.nan, out, places, pool, pool)
    return out


@jit
def _scale_shift(z, scale, shift, out, relu):
    rows, channels = z.shape
    for i in range(rows):
        for c in range(channels):
            value = z[i, c] * scale[c] + shift[c]
            out[i, c] = 0 if relu and value <= 0 else value


def scale_shift_backward(
    delta: Array, out: Array, places: Places | None, dz: Array, sums: Array, relu: bool, pool: int
) -> Array:
    """The gradient of :func:`scale_shift` by ``z * scale + shift``, and its sums.

    ``delta`` is the gradient by ``out``; ``out`` and ``places`` are as :func:`scale_shift` left
    them. Where ``out`` is NaN, ReLU keeps the gradient. ``dz``, of the shape of ``z``, is
    overwritten and returned, and may be ``delta`` if ``pool`` is 1. ``sums``, (channels,), is
    overwritten by the sums of ``dz`` over all rows and places.
    """
    places = _checked("scale_shift_backward", dz, delta, places, pool)
    channels = dz.shape[3:]
    expect("scale_shift_backward", "out", out, delta.shape)
    expect("scale_shift_backward", "sums", sums, channels)
    sums.fill(0)
    if pool == 1:
        if dz is not delta:
            np.copyto(dz, delta)
        _mask(dz.reshape(-1), out.reshape(-1), relu, sums)
    else:
        dz[:, pool * delta.shape[1] :] = dz[:, :, pool * delta.shape[2] :] = 0
        unpool_windows(delta, out, places, 0.0 if relu else np.nan, dz, sums, pool)
    return dz


@jit
def _mask(dz, out, relu, sums):
    channels = sums.size
    part = max(1, _PART // channels) * channels
    for first in range(0, dz.size, part):
        # In place, and by slices, whose places cannot be negative: otherwise there are branches for
        # each number, which are mispredicted for half of them.
        a, b = dz[first : first + part], out[first : first + part]
        if relu:
            for i in range(a.size):
                value = a[i]
                a[i] = 0 if b[i] <= 0 else value
        for row in range(a.size // channels):
            one = a[row * channels : (row + 1) * channels]
            for c in range(channels):
                sums[c] += one[c]


def _checked(kernel: str, z: Array, out: Array, places: Places | None, pool: int) -> Places:
    """The places, of which a call without pooling has none."""
    rows, height, width, channels = z.shape
    expect(kernel, "the pooled array", out, (rows, height // pool, width // pool, channels))
    if pool == 1:
        return _NO_PLACES
    if places is None or pool > 16:
        raise ValueError(f"{kernel}: pool {pool} needs an array of places, and to be 16 at most")
    expect(kernel, "places", places, out.shape)
    return places
