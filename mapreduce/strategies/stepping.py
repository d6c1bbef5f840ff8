"""A step of a part of the parameters: penalties, the optimizer, buffers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mapreduce.optim.contract import PAGE, GlobalTransformation, Shared, Transformation
from mapreduce.reduction.aggregator import CURVATURE, MOMENTS, VectorSum
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.reduction.vectors import dense
from mapreduce.runs.state import Array
from mapreduce.strategies.task_context import TaskContext


class Part(NamedTuple):
    """Elements ``start`` to ``stop`` of the parameters, whole pages, and the state they have."""

    start: int
    stop: int
    params: Array
    state: dict[str, Array]
    scalars: Array


class Stepped(NamedTuple):
    """A part after a step.

    ``updates`` is what was added to the parameters, if the optimizer added something: adding it
    again, elsewhere, need not give the same bits as the difference of the parameters.
    """

    params: Array
    state: dict[str, Array]
    scalars: Array
    updates: Array | None


class Stepper:
    """The plan's steps, with its optimizer or another one with the same state."""

    def __init__(
        self, context: TaskContext, optimizer: Transformation | GlobalTransformation | None = None
    ) -> None:
        self._context = context
        self._masks: dict[tuple[int, int], Array] = {}
        self._optimizer = optimizer = optimizer or context.optimizer
        self._global = optimizer if isinstance(optimizer, GlobalTransformation) else None

    def mean(self, part: Part, total: VectorSum) -> VectorSum:
        """The mean gradient of a part with that of the L2 penalty, and the means of the extras.

        Moments among the extras stay as they are.
        """
        gradient = total.mean()
        l2 = self._context.plan.l2
        if self._context.plan.is_mixed:
            scale = self._optimizer.loss_scale(part.scalars)
            gradient = gradient / gradient.dtype.type(scale)
        if l2:
            gradient = gradient + gradient.dtype.type(l2) * self._penalised(part) * part.params
        extras = means(total)
        if (mean := extras.get(CURVATURE)) is not None:
            extras[CURVATURE] = mean + mean.dtype.type(l2) * self._penalised(part)
        return VectorSum(total.count, total.weight, total.loss, gradient, extras)

    def _penalised(self, part: Part) -> Array:
        """The mask of the elements of a part that a penalty applies to."""
        place = part.start, part.stop
        if place not in self._masks:
            self._masks[place] = self._context.model.penalised(*place)
        return self._masks[place]

    def fold_scalars(self, completed: int) -> TreeFold[Array]:
        """A sum of scalars along a tree over all pages of the parameters."""
        pages = -(-self._context.model.size // PAGE)
        return TreeFold(pages, np.add, f"round {completed}, the scalars")

    def scalars(self, completed: int, part: Part, mean: VectorSum) -> TreeFold[Array]:
        """The scalars of a part's pages, which are leaves of the tree of :meth:`fold_scalars`.

        The first scalar is the squared norm of the elements that the L2 penalty applies to.
        """
        assert self._global is not None
        params, arrays = self._trained(part), self._state(part, mean)
        gradient = dense(mean.vector)
        mask = self._penalised(part)
        first = part.start // PAGE
        fold: TreeFold[Array] = self.fold_scalars(completed)
        for page, start in enumerate(range(0, len(params), PAGE), first):
            within = slice(start, start + PAGE)
            state = {name: array[within] for name, array in arrays.items()}
            kept = params[within].astype(np.float64) * mask[within]
            with np.errstate(all="ignore"):
                sums = self._global.sums(gradient[within], state, params[within], part.scalars)
                squares = kept @ kept
            fold.add(Node(0, page), np.append(squares, sums))
        return fold

    def _trained(self, part: Part) -> Array:
        """The parameters, with zeros in the place of buffers."""
        return self.with_buffers(part, part.params, lambda *_: 0)

    def _state(self, part: Part, mean: VectorSum) -> dict[str, Array]:
        if self._global is not None and CURVATURE in mean.extras:
            return self._global.precondition(part.state, mean.extras[CURVATURE])
        return part.state

    def step(self, step: int, part: Part, mean: VectorSum, sums: Array | None) -> Stepped:
        """The part after the optimizer's step; its buffers are as before.

        ``step`` is the round, or the local step if a round has several, counted from 0. ``sums``
        are the scalars of all parts, if the optimizer needs them.
        """
        trained, arrays, scalars = self._trained(part), self._state(part, mean), part.scalars
        gradient = dense(mean.vector)
        plan, optimizer = self._context.plan, self._optimizer
        updates = None
        with np.errstate(all="ignore"):
            if isinstance(optimizer, GlobalTransformation):
                assert sums is not None
                value = mean.loss / (mean.weight or 1.0) + plan.l2 / 2 * float(sums[0])
                shared = Shared(sums[1:], value, scalars)
                params, state, scalars = optimizer.update(gradient, arrays, trained, step, shared)
            else:
                updates, state = optimizer.update(gradient, arrays, trained, step)
                params = trained + updates
            if params is trained:
                # A round that is skipped changes nothing.
                return Stepped(part.params, state, scalars, None)
            if plan.l1:
                rate = self._context.schedule(step)
                params = _soft_threshold(params, rate * plan.l1 * self._penalised(part))
                updates = None
            params = self.with_buffers(part, params, lambda name, elements, at: part.params[at])
        return Stepped(params, state, scalars, updates)

    def update_buffers(
        self, part: Part, params: Array, extras: Mapping[str, Array], times: int = 1
    ) -> Array:
        """Parameters whose buffers the model updates by the :func:`means` of extras, some times."""
        update = self._context.model.update_buffer

        def updated(name: str, elements: slice, place: slice) -> Array:
            values = params[place]
            for _ in range(times):
                values = update(name, elements, values, extras)
            return values

        return self.with_buffers(part, params, updated)

    def with_buffers(
        self, part: Part, params: Array, value: Callable[[str, slice, slice], Any]
    ) -> Array:
        """Parameters with other values in the place of buffers; a copy, if there are any.

        ``value`` gets a buffer's name, a part of its elements, and their place in the part.
        """
        model = self._context.model
        if not model.has_buffers:
            return params
        params = params.copy()
        for one, elements, place in model.parts(part.start, part.stop):
            if one.role == "buffer":
                params[place] = value(one.name, elements, place)
        return params


def means(total: VectorSum) -> dict[str, Array]:
    """The means of the extras of a sum; moments stay as they are."""
    weight = total.weight or 1.0
    return {
        name: sums if name.startswith(MOMENTS) else sums / sums.dtype.type(weight)
        for name, sums in total.extras.items()
    }


def _soft_threshold(params: Array, thresholds: Array) -> Array:
    """The proximal step of an L1 penalty, by which weights become 0 and stay there.

    J. Duchi and Y. Singer, Efficient Online and Batch Learning Using Forward Backward Splitting,
    2009.
    """
    shrunk: Array = np.sign(params) * np.maximum(np.abs(params) - thresholds, 0)
    return np.where(thresholds > 0, shrunk, params).astype(params.dtype, copy=False)
