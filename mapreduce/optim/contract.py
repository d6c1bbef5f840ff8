"""What an optimizer is: pure functions of a block of the flat parameter vector and its state."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Scalars = npt.NDArray[np.float64]
State = dict[str, Array]
Schedule = Callable[[int], float]

#: Elements of the flat parameter vector that are never divided between two blocks, and over which
#: a scalar is first added up.
PAGE = 16_384

#: What a block holds beside an optimizer's state; ``memory`` are the optimizer's scalars.
RESERVED = ("params", "memory", "history")


class Defaults(NamedTuple):
    """What a training takes where its user does not choose.

    Attributes
    ----------
    epochs : int
    batch_size : int
        Rows of a round; 0 for all of them.
    eval_epochs : int
        Epochs between evaluations; 0 for one evaluation, at the end.
    """

    epochs: int = 1
    batch_size: int = 128
    eval_epochs: int = 1


class Search(NamedTuple):
    """How far an optimizer is that searches a minimum and knows when it has found it.

    Attributes
    ----------
    done : int
        Rounds after which the search ended; 0 if it has not.
    norm : float
        Euclidean norm of the gradient at the best point.
    has_failed : bool
        Whether no point was better than the first, though by more than rounding one should be.
    state : {"converged", "stalled", "unfinished"}
    """

    done: int
    norm: float
    has_failed: bool
    state: str


class Optimizer:
    """What a training asks of its optimizer apart from a step; these answers suit most of them.

    An optimizer may keep scalars from round to round, the same in every block.

    Attributes
    ----------
    title : str
        Its name in messages; empty for the name that it is chosen by.
    scalar_names : tuple of str
        Of the scalars, in order. More that have no names may follow.
    defaults : Defaults
    needs_all_rows : bool
        Whether every round has to take all rows.
    """

    title: ClassVar[str] = ""
    scalar_names: tuple[str, ...] = ()
    defaults: ClassVar[Defaults] = Defaults()
    needs_all_rows: ClassVar[bool] = False

    def first_scalars(self) -> Scalars:
        """The scalars before the first round, (m,)."""
        return np.empty(0)

    def named(self, scalars: Scalars) -> dict[str, float]:
        """The scalars that have names."""
        return dict(zip(self.scalar_names, scalars.tolist(), strict=False))

    def search(self, scalars: Scalars) -> Search | None:
        """How far the search is; None if the optimizer does not know what it is looking for."""
        return None

    def is_done(self, scalars: Scalars) -> bool:
        """Whether the training ends here, although rounds are left."""
        found = self.search(scalars)
        return found is not None and found.done > 0

    def slopes(self, state: State) -> Array:
        """Of a search that has failed, the gradient at its best point, (size,)."""
        raise NotImplementedError(f"{type(self).__name__} does not search a minimum")

    def skipped(self, scalars: Scalars) -> int:
        """The number of rounds that were skipped, since their gradient was not finite."""
        return 0

    def loss_scale(self, scalars: Scalars) -> float:
        """What the loss of the next round is multiplied with; the gradient is divided by it."""
        return 1.0

    def tolerates_non_finite(self, completed: int, is_loss_finite: bool) -> bool:
        """Whether the gradient of a round, or its loss too, may have a NaN or an infinity."""
        return False

    def cures(self, dtype: str) -> list[str]:
        """What to try when numbers grow beyond all bounds."""
        return ["try a smaller --learning-rate or --schedule warmup"]


@dataclass(frozen=True)
class Transformation(Optimizer):
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
        Of :meth:`GlobalTransformation.sums`, over all pages.
    value : float
        The objective before the update: the rows' mean loss, and the penalties.
    scalars : array (m,), float64
        The optimizer's, after the round before.
    """

    sums: Scalars
    value: float
    scalars: Scalars


class GlobalTransformation(Optimizer, ABC):
    """An optimizer that needs scalars of all blocks: the plan adds a reduce step for them.

    Attributes
    ----------
    width : int
        The number of sums, ``k``.
    takes_curvature : bool
        Whether :meth:`precondition` is called before the first round, if the model has an estimate.
    """

    width: int
    takes_curvature: ClassVar[bool] = False

    @abstractmethod
    def init(self, params: Array) -> State:
        """As for :class:`Transformation`."""

    @abstractmethod
    def sums(self, gradient: Array, state: State, params: Array, scalars: Scalars) -> Scalars:
        """What is added up over the pages of all blocks: (k,), of one page."""

    @abstractmethod
    def update(
        self, gradient: Array, state: State, params: Array, step: int, shared: Shared
    ) -> tuple[Array, State, Scalars]:
        """New parameters, state and scalars.

        The scalars may depend on ``shared`` and ``step`` alone, so that they are the same in every
        block. The very ``params`` come back from a round that changes nothing.
        """

    def precondition(self, state: State, curvature: Array) -> State:
        """Take in an estimate of the objective's second derivatives at the initial parameters."""
        return state
