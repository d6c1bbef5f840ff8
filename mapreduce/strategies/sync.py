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

from mapreduce.collect.aggregator import VectorSum
from mapreduce.collect.tree import Node, ShuffledFold
from mapreduce.errors import MissingNodesError
from mapreduce.rundir import Array
from mapreduce.strategies.blocks import Blocks, Mean
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.references import (
    Reference,
    block_key,
    block_of,
    merge_levels,
    references,
)
from mapreduce.strategies.session import Session
from mapreduce.wire import Message

#: The key of what is added up over blocks; no block's, since those are digits.
SCALARS = "scalars"


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
        self.fan_in = fan_in
        self._gradients = Gradients(session)
        self._blocks = Blocks(session, blocks)
        self._aggregator = self._blocks.aggregator

    # Map

    def gradients(self, key: str) -> Iterator[tuple[str, Message]]:
        """Partial sums of the gradients of the slices of a reference, block by block."""
        reference = Reference.from_key(key)
        levels = self._levels(reference.completed)
        for node, partial in self._gradients.nodes(reference):
            for block, part in enumerate(self._blocks.cut(partial)):
                yield (
                    self._target(block, node, levels[0] if levels else None),
                    self._message(reference.completed, node, part),
                )
            self._gradients.reuse(partial.vector)

    def _levels(self, completed: int) -> list[int]:
        return merge_levels(self.session.plan.leaves(completed), self.tasks, self.fan_in)

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
        completed, fold = self._receive(block_of(key), messages)
        level = int(key[4:6])
        above = next((other for other in self._levels(completed) if other > level), None)
        for node, partial in fold.nodes():
            yield self._target(block_of(key), node, above), self._message(completed, node, partial)

    def _receive(
        self, number: int, messages: Iterable[Message]
    ) -> tuple[int, ShuffledFold[VectorSum]]:
        fold: ShuffledFold[VectorSum] | None = None
        completed = -1
        for message in messages:
            if fold is None:
                completed = message.meta["round"]
                fold = self._blocks.fold(completed, number)
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
        mean = self._blocks.mean(completed, number, fold.result())
        sums = None
        if self._blocks.needs_scalars:
            sums = self._blocks.scalars(completed, number, mean).result()
        yield from self._step(completed, number, mean, sums, stop)

    def average(self, key: str, messages: Iterable[Message]) -> Iterator[tuple[str, Message]]:
        """The mean gradient of a block, and under :data:`SCALARS` what is added up over blocks."""
        number = block_of(key)
        completed, fold = self._receive(number, messages)
        mean = self._blocks.mean(completed, number, fold.result())
        yield key, mean.to_message(completed)
        for node, sums in self._blocks.scalars(completed, number, mean).nodes():
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
            fold = fold or self._blocks.fold_scalars(completed)
            fold.receive(Node(*message.meta["node"]), message.arrays["sums"], message.digest or 0)
        assert fold is not None, "a reducer gets at least one value"
        for number in range(len(self._blocks.bounds)):
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

    def _step(
        self, completed: int, number: int, mean: Mean, sums: Array | None, stop: int
    ) -> Iterator[tuple[str, Message]]:
        before = self._blocks.block(completed, number)
        after = self._blocks.step(completed, number, mean, sums)
        run, plan, blocks = self.session.run, self.session.plan, len(self._blocks.bounds)
        run.publish_block(completed + 1, number, blocks, after)
        needed = before.rounds() | after.rounds()
        run.remove_blocks(number, blocks, needed, before=completed)
        self._blocks.keep(completed + 1, number, after)
        # The steps after the search has ended have nothing to do.
        if completed + 1 < stop and not plan.is_done(after.arrays["memory"]):
            share = references(plan, completed + 1, self.tasks, blocks)
            start, end = (len(share) * edge // blocks for edge in (number, number + 1))
            for reference in share[start:end]:
                yield reference.to_key(), Message()
