"""Dense layers: products by cuBLAS where it is there, else by tiles, and the elementwise rest.

Arrays are C-contiguous, on the host or on the device; ``dtype`` is float32 or float64, the same for
all arguments of a call. Any of them may be stored as float16 instead, others of the call then being
float32: products and sums are of float32, and results rounded once. The functions are those of
:mod:`kernels.cpu.dense`, which says what each argument is.
"""

import numpy as np
from numba import cuda

from kernels import scalar
from kernels.cpu.shapes import expect
from kernels.cuda import THREADS, blocks, cublas, inline, jit, tiles
from kernels.cuda.memory import Array, Call, flat
from kernels.cuda.tiles import EACH, LEFT_AREA, LEFT_EACH, RIGHT_AREA, RIGHT_EACH

_relu = inline(scalar.relu)


def scale(x: Array, factor: float, out: Array) -> Array:
    """``out = x * factor``, with the same bits as on the CPU."""
    expect("scale", "out", out, x.shape)
    with Call("scale") as call:
        result = call.write(out)
        wide = _wide(call, result)
        unit = wide.dtype.type(factor)
        _scale[blocks(out.size), THREADS](flat(call.read(x)), unit, flat(wide))
        _store_if_half(wide, result)
    return out


@jit
def _scale(x, factor, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] * factor


def channels_last(x: Array, factor: float, out: Array) -> Array:
    """``out[i, y, x, c] = images[i, c, y, x] * factor``, with the same bits as on the CPU."""
    rows, height, width, channels = out.shape
    expect("channels_last", "x", x, (rows, channels * height * width))
    with Call("channels_last") as call:
        result = call.write(out)
        _channels_last[blocks(out.size), THREADS](
            flat(call.read(x)), out.dtype.type(factor), height * width, channels, flat(result)
        )
    return out


@jit
def _channels_last(x, factor, positions, channels, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        row, place = i // (positions * channels), i // channels % positions
        out[i] = x[(row * channels + i % channels) * positions + place] * factor


def affine(x: Array, weight: Array, bias: Array, out: Array, relu: bool) -> Array:
    """``out = x @ weight + bias``, then ReLU if asked."""
    expect("affine", "bias", bias, tuple(weight.shape[1:]))
    with Call("affine") as call:
        result = call.write(out)
        z = _wide(call, result)
        product(call.read(x), call.read(weight), z)
        add_bias = _add_bias_relu if relu else _add_bias
        add_bias[blocks(out.size), THREADS](flat(z), call.read(bias), flat(result))
    return out


@jit
def _add_bias(z, bias, out):
    for i in range(cuda.grid(1), z.size, cuda.gridsize(1)):
        out[i] = out.dtype.type(z[i] + z.dtype.type(bias[i % bias.size]))


@jit
def _add_bias_relu(z, bias, out):
    for i in range(cuda.grid(1), z.size, cuda.gridsize(1)):
        out[i] = out.dtype.type(_relu(z[i] + z.dtype.type(bias[i % bias.size])))


def affine_gradient(x: Array, delta: Array, weight_grad: Array, bias_grad: Array) -> None:
    """``x.T @ delta``, and the column sums of ``delta`` with the same bits as on the CPU."""
    expect("affine_gradient", "bias_grad", bias_grad, tuple(delta.shape[1:]))
    with Call("affine_gradient") as call:
        delta, result = call.read(delta), call.write(weight_grad)
        wide = _wide(call, result)
        product(call.read(x), delta, wide, transpose_a=True)
        _store_if_half(wide, result)
        result = call.write(bias_grad)
        sums = _wide(call, result)
        _column_sums[blocks(bias_grad.size), THREADS](delta, sums)
        _store_if_half(sums, result)


@jit
def _column_sums(a, out):
    # A thread for each column: neighbours read neighbouring numbers, row after row as the CPU does.
    rows, columns = a.shape
    for j in range(cuda.grid(1), columns, cuda.gridsize(1)):
        total = out.dtype.type(0)
        for i in range(rows):
            total += out.dtype.type(a[i, j])
        out[j] = total


def affine_input_gradient(delta: Array, weight: Array, out: Array) -> Array:
    """``out = delta @ weight.T``."""
    with Call("affine_input_gradient") as call:
        below = call.write(out)
        wide = _wide(call, below)
        product(call.read(delta), call.read(weight), wide, transpose_b=True)
        _store_if_half(wide, below)
    return out


def relu_backward(delta: Array, weight: Array, activation: Array, out: Array) -> Array:
    """``out = delta @ weight.T``, but 0 where ``activation <= 0``."""
    expect("relu_backward", "activation", activation, tuple(out.shape))
    with Call("relu_backward") as call:
        below = call.write(out)
        wide = _wide(call, below)
        product(call.read(delta), call.read(weight), wide, transpose_b=True)
        _mask[blocks(out.size), THREADS](flat(wide), flat(call.read(activation)), flat(below))
    return out


@jit
def _mask(delta, activation, out):
    for i in range(cuda.grid(1), delta.size, cuda.gridsize(1)):
        # "not >" would hide the gradient where the activation is NaN.
        is_off = delta.dtype.type(activation[i]) <= 0
        out[i] = out.dtype.type(delta.dtype.type(0) if is_off else delta[i])


def _wide(call: Call, result: Array) -> Array:
    """Where sums are taken: in the result itself, or in float32 if that is float16."""
    if result.dtype != np.float16:
        return result
    return call.scratch(result.shape, np.float32)


def _store_if_half(wide: Array, result: Array) -> None:
    if wide is not result:
        _store[blocks(wide.size), THREADS](flat(wide), flat(result))


@jit
def _store(wide, out):
    for i in range(cuda.grid(1), wide.size, cuda.gridsize(1)):
        out[i] = out.dtype.type(wide[i])


def product(
    a: Array, b: Array, out: Array, transpose_a: bool = False, transpose_b: bool = False
) -> None:
    """``out = op(a) @ op(b)``, where ``op`` transposes if asked, by cuBLAS or by tiles.

    ``out`` is float32 or float64, also if the others are float16.
    """
    rows, depth = a.shape[::-1] if transpose_a else a.shape
    other, columns = b.shape[::-1] if transpose_b else b.shape
    if depth != other or tuple(out.shape) != (rows, columns):
        raise ValueError(
            f"matmul: ({rows}, {depth}) and ({other}, {columns}) do not give {tuple(out.shape)}"
        )
    if a.dtype == b.dtype and cublas.available():
        cublas.product(a, b, out, transpose_a, transpose_b)
    else:
        tiled_product(a, b, out, transpose_a, transpose_b)


def tiled_product(a: Array, b: Array, out: Array, transpose_a: bool, transpose_b: bool) -> None:
    """As :func:`product`, by tiles in shared memory.

    Each result is the sum over ``k`` in ascending order, each step one fused multiplication and
    addition: the same bits on every device.
    """
    if out.size:
        grid = tiles.grid(*out.shape)
        _product[grid, tiles.THREADS](a, flat(a), b, flat(b), transpose_a, transpose_b, out)


@jit
def _product(a, a_numbers, b, b_numbers, transpose_a, transpose_b, out):
    left = cuda.shared.array(LEFT_AREA, out.dtype)
    right = cuda.shared.array(RIGHT_AREA, out.dtype)
    tiles.align()
    sums = cuda.local.array((EACH, EACH), out.dtype)
    of_a = cuda.local.array(LEFT_EACH, out.dtype)
    of_b = cuda.local.array(RIGHT_EACH, out.dtype)
    tiles.clear(sums)
    row, column = cuda.blockIdx.x * tiles.HEIGHT, cuda.blockIdx.y * tiles.WIDTH
    depth = a.shape[0] if transpose_a else a.shape[1]
    along_a = tiles.way(a, transpose_a, row, tiles.HEIGHT, tiles.LEFT)
    along_b = tiles.way(b, not transpose_b, column, tiles.WIDTH, tiles.RIGHT)
    strips = (depth + tiles.DEPTH - 1) // tiles.DEPTH
    tiles.bring(of_a, a_numbers, 0, depth, along_a, tiles.HEIGHT)
    tiles.bring(of_b, b_numbers, 0, depth, along_b, tiles.WIDTH)
    for strip in range(strips):
        tiles.keep(of_a, left, strip % 2, along_a, tiles.HEIGHT)
        tiles.keep(of_b, right, strip % 2, along_b, tiles.WIDTH)
        cuda.syncthreads()
        after = (strip + 1) * tiles.DEPTH
        tiles.bring(of_a, a_numbers, after, depth, along_a, tiles.HEIGHT)
        tiles.bring(of_b, b_numbers, after, depth, along_b, tiles.WIDTH)
        tiles.multiply(left, right, strip % 2, sums, 2)
    tiles.store(sums, out, row, column, 2)
