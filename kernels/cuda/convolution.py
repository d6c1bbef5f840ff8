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
from kernels.cuda import SIMULATED, THREADS, blocks, inline, jit, tiles
from kernels.cuda.launch import Kernel
from kernels.cuda.memory import Array, Call, flat
from kernels.cuda.tiles import EACH, HEIGHT, LEFT_AREA, LEFT_EACH, RIGHT_AREA, RIGHT_EACH

#: Blocks that the weights' gradient is spread over, and the rows of patches that each of several
#: blocks for the same tile at least adds up.
MOST_BLOCKS, LEAST_ROWS = (8, 4) if SIMULATED else (1024, 512)

#: Where the patch of a line begins that there is not: nothing of it lies within an image.
_NOWHERE = -(2**30)

#: The longest side of filters whose places have a bit each in half a word, and a bit that is 0 for
#: all, which stands for places beyond the last.
_MOST_SIDE = _NO_BIT = 31
_HALF_WORD = 32


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
    kernels = _weight_gradient, _wide_weight_gradient, _large_weight_gradient
    halves, start = _choose(high, wide, filters, *kernels)
    grid = tiles.grid(depth, filters, halves)
    parts = max(1, min(MOST_BLOCKS // (grid[0] * grid[1]), rows // LEAST_ROWS))
    with Call("convolve_weight_gradient") as call:
        images, result = call.read(x), call.write(weight_grad)
        sums = call.kept("sums of patches", (parts, depth, filters), weight_grad.dtype)
        # With no rows there is no array to look at, and nothing to add.
        matrix = _rows(call.read(delta)) if rows else sums[0]
        window = high, wide, stride, padding, padding
        start[(*grid, parts), tiles.THREADS](
            images, flat(images), matrix, flat(matrix), rows, *window, *delta.shape[1:3], sums
        )
        _add_parts[blocks(weight_grad.size), THREADS](
            sums.reshape((parts, weight_grad.size)), flat(result)
        )
    return weight_grad


def _launch(images: Array, matrix: Array, out: Array, window: tuple[int, ...], spread: int) -> None:
    """Multiply the patches of images, whose places are ``spread`` apart, by a matrix."""
    if out.size:
        result = _rows(out)
        kernels = _convolve, _wide_convolve, _large_convolve
        halves, start = _choose(window[0], window[1], result.shape[1], *kernels)
        grid = tiles.grid(result.shape[0], result.shape[1], halves)
        start[grid, tiles.THREADS](
            images, flat(images), matrix, flat(matrix), *window, spread, *out.shape[1:3], result
        )


def _choose(
    high: int, wide: int, filters: int, few: Kernel, many: Kernel, large: Kernel
) -> tuple[int, Kernel]:
    """The width of tiles in halves, and the kernel: for few filters, many, or large ones."""
    if max(high, wide) > _MOST_SIDE:
        return 2, large
    return (1, few) if filters <= tiles.HALF_WIDTH else (2, many)


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
def _convolve(
    images, pixels, matrix, numbers, high, wide, stride, above, before, spread, tall, broad, out
):
    window = high, wide, stride, above, before, spread
    _convolve_tile(images, pixels, matrix, numbers, window, tall, broad, out, 1, True)


@jit
def _wide_convolve(
    images, pixels, matrix, numbers, high, wide, stride, above, before, spread, tall, broad, out
):
    window = high, wide, stride, above, before, spread
    _convolve_tile(images, pixels, matrix, numbers, window, tall, broad, out, 2, True)


@jit
def _large_convolve(
    images, pixels, matrix, numbers, high, wide, stride, above, before, spread, tall, broad, out
):
    window = high, wide, stride, above, before, spread
    _convolve_tile(images, pixels, matrix, numbers, window, tall, broad, out, 2, False)


@inline
def _convolve_tile(images, pixels, matrix, numbers, window, tall, broad, out, halves, has_bits):
    left = cuda.shared.array(LEFT_AREA, images.dtype)
    right = cuda.shared.array(RIGHT_AREA, images.dtype)
    where = cuda.shared.array((3, HEIGHT), np.int64)
    tiles.align()
    sums = cuda.local.array((EACH, EACH), images.dtype)
    patches = cuda.local.array(LEFT_EACH, images.dtype)
    weights = cuda.local.array(RIGHT_EACH, images.dtype)
    tiles.clear(sums)
    rows, depth, channels = out.shape[0], matrix.shape[0], images.shape[3]
    width = halves * tiles.HALF_WIDTH
    row, column = cuda.blockIdx.x * HEIGHT, cuda.blockIdx.y * width
    high, wide, spread = window[0], window[1], window[5]
    _find(where, images, row, rows, tall, broad, window, has_bits)
    along = tiles.way(matrix, True, column, width, tiles.RIGHT)
    cuda.syncthreads()
    u, v, c = 0, 0, cuda.threadIdx.x % tiles.DEPTH
    strips = (depth + tiles.DEPTH - 1) // tiles.DEPTH
    for strip in range(strips + 1):
        # To the next place of a patch that this thread gathers: shorter than a division.
        while c >= channels:
            c -= channels
            v += 1
            if v == wide:
                u, v = u + 1, 0
        # Beyond the last place the lines have zeros, and so do the columns: NaN would spread.
        place = _place(u, v, c, images, spread)
        wanted = _bit(u, v)
        for i in range(LEFT_EACH):
            line = cuda.threadIdx.x // tiles.DEPTH + i * (tiles.THREADS // tiles.DEPTH)
            if has_bits:
                patches[i] = _gather_by_bits(pixels, where, line, wanted, place)
            else:
                patches[i] = _gather(images, where, line, u, v, c, u < high, spread)
        tiles.bring(weights, numbers, strip * tiles.DEPTH, depth, along, width)
        if strip > 0:
            tiles.multiply(left, right, (strip - 1) % 2, sums, halves)
        if strip < strips:
            k = strip % 2 * tiles.DEPTH + cuda.threadIdx.x % tiles.DEPTH
            at = k * tiles.LEFT + cuda.threadIdx.x // tiles.DEPTH
            for i in range(LEFT_EACH):
                left[np.uint64(at + i * (tiles.THREADS // tiles.DEPTH))] = patches[i]
            tiles.keep(weights, right, strip % 2, along, width)
        cuda.syncthreads()
        c += tiles.DEPTH
    tiles.store(sums, out, row, column, halves)


@jit
def _weight_gradient(
    images, pixels, delta, numbers, rows, high, wide, stride, above, before, tall, broad, out
):
    window = high, wide, stride, above, before, 1
    _gradient_tile(images, pixels, delta, numbers, rows, window, tall, broad, out, 1, True)


@jit
def _wide_weight_gradient(
    images, pixels, delta, numbers, rows, high, wide, stride, above, before, tall, broad, out
):
    window = high, wide, stride, above, before, 1
    _gradient_tile(images, pixels, delta, numbers, rows, window, tall, broad, out, 2, True)


@jit
def _large_weight_gradient(
    images, pixels, delta, numbers, rows, high, wide, stride, above, before, tall, broad, out
):
    window = high, wide, stride, above, before, 1
    _gradient_tile(images, pixels, delta, numbers, rows, window, tall, broad, out, 2, False)


@inline
def _gradient_tile(
    images, pixels, delta, numbers, rows, window, tall, broad, out, halves, has_bits
):
    left = cuda.shared.array(LEFT_AREA, images.dtype)
    right = cuda.shared.array(RIGHT_AREA, images.dtype)
    where = cuda.shared.array((3, HEIGHT), np.int64)
    tiles.align()
    sums = cuda.local.array((EACH, EACH), images.dtype)
    patches = cuda.local.array(LEFT_EACH, images.dtype)
    deltas = cuda.local.array(RIGHT_EACH, images.dtype)
    tiles.clear(sums)
    parts, channels = out.shape[0], images.shape[3]
    width = halves * tiles.HALF_WIDTH
    line, column = cuda.blockIdx.x * HEIGHT, cuda.blockIdx.y * width
    thread, part = cuda.threadIdx.x, cuda.blockIdx.z
    place, c = (line + thread) // channels, (line + thread) % channels
    u, v = place // window[1], place % window[1]
    place, wanted = _place(u, v, c, images, 1), _bit(u, v)
    along = tiles.way(delta, True, column, width, tiles.RIGHT)
    stop = rows * (part + 1) // parts
    first = rows * part // parts
    for chunk in range(first, stop, HEIGHT):
        _find(where, images, chunk, stop, tall, broad, window, has_bits)
        cuda.syncthreads()
        strips = (min(HEIGHT, stop - chunk) + tiles.DEPTH - 1) // tiles.DEPTH
        for strip in range(strips + 1):
            if strip < strips:
                for k in range(LEFT_EACH):
                    row = strip * tiles.DEPTH + k
                    if has_bits:
                        patches[k] = _gather_by_bits(pixels, where, row, wanted, place)
                    else:
                        patches[k] = _gather(images, where, row, u, v, c, True, 1)
                tiles.bring(deltas, numbers, chunk + strip * tiles.DEPTH, stop, along, width)
            if strip > 0:
                tiles.multiply(left, right, (strip - 1) % 2, sums, halves)
            if strip < strips:
                at = strip % 2 * tiles.DEPTH * tiles.LEFT + thread
                for k in range(LEFT_EACH):
                    left[np.uint64(at + k * tiles.LEFT)] = patches[k]
                tiles.keep(deltas, right, strip % 2, along, width)
            cuda.syncthreads()
    tiles.store(sums, out[part], line, column, halves)


@jit
def _add_parts(parts, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        total = out.dtype.type(0)
        for part in range(parts.shape[0]):
            total += parts[part, i]
        out[i] = total


@inline
def _find(where, images, first, stop, tall, broad, window, has_bits):
    # For each line of a tile: its image, and where in it its patch begins; or the place of that
    # among all pixels, and which of the patch's lines and columns lie within the image, a bit each.
    # One thread finds each.
    high, wide, stride, above, before, spread = window
    thread = cuda.threadIdx.x
    line, j = (first + thread) // broad, (first + thread) % broad
    image, x = line // tall, j * stride - before
    y = line % tall * stride - above if first + thread < stop else _NOWHERE
    if has_bits:
        pixel = (image * images.shape[1] + y // spread) * images.shape[2] + x // spread
        where[0, thread] = pixel * images.shape[3]
        columns = _bits(x, wide, images.shape[2], spread)
        where[1, thread] = _bits(y, high, images.shape[1], spread) | columns << _HALF_WORD
    else:
        where[0, thread], where[1, thread], where[2, thread] = image, y, x


@inline
def _bits(first, length, stop, spread):
    # Bit i says whether first + i, of so many, is a multiple of spread, and which is at least 0 and
    # below stop.
    bits = 0
    for i in range(-first % spread, length, spread):
        if 0 <= first + i < stop * spread:
            bits |= 1 << i
    return bits


@inline
def _bit(u, v):
    # The bits of a place of a patch, as _find has them.
    return 1 << min(u, _NO_BIT) | 1 << v + _HALF_WORD


@inline
def _place(u, v, c, images, spread):
    # How many numbers of the images, whose places are spread apart, lie between a place of a patch
    # and its beginning. From -r to u, which is a multiple of spread with it, there are as many
    # multiples as from 0 to u, for each r below spread.
    if spread > 1:
        u, v = (u + spread - 1) // spread, (v + spread - 1) // spread
    return (u * images.shape[2] + v) * images.shape[3] + c


@inline
def _gather_by_bits(pixels, where, line, wanted, place):
    if where[1, line] & wanted == wanted:
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
