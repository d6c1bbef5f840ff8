"""Softmax and cross-entropy, in place on a matrix of logits.

``logits`` is a C-contiguous array (rows, classes) of float32 or float64; ``labels`` an integer
array (rows,) with values in ``range(classes)``. Losses are sums over the rows, in float64.
"""

import numpy as np
import numpy.typing as npt

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.shapes import Array

Labels = npt.NDArray[np.integer]
Weights = npt.NDArray[np.float64]

_exp = inline(scalar.exp)
_log = inline(scalar.log)

_NONE = np.empty(0, np.float64)


def softmax_cross_entropy(logits: Array, labels: Labels, weights: Weights | None = None) -> float:
    """Cross-entropy loss and, in place of the logits, its gradient with respect to them.

    For one row ``z`` with label ``y``: loss ``log(sum(exp(z - max z))) - (z_y - max z)``, gradient
    ``softmax(z) - onehot(y)``. ``logits`` is (rows, classes); ``weights``, (rows,), float64, say
    how much each row counts.

    Returns the sum of all rows' losses, times their weights, in nats. NaN if a logit is NaN or
    infinity, or all logits of a row are minus infinity; one that is minus infinity is a class of
    probability 0.
    """
    weights = _NONE if weights is None else weights
    _check("softmax_cross_entropy", logits, labels, weights)
    return float(_softmax_cross_entropy(logits, labels, weights))


@jit
def _softmax_cross_entropy(z, labels, weights):
    rows = len(labels)
    loss = 0.0
    for i in range(rows):
        _subtract_maximum(z, i)
        loss -= z[i, labels[i]] * (weights[i] if weights.size else 1.0)
    _exponentiate(z.reshape(-1))
    sums = np.empty(rows, np.float64)
    for i in range(rows):
        sums[i] = _normalise(z, i)
        z[i, labels[i]] -= 1
        if weights.size:
            for j in range(z.shape[1]):
                z[i, j] *= weights[i]
    return loss + _sum_of_logs(sums, weights)


def softmax(logits: Array) -> Array:
    """Probabilities of the classes, in place of the logits; returns its argument."""
    _softmax(logits)
    return logits


@jit
def _softmax(z):
    rows, _ = z.shape
    for i in range(rows):
        _subtract_maximum(z, i)
    _exponentiate(z.reshape(-1))
    for i in range(rows):
        _normalise(z, i)


def score(logits: Array, labels: Labels, weights: Weights | None = None) -> tuple[float, int]:
    """Loss and number of rows whose largest logit is the label's; the logits are overwritten.

    The first of several equal largest logits is the prediction. The loss is that of
    :func:`softmax_cross_entropy`, with the same arguments.
    """
    weights = _NONE if weights is None else weights
    _check("score", logits, labels, weights)
    loss, correct = _score(logits, labels, weights)
    return float(loss), int(correct)


@jit
def _score(z, labels, weights):
    rows, classes = z.shape
    correct = 0
    for i in range(rows):
        best = 0
        for j in range(1, classes):
            if z[i, j] > z[i, best]:
                best = j
        if best == labels[i]:
            correct += 1
    return _softmax_cross_entropy(z, labels, weights), correct


@jit
def _subtract_maximum(z, i):
    top = z[i, 0]
    for j in range(1, z.shape[1]):
        top = max(top, z[i, j])
    for j in range(z.shape[1]):
        z[i, j] -= top


@jit
def _exponentiate(z):
    for i in range(z.size):
        z[i] = _exp(np.float64(z[i]))


@jit
def _normalise(z, i):
    total = 0.0
    for j in range(z.shape[1]):
        total += z[i, j]
    inverse = 1 / total
    for j in range(z.shape[1]):
        z[i, j] = z[i, j] * inverse
    return total


@jit
def _sum_of_logs(sums, weights):
    for i in range(sums.size):
        sums[i] = _log(sums[i])
    total = 0.0
    for i in range(sums.size):
        total += sums[i] * (weights[i] if weights.size else 1.0)
    return total


def _check(kernel: str, logits: Array, labels: Labels, weights: Weights) -> None:
    if weights.size and weights.shape != labels.shape:
        raise ValueError(f"{kernel}: weights have shape {weights.shape}, expected {labels.shape}")
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"{kernel}: logits {logits.shape} and labels {labels.shape} do not match: "
            f"expected (rows, classes) and (rows,)"
        )
