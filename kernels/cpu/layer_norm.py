"""Layer normalisation: each row by its own mean and variance.

J. Ba, J. Kiros and G. Hinton, "Layer normalization", 2016. Arrays are C-contiguous, ``dtype`` is
float32 or float64, the same for all arguments of a call but moments, which are float64. Sums are
float64, in the order of the columns.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import Array, expect_all

Moments = npt.NDArray[np.float64]

#: Added to variances, as most libraries do.
EPSILON = 1e-5


def layer_norm(
    x: Array, weight: Array, bias: Array, out: Array, mean: Moments, inverse: Moments
) -> Array:
    """Normalise rows, then scale and shift columns: ``out = weight (x - mean) inverse + bias``.

    ``mean`` and ``inverse``, (rows,), float64, are overwritten by the mean of each row and by
    ``1 / sqrt(variance + 1e-5)``; the variance is that of a population, divided by ``n``.
    """
    expect_all("layer_norm", x.shape, out=out)
    expect_all("layer_norm", x.shape[1:], weight=weight, bias=bias)
    expect_all("layer_norm", x.shape[:1], mean=mean, inverse=inverse)
    _layer_norm(x, weight, bias, out, mean, inverse)
    return out


@jit
def _layer_norm(x, weight, bias, out, mean, inverse):
    for i in range(len(x)):
        row, result = x[i], out[i]
        total = 0.0
        for j in range(row.size):
            total += row[j]
        mean[i] = total / row.size
        squares = 0.0
        for j in range(row.size):
            difference = row[j] - mean[i]
            squares += difference * difference
        inverse[i] = 1.0 / np.sqrt(squares / row.size + EPSILON)
        for j in range(row.size):
            result[j] = weight[j] * ((row[j] - mean[i]) * inverse[i]) + bias[j]


def layer_norm_backward(
    delta: Array,
    x: Array,
    weight: Array,
    mean: Moments,
    inverse: Moments,
    weight_grad: Array,
    bias_grad: Array,
    out: Array,
) -> Array:
    """The gradients by weight and bias, summed over rows, and that by ``x``.

    With ``z = (x - mean) inverse`` and ``d = delta weight``, the latter is
    ``inverse (d - mean(d) - z mean(d z))``, the means being those of a row. ``mean`` and
    ``inverse`` are as :func:`layer_norm` left them, and ``out`` may be ``delta``.
    """
    kernel, grads = "layer_norm_backward", {"weight_grad": weight_grad, "bias_grad": bias_grad}
    expect_all(kernel, x.shape, delta=delta, out=out)
    expect_all(kernel, x.shape[1:], weight=weight, **grads)
    expect_all(kernel, x.shape[:1], mean=mean, inverse=inverse)
    weight_grad.fill(0)
    bias_grad.fill(0)
    _layer_norm_backward(delta, x, weight, mean, inverse, weight_grad, bias_grad, out)
    return out


@jit
def _layer_norm_backward(delta, x, weight, mean, inverse, weight_grad, bias_grad, out):
    for i in range(len(x)):
        row, change, result = x[i], delta[i], out[i]
        total, along = 0.0, 0.0
        for j in range(row.size):
            z = (row[j] - mean[i]) * inverse[i]
            weight_grad[j] += change[j] * z
            bias_grad[j] += change[j]
            total += change[j] * weight[j]
            along += change[j] * weight[j] * z
        total /= row.size
        along /= row.size
        for j in range(row.size):
            z = (row[j] - mean[i]) * inverse[i]
            result[j] = inverse[i] * (change[j] * weight[j] - total - z * along)
