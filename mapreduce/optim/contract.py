"""The contract of an optimizer: pure functions of a block of the parameters and its state."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from mapreduce.reduction.tree import PAGE as PAGE

Array = npt.NDArray[Any]
Scalars = npt.NDArray[np.float64]
Arrays = dict[str, Array]
Schedule = Callable[[int], float]

#: Arrays of a block in addition to an optimizer's state; ``memory`` are the optimizer's scalars.
RESERVED = ("params", "memory", "history")


@dataclass(frozen=True)
class Options:
    """Settings of optimizers, except the learning rate; each uses some of them.

    ``clip_norm``, ``skip_non_finite`` and ``loss_scale`` are those of
    :class:`mapreduce.optim.guarded.Guarded`; ``rounds`` are those of the training; ``own`` are the
    options that the optimizer itself declares, if it does.
    """

    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    skip_non_finite: bool = False
    loss_scale: float | None = None
    rounds: int = 1
    own: Any = None


class Defaults(NamedTuple):
    """The defaults of a training: epochs, rows of a round, epochs between evaluations, and dtype.

    ``epochs`` is None for as many as make some updates. ``batch_size`` is 0 for all rows,
    ``eval_epochs`` for one evaluation at the end.
    """

    epochs: int | None = None
    batch_size: int = 128
    eval_epochs: int = 1
    dtype: str = "float32"


class Search(NamedTuple):
    """The progress of an optimizer that searches for a minimum and knows when it is found.

    Attributes
    ----------
    done : int
        Rounds after which the search ended; 0 if it has not.
    norm : float
        Norm of the gradient at the best point, which ``tol`` is compared with.
    has_failed : bool
        Whether no point was better than the first, although its gradient promised more than
        rounding.
    state : {"converged", "stalled", "unfinished"}
    """

    done: int
    norm: float
    has_failed: bool
    state: str


class Optimizer:
    """What a training asks its optimizer apart from a step, with answers that suit most.

    An optimizer may keep scalars from round to round, the same in every block.

    Attributes
    ----------
    title : str
        Its name in messages, if that is not the name it is chosen by.
    defaults : Defaults
    needs_all_rows : bool
        Whether every round has to take all rows.
    """

    title: ClassVar[str] = ""
    defaults: ClassVar[Defaults] = Defaults()
    needs_all_rows: ClassVar[bool] = False

    def first_scalars(self) -> Scalars:
        """The scalars before the first round, (m,)."""
        return np.empty(0)

    def search(self, scalars: Scalars) -> Search | None:
        """The progress of a search; None for an optimizer that does not know when to end."""
        return None

    def is_done(self, scalars: Scalars) -> bool:
        """Whether the training ends here, although rounds are left."""
        found = self.search(scalars)
        return found is not None and found.done > 0

    def slopes(self, state: Arrays) -> Array:
        """The gradient at the best point of a search that has failed, (size,)."""
        raise NotImplementedError(f"{type(self).__name__} does not search a minimum")

    def skipped(self, scalars: Scalars) -> int:
        """The number of rounds that were skipped because their gradient was not finite."""
        return 0

    def loss_scale(self, scalars: Scalars) -> float:
        """The factor of the next round's loss, by which the gradient is divided."""
        return 1.0

    def tolerates_non_finite(self, completed: int, is_loss_finite: bool) -> bool:
        """Whether the gradient of a round, and its loss, may be NaN or infinite."""
        return False

    def cures(self, dtype: str) -> list[str]:
        """What to try if the training diverges."""
        return ["try a smaller --learning-rate or --schedule warmup"]


@dataclass(frozen=True)
class Transformation(Optimizer):
    """An elementwise step on the way from a gradient to what is added to the parameters.

    Neither function changes its arguments.

    Attributes
    ----------
    init : callable
        ``init(params) -> state``: arrays by name, each of the shape of ``params``.
    update : callable
        ``update(updates, state, params, step) -> (updates, state)``; ``step`` is the round, counted
        from 0.
    """

    init: Callable[[Array], Arrays]
    update: Callable[[Array, Arrays, Array, int], tuple[Array, Arrays]]


class Shared(NamedTuple):
    """What every block of a round knows about all of them.

    Attributes
    ----------
    sums : array (k,), float64
        Those of :meth:`GlobalTransformation.sums`, over all pages.
    value : float
        The objective before the update: the rows' mean loss, and the penalties.
    scalars : array (m,), float64
        The optimizer's, after the previous round.
    """

    sums: Scalars
    value: float
    scalars: Scalars


class GlobalTransformation(Optimizer, ABC):
    """An optimizer that needs scalars of all blocks, for which a round has another reduce step.

    Such scalars are sums over all parameters, for example a norm. :meth:`sums` returns the sums
    over one page of a block, that is, over :data:`PAGE` parameters. :meth:`update` gets the sums of
    all pages, and returns new parameters. The optimizer itself applies the learning rate, its
    schedule, weight decay and clipping. For the command line, a module assigns an
    :class:`mapreduce.optim.members.OptimizerFactory` to a name.

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
    def init(self, params: Array) -> Arrays:
        """As for :class:`Transformation`."""

    @abstractmethod
    def sums(self, gradient: Array, state: Arrays, params: Array, scalars: Scalars) -> Scalars:
        """The sums over one page, (k,), which are added up over the pages of all blocks."""

    @abstractmethod
    def update(
        self, gradient: Array, state: Arrays, params: Array, step: int, shared: Shared
    ) -> tuple[Array, Arrays, Scalars]:
        """New parameters, state and scalars.

        The scalars may depend only on ``shared`` and ``step``, so that they are the same in every
        block. A round that changes nothing returns the very ``params``.
        """

    def precondition(self, state: Arrays, curvature: Array) -> Arrays:
        """The state with an estimate of the second derivatives at the initial parameters."""
        return state
