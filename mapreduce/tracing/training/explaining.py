"""``gradreduce explain RUN``: one round of a training, run again and noted."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.errors import UsageError
from mapreduce.models.base import Model
from mapreduce.plan import strategies
from mapreduce.runners.parallel.partition import hash_partition
from mapreduce.runs import checkpoint
from mapreduce.runs import flags as options
from mapreduce.runs.directory import Array, Position, RunDir, block_bounds
from mapreduce.strategies.base import Layout
from mapreduce.strategies.leaf_ranges import block_key
from mapreduce.strategies.task_context import task_context
from mapreduce.support import numeric
from mapreduce.tracing.blocks import View, count
from mapreduce.tracing.training import replay, tracing
from mapreduce.tracing.training.model import BlockNote, Check, ParameterNote, RoundTrace
from mapreduce.tracing.training.picture import legend, picture
from mapreduce.tracing.training.report import report
from mapreduce.tracing.training.scenes import scenes
from mapreduce.tracing.training.tracing import Traced, norm
from mapreduce.training.driver import check_training_data


def traced(
    path: AnyPath,
    number: int | None,
    maps: int | None,
    reducers: int | None,
    fan_in: int | None,
    tell: Callable[[str], None] = lambda message: None,
) -> RoundTrace:
    """Run a round again, and note what happens in it.

    Parameters
    ----------
    path : Path or RemotePath
        Folder of the run, which is only read.
    number : int, optional
        The round, from 1. Default: the last that is finished.
    maps, reducers, fan_in : int, optional
        Map tasks, blocks of the parameters, and most partial sums that one reducer merges.
        Default: those of the run.
    tell : callable
        Called with a message before a long operation.

    Raises
    ------
    MissingInputError
        The run does not exist, or its data are gone.
    DataError
        The run, or its data, are damaged or are not those that the plan was made for.
    UsageError
        The run has no such round, or an option makes no sense.
    """
    begun = time.perf_counter()
    run = RunDir(path.absolute())
    config = run.config
    number = replay.chosen(run, number)
    check_training_data(config)
    layout = _layout(run, maps, reducers, fan_in)
    with tempfile.TemporaryDirectory(prefix="gradreduce-explain-") as folder:
        scratch = RunDir(Path(folder) / "run")
        scratch.create(replace(config, evaluation=None))
        start = replay.nearest(run, number - 1, tell)
        before = replay.advance(scratch, start, number - 1, layout.blocks, tell)
        trace = _begun(run, number, layout, start)
        task_context(scratch.path, 1).warm_up()
        found = tracing.trace_round(scratch, number - 1, layout)
        trace.steps = found.steps
        after = scratch.read_round(number, layout.blocks)
        _note(trace, scratch, found, before, after, layout)
        trace.checks = [_sums(found), replay.compare_loss(run, number, trace.loss)]
        trace.checks += _states(run, scratch, after, layout, tell)
    recorded = run.read_json("profile.json")
    trace.profile = numeric.difference(recorded, numeric.describe()) if recorded else []
    trace.seconds = time.perf_counter() - begun
    return trace


def _states(
    run: RunDir, scratch: RunDir, after: Position, layout: Layout, tell: Callable[[str], None]
) -> list[Check]:
    number = after.completed
    theirs = replay.comparable(run, number, tell)
    if theirs is None:
        saved = ", ".join(f"{one:,}" for one in checkpoint.saved(run)) or "none"
        text = f"the run has not kept it, nor one soon after it: its checkpoints are {saved}"
        return [Check("the model", text, None)]
    ours = replay.on_to(scratch, after, theirs.position.completed, layout.blocks)
    return replay.compare_states(theirs, number, ours)


def _layout(run: RunDir, maps: int | None, reducers: int | None, fan_in: int | None) -> Layout:
    theirs, _ = options.recorded(run)
    if fan_in is None:
        fan_in = theirs.get("fan_in", 0)
    if fan_in and (fan_in < 2 or fan_in & (fan_in - 1)):
        raise UsageError(f"--fan-in: expected 0 or a power of two from 2 on, found {fan_in}")
    size = run.config.plan.create_model().size
    wanted = reducers or theirs.get("blocks", 1)
    tasks = maps or theirs.get("workers", 1)
    return Layout(tasks, len(block_bounds(size, wanted)), fan_in)


def _begun(run: RunDir, number: int, layout: Layout, start: replay.Start) -> RoundTrace:
    config = run.config
    plan = config.plan
    model = plan.create_model()
    return RoundTrace(
        run=str(run.path),
        data=config.data,
        model=plan.model,
        optimizer=plan.optimizer,
        strategy=plan.strategy,
        summed=strategies.find(plan.strategy).summed,
        executor=options.recorded(run)[0].get("executor", "chain"),
        number=number,
        rounds=plan.rounds,
        learning_rate=float(plan.create_schedule()(number - 1)),
        l1=plan.l1,
        l2=plan.l2,
        started_from=start.place,
        replayed=number - 1 - start.position.completed,
        tasks=layout.tasks,
        fan_in=layout.fan_in,
        size=model.size,
        itemsize=model.dtype.itemsize,
    )


def _note(
    trace: RoundTrace,
    scratch: RunDir,
    found: Traced,
    before: Position,
    after: Position,
    layout: Layout,
) -> None:
    """What follows from the state before the round and from that after it."""
    plan = scratch.config.plan
    model = plan.create_model()
    trace.slices, trace.nodes = found.slices, found.nodes
    trace.in_row, trace.row_bytes = found.in_row, found.row_bytes
    _, weight, loss = after.history[-1].tolist()
    trace.loss = float(loss / weight) if weight else 0.0
    scale = tracing.scale_of(plan, before.scalars) * (weight or 1.0)
    with np.errstate(all="ignore"):
        mean = found.total.astype(np.float64) / scale
    trace.norm = norm(mean)
    optimizer = plan.create_optimizer()
    trace.skipped = optimizer.skipped(after.scalars) > optimizer.skipped(before.scalars)
    trace.sha256_before = checkpoint.model_sha256(model.named(before.params))
    trace.sha256_after = checkpoint.model_sha256(model.named(after.params))
    trace.blocks = _blocks(scratch, trace.number, model.size, layout)
    trace.parameters = _parameters(model, mean, before.params, after.params)


def _blocks(scratch: RunDir, completed: int, size: int, layout: Layout) -> list[BlockNote]:
    notes = []
    for number, (start, stop) in enumerate(block_bounds(size, layout.blocks)):
        path = scratch.block_path(completed, number, layout.blocks)
        part = hash_partition(block_key(number).encode(), layout.blocks)
        notes.append(BlockNote(number, start, stop, part, len(path.read_bytes())))
    return notes


def _parameters(model: Model, mean: Array, before: Array, after: Array) -> list[ParameterNote]:
    named = [model.named(array) for array in (mean, before, after)]
    return [
        ParameterNote(
            name,
            [*view.shape],
            norm(view.ravel()),
            norm(named[1][name].ravel()),
            norm(named[2][name].ravel()),
            norm((named[2][name].astype(np.float64) - named[1][name]).ravel()),
        )
        for name, view in named[0].items()
    ]


def _sums(found: Traced) -> Check:
    """Whether the slices, added up apart, give what the reducers have."""
    what, size = "the sum of the gradients", found.total.size
    if replay.same_bits(found.total, found.again):
        return Check(
            what,
            f"slice by slice, and from what the mappers sent: the same bits in each of "
            f"{size:,} elements",
            True,
        )
    differing = int(np.count_nonzero(found.total != found.again))
    return Check(what, f"{differing:,} of {size:,} elements differ", False)


def view(trace: RoundTrace) -> View:
    """All that is shown of a round."""
    first = trace.steps[0]
    flow = [count(len(trace.slices), "slice"), count(len(first.maps), "map task")]
    for step in trace.steps:
        busy = sum(1 for task in step.reduces if task.inputs)
        flow += [count(len(step.pairs), "pair"), count(busy, "reducer")]
    return View(
        f"gradreduce explain {trace.run} --round {trace.number}",
        f"Round {trace.number:,} of {trace.rounds:,}",
        f"{trace.model}, trained by {trace.optimizer}: one map/reduce makes one step.",
        {"The round": [*flow, f"the model after {count(trace.number, 'round')}"]},
        report(trace),
        scenes(trace),
        [f'{picture(trace)}<p class="small">{escape(legend(trace))}</p>'],
        "All figures are of this round, run again; what was compared with the run says so.",
    )
