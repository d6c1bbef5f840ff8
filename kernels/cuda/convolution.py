"""Convolutions of images, as products of their patches by the weights, tile by tile.

Twins of :mod:`kernels.cpu.convolution`. Arrays are on the host or on the device.

No array of patches is made: they are gathered while a tile of the product is loaded into the
shared memory of a block, as :mod:`kernels.cuda.dense` loads its tiles. The gradient by the images
is a convolution as well: of the gradient by the outputs, whose places a stride moves apart, by the
turned filters.
"""

import numpy as np
from numba import cuda

from kernels.cpu.convolution import _check
from kernels.cuda import SIMULATED, THREADS, blocks, inline, jit
from kernels.cuda.memory import Array, Call, flat

#: A block has DOWN x ACROSS threads, each of which computes TALL x WIDE results: a tile of HEIGHT x
#: WIDTH results, whose factors are DEPTH deep. There are as many threads as lines of a tile, and a
#: multiple of the depth: so what a thread gathers is at one place of the lines' patches.
DOWN, ACROSS, WIDE, DEPTH = (2, 2, 3, 2) if SIMULATED else (16, 8, 4, 16)
TALL = ACROSS
HEIGHT, WIDTH = DOWN * TALL, ACROSS * WIDE
# In memory, rows have a number more than is used, so that those of a column lie in other banks.
_HEIGHT, _WIDTH = HEIGHT + 1, WIDTH + 1
_LEFT, _RIGHT = DEPTH * _HEIGHT, DEPTH * _WIDTH

#: Blocks that the weights' gradient is spread over, and the rows of patches that each of several
#: blocks for the same tile at least adds up.
MOST_BLOCKS, LEAST_ROWS = (8, 4) if SIMULATED else (1024, 512)

#: Where the patch of a line begins that there is not: nothing of it lies within an image.
_NOWHERE = -(2**30)

#: The longest side of filters whose places have a bit each in a word, with some to spare for those
#: beyond the last; and a bit that is 0 for all.
_MOST_SIDE, _NO_BIT = 40, 62


def convolve(x: Array, weight: Array, out: Array, stride: int, padding: int) -> Array:
    """Apply filters to images."""
    _check("convolve", x, weight.shape, out, stride, padding)
    with Call("convolve") as call:
        window = *weight.shape[:2], stride, padding, padding
        _launch(call.read(x), _rows(call.read(weight)), call.write(out), window, 1)
    return out


def convolve_input_gradient(
    delta: Array, weight: Array, out: Array, stride: int, padding: int
) -> Array:
    """The gradient of :func:`convolve` by its images."""
    _check("convolve_input_gradient", out, weight.shape, delta, stride, padding)
    high, wide, channels, filters = weight.shape
    with Call("convolve_input_gradient") as call:
        turned = call.kept("turned", (high * wide * filters, channels), weight.dtype)
        _turn[blocks(weight.size), THREADS](call.read(weight), flat(turned))
        window = high, wide, 1, high - 1 - padding, wide - 1 - padding
        _launch(call.read(delta), turned, call.write(out), window, stride)
    return out


def convolve_weight_gradient(
    x: Array, delta: Array, weight_grad: Array, stride: int, padding: int
) -> Array:
    """The gradient of :func:`convolve` by its weights, summed over rows."""
    _check("convolve_weight_gradient", x, weight_grad.shape, delta, stride, padding)
    high, wide, channels, filters = weight_grad.shape
    depth, rows = high * wide * channels, delta.size // filters
    tiles = -(-depth // HEIGHT), -(-filters // WIDTH)
    parts = max(1, min(MOST_BLOCKS // (tiles[0] * tiles[1]), rows // LEAST_ROWS))
    with Call("convolve_weight_gradient") as call:
        images, result = call.read(x), call.write(weight_grad)
        sums = call.kept("sums of patches", (parts, depth, filters), weight_grad.dtype)
        # With no rows there is no array to look at, and nothing to add.
        matrix = _rows(call.read(delta)) if rows else sums[0]
        window = high, wide, stride, padding, padding
        _weight_gradient[(*tiles, parts), HEIGHT](
            images, flat(images), matrix, rows, *window, *delta.shape[1:3], sums
        )
        _add_parts[blocks(weight_grad.size), THREADS](
            sums.reshape((parts, weight_grad.size)), flat(result)
        )
    return weight_grad


def _launch(images: Array, matrix: Array, out: Array, window: tuple[int, ...], spread: int) -> None:
    """Multiply the patches of images, whose places are ``spread`` apart, by a matrix."""
    if out.size:
        result = _rows(out)
        grid = -(-result.shape[0] // HEIGHT), -(-result.shape[1] // WIDTH)
        _convolve[grid, HEIGHT](
            images, flat(images), matrix, *window, spread, *out.shape[1:3], result
        )


def _rows(array: Array) -> Array:
    """An array as a matrix of as many columns as its last dimension has; no copy."""
    return array.reshape((array.size // array.shape[-1], array.shape[-1]))


@jit
def _turn(weight, turned):
    high, wide, channels, filters = weight.shape
    for index in range(cuda.grid(1), weight.size, cuda.gridsize(1)):
        rest, c = index // channels, index % channels
        place, f = rest // filters, rest % filters
        turned[index] = weight[high - 1 - place // wide, wide - 1 - place % wide, c, f]


@jit
def _convolve(images, pixels, matrix, high, wide, stride, above, before, spread, tall, broad, out):
    left = cuda.shared.array(_LEFT, images.dtype)
    right = cuda.shared.array(_RIGHT, images.dtype)
    where = cuda.shared.array((3, HEIGHT), np.int64)
    sums = cuda.local.array((TALL, WIDE), images.dtype)
    _clear(sums)
    rows, depth, channels = out.shape[0], matrix.shape[0], images.shape[3]
    first_row, first_column = cuda.blockIdx.x * HEIGHT, cuda.blockIdx.y * WIDTH
    thread = cuda.threadIdx.x
    has_bits = spread == 1 and max(high, wide) <= _MOST_SIDE
    _find(where, images, first_row, rows, tall, broad, stride, above, before, high, wide, has_bits)
    cuda.syncthreads()
    u, v, c = 0, 0, thread % DEPTH
    for first in range(0, depth, DEPTH):
        # To the next place of a patch that this thread gathers: shorter than a division.
        while c >= channels:
            c -= channels
            v += 1
            if v == wide:
                u, v = u + 1, 0
        # Beyond the last place the lines have zeros, and so do the columns: NaN would spread.
        place = (u * images.shape[2] + v) * channels + c
        for line in range(thread // DEPTH, HEIGHT, HEIGHT // DEPTH):
            at = np.uint64(thread % DEPTH * _HEIGHT + line)
            if has_bits:
                left[at] = _gather_by_bits(pixels, where, line, u, v, place)
            else:
                left[at] = _gather(images, where, line, u, v, c, u < high, spread)
        _load(right, matrix, first, depth, first_column)
        cuda.syncthreads()
        _multiply(left, right, sums)
        cuda.syncthreads()
        c += DEPTH
    _store(sums, out, first_row, first_column)


@jit
def _weight_gradient(
    images, pixels, delta, rows, high, wide, stride, above, before, tall, broad, out
):
    left = cuda.shared.array(_LEFT, images.dtype)
    right = cuda.shared.array(_RIGHT, images.dtype)
    where = cuda.shared.array((3, HEIGHT), np.int64)
    sums = cuda.local.array((TALL, WIDE), images.dtype)
    _clear(sums)
    parts, channels = out.shape[0], images.shape[3]
    first_line, first_column = cuda.blockIdx.x * HEIGHT, cuda.blockIdx.y * WIDTH
    thread, part = cuda.threadIdx.x, cuda.blockIdx.z
    place, c = (first_line + thread) // channels, (first_line + thread) % channels
    u, v = place // wide, place % wide
    has_bits = max(high, wide) <= _MOST_SIDE
    if has_bits:
        u, place = min(u, _NO_BIT), (u * images.shape[2] + v) * channels + c
    stop = rows * (part + 1) // parts
    for first in range(rows * part // parts, stop, HEIGHT):
        _find(where, images, first, stop, tall, broad, stride, above, before, high, wide, has_bits)
        cuda.syncthreads()
        for row in range(0, min(HEIGHT, stop - first), DEPTH):
            for k in range(DEPTH):
                at = np.uint64(k * _HEIGHT + thread)
                if has_bits:
                    left[at] = _gather_by_bits(pixels, where, row + k, u, v, place)
                else:
                    left[at] = _gather(images, where, row + k, u, v, c, True, 1)
            _load(right, delta, first + row, stop, first_column)
            cuda.syncthreads()
            _multiply(left, right, sums)
            cuda.syncthreads()
    _store(sums, out[part], first_line, first_column)


@jit
def _add_parts(parts, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        total = out.dtype.type(0)
        for part in range(parts.shape[0]):
            total += parts[part, i]
        out[i] = total


@inline
def _find(where, images, first, stop, tall, broad, stride, above, before, high, wide, has_bits):
    # For each line of a tile: its image, and where in it its patch begins; or the place of that
    # among all pixels, and which of the patch's lines and columns lie within the image, a bit each.
    # One thread finds each.
    thread = cuda.threadIdx.x
    line, j = (first + thread) // broad, (first + thread) % broad
    image, x = line // tall, j * stride - before
    y = line % tall * stride - above if first + thread < stop else _NOWHERE
    if has_bits:
        where[0, thread] = ((image * images.shape[1] + y) * images.shape[2] + x) * images.shape[3]
        where[1, thread] = _bits(y, high, images.shape[1])
        where[2, thread] = _bits(x, wide, images.shape[2])
    else:
        where[0, thread], where[1, thread], where[2, thread] = image, y, x


@inline
def _bits(first, length, stop):
    # Bit i says whether first + i, of so many, is at least 0 and below stop.
    low, high = max(0, -first), min(length, stop - first)
    return (1 << high) - (1 << low) if low < high else 0


@inline
def _gather_by_bits(pixels, where, line, u, v, place):
    if (where[1, line] >> u) & (where[2, line] >> v) & 1:
        return pixels[np.uint64(where[0, line] + place)]
    return pixels.dtype.type(0)


@inline
def _gather(images, where, line, u, v, c, is_within, spread):
    # A number of the patch of a line; 0 outside of the image, and between its places.
    y, x = where[1, line] + u, where[2, line] + v
    if spread > 1:
        is_within = is_within and y % spread == 0 and x % spread == 0
        y, x = y // spread, x // spread
    if is_within and 0 <= y < images.shape[1] and 0 <= x < images.shape[2]:
        return images[where[0, line], y, x, c]
    return images.dtype.type(0)


@inline
def _load(tile, matrix, first, stop, first_column):
    # tile[k, j] = matrix[first + k, first_column + j], 0 outside.
    for place in range(cuda.threadIdx.x, DEPTH * WIDTH, HEIGHT):
        k, j = place // WIDTH, place % WIDTH
        at = np.uint64(k * _WIDTH + j)
        if first + k < stop and first_column + j < matrix.shape[1]:
            tile[at] = matrix[np.uint64(first + k), np.uint64(first_column + j)]
        else:
            tile[at] = tile.dtype.type(0)


@inline
def _clear(sums):
    for i in range(TALL):
        for j in range(WIDE):
            sums[i, j] = 0


@inline
def _multiply(left, right, sums):
    # Each number of the tiles is read from shared memory by several threads, and from a register
    # TALL or WIDE times. Places are unsigned: others would be asked whether they are negative.
    down, across = np.uint64(cuda.threadIdx.x // ACROSS), np.uint64(cuda.threadIdx.x % ACROSS)
    for _ in range(DEPTH):
        for i in range(TALL):
            for j in range(WIDE):
                factor = left[down + np.uint64(i * DOWN)]
                sums[i, j] += factor * right[across + np.uint64(j * ACROSS)]
        down += np.uint64(_HEIGHT)
        across += np.uint64(_WIDTH)


@inline
def _store(sums, out, first_row, first_column):
    down, across = cuda.threadIdx.x // ACROSS, cuda.threadIdx.x % ACROSS
    for i in range(TALL):
        for j in range(WIDE):
            row, column = first_row + down + i * DOWN, first_column + across + j * ACROSS
            if row < out.shape[0] and column < out.shape[1]:
                out[np.uint64(row), np.uint64(column)] = sums[i, j]
