"""The optimizers of the toolkit: chains of transformations, and the settings that they take."""

from collections.abc import Callable
from dataclasses import dataclass

from mapreduce.optim.contract import GlobalTransformation, Options, Schedule, Transformation
from mapreduce.optim.guarded import Guarded
from mapreduce.optim.lbfgs import LBFGS
from mapreduce.optim.transforms import (
    add_decayed_weights,
    chain,
    scale_by_adagrad,
    scale_by_adam,
    scale_by_learning_rate,
    trace,
)


@dataclass(frozen=True)
class OptimizerFactory:
    """A member of :data:`mapreduce.optim.OPTIMIZERS`.

    Attributes
    ----------
    create : callable
        ``create(schedule, options)`` makes the optimizer. The schedule gives the learning rate of a
        step; the options are :class:`mapreduce.optim.Options`.
    takes : tuple of str
        The settings that have an effect on this optimizer and not on all.
    """

    create: Callable[[Schedule, Options], Transformation | GlobalTransformation]
    takes: tuple[str, ...]


def elementwise(
    steps: Callable[[Options], list[Transformation]], *takes: str, decays_apart: bool = False
) -> OptimizerFactory:
    """An optimizer that takes each element by itself: some steps, and then the learning rate.

    Parameters
    ----------
    steps : callable
        ``steps(options)`` gives the transformations of a gradient.
    *takes : str
        Settings in addition to those that all such optimizers take.
    decays_apart : bool
        Whether weights decay after the steps, and not as a term of the gradient (I. Loshchilov and
        F. Hutter 2019).
    """

    def create(schedule: Schedule, options: Options) -> Transformation | GlobalTransformation:
        decay = [add_decayed_weights(options.weight_decay)] if options.weight_decay else []
        first, second = (steps(options), decay) if decays_apart else (decay, steps(options))
        inner = chain(*first, *second, scale_by_learning_rate(schedule))
        guards = (options.clip_norm, options.skip_non_finite, options.loss_scale)
        return inner if guards == (None, False, None) else Guarded(inner, *guards)

    common = ("learning_rate", "schedule", "weight_decay", "clip_norm", "non_finite", "precision")
    return OptimizerFactory(create, (*common, *takes))


sgd = elementwise(lambda options: [], "l1")
momentum = elementwise(lambda options: [trace(options.momentum)], "momentum", "l1")
adagrad = elementwise(lambda options: [scale_by_adagrad()])
adam = elementwise(lambda options: [scale_by_adam()])
adamw = elementwise(lambda options: [scale_by_adam()], decays_apart=True)
search = OptimizerFactory(
    lambda schedule, options: LBFGS(
        options.pairs, options.rounds, options.tol, options.relative_tol
    ),
    ("history_size", "tol"),
)
