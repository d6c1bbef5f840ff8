"""The reducer's part of a round: a step of a block of the parameters."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mapreduce.optim.contract import PAGE, GlobalTransformation, Shared
from mapreduce.reduction.aggregator import CURVATURE, MOMENTS, VectorSum
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.reduction.vectors import dense
from mapreduce.runs.directory import Array
from mapreduce.strategies.state import State
from mapreduce.strategies.task_context import TaskContext


class BlockOwner:
    """The steps of the blocks that a task owns."""

    def __init__(self, context: TaskContext, state: State) -> None:
        self._context = context
        self._state = state
        self._masks: dict[int, Array] = {}
        optimizer = context.optimizer
        self._global = optimizer if isinstance(optimizer, GlobalTransformation) else None

    def mean(self, completed: int, number: int, total: VectorSum) -> VectorSum:
        """The mean gradient of a block with that of the L2 penalty, and the means of the extras.

        Moments among the extras stay as they are.
        """
        gradient = total.mean()
        l2 = self._context.plan.l2
        if self._context.plan.is_mixed:
            scalars = self._state.block(completed, number).arrays["memory"]
            scale = self._context.optimizer.loss_scale(scalars)
            gradient = gradient / gradient.dtype.type(scale)
        if l2:
            params = self._state.block(completed, number).arrays["params"]
            gradient = gradient + gradient.dtype.type(l2) * self._penalised(number) * params
        weight = total.weight or 1.0
        extras = {
            name: sums if name.startswith(MOMENTS) else sums / sums.dtype.type(weight)
            for name, sums in total.extras.items()
        }
        if (mean := extras.get(CURVATURE)) is not None:
            extras[CURVATURE] = mean + mean.dtype.type(l2) * self._penalised(number)
        return VectorSum(total.count, total.weight, total.loss, gradient, extras)

    def _penalised(self, number: int) -> Array:
        """The mask of the elements of a block that a penalty applies to."""
        if number not in self._masks:
            self._masks[number] = self._context.model.penalised(*self._state.bounds[number])
        return self._masks[number]

    def _with_buffers(
        self, number: int, params: Array, value: Callable[[str, slice, slice], Any]
    ) -> Array:
        """A block's parameters with other values in the place of buffers; a copy, if there are any.

        ``value`` gets a buffer's name, a part of its elements, and their place in the block.
        """
        model = self._context.model
        if not model.has_buffers:
            return params
        params = params.copy()
        for one, elements, place in model.parts(*self._state.bounds[number]):
            if one.role == "buffer":
                params[place] = value(one.name, elements, place)
        return params

    def _parts(
        self, completed: int, number: int, mean: VectorSum
    ) -> tuple[Array, Array, dict[str, Array], Array]:
        """A block's parameters, those that are trained, the optimizer's state and its scalars."""
        arrays = dict(self._state.block(completed, number).arrays)
        params, scalars = arrays.pop("params"), arrays.pop("memory")
        arrays.pop("history", None)
        if self._global is not None and CURVATURE in mean.extras:
            arrays = self._global.precondition(arrays, mean.extras[CURVATURE])
        trained = self._with_buffers(number, params, lambda *_: 0)
        return params, trained, arrays, scalars

    def fold_scalars(self, completed: int) -> TreeFold[Array]:
        """A sum of scalars along a tree over all pages of the parameters."""
        pages = -(-self._context.model.size // PAGE)
        return TreeFold(pages, np.add, f"round {completed}, the scalars")

    def scalars(self, completed: int, number: int, mean: VectorSum) -> TreeFold[Array]:
        """The scalars of a block's pages, which are leaves of the tree of :meth:`fold_scalars`.

        The first scalar is the squared norm of the elements that the L2 penalty applies to.
        """
        assert self._global is not None
        _, params, arrays, scalars = self._parts(completed, number, mean)
        gradient = dense(mean.vector)
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

    def step(self, completed: int, number: int, mean: VectorSum, sums: Array | None) -> None:
        """Publish the block after the optimizer's step.

        Parameters
        ----------
        completed, number : int
        mean : VectorSum
        sums : array or None
            The scalars of all blocks, if the optimizer needs them.
        """
        before, trained, arrays, scalars = self._parts(completed, number, mean)
        gradient, update_buffer = dense(mean.vector), self._context.model.update_buffer
        plan, optimizer = self._context.plan, self._context.optimizer
        with np.errstate(all="ignore"):
            if isinstance(optimizer, GlobalTransformation):
                assert sums is not None
                value = mean.loss / (mean.weight or 1.0) + plan.l2 / 2 * float(sums[0])
                shared = Shared(sums[1:], value, scalars)
                params, state, scalars = optimizer.update(
                    gradient, arrays, trained, completed, shared
                )
            else:
                updates, state = optimizer.update(gradient, arrays, trained, completed)
                params = trained + updates
            if params is trained:
                # A round that is skipped changes nothing.
                params = before
            else:
                if plan.l1:
                    rate = self._context.schedule(completed)
                    params = _soft_threshold(params, rate * plan.l1 * self._penalised(number))
                params = self._with_buffers(
                    number,
                    params,
                    lambda name, part, at: update_buffer(name, part, before[at], mean.extras),
                )
        self._state.advance(completed, number, {"params": params, **state}, mean.totals, scalars)


def _soft_threshold(params: Array, thresholds: Array) -> Array:
    """The proximal step of an L1 penalty, by which weights become 0 and stay there.

    J. Duchi and Y. Singer, Efficient Online and Batch Learning Using Forward Backward Splitting,
    2009.
    """
    shrunk: Array = np.sign(params) * np.maximum(np.abs(params) - thresholds, 0)
    return np.where(thresholds > 0, shrunk, params).astype(params.dtype, copy=False)
