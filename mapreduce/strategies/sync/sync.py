"""Synchronous data parallelism: every round adds up the gradients of its slices and steps once.

One round, as map/reduce::

    range of slices  --map-->     block -> partial sums along the canonical tree
                     --update-->  sum, mean, optimizer step, publish the block

For an optimizer that needs scalars of all blocks, such as the gradient's norm, a round of several
blocks has one more reduce::

    block -> partial sums  --average-->  mean of the block; its scalars, to every block
                           --finish-->   the scalars' sums along a tree over pages; optimizer step,
                                         publish the block

Keys are blocks of the flat parameter vector, so each reducer is a parameter server's shard, which
owns a block and its part of the optimizer's state.
"""

from collections.abc import Iterable, Iterator

from mapreduce.engine.leaf_ranges import LeafRange, merge_levels
from mapreduce.engine.program import Key, Pair
from mapreduce.errors import MissingNodesError
from mapreduce.models.layers.stages import Stage
from mapreduce.plan.plan import Plan
from mapreduce.plan.strategies import OPTIMIZING
from mapreduce.reduction.aggregator import VectorSum
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.strategies.base import Layout, Line, Phase, Strategy
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.sync.blocks import BlockOwner
from mapreduce.strategies.sync.stages import StagedGradients
from mapreduce.strategies.task_context import TaskContext


class Sync(Strategy):
    """Synchronous training, whose units are the slices of a round."""

    takes = (*OPTIMIZING, "held_out", "fold")
    evaluates_held_out = True
    travels = "sums of gradients to the owners of the blocks, and the new parameters back"
    waits = "all wait for the last slice of each batch"
    use = "the default, and the only one that takes L-BFGS and mixed precision"
    takes_stages = True

    def __init__(self, context: TaskContext, state: TrainingState, layout: Layout) -> None:
        super().__init__(context, state, layout)
        self._gradients: Gradients = Gradients(context, state)
        self._owner = BlockOwner(context, state)

    @classmethod
    def most_messages(cls, plan: Plan, completed: int) -> int:
        """The nodes of a sum along the tree: at most two on each level."""
        return 2 * plan.leaves(completed).bit_length() + 2

    @classmethod
    def phases(cls, plan: Plan, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """Merges where the fan-in is limited, and then the reduces of the module's docstring."""
        merges = ["merge"] * len(_levels(plan, completed, layout))
        has_scalars = layout.blocks > 1 and plan.needs_scalars
        ends = ["average", "finish"] if has_scalars else ["update"]
        return tuple(Phase(name, layout.blocks) for name in (*merges, *ends))

    def split(self, stage: Stage, line: Line) -> None:
        self._gradients = StagedGradients(self.context, self.state, stage, line)

    # Map

    def map(self, part: LeafRange) -> Iterator[Pair]:
        """Partial sums of the gradients of some slices, block by block."""
        levels = _levels(self.context.plan, part.completed, self.layout)
        for node, partial in self._gradients.nodes(part):
            for key, message in self.cut(node, partial):
                yield self._target(key, node, levels), message

    def _target(self, key: Key, node: Node, levels: list[int]) -> Key:
        """The key of a node: its block, and the level and number of the ancestor that merges it."""
        if not levels:
            return key[:1]
        level = levels[0]
        return key[0], level, max(level, node.level), node.number >> max(0, level - node.level)

    # Reduce

    def merge(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Merge partial sums below one node of the tree, where the fan-in is limited."""
        levels = _levels(self.context.plan, completed, self.layout)
        above = [level for level in levels if level > key[1]]
        for node, partial in self.fold(completed, key[0], messages).nodes():
            yield self._target(key, node, above), self.message(node, partial)

    def update(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterable[Pair]:
        """Step a block, and publish it."""
        number = key[0]
        mean = self._mean(completed, number, messages)
        sums = None
        if self.context.plan.needs_scalars:
            sums = self._owner.scalars(completed, number, mean).result()
        self._owner.step(completed, number, mean, sums)
        return ()

    def _mean(self, completed: int, number: int, messages: Iterable[Message]) -> VectorSum:
        total = self.fold(completed, number, messages).result()
        return self._owner.mean(completed, number, total)

    def average(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Send the mean gradient to the block itself, and its scalars to all blocks."""
        number = key[0]
        mean = self._mean(completed, number, messages)
        yield key, mean.to_message()
        for node, sums in self._owner.scalars(completed, number, mean).nodes():
            for other in range(self.layout.blocks):
                yield (other,), Message({"node": [*node]}, {"sums": sums})

    def finish(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterable[Pair]:
        """As :meth:`update`, from the block's mean gradient and the scalars of all blocks."""
        number = key[0]
        mean: VectorSum | None = None
        fold: TreeFold[Array] = self._owner.fold_scalars(completed)
        for message in messages:
            if "node" not in message.meta:
                # A repeated task sends the same mean again.
                mean = VectorSum.from_message(message)
            else:
                node = Node(*message.meta["node"])
                fold.receive(node, message.arrays["sums"], message.digest or 0)
        if mean is None:
            raise MissingNodesError(f"round {completed}, block {number}: the gradient is missing")
        self._owner.step(completed, number, mean, fold.result())
        return ()

    @classmethod
    def label(cls, message: Message) -> str:
        """Gradients of slices, the mean of a block, or scalars."""
        if "node" not in message.meta:
            return "mean"
        return "scalars" if [*message.arrays] == ["sums"] else "gradients"


def _levels(plan: Plan, completed: int, layout: Layout) -> list[int]:
    return merge_levels(plan.leaves(completed), layout.tasks, layout.fan_in)
