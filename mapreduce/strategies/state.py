"""The state of a training, which the tasks of a strategy read and advance."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kernels import dispatch
from mapreduce.engine import state
from mapreduce.engine.state import Array, overlap
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.plan.plan import Plan
from mapreduce.reduction.message import Message
from mapreduce.runs.state import block_bounds
from mapreduce.strategies.task_context import TaskContext

_first_non_finite = dispatch.get("first_non_finite")


class TrainingState:
    """The parameters and the other arrays of a training, in blocks.

    ``published`` are the rounds that were made, by whoever runs them. ``bounds`` are start and stop
    of the elements of each block.
    """

    def __init__(self, context: TaskContext, published: state.State) -> None:
        self.published = published
        self.bounds = block_bounds(context.model.size, published.count)
        self._context = context
        self._plan: Plan = context.plan
        self._made: Message | None = None

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.bounds)

    @property
    def part(self) -> tuple[int, int]:
        """Start and stop of the elements of the flat vector that :meth:`vector` gives, and of which
        a task computes gradients: all of them, unless tasks have stages of the model.
        """
        return self.published.part or (0, self._context.model.size)

    def within(self, number: int) -> tuple[slice, slice]:
        """The elements of a block that are in the :attr:`part`: places in the block, and there."""
        return overlap(self.bounds[number], self.part)

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Memory (size,) for sums that a task sends, which it may use again in the next round."""
        return self.published.empty(size, dtype)

    # Whole vectors, for mappers

    def params(self, completed: int) -> Array:
        """The parameters (size,) after some rounds."""
        return self.vector(completed, "params")

    def scalars(self, completed: int) -> Array:
        """The optimizer's scalars after some rounds."""
        return self.vector(completed, "memory")

    def vector(self, completed: int, name: str) -> Array:
        """An array of the state after some rounds, of the :attr:`part`."""
        published = self.published
        return (published.scalar if name == "memory" else published.vector)(completed, name)

    # What a unit owns

    def own(self, completed: int, unit: int) -> dict[str, Array]:
        """The arrays of a unit after some rounds, (size,) each."""
        return dict(self.published.own(completed, unit))

    def keep(self, completed: int, unit: int, arrays: dict[str, Array]) -> None:
        """Keep the arrays of a unit after the round that follows ``completed`` ones."""
        self.published.keep(completed, unit, arrays)

    # Blocks, for their owners

    def block(self, completed: int, number: int) -> Message:
        """A block after some rounds: a message with its arrays."""
        return self.published.block(completed, number)

    def advance(
        self,
        completed: int,
        number: int,
        arrays: dict[str, Array],
        rows: Sequence[float] | Sequence[Sequence[float]],
        scalars: Array | None = None,
    ) -> None:
        """Make a block after the round that follows ``completed`` ones, or after several.

        ``arrays``: ``params``, and the strategy's arrays by name, all of the block's length. An
          array is not written again if it is the very array of the block before.
        ``rows``: Number of rows, their weight and the sum of their losses in this round, and what
          the strategy notes of it. A sequence of such, if there are several rounds.
        ``scalars``: The optimizer's scalars; by default those of the block before.

        A parameter that is NaN or infinite is a NonFiniteError.
        """
        before = self.block(completed, number)
        self._check_same_kind(completed, number, before.arrays, arrays)
        if arrays["params"] is not before.arrays["params"]:
            self._check_finite(completed, number, arrays["params"])
        memory = before.arrays["memory"] if scalars is None else scalars
        # Sorted, so that a repeated task with another order of messages writes the same bytes.
        arrays = {"params": arrays["params"], "memory": memory, **dict(sorted(arrays.items()))}
        if "history" in before.arrays:
            history = before.arrays["history"]
            if self._plan.is_checkpoint(completed):
                history = history[:0]
            arrays["history"] = np.concatenate([history, np.array(rows, np.float64, ndmin=2)])
        self._made = Message({}, arrays)

    def take(self) -> Message | None:
        """The block that :meth:`advance` has made since the last call, if it has."""
        made, self._made = self._made, None
        return made

    def _check_same_kind(
        self, completed: int, number: int, before: Mapping[str, Array], arrays: Mapping[str, Array]
    ) -> None:
        for name, was in before.items():
            now = arrays.get(name)
            if now is was or name in ("memory", "history"):
                continue
            if now is None or (now.dtype, now.shape) != (was.dtype, was.shape):
                found = "none" if now is None else f"{now.dtype} {now.shape}"
                raise UsageError(
                    f"round {completed}, block {number}: expected the array {name!r} as "
                    f"{was.dtype} {was.shape}, as before the round, found {found}: does "
                    f"--optimizer {self._plan.optimizer} change it, or --strategy "
                    f"{self._plan.strategy}?"
                )
        if more := arrays.keys() - before.keys():
            raise UsageError(
                f"round {completed}, block {number}: expected the arrays {', '.join(before)}, "
                f"found {', '.join(sorted(more))}, too, which init has not made"
            )

    def _check_finite(self, completed: int, number: int, params: Array) -> None:
        index = _first_non_finite(params)
        if index >= 0:
            own, element = self._context, self.bounds[number][0] + index
            raise NonFiniteError(
                f"round {completed}: the update makes parameter {own.model.parameter_at(element)} "
                f"{params[index]}{own.feature(element)}. The training diverged: {own.plan.cures}"
            )
