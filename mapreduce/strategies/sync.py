"""Synchronous data parallelism: every round adds up the gradients of its slices and steps once.

One round, as map/reduce::

    reference of some slices  --map-->     block -> partial sums along the canonical tree
                              --reduce-->  sum, mean, optimizer step, publish the block;
                                           references for the next round

An optimizer that needs scalars of all blocks, such as the gradient's norm, has two more reduce
steps, unless there is one block only::

    block -> partial sums     --reduce-->  mean of the block; its scalars, under one key
                              --reduce-->  the scalars' sums along a tree over pages, to all blocks
                              --reduce-->  optimizer step, publish the block; references

Keys are blocks of the flat parameter vector, so that each reducer is a parameter server's shard:
it owns a block and its part of the optimizer's state, and nothing else.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from kernels import dispatch
from mapreduce.collect.aggregator import MeanAggregator, VectorSum
from mapreduce.collect.tree import Node, ShuffledFold, TreeFold
from mapreduce.collect.vectors import SparseVector, Vector
from mapreduce.data.batch import Batch
from mapreduce.errors import MissingNodesError, NonFiniteError
from mapreduce.optim.contract import PAGE, GlobalTransformation, Shared
from mapreduce.plan import Slice
from mapreduce.rundir import Array, Block, block_bounds
from mapreduce.strategies.references import (
    Reference,
    block_key,
    block_of,
    merge_levels,
    references,
)
from mapreduce.strategies.session import Session
from mapreduce.wire import Message

_first_non_finite = dispatch.get("first_non_finite")


class Sync:
    """The steps of a round; each method is what one task does.

    Parameters
    ----------
    session : Session
    tasks : int
        Map tasks wanted for a round.
    blocks : int
        Blocks wanted of the parameters.
    fan_in : int
        Most partial sums that one reducer merges, a power of two; 0 for no limit.
    """

    def __init__(self, session: Session, tasks: int, blocks: int, fan_in: int) -> None:
        self.session = session
        self.tasks = tasks
        self.bounds = block_bounds(session.model.size, blocks)
        self.fan_in = fan_in
        self._aggregator = MeanAggregator()
        self._spare: list[Array] = []
        self._published: dict[int, tuple[int, Block]] = {}
        self._masks: dict[int, Array] = {}
        optimizer = session.optimizer
        self._global = optimizer if isinstance(optimizer, GlobalTransformation) else None

    # Map

    def gradients(self, key: str) -> Iterator[tuple[str, Message]]:
        """Partial sums of the gradients of the slices of a reference, block by block."""
        reference = Reference.from_key(key)
        fold = self._fold(reference)
        levels = merge_levels(fold.leaves, self.tasks, self.fan_in)
        for node, partial in fold.nodes():
            self._check_finite(reference, node, partial)
            for block, (start, stop) in enumerate(self.bounds):
                vector = partial.vector[start:stop]
                curvature = partial.curvature
                part = VectorSum(
                    partial.count,
                    partial.weight,
                    partial.loss,
                    vector,
                    None if curvature is None else curvature[start:stop],
                )
                yield (
                    self._target(block, node, levels[0] if levels else None),
                    self._message(reference.completed, node, part),
                )
            self._keep_memory(partial.vector)

    def _keep_memory(self, vector: Vector) -> None:
        """Keep the memory of a dense gradient that is done with."""
        if not isinstance(vector, SparseVector):
            self._spare.append(vector)

    def _fold(self, reference: Reference) -> TreeFold[VectorSum]:
        session = self.session
        slices = session.plan.slices(reference.completed)
        fold: TreeFold[VectorSum] = TreeFold(len(slices), self._combine, "the gradient")

        def curvature(batch: Batch) -> Array | None:
            wanted = self._global is not None and self._global.precondition is not None
            return session.model.curvature(batch) if wanted and not reference.completed else None

        def gradient(rows: Slice) -> VectorSum:
            batch = session.batch(rows)
            # What is not finite is looked for in the sum, and told with its place.
            with np.errstate(all="ignore"):
                loss, vector = session.gradient(
                    reference.completed, reference.blocks, batch, self._vector
                )
            return VectorSum(batch.rows, batch.weight, loss, vector, curvature(batch))

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
            return np.empty(self.session.model.size, self.session.model.dtype)

    def _combine(self, left: VectorSum, right: VectorSum) -> VectorSum:
        combined = self._aggregator.combine(left, right)
        for part in (left, right):
            if part.vector is not combined.vector:
                self._keep_memory(part.vector)
        return combined

    def _check_finite(self, reference: Reference, node: Node, partial: VectorSum) -> None:
        vector = partial.vector
        values = vector.values if isinstance(vector, SparseVector) else vector
        if np.isfinite(partial.loss) and _first_non_finite(values) < 0:
            return
        if self._tolerates(reference.completed):
            return
        slices = self.session.plan.slices(reference.completed)
        params = self.session.params(reference.completed, reference.blocks)
        model = self.session.model
        vector = np.empty(model.size, model.dtype)
        for leaf in range(node.start, min(node.stop, len(slices))):
            rows = slices[leaf]
            batch = self.session.batch(rows)
            with np.errstate(all="ignore"):
                loss = model.gradient(params, batch, vector, self.session.workspace)
            index = _first_non_finite(vector)
            if index >= 0 or not np.isfinite(loss):
                where = f"shard {rows.shard}, rows {rows.start} to {rows.stop - 1}"
                what = f"parameter {model.parameter_at(max(index, 0))}"
                raise NonFiniteError(
                    f"round {reference.completed}, slice {leaf} ({where}): the gradient of {what} "
                    f"is {vector[max(index, 0)]}, the loss {loss}. The training diverged: try a "
                    f"smaller --learning-rate or --schedule warmup, or look for extreme features"
                )
        raise NonFiniteError(
            f"round {reference.completed}, slices {node.start} to {node.stop - 1}: the sum of "
            f"finite gradients is not finite. Try --dtype float64"
        )

    def _tolerates(self, completed: int) -> bool:
        """Whether the optimizer copes with a gradient that is not finite."""
        plan = self.session.plan
        # A trial step may be too long; where the search begins there is nothing to fall back on.
        return plan.non_finite == "skip" or (plan.optimizer == "lbfgs" and completed > 0)

    def _message(self, completed: int, node: Node, partial: VectorSum) -> Message:
        message = self._aggregator.to_message(partial)
        meta = {**message.meta, "round": completed, "node": [*node]}
        return Message(meta, message.arrays)

    def _target(self, block: int, node: Node, level: int | None) -> str:
        """The key under which a node travels.

        Its block; where a merge at some level follows, also that level and the node's ancestor
        there, which is the node itself if it is higher.
        """
        if level is None:
            return block_key(block)
        number = node.number >> max(0, level - node.level)
        ancestor = f"{max(level, node.level):02d}.{number:08d}"
        return f"{block_key(block)}.{level:02d}.{ancestor}"

    # Merge

    def merge(self, key: str, messages: Iterable[Message]) -> Iterator[tuple[str, Message]]:
        """Merge partial sums below one node of the tree, where the fan-in is limited."""
        block = block_of(key)
        completed, fold = self._receive(block, messages)
        levels = merge_levels(fold.leaves, self.tasks, self.fan_in)
        level = int(key[4:6])
        above = next((other for other in levels if other > level), None)
        for node, partial in fold.nodes():
            yield self._target(block, node, above), self._message(completed, node, partial)

    def _receive(
        self, block: int, messages: Iterable[Message]
    ) -> tuple[int, ShuffledFold[VectorSum]]:
        fold: ShuffledFold[VectorSum] | None = None
        completed = -1
        for message in messages:
            if fold is None:
                completed = message.meta["round"]
                leaves = self.session.plan.leaves(completed)
                what = f"round {completed}, block {block}"
                fold = ShuffledFold(leaves, self._aggregator.combine, what)
            node = Node(*message.meta["node"])
            fold.receive(node, self._aggregator.from_message(message), message.digest or 0)
        assert fold is not None, "a reducer gets at least one value"
        return completed, fold

    # Reduce

    def update(
        self, key: str, messages: Iterable[Message], stop: int
    ) -> Iterator[tuple[str, Message]]:
        """Step a block, publish it, and emit its share of the next round's references.

        ``stop`` is the number of completed rounds at which the job ends, if the optimizer does not
        find what it searches before.
        """
        number = block_of(key)
        completed, fold = self._receive(number, messages)
        mean = self._mean(completed, number, fold.result())
        sums = None
        if self._global is not None:
            sums = self._sums(completed, number, mean).result()
        yield from self._step(completed, number, mean, sums, stop)

    def average(self, key: str, messages: Iterable[Message]) -> Iterator[tuple[str, Message]]:
        """The mean gradient of a block, and under :data:`SCALARS` what is added up over blocks."""
        number = block_of(key)
        completed, fold = self._receive(number, messages)
        mean = self._mean(completed, number, fold.result())
        yield key, mean.to_message(completed)
        for node, sums in self._sums(completed, number, mean).nodes():
            yield SCALARS, Message({"round": completed, "node": [*node]}, {"sums": sums})

    def share(self, key: str, messages: Iterable[Message]) -> Iterator[tuple[str, Message]]:
        """The sums of the scalars, for every block; what else comes goes on as it is."""
        if key != SCALARS:
            for message in messages:
                yield key, Message(message.meta, message.arrays)
            return
        fold: ShuffledFold[Array] | None = None
        completed = -1
        for message in messages:
            completed = message.meta["round"]
            fold = fold or ShuffledFold(self._pages, np.add, f"round {completed}, the scalars")
            fold.receive(Node(*message.meta["node"]), message.arrays["sums"], message.digest or 0)
        assert fold is not None, "a reducer gets at least one value"
        for number in range(len(self.bounds)):
            yield block_key(number), Message({"round": completed}, {"sums": fold.result()})

    def finish(
        self, key: str, messages: Iterable[Message], stop: int
    ) -> Iterator[tuple[str, Message]]:
        """As :meth:`update`, with the block's mean gradient and the scalars of all blocks."""
        mean: Mean | None = None
        sums: Array | None = None
        completed = -1
        for message in messages:
            # A repeated task gives the same again.
            completed = message.meta["round"]
            if "gradient" in message.arrays:
                mean = Mean.from_message(message)
            else:
                sums = message.arrays["sums"]
        number = block_of(key)
        if mean is None or sums is None:
            missing = "gradient" if mean is None else "scalars"
            raise MissingNodesError(f"round {completed}, block {number}: the {missing} is missing")
        yield from self._step(completed, number, mean, sums, stop)

    def _mean(self, completed: int, number: int, total: VectorSum) -> "Mean":
        """The mean gradient of a block, with that of the L2 penalty."""
        gradient = self._aggregator.finalize(total)
        l2 = self.session.plan.l2
        if l2:
            params = self._block(completed, number).arrays["params"]
            gradient = gradient + gradient.dtype.type(l2) * self._penalised(number) * params
        curvature = total.curvature
        if curvature is not None:
            scale = curvature.dtype.type(total.weight or 1.0)
            curvature = curvature / scale + curvature.dtype.type(l2) * self._penalised(number)
        return Mean(total.count, total.weight, total.loss, gradient, curvature)

    def _penalised(self, number: int) -> Array:
        """Of a block, which elements a penalty applies to: the same in every round."""
        if number not in self._masks:
            self._masks[number] = self.session.model.penalised(*self.bounds[number])
        return self._masks[number]

    @property
    def _pages(self) -> int:
        return -(-self.session.model.size // PAGE)

    def _sums(self, completed: int, number: int, mean: "Mean") -> TreeFold[Array]:
        """The scalars of a block's pages: leaves of a tree over all pages of the parameters.

        The first is the squared norm of what the L2 penalty applies to.
        """
        assert self._global is not None
        arrays = dict(self._block(completed, number).arrays)
        params, memory = arrays.pop("params"), arrays.pop("memory")
        arrays.pop("history", None)
        arrays = self._preconditioned(arrays, mean)
        gradient = mean.gradient
        mask = self._penalised(number)
        first = self.bounds[number][0] // PAGE
        fold: TreeFold[Array] = TreeFold(self._pages, np.add, f"round {completed}, the scalars")
        for page, start in enumerate(range(0, len(params), PAGE), first):
            part = slice(start, start + PAGE)
            state = {name: array[part] for name, array in arrays.items()}
            kept = params[part] * mask[part]
            with np.errstate(all="ignore"):
                sums = self._global.sums(gradient[part], state, params[part], memory)
                squares = np.float64(kept @ kept)
            fold.add(Node(0, page), np.append(squares, sums))
        return fold

    def _preconditioned(self, state: dict[str, Array], mean: "Mean") -> dict[str, Array]:
        if mean.curvature is None:
            return state
        assert self._global is not None and self._global.precondition is not None
        return self._global.precondition(state, mean.curvature)

    def _step(
        self, completed: int, number: int, mean: "Mean", sums: Array | None, stop: int
    ) -> Iterator[tuple[str, Message]]:
        block = self._block(completed, number)
        arrays = dict(block.arrays)
        params, memory = arrays.pop("params"), arrays.pop("memory")
        history = arrays.pop("history", None)
        plan, optimizer = self.session.plan, self.session.optimizer
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
                rate = self.session.schedule(completed)
                params = _soft_threshold(params, rate * plan.l1 * self._penalised(number))
        self._check_updated(completed, number, params)
        arrays = {"params": params, "memory": memory, **state}
        if history is not None:
            if plan.is_checkpoint(completed):
                history = history[:0]
            row = np.array([[mean.count, mean.weight, mean.loss]])
            arrays["history"] = np.concatenate([history, row])
        run, blocks = self.session.run, len(self.bounds)
        after = Block.of(completed + 1, arrays, block)
        run.publish_block(completed + 1, number, blocks, after)
        needed = block.rounds() | after.rounds()
        run.remove_blocks(number, blocks, needed, before=completed)
        self._published[number] = completed + 1, after
        # The steps after the search has ended have nothing to do.
        if completed + 1 < stop and not plan.is_done(memory):
            share = references(plan, completed + 1, self.tasks, blocks)
            start, end = (len(share) * edge // blocks for edge in (number, number + 1))
            for reference in share[start:end]:
                yield reference.to_key(), Message()

    def _block(self, completed: int, number: int) -> Block:
        """A block after some rounds: from memory, if this process knows it."""
        known, block = self._published.get(number, (-1, None))
        if block is None or known != completed:
            block = self.session.run.read_block(completed, number, len(self.bounds))
            self._published[number] = completed, block
        return block

    def _check_updated(self, completed: int, block: int, params: Array) -> None:
        index = _first_non_finite(params)
        if index >= 0:
            name = self.session.model.parameter_at(self.bounds[block][0] + index)
            raise NonFiniteError(
                f"round {completed}: the update makes parameter {name} {params[index]}. The "
                f"training diverged: try a smaller --learning-rate or --schedule warmup"
            )


#: The key of what is added up over blocks; no block's, since those are digits.
SCALARS = "scalars"


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


def _soft_threshold(params: Array, thresholds: Array) -> Array:
    """Nearer to 0 by the thresholds, or 0: the proximal step of an L1 penalty.

    So that weights become 0 and stay there (J. Duchi and Y. Singer, Efficient Online and Batch
    Learning Using Forward Backward Splitting, 2009).
    """
    shrunk: Array = np.sign(params) * np.maximum(np.abs(params) - thresholds, 0)
    return np.where(thresholds > 0, shrunk, params).astype(params.dtype, copy=False)
