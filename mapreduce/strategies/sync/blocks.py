"""The reducer's part of a round: a step of a block of the parameters."""

from mapreduce.reduction.aggregator import VectorSum
from mapreduce.reduction.tree import TreeFold
from mapreduce.runs.state import Array
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.stepping import Part, Stepper
from mapreduce.strategies.task_context import TaskContext


class BlockOwner:
    """The steps of the blocks that a task owns."""

    def __init__(self, context: TaskContext, state: TrainingState) -> None:
        self._stepper = Stepper(context)
        self._state = state

    def _part(self, completed: int, number: int) -> Part:
        arrays = dict(self._state.block(completed, number).arrays)
        # Files call the optimizer's scalars "memory"; :meth:`State.advance` continues the history.
        params, scalars = arrays.pop("params"), arrays.pop("memory")
        arrays.pop("history", None)
        return Part(*self._state.bounds[number], params, arrays, scalars)

    def mean(self, completed: int, number: int, total: VectorSum) -> VectorSum:
        """See :meth:`Stepper.mean`."""
        return self._stepper.mean(self._part(completed, number), total)

    def fold_scalars(self, completed: int) -> TreeFold[Array]:
        """See :meth:`Stepper.fold_scalars`."""
        return self._stepper.fold_scalars(completed)

    def scalars(self, completed: int, number: int, mean: VectorSum) -> TreeFold[Array]:
        """See :meth:`Stepper.scalars`."""
        return self._stepper.scalars(completed, self._part(completed, number), mean)

    def step(self, completed: int, number: int, mean: VectorSum, sums: Array | None) -> None:
        """Make the block after a step, which the executor publishes; see :meth:`Stepper.step`."""
        part = self._part(completed, number)
        params, state, scalars, _ = self._stepper.step(completed, part, mean, sums)
        # The optimizer may have skipped the round; then its buffers stay, too.
        if params is not part.params:
            params = self._stepper.update_buffers(part, params, mean.extras)
        self._state.advance(completed, number, {"params": params, **state}, mean.totals, scalars)
