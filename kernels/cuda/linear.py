"""Losses of linear models with one output: twins of :mod:`kernels.cpu.linear`.

Arrays are on the host or on the device.
"""

import numpy as np
from numba import cuda

from kernels import scalar
from kernels.cpu.linear import LOSSES, _check
from kernels.cuda import THREADS, blocks, inline, jit
from kernels.cuda.memory import Array, Call

_squared = inline(scalar.squared)
_exp = inline(scalar.exp)
_log = inline(scalar.log)
_squared_hinge = inline(scalar.squared_hinge)
_hinge = inline(scalar.hinge)
_logistic = inline(scalar.logistic)
_sigmoid = inline(scalar.sigmoid)

_NONE = np.empty(0, np.float64)


def linear_loss(loss: str, scores: Array, targets: Array, weights: Array | None = None) -> float:
    """A loss and, in place of the scores, its derivative with respect to them."""
    weights = _NONE if weights is None else weights
    _check(scores, targets, weights)
    number = LOSSES[loss]
    with Call("linear_loss") as call:
        losses = call.scratch(scores.size, np.float64)
        _linear_loss[blocks(scores.size), THREADS](
            number, call.update(scores), call.read(targets), call.read(weights), losses
        )
        return float(np.sum(losses.copy_to_host()))


@jit
def _linear_loss(loss, scores, targets, weights, losses):
    for i in range(cuda.grid(1), scores.size, cuda.gridsize(1)):
        score, target = np.float64(scores[i]), np.float64(targets[i])
        if loss == 0:
            value, derivative = _squared(score, target)
        elif loss == 1:
            small = _exp(-abs(score))
            value, derivative = _logistic(score, target, small, _log(1.0 + small))
        elif loss == 2:
            value, derivative = _squared_hinge(score, target)
        else:
            value, derivative = _hinge(score, target)
        if weights.size:
            value *= weights[i]
            derivative *= weights[i]
        scores[i] = derivative
        losses[i] = value


def sigmoid(scores: Array) -> Array:
    """Probabilities ``1 / (1 + exp(-score))``, in place of the scores; returns its argument."""
    with Call("sigmoid") as call:
        _sigmoids[blocks(scores.size), THREADS](call.update(scores))
    return scores


@jit
def _sigmoids(scores):
    for i in range(cuda.grid(1), scores.size, cuda.gridsize(1)):
        score = np.float64(scores[i])
        scores[i] = _sigmoid(score, _exp(-abs(score)))
