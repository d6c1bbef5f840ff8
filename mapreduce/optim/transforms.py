"""Elementwise steps from a gradient to an update of the parameters, and their composition."""

from collections.abc import Callable

import numpy as np

from mapreduce.errors import MemberError
from mapreduce.optim.contract import RESERVED, Array, Arrays, Schedule, Transformation
from mapreduce.optim.schedules import power


def chain(*transformations: Transformation) -> Transformation:
    """Apply transformations one after another.

    Raises
    ------
    ValueError
        Two of them have states of the same name, or a name is in ``RESERVED``.
    MemberError
        One is no transformation.
    """
    for one in transformations:
        if not isinstance(one, Transformation):
            raise MemberError(f"--optimizer: expected each a Transformation, found {one!r:.60}")
    names = [*RESERVED, *(name for one in transformations for name in one.init(np.empty(0)))]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"chain: {', '.join(twice)}: a state of this name exists already")

    def init(params: Array) -> Arrays:
        state: Arrays = {}
        for transformation in transformations:
            state.update(transformation.init(params))
        return state

    def update(updates: Array, state: Arrays, params: Array, step: int) -> tuple[Array, Arrays]:
        new_state: Arrays = {}
        for transformation in transformations:
            found = transformation.update(updates, state, params, step)
            if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
                raise MemberError(
                    "--optimizer: expected that update returns a tuple of the updates, an array, "
                    f"and the state, a dictionary; found {found!r:.60}"
                )
            updates, changed = found
            if getattr(updates, "shape", None) != params.shape:
                shape = getattr(updates, "shape", type(updates).__name__)
                raise MemberError(
                    f"--optimizer: expected that update returns updates of {params.shape}, as the "
                    f"parameters are; found {shape}"
                )
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

    def update(updates: Array, state: Arrays, params: Array, step: int) -> tuple[Array, Arrays]:
        velocity = decay * state["velocity"] + updates
        return velocity, {"velocity": velocity}

    return Transformation(lambda params: {"velocity": np.zeros_like(params)}, update)


def scale_by_adam(
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
) -> Transformation:
    """Divide a running mean by the root of a running mean square (Kingma and Ba 2015)."""

    def init(params: Array) -> Arrays:
        return {"mean": np.zeros_like(params), "mean_square": np.zeros_like(params)}

    def update(updates: Array, state: Arrays, params: Array, step: int) -> tuple[Array, Arrays]:
        mean = beta1 * state["mean"] + (1 - beta1) * updates
        mean_square = beta2 * state["mean_square"] + (1 - beta2) * (updates * updates)
        corrected = mean / (1 - power(beta1, step + 1))
        root = np.sqrt(mean_square / (1 - power(beta2, step + 1)))
        return corrected / (root + epsilon), {"mean": mean, "mean_square": mean_square}

    return Transformation(init, update)


def scale_by_adagrad(epsilon: float = 1e-8) -> Transformation:
    """Divide by the root of the sum of all squares so far (Duchi, Hazan and Singer 2011)."""

    def update(updates: Array, state: Arrays, params: Array, step: int) -> tuple[Array, Arrays]:
        squares = state["squares"] + updates * updates
        return updates / (np.sqrt(squares) + epsilon), {"squares": squares}

    return Transformation(lambda params: {"squares": np.zeros_like(params)}, update)
