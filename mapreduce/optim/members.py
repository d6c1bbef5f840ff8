"""The optimizers of the toolkit: chains of transformations, and the settings that they take."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mapreduce.optim.contract import GlobalTransformation, Options, Schedule, Transformation
from mapreduce.optim.guarded import Guarded
from mapreduce.optim.lbfgs import LBFGS
from mapreduce.optim.options import LBFGSOptions, PlannedLBFGS
from mapreduce.optim.transforms import (
    add_decayed_weights,
    chain,
    scale_by_adagrad,
    scale_by_adam,
    scale_by_learning_rate,
    trace,
)
from mapreduce.support.options import POSITIVE, between, names, option


@dataclass(frozen=True)
class OptimizerFactory:
    """A member of :data:`mapreduce.optim.OPTIMIZERS`.

    Attributes
    ----------
    create : callable
        ``create(schedule, options)`` makes the optimizer. The schedule gives the learning rate of a
        step; the options are :class:`mapreduce.optim.Options`.
    takes : tuple of str
        Settings of the toolkit that have an effect on this optimizer, but not on all optimizers,
        such as ``("momentum",)``. All others are refused.
    Options : type, optional
        A frozen dataclass of :func:`mapreduce.support.options.option`: options of its own, which
        ``create`` finds as ``options.own``.
    planned : type, optional
        The same for options that a plan has by name, so that they do not follow the optimizer's.
    """

    create: Callable[[Schedule, Options], Transformation | GlobalTransformation]
    takes: tuple[str, ...]
    Options: type[Any] | None = None
    planned: type[Any] | None = None


def elementwise(
    steps: Callable[[Options], list[Transformation]],
    *takes: str,
    decays_apart: bool = False,
    options: type[Any] | None = None,
) -> OptimizerFactory:
    """Make an optimizer that works element by element: some steps, and then the learning rate.

    The optimizer also has weight decay, clipping and mixed precision.

    Parameters
    ----------
    steps : callable
        ``steps(options)`` returns the transformations of a gradient; ``options.own`` has the values
        of the optimizer's own options.
    *takes : str
        Settings in addition to those that all such optimizers take, such as ``"momentum"``.
    decays_apart : bool
        Whether weights decay after the steps, as in AdamW, and not as a term of the gradient (I.
        Loshchilov and F. Hutter 2019).
    options : type, optional
        Dataclass of the optimizer's own options; see :class:`OptimizerFactory`.
    """

    def create(schedule: Schedule, given: Options) -> Transformation | GlobalTransformation:
        if given.own is None and options is not None:
            given = replace(given, own=options())
        decay = [add_decayed_weights(given.weight_decay)] if given.weight_decay else []
        first, second = (steps(given), decay) if decays_apart else (decay, steps(given))
        inner = chain(*first, *second, scale_by_learning_rate(schedule))
        guards = (given.clip_norm, given.skip_non_finite, given.loss_scale)
        return inner if guards == (None, False, None) else Guarded(inner, *guards)

    common = ("learning_rate", "schedule", "weight_decay", "clip_norm", "non_finite", "precision")
    return OptimizerFactory(create, (*common, *takes), options)


@dataclass(frozen=True)
class AdagradOptions:
    """See J. Duchi, E. Hazan and Y. Singer, "Adaptive subgradient methods", 2011."""

    epsilon: float = option(1e-8, "added to the root of the sum of squares", POSITIVE)


@dataclass(frozen=True)
class AdamOptions:
    """See D. Kingma and J. Ba, "Adam: a method for stochastic optimization", 2015."""

    beta1: float = option(0.9, "share of the mean that a step keeps", between(0, 1))
    beta2: float = option(0.999, "share of the mean square that a step keeps", between(0, 1))
    epsilon: float = option(1e-8, "added to the root of the mean square", POSITIVE)


def _adam(options: Options) -> list[Transformation]:
    return [scale_by_adam(**vars(options.own))]


sgd = elementwise(lambda options: [], "l1")
momentum = elementwise(lambda options: [trace(options.momentum)], "momentum", "l1")
adagrad = elementwise(
    lambda options: [scale_by_adagrad(**vars(options.own))], options=AdagradOptions
)
adam = elementwise(_adam, options=AdamOptions)
adamw = elementwise(_adam, decays_apart=True, options=AdamOptions)


def _search(schedule: Schedule, options: Options) -> LBFGS:
    own = options.own or PlannedLBFGS()
    return LBFGS(own.history_size, options.rounds, own.tol, own.relative_tol)


search = OptimizerFactory(_search, names(LBFGSOptions), planned=PlannedLBFGS)
