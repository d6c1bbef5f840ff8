"""Activations, number by number: twins of :mod:`kernels.cpu.activations`.

Arrays are on the host or on the device.
"""

import numpy as np
from numba import cuda

from kernels import scalar
from kernels.cpu.activations import BY_INPUTS, FORWARD, _check
from kernels.cuda import THREADS, blocks, inline, jit
from kernels.cuda.memory import Array, Call, flat

_exp = inline(scalar.exp)
_relu = inline(scalar.relu)
_leaky_relu = inline(scalar.leaky_relu)
_tanh = inline(scalar.tanh)
_sigmoid = inline(scalar.sigmoid)
_gelu = inline(scalar.gelu)
_gelu_score = inline(scalar.gelu_score)
_gelu_derivative = inline(scalar.gelu_derivative)

#: Activations as the kernels know them.
NUMBERS = {name: number for number, name in enumerate(FORWARD)}


def activate(name: str, x: Array, out: Array, slope: float = 0.0) -> Array:
    """Apply an activation to each number; NaN stays NaN."""
    _check("activate", name, x, out)
    with Call("activate") as call:
        factor = out.dtype.type(slope)
        arguments = flat(call.read(x)), factor, flat(call.write(out))
        _activate[blocks(out.size), THREADS](NUMBERS[name], *arguments)
    return out


@jit
def _activate(number, x, slope, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        if number == 0:
            out[i] = _relu(x[i])
        elif number == 1:
            out[i] = _leaky_relu(x[i], slope)
        else:
            out[i] = _smooth(number, np.float64(x[i]))


@inline
def _smooth(number, x):
    if number == 2:
        return _tanh(x, _exp(2.0 * abs(x)))
    if number == 3:
        return _sigmoid(x, _exp(-abs(x)))
    score = _gelu_score(x)
    return _gelu(x, _sigmoid(score, _exp(-abs(score))))


def activate_backward(
    name: str, delta: Array, x: Array, y: Array, out: Array, slope: float = 0.0
) -> Array:
    """Carry a gradient back: ``out = delta * derivative(x)``."""
    _check("activate_backward", name, delta, x, y, out)
    with Call("activate_backward") as call:
        known = call.read(x if name in BY_INPUTS else y)
        arguments = flat(call.read(delta)), flat(known), out.dtype.type(slope)
        _activate_backward[blocks(out.size), THREADS](
            NUMBERS[name], *arguments, flat(call.write(out))
        )
    return out


@jit
def _activate_backward(number, delta, known, slope, out):
    for i in range(cuda.grid(1), delta.size, cuda.gridsize(1)):
        value = known[i]
        if number < 2:
            # "not >" would hide the gradient where the activation is NaN.
            off = delta.dtype.type(0) if number == 0 else slope * delta[i]
            out[i] = off if value <= 0 else delta[i]
        elif number == 2:
            out[i] = delta[i] * (1 - value * value)
        elif number == 3:
            out[i] = delta[i] * (value * (1 - value))
        else:
            wide = np.float64(value)
            score = _gelu_score(wide)
            gate = _sigmoid(score, _exp(-abs(score)))
            out[i] = delta[i] * _gelu_derivative(wide, gate)
