"""The reducer's part of a round: what the owner of a block of the parameters does with it.

Pure functions of the block after a round and of sums over the slices or over all pages. How the
sums arrive, and what becomes of the block afterwards, is the business of others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels import dispatch
from mapreduce.collect.aggregator import MeanAggregator, VectorSum
from mapreduce.collect.tree import Node, ShuffledFold, TreeFold
from mapreduce.errors import NonFiniteError
from mapreduce.optim import loss_scale
from mapreduce.optim.contract import PAGE, GlobalTransformation, Shared
from mapreduce.rundir import Array, Block, block_bounds
from mapreduce.strategies.session import Session
from mapreduce.wire import Message

_first_non_finite = dispatch.get("first_non_finite")


@dataclass(frozen=True)
class Mean:
    """What a block knows of a round: its part of the mean gradient, and sums over the rows."""

    count: int
    weight: float
    loss: float
    gradient: Array
    curvature: Array | None

    def to_message(self, completed: int) -> Message:
        sums = np.array([self.weight, self.loss])
        arrays = {"rows": sums, "gradient": self.gradient}
        if self.curvature is not None:
            arrays["curvature"] = self.curvature
        return Message({"round": completed, "count": self.count}, arrays)

    @classmethod
    def from_message(cls, message: Message) -> "Mean":
        weight, loss = message.arrays["rows"].tolist()
        arrays = message.arrays
        return cls(message.meta["count"], weight, loss, arrays["gradient"], arrays.get("curvature"))


class Blocks:
    """The blocks of the parameters, as their owners see them.

    Parameters
    ----------
    session : Session
    blocks : int
        Blocks wanted of the parameters.

    Attributes
    ----------
    bounds : list of tuple of int
        See :func:`mapreduce.rundir.block_bounds`.
    aggregator : MeanAggregator
    needs_scalars : bool
        Whether a step needs scalars of all blocks.
    """

    def __init__(self, session: Session, blocks: int) -> None:
        self._session = session
        self.bounds = block_bounds(session.model.size, blocks)
        self.aggregator = MeanAggregator()
        self._known: dict[int, tuple[int, Block]] = {}
        self._masks: dict[int, Array] = {}
        optimizer = session.optimizer
        self._global = optimizer if isinstance(optimizer, GlobalTransformation) else None
        self.needs_scalars = self._global is not None

    def cut(self, partial: VectorSum) -> Iterator[VectorSum]:
        """The part of a sum that each block owns, in order; no copies."""
        for start, stop in self.bounds:
            curvature = partial.curvature
            yield VectorSum(
                partial.count,
                partial.weight,
                partial.loss,
                partial.vector[start:stop],
                None if curvature is None else curvature[start:stop],
            )

    def fold(self, completed: int, number: int) -> ShuffledFold[VectorSum]:
        """Adds up a block's part of the gradients of a round."""
        leaves = self._session.plan.leaves(completed)
        what = f"round {completed}, block {number}"
        return ShuffledFold(leaves, self.aggregator.combine, what)

    def mean(self, completed: int, number: int, total: VectorSum) -> Mean:
        """The mean gradient of a block, with that of the L2 penalty."""
        gradient = self.aggregator.finalize(total)
        l2 = self._session.plan.l2
        if self._session.plan.is_mixed:
            # By a power of two.
            scale = loss_scale(self.block(completed, number).arrays["memory"])
            gradient = gradient / gradient.dtype.type(scale)
        if l2:
            params = self.block(completed, number).arrays["params"]
            gradient = gradient + gradient.dtype.type(l2) * self._penalised(number) * params
        curvature = total.curvature
        if curvature is not None:
            scale = curvature.dtype.type(total.weight or 1.0)
            curvature = curvature / scale + curvature.dtype.type(l2) * self._penalised(number)
        return Mean(total.count, total.weight, total.loss, gradient, curvature)

    def _penalised(self, number: int) -> Array:
        """Of a block, which elements a penalty applies to: the same in every round."""
        if number not in self._masks:
            self._masks[number] = self._session.model.penalised(*self.bounds[number])
        return self._masks[number]

    def fold_scalars(self, completed: int) -> ShuffledFold[Array]:
        """Adds up scalars along a tree over all pages of the parameters."""
        pages = -(-self._session.model.size // PAGE)
        return ShuffledFold(pages, np.add, f"round {completed}, the scalars")

    def scalars(self, completed: int, number: int, mean: Mean) -> TreeFold[Array]:
        """The scalars of a block's pages: leaves of the tree of :meth:`fold_scalars`.

        The first is the squared norm of what the L2 penalty applies to.
        """
        assert self._global is not None
        arrays = dict(self.block(completed, number).arrays)
        params, memory = arrays.pop("params"), arrays.pop("memory")
        arrays.pop("history", None)
        arrays = self._preconditioned(arrays, mean)
        gradient = mean.gradient
        mask = self._penalised(number)
        first = self.bounds[number][0] // PAGE
        fold: TreeFold[Array] = self.fold_scalars(completed)
        for page, start in enumerate(range(0, len(params), PAGE), first):
            part = slice(start, start + PAGE)
            state = {name: array[part] for name, array in arrays.items()}
            kept = params[part].astype(np.float64) * mask[part]
            with np.errstate(all="ignore"):
                sums = self._global.sums(gradient[part], state, params[part], memory)
                squares = kept @ kept
            fold.add(Node(0, page), np.append(squares, sums))
        return fold

    def _preconditioned(self, state: dict[str, Array], mean: Mean) -> dict[str, Array]:
        if mean.curvature is None:
            return state
        assert self._global is not None and self._global.precondition is not None
        return self._global.precondition(state, mean.curvature)

    def step(self, completed: int, number: int, mean: Mean, sums: Array | None) -> Block:
        """The block after the optimizer's step.

        Parameters
        ----------
        completed : int
            Rounds before.
        number : int
        mean : Mean
        sums : array or None
            The scalars of all blocks, where the optimizer needs them.

        Raises
        ------
        NonFiniteError
            The step makes a parameter NaN or infinite.
        """
        block = self.block(completed, number)
        arrays = dict(block.arrays)
        params, memory = arrays.pop("params"), arrays.pop("memory")
        history = arrays.pop("history", None)
        plan, optimizer = self._session.plan, self._session.optimizer
        with np.errstate(all="ignore"):
            if isinstance(optimizer, GlobalTransformation):
                assert sums is not None
                value = mean.loss / (mean.weight or 1.0) + plan.l2 / 2 * float(sums[0])
                shared = Shared(sums[1:], value, memory)
                arrays = self._preconditioned(arrays, mean)
                params, state, memory = optimizer.update(
                    mean.gradient, arrays, params, completed, shared
                )
            else:
                updates, state = optimizer.update(mean.gradient, arrays, params, completed)
                params = params + updates
            # Of a round that is skipped nothing remains.
            if plan.l1 and params is not block.arrays["params"]:
                rate = self._session.schedule(completed)
                params = _soft_threshold(params, rate * plan.l1 * self._penalised(number))
        self._check_updated(completed, number, params)
        arrays = {"params": params, "memory": memory, **state}
        if history is not None:
            if plan.is_checkpoint(completed):
                history = history[:0]
            row = np.array([[mean.count, mean.weight, mean.loss]])
            arrays["history"] = np.concatenate([history, row])
        return Block.of(completed + 1, arrays, block)

    def block(self, completed: int, number: int) -> Block:
        """A block after some rounds: from memory, if this process knows it."""
        known, block = self._known.get(number, (-1, None))
        if block is None or known != completed:
            block = self._session.run.read_block(completed, number, len(self.bounds))
            self.keep(completed, number, block)
        return block

    def keep(self, completed: int, number: int, block: Block) -> None:
        """Remember a block, in the place of the one after the round before."""
        self._known[number] = completed, block

    def _check_updated(self, completed: int, number: int, params: Array) -> None:
        index = _first_non_finite(params)
        if index >= 0:
            own, element = self._session, self.bounds[number][0] + index
            raise NonFiniteError(
                f"round {completed}: the update makes parameter {own.model.parameter_at(element)} "
                f"{params[index]}{own.feature(element)}. The training diverged: {own.plan.cures}"
            )


def _soft_threshold(params: Array, thresholds: Array) -> Array:
    """Nearer to 0 by the thresholds, or 0: the proximal step of an L1 penalty.

    So that weights become 0 and stay there (J. Duchi and Y. Singer, Efficient Online and Batch
    Learning Using Forward Backward Splitting, 2009).
    """
    shrunk: Array = np.sign(params) * np.maximum(np.abs(params) - thresholds, 0)
    return np.where(thresholds > 0, shrunk, params).astype(params.dtype, copy=False)
