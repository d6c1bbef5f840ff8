"""Strategies and stages beside PyTorch and Horovod, which train by the same plan.

The peers get the first parameters of the plan, and its rows of every step for each process or
micro-batch. So their losses must be ours but for rounding, and only times differ. Environments are
those of :mod:`benchmarks.gang`; ``GRADREDUCE_DATA`` names a folder with ``mnist/``.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OURS, Bench, case, images, interpreter, rows_of
from benchmarks.gang import BATCH, HOROVOD, LEARNING_RATE, PEERS, Timed, answer, horovod_command
from benchmarks.networks import BATCH as SMALL
from benchmarks.networks import CNN, described
from benchmarks.networks import export as export_network
from benchmarks.paired import Timed as Time
from mapreduce.data.shards import Dataset
from mapreduce.models.layers.sequential import Sequential
from mapreduce.models.layers.stages import stages_of
from mapreduce.plan.plan import Plan, Slice
from mapreduce.plan.settings import Settings, make
from mapreduce.strategies import replicas

PROCESSES, LOCAL_STEPS = 2, 4
LOCAL_SGD, PIPELINE = "PyTorch, post-local SGD, Gloo", "PyTorch, a pipeline by hand, Gloo"
#: How far the mean loss of an epoch may be from the peer's, as a part of it.
NEAR = 0.05


@case(
    f"An epoch of averaging: {PROCESSES} replicas on two processes, {LOCAL_STEPS} local steps",
    repeats=(2, 7),
)
def averaging(bench: Bench) -> dict[str, Time]:
    """The benchmark of replicas that take local steps, beside post-local SGD."""
    settings = Settings(
        CNN,
        strategy="averaging",
        replicas=PROCESSES,
        local_steps=LOCAL_STEPS,
        batch_size=SMALL,
        learning_rate=LEARNING_RATE,
        epochs=3,
        limit_rows=bench.pick(5_120, 30_720),
    )
    note = (
        f"Each local step takes {SMALL} rows, half of them on each process. The peer is "
        f"`PostLocalSGDOptimizer` with `post_localSGD_hook`, which never adds up gradients."
    )
    return _beside(bench, LOCAL_SGD, "averaging", settings, note)


@case("An epoch of a network in two stages, each on a process", repeats=(2, 7))
def stages(bench: Bench) -> dict[str, Time]:
    """The benchmark of a network in two stages, beside a pipeline of two processes."""
    rows = bench.pick(5_120, 30_720)
    settings = Settings(
        CNN, batch_size=SMALL, learning_rate=LEARNING_RATE, epochs=3, limit_rows=rows
    )
    note = (
        f"Batches of {SMALL} rows; our slices are the peer's micro-batches, and the network is cut "
        f"at the same place. The peer sends and receives activations and their gradients without "
        f"waiting, and goes back with one micro-batch after it has sent the next (1F1B)."
    )
    return _beside(bench, PIPELINE, "stages", settings, note, stages=2)


@case("An epoch of a perceptron 784-128-10 on two processes, MNIST, beside Horovod", repeats=(2, 7))
def horovod(bench: Bench) -> dict[str, Time]:
    """The benchmark of synchronous training on two processes, beside Horovod."""
    settings = Settings(
        "dense:128,relu",
        batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        epochs=bench.pick(3, 6),
        # All but 40: they make 60 rounds, since the last of three shards has whole slices then.
        limit_rows=bench.pick(6_000, 59_960),
    )
    note = (
        f"Batches of {BATCH:,} rows. The peer is `horovod.torch.DistributedOptimizer`, started by "
        f"`horovodrun --gloo`."
    )
    return _beside(bench, HOROVOD, "horovod", settings, note)


def _beside(
    bench: Bench, peer: str, kind: str, settings: Settings, note: str, stages: int = 1
) -> dict[str, Time]:
    """Our training of some settings, and the peer's by the same plan."""
    images(bench.path, "mnist")
    data, found = bench.path / "train", dict[str, Any]()
    plan = make(settings, Dataset(data).manifest)
    timed = Timed(bench.path, data, PROCESSES, stages=stages)

    def ours() -> float:
        return statistics.median(timed.seconds(settings, plan.rounds_per_epoch))

    def theirs() -> float:
        found.update(answer(command_of(kind, bench.path)))
        return float(found["seconds"])

    def noted() -> str:
        learned = ""
        if found:
            epochs = plan.rounds // plan.rounds_per_epoch
            means = compared(peer, timed.losses, found["losses"], epochs)
            each = (" ".join(f"{loss:.4f}" for loss in losses) for losses in means)
            learned = f" The mean losses of the epochs: ours {', theirs '.join(each)}."
        return (
            f"`{settings.model}`, {settings.limit_rows:,} rows of MNIST in slices of "
            f"{plan.slice_rows}: the median epoch of a training of {settings.epochs}, without the "
            f"first. {note} It has the same first parameters and rows of each step, as float32 and "
            f"gathered before the time is taken, and one thread a process.{learned}"
        )

    bench.note = noted
    command = command_of(kind, bench.path)
    if isinstance(command, str):
        bench.skipped[peer] = command
        return {OURS: ours}
    export(bench.path, plan, data, kind)
    return {OURS: ours, peer: theirs}


def command_of(kind: str, path: Path) -> list[str] | str:
    """The command of a peer that reads a folder, or why there is none."""
    script = [str(PEERS / "torch_strategies.py"), kind, str(path)]
    if kind != "horovod":
        python = interpreter("GRADREDUCE_TORCH", "torch")
        return [python, *script] if python else "GRADREDUCE_TORCH names no interpreter with torch"
    python = interpreter("GRADREDUCE_HOROVOD", "horovod.torch")
    if not python:
        return "GRADREDUCE_HOROVOD names no interpreter with horovod"
    return horovod_command(python, *script)


def export(path: Path, plan: Plan, data: Path, kind: str) -> None:
    """Write what the peer reads: the plan's network, first parameters, and rows of each step."""
    model = plan.create_model()
    assert isinstance(model, Sequential)
    dataset = Dataset(data)
    images, labels = rows_of(dataset)
    job: dict[str, Any] = {"learning_rate": plan.learning_rate, "local_steps": plan.local_steps}
    job |= {"scale": dataset.manifest.scale, "epochs": plan.rounds // plan.rounds_per_epoch}
    parts = PROCESSES
    if kind == "stages":
        parts = plan.batch_size // plan.slice_rows
        last = stages_of(model, PROCESSES)[-1].network.stack
        job["cut"] = int(next(last.named())[0])
        *place, channels = described(model.stack)[job["cut"] - 1]["output"]
        job["edge"] = [channels, *place]
    rows = {
        "images": images.reshape(-1, 1, *(plan.data.shape or ())),
        "labels": labels.astype(np.int64),
        "rows": rows_of_steps(plan, parts),
    }
    export_network(path, model, job, plan.seed, **rows)


def rows_of_steps(plan: Plan, parts: int) -> Any:
    """The rows of each step by their numbers, (steps, parts, most rows of a part).

    A part is a replica, or a share of a round's slices; -1 where it has fewer rows than others.
    """
    starts = np.cumsum([0, *plan.data.shard_rows])

    def rows(slices: list[Slice]) -> Any:
        each = [np.arange(one.start, one.stop) + starts[one.shard] for one in slices]
        return np.concatenate(each)

    steps: list[Any] = []
    for number in range(plan.rounds):
        if plan.strategy == "averaging":
            taken = [replicas.steps_of(plan, number, replica) for replica in range(parts)]
            steps += [[rows(each) for each in step] for step in zip(*taken, strict=True)]
        else:
            steps.append(np.split(rows([*plan.slices(number)]), parts))
    found = np.full((len(steps), parts, plan.batch_size // parts), -1)
    for step, shares in zip(found, steps, strict=True):
        for part, share in zip(step, shares, strict=True):
            part[: len(share)] = share
    return found


def compared(peer: str, ours: list[float], theirs: list[float], epochs: int) -> Any:
    """The mean loss of each epoch, ours and theirs.

    Raises
    ------
    RuntimeError
        The peer did not learn, or learned something else.
    """
    mine, other = (np.mean(np.split(np.array(each), epochs), axis=1) for each in (ours, theirs))
    means = mine, other
    shown = " and ".join(", ".join(f"{loss:.4f}" for loss in each) for each in means)
    if not other[-1] < other[0]:
        raise RuntimeError(f"{peer}: expected a loss that falls, found {shown} (ours and theirs)")
    if not np.allclose(mine, other, rtol=NEAR, atol=0):
        raise RuntimeError(
            f"{peer}: expected mean losses of each epoch within {NEAR:.0%} of ours, found {shown} "
            f"(ours and theirs). The networks, rows or steps are not the same"
        )
    return means
