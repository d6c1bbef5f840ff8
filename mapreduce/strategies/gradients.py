"""The mapper's part of a round: gradients of slices, added up along the canonical tree."""

from collections.abc import Iterator

import numpy as np

from kernels import dispatch
from mapreduce.collect.aggregator import MeanAggregator, VectorSum
from mapreduce.collect.tree import Node, TreeFold
from mapreduce.collect.vectors import SparseVector, Vector
from mapreduce.data.batch import Batch
from mapreduce.errors import NonFiniteError
from mapreduce.models.base import device_errors
from mapreduce.optim.contract import GlobalTransformation
from mapreduce.plan import Slice
from mapreduce.rundir import Array
from mapreduce.strategies.references import Reference
from mapreduce.strategies.session import Session

_first_non_finite = dispatch.get("first_non_finite")


class Gradients:
    """Gradients of the slices of a reference.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._aggregator = MeanAggregator()
        self._spare: list[Array] = []
        optimizer = session.optimizer
        self._global = optimizer if isinstance(optimizer, GlobalTransformation) else None

    def nodes(self, reference: Reference) -> Iterator[tuple[Node, VectorSum]]:
        """The largest complete nodes over the slices of a reference, from left to right.

        Whoever is done with a node gives its vector to :meth:`reuse`.

        Raises
        ------
        NonFiniteError
            A sum is NaN or infinite, and the plan does not tolerate that.
        """
        for node, partial in self._fold(reference).nodes():
            self._check_finite(reference, node, partial)
            yield node, partial

    def reuse(self, vector: Vector) -> None:
        """Keep the memory of a dense gradient that is done with."""
        if not isinstance(vector, SparseVector):
            self._spare.append(vector)

    def _fold(self, reference: Reference) -> TreeFold[VectorSum]:
        session = self._session
        slices = session.plan.slices(reference.completed)
        fold: TreeFold[VectorSum] = TreeFold(len(slices), self._combine, "the gradient")

        def curvature(batch: Batch) -> Array | None:
            wanted = self._global is not None and self._global.precondition is not None
            return session.model.curvature(batch) if wanted and not reference.completed else None

        def gradient(rows: Slice) -> VectorSum:
            batch = session.batch(rows)
            # What is not finite is looked for in the sum, and told with its place.
            with np.errstate(all="ignore"), device_errors(session.model.device):
                loss, vector = session.gradient(
                    reference.completed, reference.blocks, batch, self._vector
                )
                second = curvature(batch)
            return VectorSum(batch.rows, batch.weight, loss, vector, second)

        mine = range(reference.start, reference.stop)
        partials = session.map(gradient, (slices[leaf] for leaf in mine))
        for leaf, partial in zip(mine, partials, strict=True):
            fold.add(Node(0, leaf), self._aggregator.lift(partial))
        return fold

    def _vector(self) -> Array:
        """Memory for a gradient; what was added to another one is used again."""
        try:
            return self._spare.pop()
        except IndexError:
            return np.empty(self._session.model.size, self._session.model.dtype)

    def _combine(self, left: VectorSum, right: VectorSum) -> VectorSum:
        combined = self._aggregator.combine(left, right)
        for part in (left, right):
            if part.vector is not combined.vector:
                self.reuse(part.vector)
        return combined

    def _check_finite(self, reference: Reference, node: Node, partial: VectorSum) -> None:
        vector = partial.vector
        values = vector.values if isinstance(vector, SparseVector) else vector
        is_loss_finite = bool(np.isfinite(partial.loss))
        if is_loss_finite and _first_non_finite(values) < 0:
            return
        if self._tolerates(reference.completed, is_loss_finite):
            return
        plan = self._session.plan
        slices = plan.slices(reference.completed)
        at = reference.completed, reference.blocks
        advice = plan.cures
        if plan.is_mixed:
            advice += "; float16 holds numbers up to 65,504, --precision full larger ones"
        for leaf in range(node.start, min(node.stop, len(slices))):
            rows = slices[leaf]
            batch = self._session.batch(rows)
            with np.errstate(all="ignore"):
                loss, found = self._session.gradient(*at, batch, self._vector)
            vector = found.to_dense() if isinstance(found, SparseVector) else found
            index = _first_non_finite(vector)
            if index >= 0 or not np.isfinite(loss):
                where = f"shard {rows.shard}, rows {rows.start} to {rows.stop - 1}"
                what = f"parameter {self._session.model.parameter_at(max(index, 0))}"
                feature = self._session.feature(index) if index >= 0 else ""
                raise NonFiniteError(
                    f"round {reference.completed}, slice {leaf} ({where}): the gradient of {what} "
                    f"is {vector[max(index, 0)]}, the loss {loss}{feature}. The training "
                    f"diverged: {advice}"
                )
        raise NonFiniteError(
            f"round {reference.completed}, slices {node.start} to {node.stop - 1}: the sum of "
            f"finite gradients is not finite. Try --dtype float64"
        )

    def _tolerates(self, completed: int, is_loss_finite: bool) -> bool:
        """Whether the optimizer copes with a gradient that is not finite."""
        plan = self._session.plan
        if plan.is_mixed and is_loss_finite:
            return True
        # A trial step may be too long; where the search begins there is nothing to fall back on.
        return plan.non_finite == "skip" or (plan.optimizer == "lbfgs" and completed > 0)
