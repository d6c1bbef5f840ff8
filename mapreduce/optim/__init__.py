"""Optimizers as pairs of pure functions on a block of the flat parameter vector.

A :class:`Transformation` has ``init(params)``, which gives its state, and ``update(updates, state,
params, step)``, which gives new updates and a new state; neither changes its arguments. They are
elementwise, so that a reducer can own a block and its state and nothing else. :func:`chain` puts
them together, as optax does (DeepMind, 2020); :func:`create` names the usual chains. What needs a
scalar over all blocks is a :class:`GlobalTransformation`.

The tables of names are here, so that listing them loads nothing that is slow.
"""

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mapreduce.errors import UsageError
from mapreduce.optim.options import Options as Options
from mapreduce.support.registry import Registry

if TYPE_CHECKING:
    from mapreduce.optim.contract import GlobalTransformation as GlobalTransformation
    from mapreduce.optim.contract import Schedule as Schedule
    from mapreduce.optim.contract import Transformation as Transformation
    from mapreduce.optim.guarded import Guarded as Guarded
    from mapreduce.optim.lbfgs import LBFGS as LBFGS
    from mapreduce.optim.members import Optimizer as Optimizer

OPTIMIZERS = Registry(
    "optimizer",
    "gradreduce.optimizers",
    {
        **{
            name: f"mapreduce.optim.members:{name}"
            for name in ("sgd", "momentum", "adagrad", "adam", "adamw")
        },
        "lbfgs": "mapreduce.optim.members:search",
    },
    base="mapreduce.optim.members:Optimizer",
)

SCHEDULES = Registry(
    "schedule",
    "gradreduce.schedules",
    {
        name: f"mapreduce.optim.schedules:{name}"
        for name in ("constant", "step", "cosine", "warmup")
    },
    {"step": "step[:EVERY[,FACTOR]]", "warmup": "warmup[:ROUNDS]"},
)

#: Where the other names of this package are: what needs NumPy is loaded when it is used.
_PARTS = ("contract", "transforms", "members", "guarded", "lbfgs")


def __getattr__(name: str) -> Any:
    for part in () if name.startswith("_") else _PARTS:
        module = import_module(f"mapreduce.optim.{part}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> "Optimizer":
    """The member of a name.

    Raises
    ------
    UsageError, MemberError
        The name is unknown, or what it names cannot be used.
    """
    member: Optimizer = OPTIMIZERS.load(name)
    return member


def create(
    name: str, schedule: "Schedule", options: Options | None = None
) -> "Transformation | GlobalTransformation":
    """An optimizer by name.

    Parameters
    ----------
    name : str
        One of :data:`OPTIMIZERS`.
    schedule : callable
        Learning rate of a step; ``lbfgs`` has none.
    options : Options

    Raises
    ------
    UsageError, MemberError
        As :func:`find`.
    """
    return find(name).create(schedule, options or Options())


def schedule(spec: str, learning_rate: float, rounds: int) -> "Schedule":
    """A learning-rate schedule from its specification.

    Parameters
    ----------
    spec : str
        Members of :data:`SCHEDULES` joined by ``+``, which are multiplied; see
        :mod:`mapreduce.optim.schedules`.
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


def _factor(part: str, spec: str, rounds: int) -> "Schedule":
    try:
        name, arguments = SCHEDULES.split(part)
        values = [] if arguments is None else arguments.split(",")
        factor: Schedule = SCHEDULES.find(name)(rounds, *values)
    except (ValueError, TypeError, UsageError) as error:
        raise UsageError(f"schedule {spec!r}: {part!r} is none of {SCHEDULES.known}") from error
    return factor
