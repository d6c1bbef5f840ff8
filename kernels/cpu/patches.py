"""Plans of convolutions: which products of patches by weights they are, and in which order.

A plan follows from shapes alone and is kept for the next call. It is a tuple of arrays: where rows
of the left factor and of the result begin, and the jobs, as
:func:`kernels.cpu.tiles.gathered_products` takes them. Shapes are those of the arguments of
:mod:`kernels.cpu.convolution`; ``step`` is the number of columns in a vector.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kernels.cpu.tiles import VECTORS

Integers = npt.NDArray[np.int64]
Plan = tuple[Integers, Integers, Integers]
Shape = tuple[int, ...]
Loop = tuple[int, int, int]

#: Places of outputs that are computed at once, so that what they are computed from stays in the
#: first-level cache.
_PLACES = 128
_ONCE = (1, 0, 0)


@lru_cache
def forward(
    shape: Shape, weight: Shape, outputs: Shape, stride: int, padding: int, step: int
) -> Plan:
    """The plan of :func:`kernels.cpu.convolution.convolve`."""
    plan = _same_place_of_all_images if padding else _lines
    return plan(shape, weight, outputs, stride, padding, step)


def _lines(shape: Shape, weight: Shape, outputs: Shape, stride: int, _: int, step: int) -> Plan:
    """Some lines of outputs at once."""
    rows, height, width, channels = shape
    high, wide, _, filters = weight
    tall, broad = outputs[1:3]
    columns = whole(filters, step)
    jobs = []
    for image, images, line, lines in _parts(rows, tall, broad):
        x_at = (image * height + line * stride) * width * channels
        out_at = (image * tall + line) * broad * columns
        for column, vectors in panels(columns, step):
            b_at, b_step = column * high * wide * channels, vectors * step
            line_of_patch = high, width * channels, wide * channels * b_step
            loops = line_of_patch, _ONCE, (wide * channels, 1, b_step)
            count = images * lines * broad
            jobs.append(_job(x_at, b_at, out_at + column, count, vectors, loops))
    _, images, _, lines = next(_parts(rows, tall, broad))
    n, i, j = np.ogrid[:images, :lines, :broad]
    starts = ((n * height + i * stride) * width + j * stride) * channels
    return starts.ravel(), np.arange(starts.size) * columns, np.array(jobs, np.int64)


def _same_place_of_all_images(
    shape: Shape, weight: Shape, outputs: Shape, stride: int, padding: int, step: int
) -> Plan:
    """Each place on its own, since at the edges there is less to multiply."""
    rows, height, width, channels = shape
    high, wide, _, filters = weight
    tall, broad = outputs[1:3]
    columns = whole(filters, step)
    jobs = []
    for column, vectors in panels(columns, step):
        b_step = vectors * step
        for i, j in np.ndindex(tall, broad):
            y, z = i * stride - padding, j * stride - padding
            u, v = max(0, -y), max(0, -z)
            lines, places = min(high, height - y) - u, min(wide, width - z) - v
            x_at = ((y + u) * width + z + v) * channels
            b_at = column * high * wide * channels + (u * wide + v) * channels * b_step
            out_at = (i * broad + j) * columns + column
            line_of_patch = lines, width * channels, wide * channels * b_step
            loops = line_of_patch, _ONCE, (places * channels, 1, b_step)
            jobs.append(_job(x_at, b_at, out_at, rows, vectors, loops))
    return _of_images(rows, height * width * channels, tall * broad * columns, jobs)


@lru_cache
def weight_gradient(
    shape: Shape,
    weight: Shape,
    outputs: Shape,
    stride: int,
    padding: int,
    step: int,
    in_panels: bool,
) -> Plan:
    """The plan of :func:`kernels.cpu.convolution.convolve_weight_gradient`.

    Some lines of outputs at once; with padding each place of a filter on its own. ``in_panels``
    says whether the gradients by the outputs are.
    """
    rows, height, width, channels = shape
    high, wide, _, filters = weight
    tall, broad = outputs[1:3]
    columns = whole(filters, step)
    jobs = []
    for image, images, line, lines in _parts(rows, tall, broad):
        for column, vectors in panels(columns, step):
            first, b_step = column, filters
            if in_panels:
                first, b_step = column * rows * tall * broad, vectors * step
            for u, v in np.ndindex(high, wide) if padding else [(0, 0)]:
                y, y_end = line, line + lines
                z, z_end = 0, broad
                if padding:
                    y, y_end = _within(u - padding, stride, height, y, y_end)
                    z, z_end = _within(v - padding, stride, width, z, z_end)
                at = (image * height + y * stride + u - padding) * width
                x_at = (at + z * stride + v - padding) * channels
                b_at = first + ((image * tall + y) * broad + z) * b_step
                out_at = (u * wide + v) * channels * columns + column
                loops = (
                    (images, height * width * channels, tall * broad * b_step),
                    (y_end - y, stride * width * channels, broad * b_step),
                    (z_end - z, stride * channels, b_step),
                )
                count = channels if padding else high * wide * channels
                add = image + line > 0
                jobs.append(_job(x_at, b_at, out_at, count, vectors, loops, add))
    i, j = np.ogrid[:high, : wide * channels]
    starts = (i * width * channels + j).ravel()
    return starts, np.arange(starts.size) * columns, np.array(jobs, np.int64)


@lru_cache
def input_gradient(
    shape: Shape, weight: Shape, outputs: Shape, stride: int, padding: int, step: int
) -> Plan:
    """The plan of :func:`kernels.cpu.convolution.convolve_input_gradient`.

    It is a convolution by filters that are turned round, each place on its own.
    """
    rows, height, width, channels = shape
    high, wide, _, filters = weight
    tall, broad = outputs[1:3]
    columns = whole(channels, step)
    jobs = []
    for column, vectors in panels(columns, step):
        b_step = vectors * step
        for i, j in np.ndindex(height, width):
            y, y_end = _covering(i + padding, high, stride, tall)
            z, z_end = _covering(j + padding, wide, stride, broad)
            u = high - 1 - (i + padding - y * stride)
            v = wide - 1 - (j + padding - z * stride)
            b_at = column * high * wide * filters + (u * wide + v) * filters * b_step
            x_at, out_at = (y * broad + z) * filters, (i * width + j) * columns + column
            line = y_end - y, broad * filters, stride * wide * filters * b_step
            place = z_end - z, filters, stride * filters * b_step
            loops = line, place, (filters, 1, b_step)
            if stride == 1:
                # Neighbouring places follow one another: a long loop is faster than two.
                loops = line, _ONCE, ((z_end - z) * filters, 1, b_step)
            jobs.append(_job(x_at, b_at, out_at, rows, vectors, loops))
    return _of_images(rows, tall * broad * filters, height * width * columns, jobs)


def _of_images(rows: int, size: int, out_size: int, jobs: list[tuple[int, ...]]) -> Plan:
    """A plan of jobs that take one place of all images, which have so many numbers."""
    image = np.arange(rows)
    return image * size, image * out_size, np.array(jobs, np.int64)


def _covering(place: int, size: int, stride: int, count: int) -> tuple[int, int]:
    """The first of the windows that cover a place of a padded line, and that after the last."""
    return max(0, (place - size + stride) // stride), min(count, place // stride + 1)


def _within(place: int, stride: int, length: int, first: int, end: int) -> tuple[int, int]:
    """Of the windows from ``first`` to ``end``, those that have a place within a line."""
    return max(first, -(place // stride)), min(end, (length - 1 - place) // stride + 1)


def _parts(rows: int, tall: int, broad: int) -> Iterator[tuple[int, int, int, int]]:
    """Some images or lines of outputs: the first image, how many, the first line, how many."""
    images = max(1, _PLACES // (tall * broad))
    lines = min(tall, max(1, _PLACES // broad))
    for image in range(0, rows, images):
        for line in range(0, tall, lines):
            yield image, min(images, rows - image), line, min(lines, tall - line)


def panels(columns: int, step: int) -> Iterator[tuple[int, int]]:
    """The first columns of panels, and their vectors."""
    for column in range(0, columns, VECTORS * step):
        yield column, min(VECTORS, (columns - column) // step)


def whole(columns: int, step: int) -> int:
    """As many columns as whole vectors have."""
    return -(-columns // step) * step


def _job(
    x_at: int,
    b_at: int,
    out_at: int,
    rows: int,
    vectors: int,
    loops: tuple[Loop, Loop, Loop],
    add: bool = False,
) -> tuple[int, ...]:
    return x_at, b_at, out_at, rows, vectors, int(add), *(n for loop in loops for n in loop)
