"""Losses of linear models with one output, in place on the scores, and their derivatives.

``scores`` is an array (rows,) of float32 or float64: what ``x @ weight + bias`` gives. Losses are
sums over the rows, in float64.
"""

import numpy as np
import numpy.typing as npt

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.shapes import Array

#: Losses by name, as the compiled loop knows them.
LOSSES = {"squared": 0, "logistic": 1, "squared_hinge": 2, "hinge": 3}

_squared = inline(scalar.squared)
_exp = inline(scalar.exp)
_log = inline(scalar.log)
_squared_hinge = inline(scalar.squared_hinge)
_hinge = inline(scalar.hinge)
_logistic = inline(scalar.logistic)
_sigmoid = inline(scalar.sigmoid)

_NONE = np.empty(0, np.float64)


def linear_loss(
    loss: str,
    scores: Array,
    targets: npt.NDArray[np.generic],
    weights: npt.NDArray[np.float64] | None = None,
) -> float:
    """A loss and, in place of the scores, its derivative with respect to them.

    The loss is a function of :mod:`kernels.scalar`. ``targets``, (rows,), are numbers for
    ``squared``, else 0 or 1 for the two classes. ``weights``, (rows,), float64, say how much each
    row counts. Returns the sum of the rows' losses, times their weights; NaN if a score is NaN.
    """
    weights = _NONE if weights is None else weights
    _check(scores, targets, weights)
    return float(_linear_loss(LOSSES[loss], scores, targets, weights))


@jit
def _linear_loss(loss, scores, targets, weights):
    total = 0.0
    for i in range(scores.size):
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
        total += value
    return total


def sigmoid(scores: Array) -> Array:
    """Probabilities ``1 / (1 + exp(-score))``, in place of the scores; returns its argument."""
    _sigmoids(scores)
    return scores


@jit
def _sigmoids(scores):
    for i in range(scores.size):
        score = np.float64(scores[i])
        scores[i] = _sigmoid(score, _exp(-abs(score)))


def _check(
    scores: Array, targets: npt.NDArray[np.generic], weights: npt.NDArray[np.float64]
) -> None:
    if scores.ndim != 1 or targets.shape != scores.shape:
        raise ValueError(
            f"linear_loss: scores {scores.shape} and targets {targets.shape} do not match: "
            f"expected (rows,) twice"
        )
    if weights.size and weights.shape != scores.shape:
        raise ValueError(
            f"linear_loss: weights have shape {weights.shape}, expected {scores.shape}"
        )
