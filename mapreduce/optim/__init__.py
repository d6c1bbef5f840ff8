"""Optimizers as pairs of pure functions on a block of the flat parameter vector.

A :class:`Transformation` has ``init(params)``, which gives its state, and ``update(updates, state,
params, step)``, which gives new updates and a new state; neither changes its arguments. They are
elementwise, so that a reducer can own a block and its state and nothing else. :func:`chain` puts
them together, as optax does (DeepMind, 2020); :func:`create` names the usual chains. What needs a
scalar over all blocks is a :class:`GlobalTransformation`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mapreduce.errors import UsageError
from mapreduce.optim.contract import (
    RESERVED,
    Array,
    GlobalTransformation,
    Schedule,
    State,
    Transformation,
)
from mapreduce.optim.guarded import guarded, loss_scale
from mapreduce.optim.lbfgs import is_done, lbfgs, progress

__all__ = [
    "ELEMENTWISE",
    "OPTIMIZERS",
    "GlobalTransformation",
    "Options",
    "Schedule",
    "Transformation",
    "chain",
    "create",
    "guarded",
    "is_done",
    "lbfgs",
    "loss_scale",
    "progress",
    "schedule",
]


def chain(*transformations: Transformation) -> Transformation:
    """Apply transformations one after another.

    Raises
    ------
    ValueError
        Two of them have states of one name, or one has the name of what a block holds beside them.
    """
    names = [*RESERVED, *(name for one in transformations for name in one.init(np.empty(0)))]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"chain: {', '.join(twice)}: a state of this name is there already")

    def init(params: Array) -> State:
        state: State = {}
        for transformation in transformations:
            state.update(transformation.init(params))
        return state

    def update(updates: Array, state: State, params: Array, step: int) -> tuple[Array, State]:
        new_state: State = {}
        for transformation in transformations:
            updates, changed = transformation.update(updates, state, params, step)
            new_state.update(changed)
        return updates, new_state

    return Transformation(init, update)


def _stateless(function: Callable[[Array, Array, int], Array]) -> Transformation:
    return Transformation(
        lambda params: {},
        lambda updates, state, params, step: (function(updates, params, step), {}),
    )


def add_decayed_weights(weight_decay: float) -> Transformation:
    """Add ``weight_decay * params``: the gradient of ``weight_decay / 2 * |params|**2``."""
    return _stateless(lambda updates, params, step: updates + weight_decay * params)


def scale_by_learning_rate(schedule: Schedule) -> Transformation:
    """Multiply by minus the learning rate of the step."""
    return _stateless(lambda updates, params, step: updates * -schedule(step))


def trace(decay: float) -> Transformation:
    """Accumulate momentum: ``velocity = decay * velocity + updates`` (Polyak 1964)."""

    def update(updates: Array, state: State, params: Array, step: int) -> tuple[Array, State]:
        velocity = decay * state["velocity"] + updates
        return velocity, {"velocity": velocity}

    return Transformation(lambda params: {"velocity": np.zeros_like(params)}, update)


def scale_by_adam(
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
) -> Transformation:
    """Divide a running mean by the root of a running mean square (Kingma and Ba 2015)."""

    def init(params: Array) -> State:
        return {"mean": np.zeros_like(params), "mean_square": np.zeros_like(params)}

    def update(updates: Array, state: State, params: Array, step: int) -> tuple[Array, State]:
        mean = beta1 * state["mean"] + (1 - beta1) * updates
        mean_square = beta2 * state["mean_square"] + (1 - beta2) * (updates * updates)
        corrected = mean / (1 - _power(beta1, step + 1))
        root = np.sqrt(mean_square / (1 - _power(beta2, step + 1)))
        return corrected / (root + epsilon), {"mean": mean, "mean_square": mean_square}

    return Transformation(init, update)


def scale_by_adagrad(epsilon: float = 1e-8) -> Transformation:
    """Divide by the root of the sum of all squares so far (Duchi, Hazan and Singer 2011)."""

    def update(updates: Array, state: State, params: Array, step: int) -> tuple[Array, State]:
        squares = state["squares"] + updates * updates
        return updates / (np.sqrt(squares) + epsilon), {"squares": squares}

    return Transformation(lambda params: {"squares": np.zeros_like(params)}, update)


#: Optimizers that look at each element alone.
ELEMENTWISE = ("sgd", "momentum", "adagrad", "adam", "adamw")
#: Names that :func:`create` knows.
OPTIMIZERS = (*ELEMENTWISE, "lbfgs")


@dataclass(frozen=True)
class Options:
    """What an optimizer may be told beside its learning rate.

    Attributes
    ----------
    momentum : float
        For ``momentum`` only.
    weight_decay : float
        For ``adamw`` times the learning rate, subtracted from the parameters apart from the
        gradient (Loshchilov and Hutter 2019); for others a term of the gradient.
    clip_norm : float, optional
    skip_non_finite : bool
    loss_scale : float, optional
        See :func:`guarded`.
    pairs : int
    rounds : int
    tol : float
        See :func:`mapreduce.optim.lbfgs.lbfgs`.
    """

    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    skip_non_finite: bool = False
    loss_scale: float | None = None
    pairs: int = 10
    rounds: int = 1
    tol: float = 0.0


def create(
    name: str, schedule: Schedule, options: Options = Options()
) -> Transformation | GlobalTransformation:
    """An optimizer by name.

    Parameters
    ----------
    name : {"sgd", "momentum", "adagrad", "adam", "adamw", "lbfgs"}
    schedule : callable
        Learning rate of a step; ``lbfgs`` has none.
    options : Options

    Raises
    ------
    UsageError
        The name is unknown.
    """
    if name == "lbfgs":
        return lbfgs(options.pairs, options.rounds, options.tol)
    members = {
        "sgd": [],
        "momentum": [trace(options.momentum)],
        "adagrad": [scale_by_adagrad()],
        "adam": [scale_by_adam()],
        "adamw": [scale_by_adam()],
    }
    if name not in members:
        raise UsageError(f"unknown optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}")
    decay = [add_decayed_weights(options.weight_decay)] if options.weight_decay else []
    stages = [*members[name], *decay] if name == "adamw" else [*decay, *members[name]]
    inner = chain(*stages, scale_by_learning_rate(schedule))
    guards = (options.clip_norm, options.skip_non_finite, options.loss_scale)
    return inner if guards == (None, False, None) else guarded(inner, *guards)


def schedule(spec: str, learning_rate: float, rounds: int) -> Schedule:
    """A learning-rate schedule from its specification.

    Parameters
    ----------
    spec : str
        Factors joined by ``+``, which are multiplied::

            constant            1
            step[:EVERY[,F]]    F (default 0.1) to the number of times EVERY rounds have passed
                                (default a third of all)
            cosine              (1 + cos(pi round / rounds)) / 2 (Loshchilov and Hutter 2017)
            warmup[:N]          rises in N equal steps to 1 (default a twentieth of all rounds)

    learning_rate : float
        What the factors are multiplied with.
    rounds : int
        Rounds of the whole run.

    Returns
    -------
    callable
        From the round, counted from 0, to the learning rate.

    Raises
    ------
    UsageError
        The specification is malformed.
    """
    factors = [_factor(part.strip(), spec, rounds) for part in spec.split("+")]

    def rate(step: int) -> float:
        return learning_rate * math.prod(factor(step) for factor in factors)

    return rate


def _factor(part: str, spec: str, rounds: int) -> Schedule:
    name, separator, rest = part.partition(":")
    values = rest.split(",") if separator else []
    try:
        if name == "constant" and not values:
            return lambda step: 1.0
        if name == "cosine" and not values:
            return lambda step: 0.5 * (1 + _cosine_of_half_turns(step / rounds))
        if name == "step" and len(values) <= 2:
            every = _positive(values[0]) if values else max(1, rounds // 3)
            factor = _finite(values[1]) if len(values) > 1 else 0.1
            return lambda step: _power(factor, step // every)
        if name == "warmup" and len(values) <= 1:
            ramp = _positive(values[0]) if values else max(1, rounds // 20)
            return lambda step: min(1.0, (step + 1) / ramp)
    except ValueError:
        pass
    raise UsageError(
        f"schedule {spec!r}: {part!r} is none of constant, step[:EVERY[,FACTOR]], cosine, "
        f"warmup[:ROUNDS]"
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


# The platform's mathematical library may round its powers and cosines differently on another
# machine; additions and multiplications are the same everywhere.


def _power(base: float, exponent: int) -> float:
    """``base ** exponent`` by repeated squaring."""
    result = 1.0
    while exponent:
        if exponent % 2:
            result *= base
        base *= base
        exponent //= 2
    return result


def _cosine_of_half_turns(turns: float) -> float:
    """``cos(pi * turns)`` for ``turns`` in [0, 1], by its Taylor series up to degree 24."""
    if turns > 0.5:
        return -_cosine_of_half_turns(1 - turns)
    angle = math.pi * turns
    square = angle * angle
    result = 1.0
    for degree in range(24, 0, -2):
        result = 1 - result * square / (degree * (degree - 1))
    return result
