"""Activations, number by number, and the way back of a gradient through them.

Arrays are C-contiguous, of any shape and of float32 or float64. Exponentials are of float64.
"""

import numpy as np

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.shapes import Array

_exp = inline(scalar.exp)
_relu = inline(scalar.relu)
_leaky_relu = inline(scalar.leaky_relu)
_tanh = inline(scalar.tanh)
_sigmoid = inline(scalar.sigmoid)
_gelu = inline(scalar.gelu)
_gelu_score = inline(scalar.gelu_score)
_gelu_derivative = inline(scalar.gelu_derivative)


def activate(name: str, x: Array, out: Array, slope: float = 0.0) -> Array:
    """Apply an activation, a function of :mod:`kernels.scalar`, to each number; NaN stays NaN.

    ``out`` may be ``x``. ``slope`` is the factor of negative numbers, for ``leaky-relu``.
    """
    _check("activate", name, x, out)
    FORWARD[name](x.reshape(-1), out.dtype.type(slope), out.reshape(-1))
    return out


def activate_backward(
    name: str, delta: Array, x: Array, y: Array, out: Array, slope: float = 0.0
) -> Array:
    """Carry a gradient back: ``out = delta * derivative(x)``.

    ``y`` are the outputs for ``x``: ReLU, tanh and sigmoid look at ``y`` alone, the others at
    ``x``; ``out`` may be ``delta``. The derivative of the two kinds of ReLU at 0 is that of
    negative numbers; where they are NaN, the gradient is kept.
    """
    _check("activate_backward", name, delta, x, y, out)
    # The derivatives of the others are shortest by their outputs.
    known = x if name in BY_INPUTS else y
    flat = (array.reshape(-1) for array in (delta, known))
    BACKWARD[name](*flat, out.dtype.type(slope), out.reshape(-1))
    return out


@jit
def _relus(x, slope, out):
    for i in range(x.size):
        out[i] = _relu(x[i])


@jit
def _leaky_relus(x, slope, out):
    for i in range(x.size):
        out[i] = _leaky_relu(x[i], slope)


@jit
def _tanhs(x, slope, out):
    for i in range(x.size):
        value = np.float64(x[i])
        out[i] = _tanh(value, _exp(2.0 * abs(value)))


@jit
def _sigmoids(x, slope, out):
    for i in range(x.size):
        value = np.float64(x[i])
        out[i] = _sigmoid(value, _exp(-abs(value)))


@jit
def _gelus(x, slope, out):
    for i in range(x.size):
        value = np.float64(x[i])
        score = _gelu_score(value)
        out[i] = _gelu(value, _sigmoid(score, _exp(-abs(score))))


@jit
def _relus_backward(delta, y, slope, out):
    for i in range(delta.size):
        value = delta[i]
        # "not >" would hide the gradient where the activation is NaN.
        if y[i] <= 0:
            value = 0
        out[i] = value


@jit
def _leaky_relus_backward(delta, x, slope, out):
    for i in range(delta.size):
        out[i] = slope * delta[i] if x[i] <= 0 else delta[i]


@jit
def _tanhs_backward(delta, y, slope, out):
    for i in range(delta.size):
        out[i] = delta[i] * (1 - y[i] * y[i])


@jit
def _sigmoids_backward(delta, y, slope, out):
    for i in range(delta.size):
        out[i] = delta[i] * (y[i] * (1 - y[i]))


@jit
def _gelus_backward(delta, x, slope, out):
    for i in range(delta.size):
        value = np.float64(x[i])
        score = _gelu_score(value)
        gate = _sigmoid(score, _exp(-abs(score)))
        out[i] = delta[i] * _gelu_derivative(value, gate)


#: The loops of each activation.
FORWARD = {
    "relu": _relus,
    "leaky-relu": _leaky_relus,
    "tanh": _tanhs,
    "sigmoid": _sigmoids,
    "gelu": _gelus,
}
BACKWARD = {
    "relu": _relus_backward,
    "leaky-relu": _leaky_relus_backward,
    "tanh": _tanhs_backward,
    "sigmoid": _sigmoids_backward,
    "gelu": _gelus_backward,
}

#: Activations whose derivative is a function of their inputs.
BY_INPUTS = ("leaky-relu", "gelu")


def _check(kernel: str, name: str, *arrays: Array) -> None:
    if name not in FORWARD:
        raise ValueError(f"unknown activation {name!r}: expected one of {', '.join(FORWARD)}")
    shapes = [tuple(array.shape) for array in arrays]
    if len(set(shapes)) > 1:
        found = ", ".join(map(str, shapes))
        raise ValueError(f"{kernel}: arrays have shapes {found}, expected the same")
