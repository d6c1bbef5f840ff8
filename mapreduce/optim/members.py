"""The optimizers of the toolkit: each is a chain of transformations, and says what it takes."""

from collections.abc import Callable
from dataclasses import dataclass

from mapreduce.optim.contract import GlobalTransformation, Schedule, Transformation
from mapreduce.optim.guarded import Guarded
from mapreduce.optim.lbfgs import LBFGS
from mapreduce.optim.options import Options
from mapreduce.optim.transforms import (
    add_decayed_weights,
    chain,
    scale_by_adagrad,
    scale_by_adam,
    scale_by_learning_rate,
    trace,
)


@dataclass(frozen=True)
class Optimizer:
    """What ``--optimizer`` names.

    Attributes
    ----------
    create : callable
        ``create(schedule, options)`` makes the optimizer, of the learning rate of a step and
        :class:`mapreduce.optim.Options`.
    takes : tuple of str
        The settings of some optimizers that have an effect on this one.
    """

    create: Callable[[Schedule, Options], Transformation | GlobalTransformation]
    takes: tuple[str, ...]


def elementwise(
    steps: Callable[[Options], list[Transformation]], *takes: str, decays_apart: bool = False
) -> Optimizer:
    """An optimizer that looks at each element alone: some steps, and then the learning rate.

    Parameters
    ----------
    steps : callable
        ``steps(options)``: what is done with a gradient.
    *takes : str
        Settings beside those that all such optimizers take.
    decays_apart : bool
        Whether weights decay apart from the gradient, after the steps.
    """

    def create(schedule: Schedule, options: Options) -> Transformation | GlobalTransformation:
        decay = [add_decayed_weights(options.weight_decay)] if options.weight_decay else []
        first, second = (steps(options), decay) if decays_apart else (decay, steps(options))
        inner = chain(*first, *second, scale_by_learning_rate(schedule))
        guards = (options.clip_norm, options.skip_non_finite, options.loss_scale)
        return inner if guards == (None, False, None) else Guarded(inner, *guards)

    common = ("learning_rate", "schedule", "weight_decay", "clip_norm", "non_finite", "precision")
    return Optimizer(create, (*common, *takes))


sgd = elementwise(lambda options: [], "l1")
momentum = elementwise(lambda options: [trace(options.momentum)], "momentum", "l1")
adagrad = elementwise(lambda options: [scale_by_adagrad()])
adam = elementwise(lambda options: [scale_by_adam()])
adamw = elementwise(lambda options: [scale_by_adam()], decays_apart=True)
search = Optimizer(
    lambda schedule, options: LBFGS(options.pairs, options.rounds, options.tol),
    ("history_size", "tol"),
)
