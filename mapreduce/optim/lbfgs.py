"""L-BFGS in its vector-free form: one reduction of scalar products per round.

The method (J. Nocedal, Updating Quasi-Newton Matrices with Limited Storage, 1980) multiplies the
gradient by an estimate of the inverse Hessian from the last ``m`` steps ``s`` and
changes of the gradient ``y``. Its recursion only needs scalar products of these vectors, and its
result is a linear combination of them (W. Chen, Z. Wang, J. Zhou, Large-scale L-BFGS using
MapReduce, NIPS 2014). So a reducer that owns a block of every vector adds up its part of the
products, and when the sums are known it makes its part of the next point by itself.

All of this happens in the coordinates ``root`` times the parameters, in which the diagonal of the
Hessian, as estimated before the first round, is 1. Without an estimate ``root`` is 1.

Every round evaluates one point. It is taken if the loss falls enough there (L. Armijo's condition,
1966); else the next round tries a point nearer to the last one that was taken. Where losses differ
only by rounding, the slope decides instead, whose relative precision is far better (W. Hager,
H. Zhang, A New Conjugate Gradient Method with Guaranteed Descent, 2005). The search has converged
when the gradient's norm is at most ``tol``. It has stalled when, at the parameters' precision, no
better point can be found.

A norm in the units of the data means little: targets in other units have another one. So it is
measured by the estimate of the inverse Hessian, and compared with the square root of the loss
(S. Boyd, L. Vandenberghe, Convex Optimization, 2004, 9.5.1: Newton's decrement). Plans of earlier
versions compare the Euclidean norm itself.
"""

import math
from typing import NamedTuple

import numpy as np

from mapreduce.optim.contract import (
    PAGE,
    Array,
    Arrays,
    Defaults,
    GlobalTransformation,
    Scalars,
    Search,
    Shared,
)

#: The share of the decrease promised by the slope that is enough.
ARMIJO = 1e-4
#: Bounds of the factor by which a trial step is shortened.
SHORTEST, LONGEST = 0.1, 0.5
#: Trials without a gain before the pairs are forgotten, and after that before the search ends.
MOST_TRIALS = 20
#: A trial whose value differs from the base's only by rounding counts as this many.
NOISY_TRIAL = 4
#: A first step too short for the gradient to change is followed by one this many times as long.
GROWTH = 100
#: A value that falls by more than this many times what the slope promises does so by rounding.
PLAUSIBLE = 10
#: A pair's curvature divided by the lengths of both vectors, below which it is not stored.
LEAST_CURVATURE = 1e-10

#: The scalars before the matrix of products; a relative search has two more.
_HEAD = 10
_PAIRS, _NEXT, _STEP, _VALUE, _SLOPE, _TRIALS, _DONE, _NORM, _LEAST, _GAINS = range(_HEAD)
_FIRST, _RELATIVE = _HEAD, _HEAD + 1


class _Aim(NamedTuple):
    """What a search asks of the gradient, and whether the Hessian's diagonal is estimated."""

    tol: float
    is_relative: bool
    is_scaled: bool


class LBFGS(GlobalTransformation):
    """The optimizer.

    ``pairs``: Steps that are remembered, ``m``. ``rounds``: Rounds of the training; the last one
    ends with the best point, not with a new one. ``tol``: The norm of the gradient at which the
    search has converged. ``is_relative``: Whether that is the relative norm, whose square is the
    share of the loss by which a step of length 1 promises to lower it, and not the Euclidean norm.
    """

    title = "L-BFGS"
    # Evaluated only at the end: points on the way may be worse than the best.
    # Rounding to float32 can end the search before it has converged.
    defaults = Defaults(epochs=1000, batch_size=0, eval_epochs=0, dtype="float64")
    needs_all_rows = True
    takes_curvature = True

    def __init__(self, pairs: int, rounds: int, tol: float, is_relative: bool = False) -> None:
        self._pairs, self._rounds, self._tol, self._is_relative = pairs, rounds, tol, is_relative
        self._names = [f"{kind}{slot}" for kind in "sy" for slot in range(pairs)]
        self.width = 3 * (2 * pairs + 3) + 1

    def init(self, params: Array) -> Arrays:
        nothing = np.zeros_like(params)
        state = dict.fromkeys(("base", "base_gradient", *self._names), nothing)
        return {**state, "root": np.ones_like(params)}

    def precondition(self, state: Arrays, curvature: Array) -> Arrays:
        # The curvature is 0 where no row has a feature.
        known = np.where(curvature > 0, curvature, 1)
        return {**state, "root": np.sqrt(known).astype(state["root"].dtype)}

    def first_scalars(self) -> Scalars:
        start = np.zeros(_HEAD + 2 * self._is_relative + (2 * self._pairs + 1) ** 2)
        start[_VALUE], start[_LEAST] = np.nan, np.inf
        if self._is_relative:
            start[_RELATIVE] = np.inf
        return start

    def search(self, scalars: Scalars) -> Search:
        done = int(scalars[_DONE])
        norm = float(scalars[_RELATIVE if self._is_relative else _NORM])
        state = "converged" if norm <= self._tol else "stalled" if done else "unfinished"
        return Search(done, norm, bool(scalars[_GAINS] < 0), state)

    def slopes(self, state: Arrays) -> Array:
        with np.errstate(all="ignore"):
            return state["base_gradient"] * state["root"]

    def tolerates_non_finite(self, completed: int, is_loss_finite: bool) -> bool:
        # A trial step may be too long, but before the first round there is nothing to fall back on.
        return completed > 0

    def cures(self, dtype: str) -> list[str]:
        return ["take --dtype float64"] if dtype == "float32" else []

    def sums(self, gradient: Array, state: Arrays, params: Array, scalars: Scalars) -> Scalars:
        """Products of the candidate's step, change and gradient with the basis and each other."""
        # In double precision: float32 may hold the elements and not their squares.
        candidates = np.stack(_candidates(gradient, state, params)).astype(np.float64)
        pairs, known = self._pairs, int(scalars[_PAIRS])
        products = np.zeros((3, 2 * pairs + 3))
        for row, left in enumerate(candidates):
            products[row, 2 * pairs :] = [left @ right for right in candidates]
        for slot in range(known):
            for column, name in ((slot, f"s{slot}"), (pairs + slot, f"y{slot}")):
                right = state[name].astype(np.float64)
                products[:, column] = [left @ right for left in candidates]
        double = gradient.astype(np.float64)
        # A relative search does not ask for the gradient in the data's units, but whether there
        # is an estimate of the Hessian.
        last = np.count_nonzero(state["root"] != 1) if self._is_relative else double @ double
        return np.append(products, last)

    def update(
        self, gradient: Array, state: Arrays, params: Array, step: int, shared: Shared
    ) -> tuple[Array, Arrays, Scalars]:
        before, pairs = shared.scalars, self._pairs
        if before[_DONE]:
            return params, state, before
        epsilon = float(np.finfo(params.dtype).eps)
        aim = _Aim(self._tol, self._is_relative, bool(shared.sums[-1] > 0))
        after, accepted, stored = _decide(before, shared, pairs, step, aim, epsilon)
        if accepted:
            moved, change, scaled = _candidates(gradient, state, params)
            if stored is not None:
                state = {**state, f"s{stored}": moved, f"y{stored}": change}
            state = {**state, "base": params, "base_gradient": scaled}
        base = state["base"]
        if after[_DONE] or step == self._rounds - 1:
            return base, state, after
        coefficients = _direction(_matrix(after, pairs), after, pairs) * after[_STEP]
        vectors = [*(state[name] for name in self._names), state["base_gradient"]]
        return _move(base, state["root"], coefficients, vectors), state, after


def _candidates(gradient: Array, state: Arrays, params: Array) -> tuple[Array, Array, Array]:
    """The step to a point, the change of the gradient on it, and the gradient there, scaled."""
    scaled = gradient / state["root"]
    return (params - state["base"]) * state["root"], scaled - state["base_gradient"], scaled


def _matrix(scalars: Scalars, pairs: int) -> Scalars:
    """Products of the basis: all ``s``, all ``y``, and the gradient at the base."""
    width = 2 * pairs + 1
    return scalars[-(width**2) :].reshape(width, width)


def _decide(
    before: Scalars, shared: Shared, pairs: int, step: int, aim: _Aim, epsilon: float
) -> tuple[Scalars, bool, int | None]:
    """The new scalars, whether the point is taken, and the slot that its pair is stored in."""
    after = before.copy()
    matrix = _matrix(after, pairs)
    sums, value = shared.sums, shared.value
    products = sums[:-1].reshape(3, -1)
    own = 2 * pairs + 2
    is_first = math.isnan(before[_VALUE])
    is_finite = math.isfinite(value) and bool(np.isfinite(sums).all())
    if is_first and not is_finite:
        # Nothing to fall back on.
        after[_NORM], after[_DONE], after[_GAINS] = math.inf, step + 1, -1
        return after, True, None
    if not is_first and not (is_finite and _is_enough(before, value, products[0, own], epsilon)):
        _shorten(after, value, matrix, step, aim, epsilon)
        return after, False, None
    stored = None if is_first else _store(after, matrix, products, pairs)
    matrix[-1, :-1] = matrix[:-1, -1] = _with_pair(products[2], stored, pairs)
    matrix[-1, -1] = products[2, own]
    squared = matrix[-1, -1] if aim.is_relative else sums[-1]
    after[_VALUE], after[_NORM] = value, math.sqrt(squared)
    if is_first or _is_gain(before, after, epsilon):
        after[_TRIALS] = 0
        after[_GAINS] += not is_first
    elif before[_PAIRS] or before[_STEP] >= 1:
        _count(after, NOISY_TRIAL, step)
    after[_LEAST] = min(after[_LEAST], after[_NORM])
    _aim(after, matrix, pairs, aim, GROWTH * before[_STEP])
    norm = after[_NORM]
    if aim.is_relative:
        after[_FIRST] = value if is_first else before[_FIRST]
        norm = after[_RELATIVE] = _relative_norm(after, aim)
    if norm <= aim.tol:
        after[_DONE] = step + 1
    return after, True, stored


def _relative_norm(scalars: Scalars, aim: _Aim) -> float:
    """The gradient's norm by the inverse Hessian, divided by the root of the loss.

    It is 1 as long as nothing is known of the Hessian. Of a loss that falls to 0 there is a part of
    the first one left in the comparison, which its own rounding cannot exceed.
    """
    if not scalars[_NORM]:
        return 0.0
    loss = max(abs(scalars[_VALUE]), aim.tol**2 * abs(scalars[_FIRST]))
    is_known = scalars[_PAIRS] > 0 or aim.is_scaled
    return math.sqrt(-scalars[_SLOPE] / loss) if is_known and loss else 1.0


def _noise(scalars: Scalars, epsilon: float) -> float:
    """The largest difference of a value from the base's that rounding may cause."""
    return float(4 * epsilon * abs(scalars[_VALUE]))


def _is_enough(before: Scalars, value: float, along: float, epsilon: float) -> bool:
    """Whether a point is good enough; ``along`` is the product of its step and its gradient."""
    falls = value <= before[_VALUE] + ARMIJO * before[_STEP] * before[_SLOPE]
    is_near = value <= before[_VALUE] + _noise(before, epsilon)
    slope = along / before[_STEP]
    return bool(falls or (is_near and slope <= -(1 - 2 * ARMIJO) * before[_SLOPE]))


def _is_gain(before: Scalars, after: Scalars, epsilon: float) -> bool:
    """Whether a point that was taken is better by more than its rounding."""
    promised, fall = -before[_STEP] * before[_SLOPE], before[_VALUE] - after[_VALUE]
    # On a convex function a value cannot fall by more than promised, except by rounding.
    is_plausible = fall <= PLAUSIBLE * promised or fall > _noise(before, epsilon)
    return bool(after[_NORM] < before[_LEAST] or (fall >= ARMIJO * promised and is_plausible))


def _count(after: Scalars, trials: int, step: int) -> bool:
    """Count trials without a gain; returns whether the pairs are forgotten now."""
    counted = after[_TRIALS]
    after[_TRIALS] += trials
    is_over = bool(counted < MOST_TRIALS <= after[_TRIALS])
    if after[_TRIALS] >= 2 * MOST_TRIALS or (is_over and not after[_PAIRS]):
        after[_DONE] = step + 1
    if is_over:
        after[_PAIRS] = after[_NEXT] = 0
    return is_over


def _shorten(
    after: Scalars, value: float, matrix: Scalars, step: int, aim: _Aim, epsilon: float
) -> None:
    """Try a point nearer to the base: the minimum of a parabola, within bounds."""
    promised = -after[_STEP] * after[_SLOPE]
    is_noisy = math.isfinite(value) and promised <= _noise(after, epsilon)
    if _count(after, NOISY_TRIAL if is_noisy else 1, step):
        if after[_DONE] and not after[_GAINS] and not is_noisy:
            after[_GAINS] = -1
        _aim(after, matrix, (len(matrix) - 1) // 2, aim)
        return
    length, slope = after[_STEP], after[_SLOPE]
    excess = value - after[_VALUE] - slope * length
    best = -slope * length / (2 * excess) if math.isfinite(excess) and excess > 0 else SHORTEST
    after[_STEP] = length * min(max(best, SHORTEST), LONGEST)


def _store(after: Scalars, matrix: Scalars, products: Scalars, pairs: int) -> int | None:
    """Store the pair of the new point in place of the oldest; returns its slot."""
    own = 2 * pairs
    curvature = products[0, own + 1]
    lengths = math.sqrt(products[0, own] * products[1, own + 1])
    if not curvature > LEAST_CURVATURE * lengths:
        return None
    slot = int(after[_NEXT])
    for row, place in ((0, slot), (1, pairs + slot)):
        values = _with_pair(products[row], slot, pairs)
        matrix[place, :-1] = matrix[:-1, place] = values
    after[_PAIRS] = min(after[_PAIRS] + 1, pairs)
    after[_NEXT] = (slot + 1) % pairs
    return slot


def _with_pair(row: Scalars, stored: int | None, pairs: int) -> Scalars:
    """Products with the basis, after the new pair has taken its slot."""
    values = row[: 2 * pairs].copy()
    if stored is not None:
        values[stored], values[pairs + stored] = row[2 * pairs], row[2 * pairs + 1]
    return values


def _aim(after: Scalars, matrix: Scalars, pairs: int, aim: _Aim, longer: float = 0.0) -> None:
    """Slope and length of the first trial along the direction from the base."""
    after[_SLOPE] = matrix[-1] @ _direction(matrix, after, pairs)
    if not after[_SLOPE] < 0:
        # Rounding made it lead uphill; the gradient itself does not.
        after[_PAIRS] = after[_NEXT] = 0
        after[_SLOPE] = -matrix[-1, -1]
    norm = math.sqrt(matrix[-1, -1])
    after[_STEP] = 1.0
    if norm and not after[_PAIRS]:
        # A distance of 1, which is none in the data's units; with an estimate, that of the loss.
        unit = math.sqrt(2 * abs(after[_VALUE])) if aim.is_relative and aim.is_scaled else 1.0
        length = max(unit / norm, longer)
        after[_STEP] = length if aim.is_relative and not aim.is_scaled else min(1.0, length)


def _direction(matrix: Scalars, scalars: Scalars, pairs: int) -> Scalars:
    """Coefficients of the direction in the basis: the two loops of the recursion."""
    known, following = int(scalars[_PAIRS]), int(scalars[_NEXT])
    newest_first = [(following - 1 - age) % pairs for age in range(known)]
    direction = np.zeros(len(matrix))
    direction[-1] = -1
    kept = {}
    for slot in newest_first:
        kept[slot] = direction @ matrix[:, slot] / matrix[slot, pairs + slot]
        direction[pairs + slot] -= kept[slot]
    if known:
        newest = newest_first[0]
        change = pairs + newest
        direction *= matrix[newest, change] / matrix[change, change]
    for slot in reversed(newest_first):
        again = direction @ matrix[:, pairs + slot] / matrix[slot, pairs + slot]
        direction[slot] += kept[slot] - again
    return direction


def _move(base: Array, root: Array, coefficients: Scalars, vectors: list[Array]) -> Array:
    """``base`` plus a linear combination of scaled vectors, page by page, to use the cache."""
    moved = np.empty_like(base)
    terms = [
        (base.dtype.type(coefficient), vector)
        for coefficient, vector in zip(coefficients, vectors, strict=True)
        if coefficient
    ]
    for start in range(0, len(base), PAGE):
        part = slice(start, start + PAGE)
        total = np.zeros_like(base[part])
        for coefficient, vector in terms:
            total += coefficient * vector[part]
        moved[part] = base[part] + total / root[part]
    return moved
