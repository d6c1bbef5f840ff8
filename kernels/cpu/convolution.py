"""Convolutions of images, as products of their patches by the weights.

Arrays are C-contiguous, of float32 or float64, the same for all arguments of a call. Images are
(rows, height, width, channels), weights (height, width, channels, filters).

Patches are read where they are, by :mod:`kernels.cpu.tiles`, in the order of a plan that follows
from the shapes.
"""

import numpy as np

from kernels.cpu import jit, patches
from kernels.cpu.patches import Plan, whole
from kernels.cpu.scratch import scratch
from kernels.cpu.shapes import Array
from kernels.cpu.tiles import VECTORS, gathered_products, lanes

#: Images of fewer channels get zeros around them: what is left of a patch at the edges would be too
#: short.
_FEW_CHANNELS = 4
#: Bytes, half of a usual second-level cache.
_SMALL = 2**18


def convolve(x: Array, weight: Array, out: Array, stride: int, padding: int) -> Array:
    """Apply filters to images.

    ``out[n, i, j, f] = sum(x[n, i * stride + u - padding, j * stride + v - padding, c] *
    weight[u, v, c, f])`` over ``u``, ``v`` and ``c``, where ``x`` is 0 beyond its edges. So the
    height of ``out`` is ``(height + 2 * padding - size) // stride + 1``. Filters may be oblong.
    """
    _check("convolve", x, weight.shape, out, stride, padding)
    if not len(x):
        return out
    if padding and x.shape[3] < _FEW_CHANNELS:
        x, padding = _padded(x, padding), 0
    plan = patches.forward(x.shape, weight.shape, out.shape, stride, padding, lanes(x.itemsize))
    _multiply(x, _rows(weight), out, plan)
    return out


def convolve_weight_gradient(
    x: Array, delta: Array, weight_grad: Array, stride: int, padding: int
) -> Array:
    """The gradient of :func:`convolve` by its weights, summed over rows: ``weight_grad``."""
    _check("convolve_weight_gradient", x, weight_grad.shape, delta, stride, padding)
    if not len(x):
        weight_grad.fill(0)
        return weight_grad
    if padding and x.shape[3] < _FEW_CHANNELS:
        x, padding = _padded(x, padding), 0
    sizes = x.shape, weight_grad.shape, delta.shape
    step, b = lanes(x.itemsize), _rows(delta)
    panels = -(-b.shape[1] // (VECTORS * step))
    # Rows of several panels, which are far apart, displace each other in the first-level cache; a
    # copy costs the least if it stays in the second.
    is_far_apart = panels > 2 or (panels == 2 and b.nbytes <= _SMALL)
    in_panels = b.shape[1] % step > 0 or is_far_apart
    plan = patches.weight_gradient(*sizes, stride, padding, step, in_panels)
    _multiply(x, b, weight_grad, plan, in_panels)
    return weight_grad


def convolve_input_gradient(
    delta: Array, weight: Array, out: Array, stride: int, padding: int
) -> Array:
    """The gradient of :func:`convolve` by its images, 0 for what no filter covers."""
    _check("convolve_input_gradient", out, weight.shape, delta, stride, padding)
    turned = weight[::-1, ::-1].transpose(0, 1, 3, 2)
    sizes = out.shape, weight.shape, delta.shape
    plan = patches.input_gradient(*sizes, stride, padding, lanes(out.itemsize))
    _multiply(delta, _rows(turned), out, plan)
    return out


def _multiply(x: Array, b: Array, out: Array, plan: Plan, in_panels: bool = True) -> None:
    """Carry out a plan; where the columns do not fill vectors, in memory that has more of them."""
    x_rows, out_rows, jobs = plan
    columns = whole(b.shape[1], lanes(x.itemsize))
    target = out
    if columns > b.shape[1]:
        shape = *out.shape[:-1], columns
        target = scratch("out", int(np.prod(shape)), out.dtype).reshape(shape)
    factor = b.reshape(-1)
    if in_panels:
        factor = fill_panels(b, scratch("panels", b.shape[0] * columns, b.dtype))
    gathered_products(x.reshape(-1), factor, target.reshape(-1), x_rows, out_rows, jobs)
    if target is not out:
        out[...] = target[..., : b.shape[1]]


def fill_panels(matrix: Array, out: Array) -> Array:
    """The columns of a matrix in panels, each of which has its rows one after the other.

    ``out``, flat, has room for whole vectors of columns.
    """
    step = lanes(matrix.itemsize)
    _fill(matrix, step, whole(matrix.shape[1], step), out)
    return out


@jit
def _fill(matrix, step, columns, out):
    terms, filters = matrix.shape
    at = 0
    for first in range(0, columns, VECTORS * step):
        last = min(first + VECTORS * step, columns)
        whole = min(last, filters // 4 * 4)
        for term in range(terms):
            # Four reads before four writes: else nothing says that these do not change those.
            for j in range(first, whole, 4):
                a, b, c, d = (
                    matrix[term, j],
                    matrix[term, j + 1],
                    matrix[term, j + 2],
                    matrix[term, j + 3],
                )
                place = at + j - first
                out[place], out[place + 1], out[place + 2], out[place + 3] = a, b, c, d
            for j in range(max(first, whole), last):
                out[at + j - first] = matrix[term, j] if j < filters else 0
            at += last - first


def _padded(x: Array, padding: int) -> Array:
    """Images with zeros around them."""
    rows, height, width, channels = x.shape
    shape = rows, height + 2 * padding, width + 2 * padding, channels
    padded = scratch("padded", int(np.prod(shape)), x.dtype).reshape(shape)
    padded.fill(0)
    padded[:, padding:-padding, padding:-padding] = x
    return padded


def _rows(a: Array) -> Array:
    return a.reshape(-1, a.shape[-1])


def _check(
    kernel: str, x: Array, shape: tuple[int, ...], out: Array, stride: int, padding: int
) -> None:
    rows, height, width, channels = x.shape
    high, wide, depth, filters = shape
    tall = (height + 2 * padding - high) // stride + 1
    broad = (width + 2 * padding - wide) // stride + 1
    if depth != channels or out.shape != (rows, tall, broad, filters) or min(tall, broad) < 1:
        raise ValueError(
            f"{kernel}: images {x.shape}, weights {shape}, stride {stride} and padding {padding} "
            f"give {(rows, tall, broad, filters)}, found {out.shape}"
        )
