"""Random changes of images, of which the random numbers are given."""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit

Array = npt.NDArray[np.generic]


def augment(
    x: Array, flips: npt.NDArray[np.bool_], shifts: npt.NDArray[np.int64], out: Array
) -> Array:
    """Copies of images, some of them mirrored, and each shifted on a ground of zeros.

    ``x`` and ``out`` are (rows, channels, height, width), C-contiguous, of one dtype. ``flips``,
    (rows,), says whether left and right of an image are exchanged, before it is shifted.
    ``shifts``, (rows, 2), int64, are the pixels by which it goes up and to the left, or down and to
    the right if negative: pixel (i, j) is the pixel (i + up, j + left), or 0 where that is outside
    of the image.
    """
    if x.ndim != 4 or (out.shape, out.dtype) != (x.shape, x.dtype):
        raise ValueError(
            f"augment: expected images (rows, channels, height, width) and out alike, found x "
            f"{x.shape} of {x.dtype} and out {out.shape} of {out.dtype}"
        )
    rows = len(x)
    if flips.shape != (rows,) or shifts.shape != (rows, 2):
        raise ValueError(
            f"augment: expected flips ({rows},) and shifts ({rows}, 2), found {flips.shape} and "
            f"{shifts.shape}"
        )
    _augment(x, flips, shifts, out)
    return out


@jit
def _augment(x, flips, shifts, out):
    rows, channels, height, width = x.shape
    zero = x.dtype.type(0)
    for row in range(rows):
        up, left = shifts[row]
        # Columns before the first and from the last on show what is beside the image.
        first = min(max(-left, 0), width)
        last = max(min(width - left, width), first)
        for channel in range(channels):
            for i in range(height):
                target = out[row, channel, i]
                if i + up < 0 or i + up >= height:
                    target[:] = zero
                    continue
                source = x[row, channel, i + up]
                target[:first] = zero
                target[last:] = zero
                if flips[row]:
                    for j in range(first, last):
                        target[j] = source[width - 1 - left - j]
                else:
                    for j in range(first, last):
                        target[j] = source[j + left]
