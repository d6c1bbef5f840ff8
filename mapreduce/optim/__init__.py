"""Optimizers as pairs of pure functions on a block of the flat parameter vector.

A :class:`Transformation` has ``init(params)``, which gives its state, and ``update(updates, state,
params, step)``, which gives new updates and a new state; neither changes its arguments. They are
elementwise, so that a reducer can own a block and its state and nothing else. :func:`chain` puts
them together, as optax does (DeepMind, 2020). An optimizer that needs a scalar over all blocks is a
:class:`GlobalTransformation`.

The tables of names are here, so that listing them loads nothing that is slow.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mapreduce.errors import MemberError, UsageError
from mapreduce.support.registry import Registry

if TYPE_CHECKING:
    from mapreduce.optim.contract import GlobalTransformation as GlobalTransformation
    from mapreduce.optim.contract import Options as Options
    from mapreduce.optim.contract import Schedule as Schedule
    from mapreduce.optim.contract import Transformation as Transformation
    from mapreduce.optim.members import OptimizerFactory

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
    {
        "adagrad": "adagrad[:epsilon=E]",
        "adam": "adam[:beta1=B,beta2=B,epsilon=E]",
        "adamw": "adamw[:beta1=B,beta2=B,epsilon=E]",
        "lbfgs": "lbfgs[:history_size=N,tol=T]",
    },
    base="mapreduce.optim.members:OptimizerFactory",
    declarations={"lbfgs": "mapreduce.optim.options:LBFGSOptions"},
)

SCHEDULES = Registry(
    "schedule",
    "gradreduce.schedules",
    {
        name: f"mapreduce.optim.schedules:{name}"
        for name in ("constant", "step", "cosine", "warmup")
    },
    {"step": "step[:EVERY[,FACTOR]]", "warmup": "warmup[:ROUNDS]"},
    joint="+",
)

#: Modules of the package's other names; they need NumPy, and are loaded when they are used.
_PARTS = ("contract", "transforms", "members", "guarded", "lbfgs")


def __getattr__(name: str) -> Any:
    for part in () if name.startswith("_") else _PARTS:
        module = import_module(f"mapreduce.optim.{part}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(spec: str) -> "OptimizerFactory":
    """The factory of an optimizer; errors are those of :meth:`Registry.configured`."""
    member: OptimizerFactory = OPTIMIZERS.load(spec)
    return member


def create(
    spec: str,
    schedule: "Schedule",
    options: "Options",
    planned: Mapping[str, Any] = MappingProxyType({}),
) -> "Transformation | GlobalTransformation":
    """The optimizer of a specification such as ``adam:beta1=0.8``.

    ``options``: Those of all optimizers; the specification has its own. ``planned``: The values of
    a plan, among which are the optimizer's own that do not follow its name.

    Raises UsageError (an option is unknown, or out of its bounds), MemberError (the factory makes
    something else), and as :func:`find`.
    """
    from mapreduce.optim.contract import GlobalTransformation, Transformation

    factory, own = OPTIMIZERS.configured(spec)
    if factory.planned is not None:
        names = {one.name for one in fields(factory.planned)} & planned.keys()
        own = factory.planned(**{name: planned[name] for name in names})
    found = factory.create(schedule, replace(options, own=own))
    if not isinstance(found, Transformation | GlobalTransformation):
        raise MemberError(
            f"--optimizer {spec}: expected that create returns a Transformation or a "
            f"GlobalTransformation, found {found!r:.60}"
        )
    return found


def about(spec: str) -> "Transformation | GlobalTransformation":
    """An optimizer that is asked what it needs, and takes no step."""
    from mapreduce.optim.contract import Options

    return create(spec, lambda step: 0.0, Options())


def schedule(spec: str, learning_rate: float, rounds: int) -> "Schedule":
    """A learning-rate schedule: from the round, counted from 0, to the learning rate.

    Parameters
    ----------
    spec : str
        Members of :data:`SCHEDULES` joined by ``+``, which are multiplied; see
        :mod:`mapreduce.optim.schedules`.
    learning_rate : float
        The factor of all of them.
    rounds : int
        Rounds of the whole run.

    Raises
    ------
    UsageError
        The specification is malformed.

    Examples
    --------
    >>> rate = schedule("step:10,0.5", learning_rate=0.1, rounds=30)
    >>> [rate(round) for round in (0, 9, 10, 20)]
    [0.1, 0.1, 0.05, 0.025]
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
        raise UsageError(f"schedule {spec!r}: {part!r} is not one of {SCHEDULES.known}") from error
    return factor
