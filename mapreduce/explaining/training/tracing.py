"""Runs the job of a round, and notes each slice and each addition.

The job is the training's own, :class:`mapreduce.executors.chain.ChainJob`, traced as any other job.
Slices and additions are seen by listening to the folds of the strategy, whichever it is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapreduce.engine.leaf_ranges import leaf_ranges
from mapreduce.executors.chain import ChainJob, Pairs
from mapreduce.explaining import plans, showing, summary
from mapreduce.explaining.engine import TracingRunner
from mapreduce.explaining.model import Method, Shown, Step, Task
from mapreduce.explaining.tasks import Sent, TracedTask, Variation
from mapreduce.explaining.training.model import InRow, NodeNote, SliceNote, span
from mapreduce.job import MRStep
from mapreduce.launch import run as launch
from mapreduce.plan import strategies
from mapreduce.plan.plan import Plan
from mapreduce.reduction.aggregator import VectorSum
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.reduction.tree import Node, TreeFold, watcher
from mapreduce.reduction.vectors import SparseVector, Vector, dense
from mapreduce.runners.keys import read_key
from mapreduce.runners.parallel.records import Split
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Array
from mapreduce.strategies.base import Layout, Phase, Strategy
from mapreduce.strategies.program import Training


class Traced(NamedTuple):
    """A round, as it was seen, with the sum that the reducers have made, (size,)."""

    steps: list[Step]
    slices: list[SliceNote]
    nodes: list[NodeNote]
    total: Array
    in_row: InRow | None


def trace_round(run: RunDir, completed: int, layout: Layout, folder: Path) -> Traced:
    """Run the steps of a round's job, and note what went where.

    ``run`` holds the state after ``completed`` rounds, in ``layout.blocks`` blocks; the round is
    published there, and the last step emits the ranges of the next one. The job's input is written
    in ``folder``.
    """
    plan = run.config.plan
    strategy = strategies.find(plan.strategy)
    units, phases = strategy.units(plan, completed), strategy.phases(plan, completed, layout)
    tasks = leaf_ranges(completed, units, layout.tasks)
    references = folder / "references"
    lines = [WireProtocol().write(each.to_key(), Message()) + b"\n" for each in tasks]
    references.write_bytes(b"".join(lines))
    scalars = run.rounds.read(completed, 0, layout.blocks, ["memory"]).arrays["memory"]
    leaves = strategy.leaves(plan, completed)
    seen = _Seen(leaves, scale_of(plan, scalars))

    class Watched(ChainJob):
        """The job of one round, which tells what it is working on."""

        def steps(self) -> list[MRStep]:
            first, *rest = super().steps()[: len(phases)]
            return [first, *(MRStep(mapper=_pass, reducer=step["reducer"]) for step in rest)]

        def map_range(self, units: str, message: Message) -> Pairs:
            seen.task, seen.block = seen.task + 1, -1
            yield from super().map_range(units, message)

        def reduce_key(
            self, completed: int, phase: Phase, key: str, messages: Iterator[Message]
        ) -> Pairs:
            seen.step, seen.task, seen.block = self.options.step_num, -1, read_key(key)[0]
            yield from super().reduce_key(completed, phase, key, messages)

    class Runner(_RoundRunner):
        def show(self, item: Any) -> Shown:
            return _show_message(item, strategy, leaves)

    options = {
        "--program": Training.of(run).describe(),
        "--place": run.rounds.folder,
        "--start": completed,
        "--stop": min(completed + 2, plan.rounds),
        "--tasks": layout.tasks,
        "--blocks": layout.blocks,
        "--fan-in": layout.fan_in,
    }
    arguments = ["--no-conf", *(str(text) for item in options.items() for text in item)]
    with launch.prepared(Watched, [*arguments, str(references)], "the round", Runner) as runner:
        runner.run()
        token = watcher.set(seen)
        try:
            steps = runner.trace_here(Variation()).steps
        finally:
            watcher.reset(token)
    for step, phase in zip(steps, phases, strict=True):
        _describe(step, strategy, phase)
    total, in_row = seen.sums()
    slices = []
    for leaf, (weight, loss, squares) in sorted(seen.leaves.items()):
        parts = strategy.slices(plan, completed, leaf)
        task = next(number for number, each in enumerate(tasks) if leaf < each.stop)
        start, rows = parts[0].start, sum(part.stop - part.start for part in parts)
        place = parts[0].shard, start, start + rows
        found = weight, float(np.sqrt(squares))
        slices.append(SliceNote(*found, leaf, task, *place, loss, len(parts)))
    nodes = sorted(seen.nodes.values(), key=lambda node: (node.level, node.start))
    return Traced(steps, slices, nodes, total, in_row)


class _RoundRunner(TracingRunner):
    """Runs all tasks in this process, which holds the data, and raises their errors."""

    def _trace_task(
        self, step: Step, how: Variation, task: Task, split: Split | None, received: Sequence[Sent]
    ) -> Task:
        traced = TracedTask(self, step.number, how, task, received)
        traced.work()
        return traced.task


def _pass(key: str, message: Message) -> Pairs:
    yield key, message


def _show_message(item: Any, strategy: type[Strategy], leaves: int) -> Shown:
    """A message in words; else an object as :func:`showing.show` does."""
    if not isinstance(item, Message):
        return showing.show(item)
    if not item.arrays:
        return Shown("", "nothing")
    text = strategy.label(item)
    if "node" in item.meta:
        node = Node(*item.meta["node"])
        is_sum = not item.arrays.keys().isdisjoint(("vector", "values"))
        stop = min(node.stop, leaves) if is_sum else node.stop
        text += f" of {strategy.unit if is_sum else 'page'}s {span(node.start, stop)}"
    return Shown(text, "Message")


def _describe(step: Step, strategy: type[Strategy], phase: Phase) -> None:
    """Name the strategy's methods, and leave the arrays out of the lines."""
    mapper = Method("mapper", "(none)", "Passes records on as they are.")
    if not step.number:
        mapper = Method("mapper", "map", plans.text_of(strategy.map))
    reduces = getattr(strategy, phase.name, None)
    step.methods = [mapper, Method("reducer", phase.name, plans.text_of(reduces))]
    for task in (*step.maps, *step.reduces):
        for line in task.lines:
            line.text = line.text.partition("\t")[0]
        for record in task.outputs:
            record.line = summary.raw_key(record)


class _Seen:
    """Listens to the folds of a round, whose tree has ``count`` leaves.

    ``step``, ``task`` and ``block`` say where the code that runs belongs; -1 is the task in a
    reducer, and the block in a map task. Map tasks come one after another, in their order.
    Gradients are divided by ``scale``, that of the loss.
    """

    def __init__(self, count: int, scale: float) -> None:
        self.count, self.scale = count, scale
        self.step, self.task, self.block = 0, -1, -1
        #: Weight, loss and squared norm of each leaf; additions by node, task and step.
        self.leaves: dict[int, tuple[float, float, float]] = {}
        self.nodes: dict[tuple[Node, int, int], NodeNote] = {}
        #: Of each block the sum, and that of the leaves from left to right; -1 for a whole vector.
        self._roots: dict[int, Array] = {}
        self._in_row: dict[int, Array] = {}
        #: Leaves that were noted, and blocks; a reducer has those of map tasks once more.
        self._known: set[tuple[int, int]] = set()

    def received(self, fold: TreeFold[Any], node: Node, partial: Any) -> None:
        """Note a leaf."""
        if not self._is_ours(fold, node, partial):
            return
        leaf, block = node.number, self.block
        if node.level or (leaf, -1) in self._known or (leaf, block) in self._known:
            return
        self._known.add((leaf, block))
        _, _, before = self.leaves.get(leaf, (0.0, 0.0, 0.0))
        squares = before + (norm(partial.vector) / self.scale) ** 2
        self.leaves[leaf] = (partial.weight, partial.loss, squares)
        with np.errstate(all="ignore"):
            vector, known = dense(partial.vector), self._in_row.get(block)
            self._in_row[block] = vector.copy() if known is None else known + vector

    def combined(self, fold: TreeFold[Any], node: Node, partial: Any) -> None:
        """Note an addition."""
        if not self._is_ours(fold, node, partial):
            return
        step = -1 if self.block < 0 else self.step
        stop, middle = min(node.stop, self.count), node.start + (1 << (node.level - 1))
        found = norm(partial.vector) / self.scale
        key = (node, self.task, step)
        if key in self.nodes:
            found = float(np.hypot(self.nodes[key].norm, found))
        self.nodes[key] = NodeNote(
            partial.weight, found, node.start, middle, stop, node.level, self.task, step
        )

    def _is_ours(self, fold: TreeFold[Any], node: Node, partial: Any) -> bool:
        """Whether a fold is over the leaves of the round; its root in a reducer is kept."""
        if not isinstance(partial, VectorSum) or fold.leaves != self.count:
            return False
        if node == fold.root and self.block >= 0:
            self._roots[self.block] = dense(partial.vector).copy()
        return True

    def sums(self) -> tuple[Array, InRow | None]:
        """The sum that the reducers have made, and the effect of another order."""
        if not self._roots:
            return np.empty(0), None
        total = np.concatenate([self._roots[block] for block in sorted(self._roots)])
        if self.count <= 2:
            return total, None
        in_row = np.concatenate([self._in_row[block] for block in sorted(self._in_row)])
        kind = f"u{total.itemsize}"
        differing = int(np.count_nonzero(total.view(kind) != in_row.view(kind)))
        with np.errstate(all="ignore"):
            largest = float(np.max(np.abs(total.astype(np.float64) - in_row), initial=0.0))
        return total, InRow(total.size, differing, largest / self.scale)


def norm(vector: Vector) -> float:
    """Euclidean norm, summed up in float64."""
    values = vector.values if isinstance(vector, SparseVector) else vector
    wide = values.astype(np.float64, copy=False).ravel()
    with np.errstate(all="ignore"):
        return float(np.sqrt(wide @ wide))


def scale_of(plan: Plan, scalars: Array) -> float:
    """The factor of a round's loss."""
    return plan.transformation.loss_scale(scalars)
