"""Dense layers: products by BLAS, the elementwise rest by compiled loops.

Arrays are C-contiguous; ``dtype`` is float32 or float64, the same for all arguments of a call. Any
of them may be stored as float16 instead, others of the call then being float32: see
:mod:`kernels.cpu.half`.
Products are asked of NumPy and not from inside compiled code, since there Numba needs SciPy for
BLAS. With one BLAS thread a product of a fixed shape has the same bits at any memory alignment.
"""

import numpy as np
import numpy.typing as npt

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.half import widened
from kernels.cpu.shapes import Array, expect

_relu = inline(scalar.relu)


@widened("out")
def scale(x: npt.NDArray[np.generic], factor: float, out: Array) -> Array:
    """Convert features to the working dtype and multiply them: ``out = x * factor``.

    ``x`` and ``out`` are (rows, features); ``x`` may be of uint8, and ``out`` of float16.
    ``factor`` is what one unit of ``x`` stands for, 1/255 for the bytes of an image.
    """
    expect("scale", "out", out, x.shape)
    _scale(x.reshape(-1), out.dtype.type(factor), out.reshape(-1))
    return out


@jit
def _scale(x, factor, out):
    for i in range(x.size):
        out[i] = x[i] * factor


def channels_last(x: npt.NDArray[np.generic], factor: float, out: Array) -> Array:
    """Convert images to the working dtype, with the channels as the last dimension.

    ``out[i, y, x, c] = images[i, c, y, x] * factor``, where ``x``, (rows, channels * height *
    width), has the images. It may be of uint8.
    """
    rows, height, width, channels = out.shape
    expect("channels_last", "x", x, (rows, channels * height * width))
    _channels_last(x, out.dtype.type(factor), out.reshape(rows, height * width, channels))
    return out


@jit
def _channels_last(x, factor, out):
    rows, positions, channels = out.shape
    for i in range(rows):
        for c in range(channels):
            for k in range(positions):
                out[i, k, c] = x[i, c * positions + k] * factor


@widened("out")
def affine(x: Array, weight: Array, bias: Array, out: Array, relu: bool) -> Array:
    """A layer's forward pass: ``out = x @ weight + bias``, then ReLU if asked."""
    expect("affine", "bias", bias, weight.shape[1:])
    np.matmul(x, weight, out=out)
    add_bias(out, bias, relu)
    return out


def add_bias(z: Array, bias: Array, relu: bool) -> None:
    """Add a bias to a product (rows, outputs) in its place, then ReLU if asked."""
    if relu:
        _add_bias_relu(z, bias)
    else:
        _add_bias(z, bias)


@jit
def _add_bias(z, bias):
    rows, columns = z.shape
    for i in range(rows):
        for j in range(columns):
            z[i, j] += bias[j]


@jit
def _add_bias_relu(z, bias):
    rows, columns = z.shape
    for i in range(rows):
        for j in range(columns):
            z[i, j] = _relu(z[i, j] + bias[j])


@widened("weight_grad", "bias_grad")
def affine_gradient(x: Array, delta: Array, weight_grad: Array, bias_grad: Array) -> None:
    """A layer's gradients, summed over rows: ``x.T @ delta`` and the column sums of ``delta``.

    ``delta``, (rows, outputs), is the gradient by the outputs before the activation.
    ``weight_grad`` and ``bias_grad`` are overwritten.
    """
    expect("affine_gradient", "bias_grad", bias_grad, delta.shape[1:])
    np.matmul(x.T, delta, out=weight_grad)
    _column_sums(delta, bias_grad)


@jit
def _column_sums(a, out):
    rows, columns = a.shape
    for j in range(columns):
        out[j] = 0
    for i in range(rows):
        for j in range(columns):
            out[j] += a[i, j]


@widened("out")
def affine_input_gradient(delta: Array, weight: Array, out: Array) -> Array:
    """Carry a gradient back through a layer: ``out = delta @ weight.T``."""
    np.matmul(delta, weight.T, out=out)
    return out


@widened("out")
def relu_backward(delta: Array, weight: Array, activation: Array, out: Array) -> Array:
    """Carry a gradient back through a layer and the ReLU below it, whose output is ``activation``.

    ``out = delta @ weight.T``, but 0 where ``activation <= 0``: the derivative of ReLU at 0 is
    taken to be 0. Where the activation is NaN the gradient is kept.
    """
    expect("relu_backward", "activation", activation, out.shape)
    np.matmul(delta, weight.T, out=out)
    _mask(out.reshape(-1), activation.reshape(-1))
    return out


@jit
def _mask(delta, activation):
    for i in range(delta.size):
        # "not >" would hide the gradient where the activation is NaN.
        if activation[i] <= 0:
            delta[i] = 0
