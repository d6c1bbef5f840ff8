"""``gradreduce explain RUN``: one round of a training, run again and explained."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.errors import UsageError
from mapreduce.explaining.training import filters, replay, tracing
from mapreduce.explaining.training.model import BlockNote, ParameterNote, RoundTrace
from mapreduce.explaining.training.tracing import norm
from mapreduce.models.base import Model
from mapreduce.plan import strategies
from mapreduce.runners.keys import spelled
from mapreduce.runners.parallel.partition import hash_partition
from mapreduce.runs import checkpoint
from mapreduce.runs import flags as options
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Array, block_bounds
from mapreduce.strategies.base import Layout
from mapreduce.strategies.program import Training
from mapreduce.support import numeric
from mapreduce.support.commands import command
from mapreduce.support.cores import available_cores
from mapreduce.training.creating import check_training_data


def traced(
    path: AnyPath,
    number: int | None,
    maps: int | None,
    reducers: int | None,
    fan_in: int | None,
    tell: Callable[[str], None] = lambda message: None,
    data: AnyPath | None = None,
) -> RoundTrace:
    """Run a round again, and note what happens in it.

    ``path`` is the folder of the run, which is only read. Rounds are counted from 1; the default is
    the last that is finished. Map tasks, blocks of the parameters (``reducers``) and the most
    partial sums that one reducer merges are by default those of the run. ``tell`` is called with a
    message before a long operation. ``data`` is the folder of data that have moved.
    """
    run = RunDir(path.absolute())
    config, plan = run.config, run.config.plan
    if data is not None:
        config = replace(config, data=str(data.absolute()))
    if plan.asynchronous:
        raise UsageError(
            f"{run.path}: an asynchronous training has no rounds that one could look into, since "
            f"each gradient is applied when it arrives. Explain one without --asynchronous"
        )
    number = replay.choose_round(run, number)
    check_training_data(config)
    model, optimizer = plan.about, plan.transformation
    layout = _layout(run, maps, reducers, fan_in)
    with tempfile.TemporaryDirectory(prefix="gradreduce-explain-") as folder:
        scratch = RunDir(Path(folder) / "run")
        scratch.create(replace(config, evaluation=None))
        start = replay.nearest(run, number - 1, tell)
        before = replay.advance(scratch, start, number - 1, layout.blocks, tell)
        training = Training.from_cache(scratch)
        training.context.warm_up()
        found = tracing.trace_round(scratch, number - 1, layout, Path(folder))
        after = scratch.read_round(number, layout.blocks)
        blocks = _blocks(scratch, number, model.size, layout)
        _, weight, loss, *_ = after.history[-1].tolist()
        loss = float(loss / weight) if weight else 0.0
        checks = [replay.compare_loss(run, number, loss)]
        checks += replay.compare_states(run, scratch, after, layout.blocks, tell)
        convolution = filters.convolution_note(
            training.context, number - 1, before.params, after.params
        )
    kind = strategies.find(plan.strategy)
    is_mean = kind.is_mean(plan)
    scale = tracing.scale_of(plan, before.scalars) * (weight or 1.0 if is_mean else 1.0)
    with np.errstate(all="ignore"):
        mean = found.total.astype(np.float64) / scale
    recorded, now = run.read_json("profile.json"), numeric.describe() | model.libraries
    return RoundTrace(
        job=f"Round {number:,} of {plan.rounds:,}",
        place=command(run.path, "--round", number),
        text=f"{plan.model}, trained by {plan.optimizer}: one map/reduce makes one step.",
        steps=found.steps,
        number=number,
        facts={
            "run": str(run.path),
            "data": config.data,
            "strategy": plan.strategy,
            "model": plan.model,
            "parameters": model.size,
            "optimizer": plan.optimizer,
            "learning rate": float(plan.create_schedule()((number - 1) * plan.steps_per_round)),
            "L1": plan.l1,
            "L2": plan.l2,
            "state before from": start.place,
            "rounds run again from there": number - 1 - start.position.completed,
            "loss before the update": loss,
            f"norm of the {kind.summed}": norm(mean),
        },
        unit=kind.unit,
        summed=kind.summed,
        is_mean=is_mean,
        story=f"What travels: {kind.travels}. {kind.waits.capitalize()}." * (kind.unit != "slice"),
        norm=norm(mean),
        skipped=optimizer.skipped(after.scalars) > optimizer.skipped(before.scalars),
        sha256_before=checkpoint.model_sha256(model.named(before.params)),
        sha256_after=checkpoint.model_sha256(model.named(after.params)),
        slices=found.slices,
        nodes=found.nodes,
        blocks=blocks,
        parameters=_parameters(model, mean, before.params, after.params),
        in_row=found.in_row,
        checks=checks,
        profile=numeric.difference(recorded, now) if recorded else [],
        convolution=convolution,
    )


def _layout(run: RunDir, maps: int | None, reducers: int | None, fan_in: int | None) -> Layout:
    theirs, _ = options.recorded(run)
    if fan_in is None:
        fan_in = theirs.get("fan_in", 0)
    if fan_in and (fan_in < 2 or fan_in & (fan_in - 1)):
        raise UsageError(f"--fan-in: expected 0 or a power of two (2, 4, 8, ...), found {fan_in}")
    size = run.config.plan.about.size
    wanted = reducers or theirs.get("blocks", 1)
    tasks = maps or theirs.get("workers") or available_cores()
    return Layout(tasks, len(block_bounds(size, wanted)), fan_in)


def _blocks(scratch: RunDir, completed: int, size: int, layout: Layout) -> list[BlockNote]:
    notes = []
    for number, (start, stop) in enumerate(block_bounds(size, layout.blocks)):
        path = scratch.rounds.path(completed, number, layout.blocks)
        part = hash_partition(spelled((number,)).encode(), layout.blocks)
        notes.append(BlockNote(number, start, stop, part, len(path.read_bytes())))
    return notes


def _parameters(model: Model, mean: Array, before: Array, after: Array) -> list[ParameterNote]:
    means, olds, news = (model.named(array) for array in (mean, before, after))
    notes = []
    for name, view in means.items():
        old, new = olds[name], news[name]
        norms = map(norm, (view, old, new, new.astype(np.float64) - old))
        notes.append(ParameterNote(name, [*view.shape], *norms))
    return notes
