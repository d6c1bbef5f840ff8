"""Runs a round and notes what happens: each slice, each addition, and each pair of the job.

The job is the training's own, :class:`mapreduce.executors.chain.ChainJob`: its methods are called
as tasks of Hadoop would, and what goes between them is written as lines and read again. Slices and
additions are seen by listening to the folds of the strategy, whichever it is.
"""

import inspect
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mapreduce.data.batch import Batch, Csr
from mapreduce.executors.chain import ChainJob
from mapreduce.job import MRStep
from mapreduce.plan import strategies
from mapreduce.plan.plan import Plan
from mapreduce.reduction.aggregator import VectorSum, combine
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.reduction.tree import Node, TreeFold, watcher
from mapreduce.reduction.vectors import SparseVector, Vector, dense
from mapreduce.runners.parallel.partition import hash_partition
from mapreduce.runs.directory import Array, RunDir
from mapreduce.strategies.base import Layout, Strategy
from mapreduce.strategies.leaf_ranges import block_of, leaf_ranges
from mapreduce.strategies.task_context import task_context
from mapreduce.tracing.training.model import (
    InRow,
    NodeNote,
    PairNote,
    SliceNote,
    StepNote,
    TaskNote,
)


@dataclass
class Traced:
    """A round, as it was seen.

    Attributes
    ----------
    slices : list of SliceNote
    nodes : list of NodeNote
    steps : list of StepNote
    total : array (size,)
        What the reducers have added up.
    again : array (size,)
        The same, from the slices that were seen, added up apart.
    in_row : InRow, optional
        How the sum from left to right differs, if there are additions to be made in two ways.
    row_bytes : int
        Bytes of the rows, as they are stored.
    """

    slices: list[SliceNote]
    nodes: list[NodeNote]
    steps: list[StepNote]
    total: Array
    again: Array
    in_row: InRow | None
    row_bytes: int


def trace_round(run: RunDir, completed: int, layout: Layout) -> Traced:
    """Run the steps of a round's job, and note what went where.

    The round is published in ``run``, and the last step emits the ranges of the next one.

    Parameters
    ----------
    run : RunDir
        Holds the state after ``completed`` rounds, in ``layout.blocks`` blocks.
    completed : int
    layout : Layout
    """
    plan = run.config.plan
    strategy = strategies.find(plan.strategy)
    units = strategy.units(plan, completed)
    own = len(_job(run, completed, completed + 1, layout).steps())
    job = _job(run, completed, min(completed + 2, plan.rounds), layout)
    protocol = WireProtocol()
    given = [
        [protocol.write(each.to_key(), Message())]
        for each in leaf_ranges(completed, units, layout.tasks)
    ]
    scale = scale_of(plan, run.read_block(completed, 0, layout.blocks, ["memory"]).arrays["memory"])
    seen = _Seen(units, scale)
    steps = []
    token = watcher.set(seen)
    try:
        for number, step in enumerate(job.steps()[:own]):
            note, given = _Step(number, step, layout.blocks, strategy, seen).run(given)
            steps.append(note)
    finally:
        watcher.reset(token)
    total, again, effect = seen.sums()
    slices, row_bytes = _slices(run, completed, layout, strategy, seen)
    nodes = sorted(seen.nodes.values(), key=lambda node: (node.level, node.start))
    return Traced(slices, nodes, steps, total, again, effect, row_bytes)


def _slices(
    run: RunDir, completed: int, layout: Layout, strategy: type[Strategy], seen: "_Seen"
) -> tuple[list[SliceNote], int]:
    """The units of the round, and the bytes of their rows."""
    context = task_context(run.path, 1)
    notes, row_bytes = [], 0
    tasks = leaf_ranges(completed, seen.units, layout.tasks)
    for leaf, (weight, loss, squares) in sorted(seen.leaves.items()):
        parts = strategy.slices(context.plan, completed, leaf)
        row_bytes += sum(_bytes_of(context.batch(rows)) for rows in parts)
        first = parts[0]
        stop = first.start + sum(rows.stop - rows.start for rows in parts)
        found = float(np.sqrt(squares))
        task = next(number for number, each in enumerate(tasks) if leaf < each.stop)
        notes.append(SliceNote(leaf, task, first.shard, first.start, stop, weight, loss, found))
    return notes, row_bytes


# Slices and additions


@dataclass
class _Seen:
    """Listens to the folds of a round.

    Attributes
    ----------
    units : int
    scale : float
        Scale of the loss.
    step, task, block : int
        Where the code that runs belongs: ``task`` is -1 in a reducer, ``block`` in a map task.
    """

    units: int
    scale: float
    step: int = 0
    task: int = -1
    block: int = -1
    leaves: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    nodes: dict[tuple[Node, int, int], NodeNote] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._roots: dict[int, Array] = {}
        self._apart: dict[int, TreeFold[VectorSum]] = {}
        self._in_row: dict[int, Array] = {}
        self._known: set[tuple[int, int]] = set()

    def received(self, fold: TreeFold[Any], node: Node, partial: Any) -> None:
        """Note a leaf; a sum that comes as a whole is the root of a block."""
        if not isinstance(partial, VectorSum) or fold.leaves != self.units:
            return
        if node == fold.root:
            self._note_root(partial)
        leaf, block = node.number, self.block
        if node.level or (leaf, -1) in self._known or (leaf, block) in self._known:
            return
        self._known.add((leaf, block))
        _, _, before = self.leaves.get(leaf, (0.0, 0.0, 0.0))
        squares = before + (norm(partial.vector) / self.scale) ** 2
        self.leaves[leaf] = (partial.weight, partial.loss, squares)
        vector = dense(partial.vector).copy()
        if block not in self._apart:
            # Not watched: this fold is ours.
            token = watcher.set(None)
            self._apart[block] = TreeFold(self.units, combine, "the sum")
            watcher.reset(token)
        with np.errstate(all="ignore"):
            known = self._in_row.get(block)
            self._in_row[block] = vector.copy() if known is None else known + vector
        copy = VectorSum(partial.count, partial.weight, partial.loss, vector)
        self._apart[block].add(node, copy)

    def combined(self, fold: TreeFold[Any], node: Node, partial: Any) -> None:
        """Note an addition."""
        if not isinstance(partial, VectorSum) or fold.leaves != self.units:
            return
        if node == fold.root:
            self._note_root(partial)
        step = -1 if self.block < 0 else self.step
        stop, middle = min(node.stop, self.units), node.start + (1 << (node.level - 1))
        found = norm(partial.vector) / self.scale
        key = (node, self.task, step)
        if key in self.nodes:
            found = float(np.hypot(self.nodes[key].norm, found))
        self.nodes[key] = NodeNote(
            node.start, middle, stop, node.level, self.task, step, partial.weight, found
        )

    def _note_root(self, partial: VectorSum) -> None:
        if self.block >= 0:
            self._roots[self.block] = dense(partial.vector).copy()

    def sums(self) -> tuple[Array, Array, InRow | None]:
        """What reducers have added up; the same apart; what the order makes of it."""
        if not self._roots or not self._apart:
            return np.empty(0), np.empty(0), None
        total = np.concatenate([self._roots[block] for block in sorted(self._roots)])
        parts = [dense(self._apart[block].result().vector) for block in sorted(self._apart)]
        in_row = np.concatenate([self._in_row[block] for block in sorted(self._in_row)])
        effect = _effect(total, in_row, self.scale) if self.units > 2 else None
        return total, np.concatenate(parts), effect


def norm(vector: Vector) -> float:
    """Euclidean norm, summed up in float64."""
    values = vector.values if isinstance(vector, SparseVector) else vector
    wide = values.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return float(np.sqrt(wide @ wide))


def scale_of(plan: Plan, scalars: Array) -> float:
    """What the loss of a round is multiplied with."""
    return plan.create_optimizer().loss_scale(scalars)


def _effect(total: Array, in_row: Array, scale: float) -> InRow:
    kind = f"u{total.itemsize}"
    differing = int(np.count_nonzero(total.view(kind) != in_row.view(kind)))
    with np.errstate(all="ignore"):
        largest = float(np.max(np.abs(total.astype(np.float64) - in_row), initial=0.0))
    return InRow(total.size, differing, largest / scale)


def _bytes_of(batch: Batch) -> int:
    features = batch.features
    arrays = (
        [features.values, features.indices, features.indptr]
        if isinstance(features, Csr)
        else [features]
    )
    labels = [] if batch.labels is None else [batch.labels]
    return sum(array.nbytes for array in (*arrays, *labels))


# The job


def _job(run: RunDir, start: int, stop: int, layout: Layout) -> ChainJob:
    options = {
        "--runner": "inline",
        "--run-dir": run.path,
        "--start": start,
        "--stop": stop,
        "--tasks": layout.tasks,
        "--threads": 1,
        "--blocks": layout.blocks,
        "--fan-in": layout.fan_in,
    }
    return ChainJob([text for item in options.items() for text in map(str, item)])


def _does(strategy: type[Strategy], name: str) -> str:
    """What a method does, as the first line of its docstring says."""
    return (inspect.getdoc(getattr(strategy, name, None)) or "").partition("\n")[0]


class _Step:
    """Runs one step of a job as Hadoop would.

    Parameters
    ----------
    number : int
    step : MRStep
    partitions : int
    strategy : type
    seen : _Seen
    """

    def __init__(
        self,
        number: int,
        step: MRStep,
        partitions: int,
        strategy: type[Strategy],
        seen: _Seen,
    ) -> None:
        self._strategy = strategy
        self._seen = seen
        self._mapper = step["mapper"]
        self._reducer = step["reducer"]
        self._partitions = partitions
        self._protocol = WireProtocol()
        mapper = "map" if step.has_explicit_mapper else ""
        reducer = self._reducer.__name__
        does = _does(strategy, mapper), _does(strategy, reducer)
        self.note = StepNote(number, mapper, reducer, *does)

    def run(self, given: list[list[bytes]]) -> tuple[StepNote, list[list[bytes]]]:
        """From the lines of each map task to those that each reducer wrote."""
        shuffled: list[list[bytes]] = [[] for _ in range(self._partitions)]
        for number, lines in enumerate(given):
            self._map(number, lines, shuffled)
        made = [self._reduce(number, lines) for number, lines in enumerate(shuffled)]
        # An empty file has no split.
        return self.note, [lines for lines in made if lines]

    def _map(self, number: int, lines: list[bytes], shuffled: list[list[bytes]]) -> None:
        task = TaskNote(number)
        begun = time.perf_counter()
        self._seen.step, self._seen.task, self._seen.block = self.note.number, number, -1
        for line in lines:
            key, message = self._protocol.read(line)
            task.inputs.append(key)
            task.input_bytes += len(line) + 1
            for out_key, out in self._mapper(key, message):
                written = self._protocol.write(out_key, out)
                part = hash_partition(written.partition(b"\t")[0], self._partitions)
                shuffled[part].append(written)
                self.note.pairs.append(self._pair(out_key, out, len(written) + 1, number, part))
                task.outputs += 1
                task.output_bytes += len(written) + 1
        task.seconds = time.perf_counter() - begun
        self.note.maps.append(task)

    def _pair(self, key: str, message: Message, size: int, task: int, part: int) -> PairNote:
        start = stop = 0
        what = self._strategy.label(message)
        if "node" in message.meta:
            node = Node(*message.meta["node"])
            start = node.start
            is_sum = not message.arrays.keys().isdisjoint(("vector", "values"))
            stop = min(node.stop, self._seen.units) if is_sum else node.stop
        return PairNote(key, what, block_of(key), start, stop, size, task, part)

    def _reduce(self, number: int, lines: list[bytes]) -> list[bytes]:
        task = TaskNote(number)
        begun = time.perf_counter()
        groups: dict[bytes, list[bytes]] = defaultdict(list)
        for line in lines:
            groups[line.partition(b"\t")[0]].append(line)
            task.input_bytes += len(line) + 1
        made = []
        self._seen.step, self._seen.task = self.note.number, -1
        for raw in sorted(groups):
            task.inputs.append(self._protocol.read(groups[raw][0])[0])
            self._seen.block = block_of(task.inputs[-1])
            for pair in self._reducer(task.inputs[-1], self._values(groups[raw])):
                made.append(self._protocol.write(*pair))
        task.outputs, task.output_bytes = len(made), sum(len(line) + 1 for line in made)
        task.seconds = time.perf_counter() - begun
        self.note.reduces.append(task)
        return made

    def _values(self, lines: list[bytes]) -> Iterator[Any]:
        return (self._protocol.read(line)[1] for line in lines)
