"""The reducer's part of a round: what the owner of a block of the parameters does with it.

Pure functions of the block after a round and of sums over the slices or over all pages. How the
sums arrive is the strategy's business, what becomes of the block afterwards the state's.
"""

from dataclasses import dataclass

import numpy as np

from kernels import dispatch
from mapreduce.errors import NonFiniteError
from mapreduce.optim.contract import PAGE, GlobalTransformation, Shared
from mapreduce.reduction.aggregator import (
    CURVATURE,
    MeanAggregator,
    VectorSum,
    pack_extras,
    unpack_extras,
)
from mapreduce.reduction.message import Message
from mapreduce.reduction.tree import Node, ShuffledFold, TreeFold
from mapreduce.runs.directory import Array
from mapreduce.strategies.state import State
from mapreduce.strategies.task_context import TaskContext

_first_non_finite = dispatch.get("first_non_finite")


@dataclass(frozen=True)
class BlockGradient:
    """What a block knows of a round: its part of the mean gradient, and sums over the rows.

    ``extras`` are means, as the gradient is.
    """

    count: int
    weight: float
    loss: float
    gradient: Array
    extras: dict[str, Array]

    def to_message(self) -> Message:
        sums = np.array([self.weight, self.loss])
        arrays = {"rows": sums, "gradient": self.gradient, **pack_extras(self.extras)}
        return Message({"count": self.count}, arrays)

    @classmethod
    def from_message(cls, message: Message) -> "BlockGradient":
        weight, loss = message.arrays["rows"].tolist()
        arrays, extras = message.arrays, unpack_extras(message.arrays)
        return cls(message.meta["count"], weight, loss, arrays["gradient"], extras)


class BlockOwner:
    """The blocks of the parameters, as their owners see them.

    Parameters
    ----------
    context : TaskContext
    state : State
    """

    def __init__(self, context: TaskContext, state: State) -> None:
        self._context = context
        self._state = state
        self._aggregator = MeanAggregator()
        self._masks: dict[int, Array] = {}
        optimizer = context.optimizer
        self._global = optimizer if isinstance(optimizer, GlobalTransformation) else None

    def mean(self, completed: int, number: int, total: VectorSum) -> BlockGradient:
        """The mean gradient of a block, with that of the L2 penalty."""
        gradient = self._aggregator.finalize(total)
        l2 = self._context.plan.l2
        if self._context.plan.is_mixed:
            # By a power of two.
            scalars = self._state.block(completed, number).arrays["memory"]
            scale = self._context.optimizer.loss_scale(scalars)
            gradient = gradient / gradient.dtype.type(scale)
        if l2:
            params = self._state.block(completed, number).arrays["params"]
            gradient = gradient + gradient.dtype.type(l2) * self._penalised(number) * params
        weight = total.weight or 1.0
        extras = {name: sums / sums.dtype.type(weight) for name, sums in total.extras.items()}
        if (mean := extras.get(CURVATURE)) is not None:
            extras[CURVATURE] = mean + mean.dtype.type(l2) * self._penalised(number)
        return BlockGradient(total.count, total.weight, total.loss, gradient, extras)

    def _penalised(self, number: int) -> Array:
        """Of a block, which elements a penalty applies to: the same in every round."""
        if number not in self._masks:
            self._masks[number] = self._context.model.penalised(*self._state.bounds[number])
        return self._masks[number]

    def _buffers(self, number: int) -> list[tuple[str, slice, slice]]:
        """Of a block, the parts of buffers: name, elements of the buffer, place in the block."""
        model = self._context.model
        if not model.has_buffers:
            return []
        parts = model.parts(*self._state.bounds[number])
        return [(one.name, elements, at) for one, elements, at in parts if one.role == "buffer"]

    def _trained(self, number: int, params: Array) -> Array:
        """A block's parameters as an optimizer sees them: 0 in the place of buffers."""
        buffers = self._buffers(number)
        params = params.copy() if buffers else params
        for _, _, place in buffers:
            params[place] = 0
        return params

    def _with_buffers(
        self, number: int, params: Array, before: Array, mean: BlockGradient
    ) -> Array:
        """A block's parameters after a step, with the buffers' new values."""
        buffers = self._buffers(number)
        params = params.copy() if buffers else params
        update = self._context.model.update_buffer
        for name, elements, place in buffers:
            params[place] = update(name, elements, before[place], mean.extras)
        return params

    def fold_scalars(self, completed: int) -> ShuffledFold[Array]:
        """Adds up scalars along a tree over all pages of the parameters."""
        pages = -(-self._context.model.size // PAGE)
        return ShuffledFold(pages, np.add, f"round {completed}, the scalars")

    def scalars(self, completed: int, number: int, mean: BlockGradient) -> TreeFold[Array]:
        """The scalars of a block's pages: leaves of the tree of :meth:`fold_scalars`.

        The first is the squared norm of what the L2 penalty applies to.
        """
        assert self._global is not None
        arrays = dict(self._state.block(completed, number).arrays)
        params, scalars = self._trained(number, arrays.pop("params")), arrays.pop("memory")
        arrays.pop("history", None)
        arrays = self._preconditioned(arrays, mean)
        gradient = mean.gradient
        mask = self._penalised(number)
        first = self._state.bounds[number][0] // PAGE
        fold: TreeFold[Array] = self.fold_scalars(completed)
        for page, start in enumerate(range(0, len(params), PAGE), first):
            part = slice(start, start + PAGE)
            state = {name: array[part] for name, array in arrays.items()}
            kept = params[part].astype(np.float64) * mask[part]
            with np.errstate(all="ignore"):
                sums = self._global.sums(gradient[part], state, params[part], scalars)
                squares = kept @ kept
            fold.add(Node(0, page), np.append(squares, sums))
        return fold

    def _preconditioned(self, state: dict[str, Array], mean: BlockGradient) -> dict[str, Array]:
        if CURVATURE not in mean.extras:
            return state
        assert self._global is not None
        return self._global.precondition(state, mean.extras[CURVATURE])

    def step(self, completed: int, number: int, mean: BlockGradient, sums: Array | None) -> None:
        """Publish the block after the optimizer's step.

        Parameters
        ----------
        completed : int
            Rounds before.
        number : int
        mean : BlockGradient
        sums : array or None
            The scalars of all blocks, where the optimizer needs them.

        Raises
        ------
        NonFiniteError
            The step makes a parameter NaN or infinite.
        """
        arrays = dict(self._state.block(completed, number).arrays)
        before, scalars = arrays.pop("params"), arrays.pop("memory")
        arrays.pop("history", None)
        params = trained = self._trained(number, before)
        plan, optimizer = self._context.plan, self._context.optimizer
        with np.errstate(all="ignore"):
            if isinstance(optimizer, GlobalTransformation):
                assert sums is not None
                value = mean.loss / (mean.weight or 1.0) + plan.l2 / 2 * float(sums[0])
                shared = Shared(sums[1:], value, scalars)
                arrays = self._preconditioned(arrays, mean)
                params, state, scalars = optimizer.update(
                    mean.gradient, arrays, params, completed, shared
                )
            else:
                updates, state = optimizer.update(mean.gradient, arrays, params, completed)
                params = params + updates
            if params is trained:
                # A round that is skipped changes nothing.
                params = before
            else:
                if plan.l1:
                    rate = self._context.schedule(completed)
                    params = _soft_threshold(params, rate * plan.l1 * self._penalised(number))
                params = self._with_buffers(number, params, before, mean)
        self._check_updated(completed, number, params)
        rows = (mean.count, mean.weight, mean.loss)
        self._state.advance(completed, number, {"params": params, **state}, rows, scalars)

    def _check_updated(self, completed: int, number: int, params: Array) -> None:
        index = _first_non_finite(params)
        if index >= 0:
            own, element = self._context, self._state.bounds[number][0] + index
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
