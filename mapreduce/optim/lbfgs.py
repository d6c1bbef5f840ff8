"""L-BFGS in its vector-free form: one reduction of scalar products per round.

The method (J. Nocedal, Updating Quasi-Newton Matrices with Limited Storage, 1980) multiplies the
gradient with an estimate of the inverse Hessian that is made of the last ``m`` steps ``s`` and
changes of the gradient ``y``. Its recursion only needs scalar products of these vectors, and its
result is a linear combination of them (W. Chen, Z. Wang, J. Zhou, Large-scale L-BFGS using
MapReduce, NIPS 2014). So a reducer that owns a block of every vector adds up its part of the
products, and when the sums are known it makes its part of the next point by itself.

All of this happens in coordinates in which the diagonal of the Hessian, as estimated before the
first round, is 1: ``root`` times the parameters. Without an estimate ``root`` is 1.

Every round evaluates one point. It is taken if the loss falls enough there (L. Armijo's condition,
1966); else the next round tries a point nearer to the last one that was taken.
"""

import math

import numpy as np
import numpy.typing as npt

from mapreduce.optim.contract import PAGE, Array, GlobalTransformation, Shared, State

Scalars = npt.NDArray[np.float64]

#: How much of the decrease that the slope promises is enough.
ARMIJO = 1e-4
#: A trial step is shortened at least and at most so much.
SHORTEST, LONGEST = 0.1, 0.5
#: Trials from one point before the pairs are forgotten, and after that before the search ends.
MOST_TRIALS = 20
#: Pairs with a smaller curvature, by the lengths of both vectors, say nothing about the Hessian.
LEAST_CURVATURE = 1e-10

# What is remembered from round to round, before the matrix of products.
_PAIRS, _NEXT, _STEP, _VALUE, _SLOPE, _TRIALS, _DONE = range(7)
_HEAD = 7


def lbfgs(pairs: int, rounds: int, tol: float) -> GlobalTransformation:
    """The optimizer.

    Parameters
    ----------
    pairs : int
        Steps that are remembered, ``m``.
    rounds : int
        Of the whole training: the last one ends with the best point, not with a new one.
    tol : float
        The search ends when the Euclidean norm of the gradient is at most this.
    """
    names = [f"s{slot}" for slot in range(pairs)] + [f"y{slot}" for slot in range(pairs)]

    def init(params: Array) -> State:
        nothing = np.zeros_like(params)
        state = dict.fromkeys(("base", "base_gradient", *names), nothing)
        return {**state, "root": np.ones_like(params)}

    def precondition(state: State, curvature: Array) -> State:
        # What no row has moves by its penalty alone, and without one not at all.
        known = np.where(curvature > 0, curvature, 1)
        return {**state, "root": np.sqrt(known).astype(state["root"].dtype)}

    def memory() -> Scalars:
        start = np.zeros(_HEAD + (2 * pairs + 1) ** 2)
        start[_VALUE] = np.nan
        return start

    def sums(gradient: Array, state: State, params: Array, memory: Scalars) -> Scalars:
        """Products of the candidate's step, change and gradient with the basis and each other."""
        step, change, scaled = _candidates(gradient, state, params)
        known = int(memory[_PAIRS])
        products = np.zeros((3, 2 * pairs + 3))
        candidates = (step, change, scaled)
        for row, left in enumerate(candidates):
            for slot in range(known):
                products[row, slot] = left @ state[f"s{slot}"]
                products[row, pairs + slot] = left @ state[f"y{slot}"]
            for column, right in enumerate(candidates):
                products[row, 2 * pairs + column] = left @ right
        return np.append(products, gradient @ gradient)

    def update(
        gradient: Array, state: State, params: Array, step: int, shared: Shared
    ) -> tuple[Array, State, Scalars]:
        before = shared.memory
        if before[_DONE]:
            return params, state, before
        after, accepted, stored = _decide(before, shared.sums, shared.value, pairs, step, tol)
        if accepted:
            moved, change, scaled = _candidates(gradient, state, params)
            if stored is not None:
                state = {**state, f"s{stored}": moved, f"y{stored}": change}
            state = {**state, "base": params, "base_gradient": scaled}
        base = state["base"]
        if after[_DONE] or step == rounds - 1:
            return base, state, after
        coefficients = _direction(_matrix(after, pairs), after, pairs) * after[_STEP]
        vectors = [*(state[name] for name in names), state["base_gradient"]]
        return _moved(base, state["root"], coefficients, vectors), state, after

    width = 3 * (2 * pairs + 3) + 1
    return GlobalTransformation(init, update, sums, width, memory, precondition)


def _candidates(gradient: Array, state: State, params: Array) -> tuple[Array, Array, Array]:
    """The step to a point, the change of the gradient on it, and the gradient there, scaled."""
    scaled = gradient / state["root"]
    return (params - state["base"]) * state["root"], scaled - state["base_gradient"], scaled


def is_done(memory: Scalars) -> int:
    """Rounds after which the search ended, by what was remembered; 0 if it has not."""
    return int(memory[_DONE]) if len(memory) > _HEAD else 0


def _matrix(memory: Scalars, pairs: int) -> Scalars:
    """Products of the basis: all ``s``, all ``y``, and the gradient at the base."""
    return memory[_HEAD:].reshape(2 * pairs + 1, 2 * pairs + 1)


def _decide(
    before: Scalars, sums: Scalars, value: float, pairs: int, step: int, tol: float
) -> tuple[Scalars, bool, int | None]:
    """What to remember, whether the point is taken, and the slot that its pair is kept in."""
    after = before.copy()
    matrix = _matrix(after, pairs)
    products = sums[:-1].reshape(3, -1)
    is_first = math.isnan(before[_VALUE])
    finite = math.isfinite(value) and np.isfinite(sums).all()
    if not is_first and not (finite and _is_enough(before, value)):
        _shorten(after, value, matrix, step)
        return after, False, None
    stored = None
    if not is_first:
        stored = _store(after, matrix, products, pairs)
    own = 2 * pairs + 2
    matrix[-1, :-1] = matrix[:-1, -1] = _with_pair(products[2], stored, pairs)
    matrix[-1, -1] = products[2, own]
    after[_VALUE] = value
    after[_TRIALS] = 0
    if math.sqrt(sums[-1]) <= tol:
        after[_DONE] = step + 1
    _aim(after, matrix, pairs)
    return after, True, stored


def _is_enough(before: Scalars, value: float) -> bool:
    wanted = before[_VALUE] + ARMIJO * before[_STEP] * before[_SLOPE]
    # Nearer than rounding a sum cannot tell two points apart.
    noise = 4 * np.finfo(np.float64).eps * abs(before[_VALUE])
    return bool(value <= max(wanted, before[_VALUE] + noise))


def _shorten(after: Scalars, value: float, matrix: Scalars, step: int) -> None:
    """Nearer to the base: at the minimum of the parabola through what is known, within bounds."""
    after[_TRIALS] += 1
    if after[_TRIALS] >= MOST_TRIALS:
        if not after[_PAIRS]:
            after[_DONE] = step + 1
        after[_PAIRS] = after[_NEXT] = after[_TRIALS] = 0
        _aim(after, matrix, (len(matrix) - 1) // 2)
        return
    length, slope = after[_STEP], after[_SLOPE]
    excess = value - after[_VALUE] - slope * length
    best = -slope * length / (2 * excess) if math.isfinite(excess) and excess > 0 else SHORTEST
    after[_STEP] = length * min(max(best, SHORTEST), LONGEST)


def _store(after: Scalars, matrix: Scalars, products: Scalars, pairs: int) -> int | None:
    """Take in the pair of the new point, in place of the oldest; returns its slot."""
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


def _aim(after: Scalars, matrix: Scalars, pairs: int) -> None:
    """Slope and length of the first trial along the direction from the base."""
    after[_SLOPE] = matrix[-1] @ _direction(matrix, after, pairs)
    if not after[_SLOPE] < 0:
        # By rounding it leads uphill. The gradient itself does not.
        after[_PAIRS] = after[_NEXT] = 0
        after[_SLOPE] = -matrix[-1, -1]
    norm = math.sqrt(matrix[-1, -1])
    after[_STEP] = 1.0 if after[_PAIRS] else min(1.0, 1 / norm) if norm else 1.0


def _direction(matrix: Scalars, memory: Scalars, pairs: int) -> Scalars:
    """Coefficients of the direction in the basis: the two loops of the recursion."""
    known, following = int(memory[_PAIRS]), int(memory[_NEXT])
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


def _moved(base: Array, root: Array, coefficients: Scalars, vectors: list[Array]) -> Array:
    """``base`` plus a linear combination of scaled vectors, page by page, to stay in a cache."""
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
