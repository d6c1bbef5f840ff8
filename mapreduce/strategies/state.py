"""The state after a round, which the tasks of a strategy read and publish."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernels import dispatch
from mapreduce.errors import NonFiniteError
from mapreduce.plan.plan import Plan
from mapreduce.runs.state import Array, Block, block_bounds
from mapreduce.strategies.task_context import TaskContext

_first_non_finite = dispatch.get("first_non_finite")


class State:
    """The state in the run's folder, a file for each block of a round.

    ``blocks``: As :func:`mapreduce.runs.state.block_bounds` takes it, which gives the attribute
    ``bounds``.

    ``part``: Start and stop of the elements of the flat vector that :meth:`vector` gives, and of
      which a task computes gradients: all of them, unless tasks have stages of the model.
    """

    def __init__(self, context: TaskContext, blocks: int) -> None:
        self.run = context.run
        self.bounds = block_bounds(context.model.size, blocks)
        self.part = 0, context.model.size
        self._context = context
        self._plan: Plan = context.plan
        self._blocks: dict[int, tuple[int, Block]] = {}
        self._vectors: dict[str, tuple[int, Array]] = {}
        self._own: dict[int, tuple[int, dict[str, Array]]] = {}

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.bounds)

    def within(self, number: int, part: tuple[int, int] | None = None) -> tuple[slice, slice]:
        """The elements of a block that are in a part, the :attr:`part` if none is given.

        Their places in the block, and in the part.
        """
        (start, stop), (first, last) = self.bounds[number], part or self.part
        low = min(max(start, first), stop)
        high = max(min(stop, last), low)
        size = max(last - first, 0)
        place = min(max(low - first, 0), size)
        return slice(low - start, high - start), slice(place, place + high - low)

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Memory (size,) for sums that a task sends, which it may use again in the next round."""
        return np.empty(size, dtype)

    # Whole vectors, for mappers

    def params(self, completed: int) -> Array:
        """The parameters (size,) after some rounds."""
        return self.vector(completed, "params")

    def scalars(self, completed: int) -> Array:
        """The optimizer's scalars after some rounds."""
        return self.vector(completed, "memory")

    def vector(self, completed: int, name: str) -> Array:
        """An array of the state after some rounds, of the :attr:`part`."""
        if name not in self._vectors or self._vectors[name][0] != completed:
            self._vectors[name] = completed, self._read(completed, name)
        return self._vectors[name][1]

    def _read(self, completed: int, name: str) -> Array:
        if name == "memory":
            return self._read_block(completed, 0, name)
        parts = []
        for number in range(self.count):
            here, _ = self.within(number)
            if here.start < here.stop:
                parts.append(self._read_block(completed, number, name)[here])
        if not parts:
            return np.empty(0, self._context.model.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read_block(self, completed: int, number: int, name: str) -> Array:
        return self.run.read_block(completed, number, self.count, [name]).arrays[name]

    # What a unit owns

    def own(self, completed: int, unit: int) -> dict[str, Array]:
        """The arrays of a unit after some rounds, (size,) each."""
        if unit not in self._own or self._own[unit][0] != completed:
            self._own[unit] = completed, self.run.read_owned(completed, unit)
        return self._own[unit][1]

    def keep(self, completed: int, unit: int, arrays: dict[str, Array]) -> None:
        """Keep the arrays of a unit after the round that follows ``completed`` ones."""
        self._own[unit] = completed + 1, arrays
        self._publish_owned(completed, unit, arrays)

    def _publish_owned(self, completed: int, unit: int, arrays: dict[str, Array]) -> None:
        units = self._plan.owners
        self.run.publish_owned(completed + 1, unit, units, arrays)
        self.run.owned_path(completed - 1, unit, units).unlink(missing_ok=True)

    # Blocks, for their owners

    def block(self, completed: int, number: int) -> Block:
        """A block after some rounds, kept in memory for the next call."""
        known, block = self._blocks.get(number, (-1, None))
        if block is None or known != completed:
            block = self.run.read_block(completed, number, self.count)
            self._blocks[number] = completed, block
        return block

    def advance(
        self,
        completed: int,
        number: int,
        arrays: dict[str, Array],
        rows: Sequence[float] | Sequence[Sequence[float]],
        scalars: Array | None = None,
        rounds: int = 1,
    ) -> None:
        """Publish a block after the round that follows ``completed`` ones, or after several.

        ``arrays``: ``params``, and the strategy's arrays by name, all of the block's length. An
          array is not written again if it is the very array of the block before.
        ``rows``: Number of rows, their weight and the sum of their losses in this round, and what
          the strategy notes of it. A sequence of such, if there are several rounds.
        ``scalars``: The optimizer's scalars; by default those of the block before.
        ``rounds``: Rounds that are published at once. A checkpoint of the plan may be due before
          them, and after them, but not between them.

        Raises NonFiniteError (a parameter is NaN or infinite).
        """
        before = self.block(completed, number)
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
        completed += rounds
        after = Block.of(completed, arrays, before)
        self._blocks[number] = completed, after
        self._publish(completed - 1, number, before, after)

    def _check_finite(self, completed: int, number: int, params: Array) -> None:
        index = _first_non_finite(params)
        if index >= 0:
            own, element = self._context, self.bounds[number][0] + index
            raise NonFiniteError(
                f"round {completed}: the update makes parameter {own.model.parameter_at(element)} "
                f"{params[index]}{own.feature(element)}. The training diverged: {own.plan.cures}"
            )

    def _publish(self, completed: int, number: int, before: Block, after: Block) -> None:
        self.run.publish_block(completed + 1, number, self.count, after)
        needed = before.rounds() | after.rounds()
        self.run.remove_blocks(number, self.count, needed, before=completed)
