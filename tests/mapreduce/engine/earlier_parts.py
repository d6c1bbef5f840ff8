"""A program and an executor of one's own, in the form of the version before."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from own_averaging import Averaging

from hdfs_utils.paths import path_of
from mapreduce.parts import (
    QUIET,
    WHOLE,
    Dataset,
    InMemory,
    Layout,
    Message,
    Monoid,
    Resumable,
    Slices,
    Sum,
    Times,
    block_key,
    block_of,
    blocks_of,
    built,
    in_one_thread,
    leaf_ranges,
    reduced,
)


@dataclass(frozen=True)
class KMeans(Sum):
    data: str
    sha256: str
    clusters: int
    limit: int = 50

    has_state = ends_early = True
    MONOID = Monoid(
        "the clusters",
        np.add,
        lambda sums: Message({}, {"sums": sums}),
        lambda message: message.arrays["sums"],
    )

    @cached_property
    def slices(self):
        return Slices(Dataset(path_of(self.data), self.sha256), 16)

    def features(self, unit):
        return self.slices[unit].features.astype(np.float64)

    def most_rounds(self):
        return self.limit

    def units(self, completed):
        return len(self.slices)

    def first(self, blocks):
        return [{"centres": self.features(0)[: self.clusters], "moved": np.ones(1)}]

    def lift(self, completed, unit):
        """The number of rows of each cluster in a slice, and their sum."""
        x, centres = self.features(unit), self.state.vector(completed, "centres")
        nearest = ((x[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        sums = np.zeros((self.clusters, 1 + x.shape[1]))
        np.add.at(sums, nearest, np.insert(x, 0, 1, axis=1))
        return sums

    def finish(self, completed, total):
        before, rows = self.state.block(completed, 0).arrays["centres"], total[:, :1]
        after = np.where(rows, total[:, 1:] / np.maximum(rows, 1), before)
        return Message({}, {"centres": after, "moved": np.array([(after != before).any()], float)})

    def is_over(self, completed, arrays):
        return super().is_over(completed, arrays) or not arrays["moved"][0]


@dataclass(frozen=True)
class Fewer(KMeans):
    """Has a method of its own, and otherwise those of a program in the earlier form."""

    def finish(self, completed, total):
        assert completed < self.limit
        return super().finish(completed, total)


@dataclass(frozen=True)
class Squares(Sum):
    """A sum without a state, which maps its units by itself."""

    count: int

    MONOID = Monoid(
        "the squares",
        lambda left, right: left + right,
        lambda total: Message({"sum": total}),
        lambda message: message.meta["sum"],
    )

    def units(self, completed):
        return self.count

    def map(self, part):
        total = sum(unit**2 for unit in range(part.start, part.stop))
        yield (0,), Message({"start": part.start, "sum": total})

    def lift(self, completed, unit):
        return unit**2

    def total(self, completed, key, messages):
        assert completed == 0 and self.layout.blocks == 1
        sums = {message.meta["start"]: message.meta["sum"] for message in messages}
        yield key, self.finish(completed, sum(sums.values()))


class Threads(Resumable):
    name = "threads"

    def once(self, program):
        """The blocks of a program without a state."""
        return self.run(program, InMemory(1), 0, 1)[1]

    def go_on(self, program, state, completed, limit=WHOLE, hooks=QUIET):
        """Run the rounds up to the next one that is due."""
        stop = min(program.next_due(completed), limit.until or program.most_rounds())
        completed, _ = self.run(program, state, completed, stop)
        return Times(completed=completed)

    def run(self, program, state, completed, stop):
        count = self._execution.workers
        layout = Layout(count, state.count)
        tasks = [built(program.describe()) for _ in range(count)]
        for one in (program, *tasks):
            one.begin(state, layout)
        with ThreadPoolExecutor(count) as pool, in_one_thread():
            while completed < stop:
                parts = leaf_ranges(completed, program.units(completed), count)
                found = pool.map(lambda task, part: [*task.map(part)], tasks, parts)
                pairs = [pair for mapped in found for pair in mapped]
                phases = program.phases(completed, layout)
                pairs = [*reduced(program, completed, phases, pairs)]
                completed += 1
                blocks = blocks_of(program, pairs, state.count)
                for number, block in enumerate(blocks):
                    state.publish(completed, number, block)
                if program.is_over(completed, blocks[0].arrays):
                    break
        return completed, pairs


class ByText(Averaging):
    """A strategy that asks which block a key has, and for the key of a block."""

    def map(self, part):
        for key, message in super().map(part):
            yield block_key(block_of(key)), message

    def average(self, completed, key, messages):
        assert 0 <= block_of(key) < self.state.count
        return super().average(completed, block_key(block_of(key)), messages)
