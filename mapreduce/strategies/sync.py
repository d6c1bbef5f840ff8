"""Synchronous data parallelism: every round adds up the gradients of its slices and steps once.

One round, as map/reduce::

    reference of some slices  --map-->     block -> partial sums along the canonical tree
                              --reduce-->  sum, mean, optimizer step, publish the block;
                                           references for the next round

Keys are blocks of the flat parameter vector, so that each reducer is a parameter server's shard:
it owns a block and its part of the optimizer's state, and nothing else.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernels import dispatch
from mapreduce.collect.aggregator import MeanAggregator, VectorSum
from mapreduce.collect.tree import Node, ShuffledFold, TreeFold, root
from mapreduce.errors import NonFiniteError
from mapreduce.plan import Plan, Slice
from mapreduce.rundir import Array, block_bounds
from mapreduce.strategies.session import Session
from mapreduce.wire import Message

_first_non_finite = dispatch.get("first_non_finite")

#: Smallest number of aligned pieces per map task, from which its range is made up.
_PIECES = 8


class Reference(NamedTuple):
    """Some slices of a round, and where the parameters for it are.

    Attributes
    ----------
    completed : int
        Rounds completed before; also the number of the round, from 0.
    start, stop : int
        Leaves of the round's tree.
    blocks : int
        Number of blocks in which the parameters were published.
    """

    completed: int
    start: int
    stop: int
    blocks: int

    def to_key(self) -> str:
        """All references have equal length, so that a file of them can be split into even parts."""
        return f"{self.completed:08d}.{self.start:08d}-{self.stop:08d}.{self.blocks:05d}"

    @classmethod
    def from_key(cls, key: str) -> "Reference":
        return cls(int(key[:8]), int(key[9:17]), int(key[18:26]), int(key[27:]))


def alignment(leaves: int, tasks: int) -> int:
    """Level of the nodes that the ranges of map tasks are made up of.

    Small enough to give even ranges, and so large that a range has few complete nodes.
    """
    return max(0, (leaves // (tasks * _PIECES)).bit_length() - 1)


def ranges(leaves: int, tasks: int) -> list[tuple[int, int]]:
    """Ranges of leaves for at most so many map tasks: even, aligned, none empty."""
    piece = 1 << alignment(leaves, tasks)
    pieces = -(-leaves // piece)
    edges = [min(pieces * i // tasks * piece, leaves) for i in range(tasks)] + [leaves]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def references(plan: Plan, completed: int, tasks: int, blocks: int) -> list[Reference]:
    """The references of a round, for at most so many map tasks."""
    parts = ranges(plan.leaves(completed), tasks)
    return [Reference(completed, start, stop, blocks) for start, stop in parts]


def merge_levels(leaves: int, tasks: int, fan_in: int) -> list[int]:
    """Levels of the tree at which a step of its own merges partial sums.

    With them no reducer merges more than ``fan_in`` partial sums of a block; 0 means no limit.
    """
    if not fan_in:
        return []
    step = fan_in.bit_length() - 1
    return list(range(alignment(leaves, tasks) + step, root(leaves).level, step))


def block_key(block: int) -> str:
    """The key of a block: its number in base 31.

    Java's hash of a string is its digits' value in base 31 plus a constant, so Hadoop's own
    HashPartitioner gives consecutive blocks to different reducers.
    """
    digits = (block // 961, block // 31 % 31, block % 31)
    return "".join(chr(ord("0") + digit) for digit in digits)


def block_of(key: str) -> int:
    """The block of a key that starts with :func:`block_key`."""
    top, middle, low = (ord(char) - ord("0") for char in key[:3])
    return (top * 31 + middle) * 31 + low


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
        self._published: dict[int, tuple[int, dict[str, Array]]] = {}

    # Map

    def gradients(self, key: str) -> Iterator[tuple[str, Message]]:
        """Partial sums of the gradients of the slices of a reference, block by block."""
        reference = Reference.from_key(key)
        fold = self._fold(reference)
        levels = merge_levels(fold.leaves, self.tasks, self.fan_in)
        for node, partial in fold.nodes():
            self._check_finite(reference, node, partial)
            for block, (start, stop) in enumerate(self.bounds):
                part = VectorSum(partial.count, partial.loss, partial.vector[start:stop])
                yield (
                    self._target(block, node, levels[0] if levels else None),
                    self._message(reference.completed, node, part),
                )
            self._spare.append(partial.vector)

    def _fold(self, reference: Reference) -> TreeFold[VectorSum]:
        session = self.session
        slices = session.plan.slices(reference.completed)
        params = session.params(reference.completed, reference.blocks)
        fold: TreeFold[VectorSum] = TreeFold(len(slices), self._combine, "the gradient")

        def gradient(rows: Slice) -> VectorSum:
            batch = session.batch(rows)
            vector = self._vector()
            # What is not finite is looked for in the sum, and told with its place.
            with np.errstate(all="ignore"):
                loss = session.model.gradient(params, batch, vector, session.workspace)
            return VectorSum(batch.rows, loss, vector)

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
        self._spare.append(right.vector)
        return combined

    def _check_finite(self, reference: Reference, node: Node, partial: VectorSum) -> None:
        if np.isfinite(partial.loss) and _first_non_finite(partial.vector) < 0:
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

        ``stop`` is the number of completed rounds at which the job ends.
        """
        block = block_of(key)
        completed, fold = self._receive(block, messages)
        total = fold.result()
        before = self._block(completed, block)
        params = before.pop("params")
        history = before.pop("history", None)
        gradient = self._aggregator.finalize(total)
        with np.errstate(all="ignore"):
            updates, state = self.session.optimizer.update(gradient, before, params, completed)
            params = params + updates
        self._check_updated(completed, block, params)
        arrays = {"params": params, **state}
        if history is not None:
            if self.session.plan.is_checkpoint(completed):
                history = history[:0]
            row = np.array([[total.count, total.loss]])
            arrays["history"] = np.concatenate([history, row])
        run, blocks = self.session.run, len(self.bounds)
        run.publish_block(completed + 1, block, blocks, arrays)
        run.remove_block(completed - 1, block, blocks)
        self._published[block] = completed + 1, arrays
        if completed + 1 < stop:
            share = references(self.session.plan, completed + 1, self.tasks, blocks)
            start, end = (len(share) * edge // blocks for edge in (block, block + 1))
            for reference in share[start:end]:
                yield reference.to_key(), Message()

    def _block(self, completed: int, block: int) -> dict[str, Array]:
        """A block after some rounds: from memory, if this process published it."""
        known, arrays = self._published.pop(block, (-1, {}))
        if known == completed:
            return arrays
        return self.session.run.read_block(completed, block, len(self.bounds))

    def _check_updated(self, completed: int, block: int, params: Array) -> None:
        index = _first_non_finite(params)
        if index >= 0:
            name = self.session.model.parameter_at(self.bounds[block][0] + index)
            raise NonFiniteError(
                f"round {completed}: the update makes parameter {name} {params[index]}. The "
                f"training diverged: try a smaller --learning-rate or --schedule warmup"
            )
