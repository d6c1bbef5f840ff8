"""Runs a round and notes what happens: each slice, each addition, and each pair of the job.

The job is the training's own, :class:`mapreduce.executors.chain.ChainJob`: its methods are called
as tasks of Hadoop would, and what goes between them is written as lines and read again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mapreduce.collect.aggregator import MeanAggregator, VectorSum
from mapreduce.collect.tree import Node, ShuffledFold, TreeFold
from mapreduce.collect.vectors import SparseVector, Vector
from mapreduce.data.batch import Batch, Csr
from mapreduce.executors.chain import ChainJob
from mapreduce.job import MRStep
from mapreduce.optim import loss_scale
from mapreduce.plan import Plan
from mapreduce.rundir import Array, RunDir
from mapreduce.runners.partition import hash_partition
from mapreduce.strategies.references import block_of, merge_levels, ranges, references
from mapreduce.strategies.session import Session, session
from mapreduce.strategies.sync import SCALARS
from mapreduce.teaching.training.model import (
    InRow,
    NodeNote,
    PairNote,
    SliceNote,
    StepNote,
    TaskNote,
)
from mapreduce.wire import Message, WireProtocol


@dataclass(frozen=True)
class Layout:
    """How the round is divided; nothing in it changes the result."""

    tasks: int
    blocks: int
    fan_in: int


# Slices and additions


class _Part(NamedTuple):
    node: Node
    sum: VectorSum


@dataclass
class Gradient:
    """The round's gradient, slice by slice.

    Attributes
    ----------
    slices : list of SliceNote
    nodes : list of NodeNote
    total : array (size,)
        The sum over all rows, along the tree.
    loss : float
        The same of the losses.
    in_row : InRow, optional
        How the sum from left to right differs, if there are additions to be made in two ways.
    row_bytes : int
        Of the rows, as they are stored.
    """

    slices: list[SliceNote]
    nodes: list[NodeNote]
    total: Array
    loss: float
    in_row: InRow | None
    row_bytes: int


def gradient(run: RunDir, completed: int, layout: Layout) -> Gradient:
    """Compute the gradients of a round's slices and add them up, and note every sum.

    Parameters
    ----------
    run : RunDir
        Holds the state after ``completed`` rounds, in ``layout.blocks`` blocks.
    completed : int
    layout : Layout
    """
    own = session(run.path, 1)
    scale = scale_of(own.plan, own.memory(completed, layout.blocks))
    slices = own.plan.slices(completed)
    places = _Places(len(slices), layout)
    aggregator = MeanAggregator()
    leaves: list[SliceNote] = []
    nodes: list[NodeNote] = []

    def combine(left: _Part, right: _Part) -> _Part:
        total = aggregator.combine(left.sum, right.sum)
        parent = Node(left.node.level + 1, left.node.number >> 1)
        stop = min(parent.stop, len(slices))
        task, step = places.of(parent.start, stop, parent.level)
        found = norm(total.vector) / scale
        middle = right.node.start
        nodes.append(
            NodeNote(parent.start, middle, stop, parent.level, task, step, total.weight, found)
        )
        return _Part(parent, total)

    fold: TreeFold[_Part] = TreeFold(len(slices), combine, f"round {completed + 1}")
    in_row: Array | None = None
    row_bytes = 0
    for leaf, rows in enumerate(slices):
        batch = own.batch(rows)
        row_bytes += _bytes_of(batch)
        part = _of_slice(own, completed, layout.blocks, batch)
        task, _ = places.of(leaf, leaf + 1, 0)
        found = norm(part.vector) / scale
        leaves.append(SliceNote(leaf, task, *rows, part.weight, part.loss, found))
        dense = _dense(part.vector)
        with np.errstate(all="ignore"):
            in_row = dense.copy() if in_row is None else in_row + dense
        fold.add(Node(0, leaf), _Part(Node(0, leaf), part))
    result = fold.result().sum
    total = _dense(result.vector)
    assert in_row is not None, "a round has at least one slice"
    effect = _effect(total, in_row, scale) if len(slices) > 2 else None
    nodes.sort(key=lambda node: (node.level, node.start))
    return Gradient(leaves, nodes, total, result.loss, effect, row_bytes)


def _of_slice(own: Session, completed: int, blocks: int, batch: Batch) -> VectorSum:
    def memory() -> Array:
        return np.empty(own.model.size, own.model.dtype)

    with np.errstate(all="ignore"):
        loss, vector = own.gradient(completed, blocks, batch, memory)
    return VectorSum(batch.rows, batch.weight, loss, vector)


class _Places:
    """Who adds: the map task that has all slices of a sum, else a reducer of some step."""

    def __init__(self, leaves: int, layout: Layout) -> None:
        self._ranges = ranges(leaves, layout.tasks)
        self._levels = merge_levels(leaves, layout.tasks, layout.fan_in)

    def of(self, start: int, stop: int, level: int) -> tuple[int, int]:
        for task, (first, end) in enumerate(self._ranges):
            if first <= start and stop <= end:
                return task, -1
        return -1, sum(1 for merged in self._levels if merged < level)


def norm(vector: Vector) -> float:
    """Euclidean norm, summed up in float64."""
    values = vector.values if isinstance(vector, SparseVector) else vector
    wide = values.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return float(np.sqrt(wide @ wide))


def _dense(vector: Vector) -> Array:
    return vector.to_dense() if isinstance(vector, SparseVector) else vector


def scale_of(plan: Plan, memory: Array) -> float:
    """Of the loss, where it is scaled so that float16 holds its gradient; else 1."""
    return loss_scale(memory) if plan.is_mixed else 1.0


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


def job_steps(run: RunDir, completed: int, layout: Layout) -> tuple[list[StepNote], Array]:
    """Run the steps of a round's job, and note what went where.

    The round is published in ``run``, and the last step emits the references of the next one.

    Returns
    -------
    steps : list of StepNote
    total : array (size,)
        The sum of what the mappers have sent, added up as reducers do.
    """
    plan = run.config.plan
    own = len(_job(run, completed, completed + 1, layout).steps())
    job = _job(run, completed, min(completed + 2, plan.rounds), layout)
    protocol = WireProtocol()
    first = references(plan, completed, layout.tasks, layout.blocks)
    given = [[protocol.write(one.to_key(), Message())] for one in first]
    leaves = plan.leaves(completed)
    notes, sent = [], _Sent(leaves, layout.blocks)
    for number, step in enumerate(job.steps()[:own]):
        watch = sent.receive if number == 0 else None
        note, given = _Step(number, step, layout.blocks, leaves, watch).run(given)
        notes.append(note)
    return notes, sent.total()


class _Sent:
    """Adds up what mappers send, block by block, apart from the job's own reducers."""

    def __init__(self, leaves: int, blocks: int) -> None:
        self._aggregator = MeanAggregator()
        combine = self._aggregator.combine
        self._folds: list[ShuffledFold[VectorSum]] = [
            ShuffledFold(leaves, combine, f"block {number}") for number in range(blocks)
        ]

    def receive(self, block: int, message: Message) -> None:
        node = Node(*message.meta["node"])
        part = self._aggregator.from_message(message)
        self._folds[block].receive(node, part, message.digest or 0)

    def total(self) -> Array:
        return np.concatenate([_dense(fold.result().vector) for fold in self._folds])


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


class _Step:
    """Runs one step of a job as Hadoop would.

    Parameters
    ----------
    number : int
    step : MRStep
    partitions : int
    leaves : int
        Slices of the round.
    watch : callable, optional
        Is given each pair that a mapper sends, as it is read from its line.
    """

    def __init__(
        self,
        number: int,
        step: MRStep,
        partitions: int,
        leaves: int,
        watch: Callable[[int, Message], None] | None,
    ) -> None:
        self._watch = watch
        self._mapper = step["mapper"]
        self._reducer = step["reducer"]
        self._partitions = partitions
        self._leaves = leaves
        self._protocol = WireProtocol()
        name = self._mapper.__name__ if step.has_explicit_mapper else ""
        self.note = StepNote(number, name, self._reducer.__name__)

    def run(self, given: list[list[bytes]]) -> tuple[StepNote, list[list[bytes]]]:
        """From the lines of each map task to those that each reducer wrote."""
        shuffled: list[list[bytes]] = [[] for _ in range(self._partitions)]
        for number, lines in enumerate(given):
            self._map(number, lines, shuffled)
        made = [self._reduce(number, lines) for number, lines in enumerate(shuffled)]
        # Of an empty file there is no split.
        return self.note, [lines for lines in made if lines]

    def _map(self, number: int, lines: list[bytes], shuffled: list[list[bytes]]) -> None:
        task = TaskNote(number)
        begun = time.perf_counter()
        for line in lines:
            key, message = self._protocol.read(line)
            task.inputs.append(key)
            task.input_bytes += len(line) + 1
            for out_key, out in self._mapper(key, message):
                # At once: the vector's memory may be used again for the next.
                written = self._protocol.write(out_key, out)
                part = hash_partition(written.partition(b"\t")[0], self._partitions)
                shuffled[part].append(written)
                note = self._pair(out_key, out, len(written) + 1, number, part)
                self.note.pairs.append(note)
                if self._watch:
                    self._watch(note.block, self._protocol.read(written)[1])
                task.outputs += 1
                task.output_bytes += len(written) + 1
        task.seconds = time.perf_counter() - begun
        self.note.maps.append(task)

    def _pair(self, key: str, message: Message, size: int, task: int, part: int) -> PairNote:
        block = -1 if key == SCALARS else block_of(key)
        start = stop = 0
        if "node" in message.meta:
            node = Node(*message.meta["node"])
            start = node.start
            stop = node.stop if key == SCALARS else min(node.stop, self._leaves)
        what = "mean" if "gradient" in message.arrays else "gradients"
        what = "scalars" if key == SCALARS or [*message.arrays] == ["sums"] else what
        return PairNote(key, what, block, start, stop, size, task, part)

    def _reduce(self, number: int, lines: list[bytes]) -> list[bytes]:
        task = TaskNote(number)
        begun = time.perf_counter()
        groups: dict[bytes, list[bytes]] = defaultdict(list)
        for line in lines:
            groups[line.partition(b"\t")[0]].append(line)
            task.input_bytes += len(line) + 1
        made = []
        for raw in sorted(groups):
            task.inputs.append(self._protocol.read(groups[raw][0])[0])
            for pair in self._reducer(task.inputs[-1], self._values(groups[raw])):
                made.append(self._protocol.write(*pair))
        task.outputs, task.output_bytes = len(made), sum(len(line) + 1 for line in made)
        task.seconds = time.perf_counter() - begun
        self.note.reduces.append(task)
        return made

    def _values(self, lines: list[bytes]) -> Iterator[Any]:
        return (self._protocol.read(line)[1] for line in lines)
