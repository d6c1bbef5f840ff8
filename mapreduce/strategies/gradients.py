"""The mapper's part of a round: gradients of slices, added up along the canonical tree."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kernels import dispatch
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.errors import NonFiniteError
from mapreduce.models.context import Key
from mapreduce.optim.contract import GlobalTransformation
from mapreduce.plan.plan import Slice
from mapreduce.reduction.aggregator import CURVATURE, VectorSum, combine
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.reduction.vectors import SparseVector, dense
from mapreduce.runs.state import Array
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support.phases import READ, note, now

_first_non_finite = dispatch.get("first_non_finite")


class Gradients:
    """Gradients of the slices of a range."""

    def __init__(self, context: TaskContext, state: TrainingState) -> None:
        self._context = context
        self._state = state
        self._spare: list[Array] = []
        self._lent: list[Array] = []

    def nodes(self, part: LeafRange) -> Iterator[tuple[Node, VectorSum]]:
        """The largest complete nodes over some slices, from left to right.

        Their vectors are valid until the next call, which uses their memory again. A sum that is
        not finite is a NonFiniteError, unless the plan tolerates it.
        """
        self.reuse()
        for node, partial in self._fold(part).nodes():
            self._check_finite(part, node, partial)
            if not isinstance(partial.vector, SparseVector):
                self._lent.append(partial.vector)
            yield node, partial

    def _fold(self, part: LeafRange) -> TreeFold[VectorSum]:
        slices = self._context.plan.slices(part.completed)
        fold: TreeFold[VectorSum] = TreeFold(len(slices), self._combine, "the gradient")
        # Read before threads ask for them at once.
        params, scale = self._stored(part.completed)
        mine = range(part.start, part.stop)
        rows = (slices[leaf] for leaf in mine)
        partials = self._of_slices(part.completed, rows, params, scale)
        for leaf, partial in zip(mine, partials, strict=True):
            fold.add(Node(0, leaf), partial)
        return fold

    def total(self, completed: int, rows: Sequence[Slice], params: Array) -> VectorSum:
        """The sum over slices of a round, for parameters of one's own, along a tree over them.

        Its vector is valid until the next call of :meth:`reuse` or of :meth:`nodes`.
        """
        fold: TreeFold[VectorSum] = TreeFold.apart(len(rows), self._combine, "the gradient")
        for leaf, partial in enumerate(self._of_slices(completed, rows, params, 1.0)):
            fold.add(Node(0, leaf), partial)
        found = fold.result()
        if not isinstance(found.vector, SparseVector):
            self._lent.append(found.vector)
        return found

    def reuse(self) -> None:
        """Use the memory of the sums that were given again."""
        self._spare += self._lent
        self._lent.clear()

    def _of_slices(
        self, completed: int, rows: Iterable[Slice], params: Array, scale: float
    ) -> Iterator[VectorSum]:
        context = self._context
        optimizer = context.optimizer
        takes_it = isinstance(optimizer, GlobalTransformation) and optimizer.takes_curvature
        is_curved = takes_it and not completed
        expected = {*context.model.extras(completed)}

        def gradient(rows: Slice) -> VectorSum:
            began = now()
            batch = context.batch(rows)
            note(READ, began, units=batch.rows)
            extras: dict[str, Array] = {}
            # The sum is checked for values that are not finite.
            with context.errors(rows):
                key = self._key(completed, rows)
                loss, vector = context.gradient(params, batch, self._vector, scale, key, extras)
                if extras.keys() != expected:
                    raise ValueError(
                        f"the model gave the extra sums {sorted(extras)} with a gradient of round "
                        f"{completed}, expected {sorted(expected)}"
                    )
                if is_curved and (second := context.model.curvature(batch)) is not None:
                    extras[CURVATURE] = second
            return VectorSum(batch.rows, batch.weight, loss, vector, extras)

        return context.map(gradient, rows)

    def _stored(self, completed: int) -> tuple[Array, float]:
        """The parameters after some rounds, and the scale of the next round's loss."""
        params = self._state.params(completed)
        if not self._context.plan.is_mixed:
            return params, 1.0
        return params, self._context.optimizer.loss_scale(self._state.scalars(completed))

    def _key(self, completed: int, rows: Slice) -> Key:
        return Key(self._context.plan.seed, completed, shard=rows.shard, row=rows.start)

    def _vector(self) -> Array:
        """Memory for a gradient, if possible that of one which was added to another."""
        try:
            return self._spare.pop()
        except IndexError:
            return self._state.empty(self._size, self._context.model.dtype)

    @property
    def _size(self) -> int:
        """Elements of a gradient."""
        return self._context.model.size

    def _combine(self, left: VectorSum, right: VectorSum) -> VectorSum:
        combined = combine(left, right)
        for part in (left, right):
            if part.vector is not combined.vector and not isinstance(part.vector, SparseVector):
                self._spare.append(part.vector)
        return combined

    def _check_finite(self, part: LeafRange, node: Node, partial: VectorSum) -> None:
        vector = partial.vector
        values = vector.values if isinstance(vector, SparseVector) else vector
        is_loss_finite, index = bool(np.isfinite(partial.loss)), int(_first_non_finite(values))
        if is_loss_finite and index < 0:
            return
        optimizer = self._context.optimizer
        if optimizer.tolerates_non_finite(part.completed, is_loss_finite):
            return
        self._explain(part, node, partial, index)

    def _explain(self, part: LeafRange, node: Node, partial: VectorSum, index: int) -> None:
        """Raise the error that says where in a node's sum something is not finite.

        ``index`` is that of an element of the sum's values, or -1 if it is the loss alone.
        """
        plan = self._context.plan
        slices, at = plan.slices(part.completed), self._stored(part.completed)
        advice = plan.cures
        if plan.is_mixed:
            advice += "; float16 holds numbers up to 65,504, --precision full larger ones"
        for leaf in range(node.start, min(node.stop, len(slices))):
            rows = slices[leaf]
            batch = self._context.batch(rows)
            with np.errstate(all="ignore"):
                key = self._key(part.completed, rows)
                loss, found = self._context.gradient(at[0], batch, self._vector, at[1], key)
            vector = dense(found)
            index = _first_non_finite(vector)
            if index >= 0 or not np.isfinite(loss):
                where = f"shard {rows.shard}, rows {rows.start} to {rows.stop - 1}"
                what = f"parameter {self._context.model.parameter_at(max(index, 0))}"
                feature = self._context.feature(index) if index >= 0 else ""
                raise NonFiniteError(
                    f"round {part.completed}, slice {leaf} ({where}): the gradient of {what} "
                    f"is {vector[max(index, 0)]}, the loss {loss}{feature}. The training "
                    f"diverged: {advice}"
                )
        raise NonFiniteError(
            f"round {part.completed}, slices {node.start} to {node.stop - 1}: the sum of "
            f"finite gradients is not finite. Try --dtype float64"
        )
