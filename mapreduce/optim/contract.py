"""What an optimizer is: pure functions of a block of the flat parameter vector and its state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Scalars = npt.NDArray[np.float64]
State = dict[str, Array]
Schedule = Callable[[int], float]

#: Elements of the flat parameter vector that are never divided between two blocks, and over which
#: a scalar is first added up.
PAGE = 16_384

#: What a block holds beside an optimizer's state.
RESERVED = ("params", "memory", "history")


@dataclass(frozen=True)
class Transformation:
    """A step on the way from a gradient to what is added to the parameters; elementwise.

    Attributes
    ----------
    init : callable
        ``init(params) -> state``; arrays by name, each of the shape of ``params``.
    update : callable
        ``update(updates, state, params, step) -> (updates, state)``; ``step`` counts the rounds
        from 0.
    """

    init: Callable[[Array], State]
    update: Callable[[Array, State, Array, int], tuple[Array, State]]


class Shared(NamedTuple):
    """What every block of a round knows of all of them.

    Attributes
    ----------
    sums : array (k,), float64
        Of :attr:`GlobalTransformation.sums`, over all pages.
    value : float
        The objective before the update: the rows' mean loss, and the penalties.
    memory : array (m,), float64
        What the optimizer remembered in the round before.
    """

    sums: Scalars
    value: float
    memory: Scalars


@dataclass(frozen=True)
class GlobalTransformation:
    """An optimizer that needs scalars of all blocks: the plan adds a reduce step for them.

    Attributes
    ----------
    init : callable
        As for :class:`Transformation`.
    update : callable
        ``update(gradient, state, params, step, shared) -> (params, state, memory)``; ``memory`` may
        depend on ``shared`` and ``step`` alone, so that it is the same in every block.
    sums : callable
        ``sums(gradient, state, params, memory) -> array (k,)``, of one page of each.
    width : int
        ``k``.
    memory : callable
        What is remembered before the first round, (m,) float64.
    precondition : callable, optional
        ``precondition(state, curvature) -> state``: takes in an estimate of the objective's second
        derivatives at the initial parameters, (size,), before the first round.
    """

    init: Callable[[Array], State]
    update: Callable[[Array, State, Array, int, Shared], tuple[Array, State, Scalars]]
    sums: Callable[[Array, State, Array, Scalars], Scalars]
    width: int
    memory: Callable[[], Scalars]
    precondition: Callable[[State, Array], State] | None = None
