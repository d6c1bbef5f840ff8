"""What strategies and executions of their rounds gain, where the work has a known length."""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import (
    OURS,
    Bench,
    Missing,
    case,
    clouds,
    folder,
    gradreduce,
    images,
    two_workers,
)
from benchmarks.gang import Timed
from benchmarks.paired import Table
from benchmarks.paired import Timed as Time
from benchmarks.strategy_peers import averaging as averaging
from benchmarks.strategy_peers import horovod as horovod
from benchmarks.strategy_peers import stages as stages
from mapreduce.data.batch import Batch
from mapreduce.executors.gang.balance import Balance
from mapreduce.models.base import Array
from mapreduce.models.context import Context
from mapreduce.models.softmax import Softmax
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Evaluated, Events
from mapreduce.runs.execution import Execution
from mapreduce.support import trust
from mapreduce.training import creating, driver

RANKS, SLICES, ROWS, FACTOR = 4, 64, 16, 4
SLICE_SECONDS = 2e-2
EVEN, IDEAL = "an even split", "the ideal"
SPEC = "benchmarks.strategies:Sleeping"


class Sleeping(Softmax):
    """A softmax regression whose gradient of a slice sleeps, so that it needs no core."""

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        time.sleep(SLICE_SECONDS)
        return super().gradient(params, batch, out, context)


@contextmanager
def _even() -> Iterator[None]:
    """Have gangs that are started meanwhile keep the even split: their ranks are forked."""
    decide = Balance.decide
    Balance.decide = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Balance.decide = decide  # type: ignore[method-assign]


NETWORK = (
    "conv:16x5,batchnorm,relu,pool:2,conv:32x5,batchnorm,relu,pool:2,dense:128,relu,dropout:0.5"
)
KEEP = {"strategy": "averaging", "replicas": 4, "replica_state": "keep"}
#: Settings of each strategy; the learning rates are the best of a few for one epoch.
LEARNERS: dict[str, dict[str, Any]] = {
    "sync": {},
    "averaging, 8 replicas, 10 local steps": {**KEEP, "replicas": 8, "local_steps": 10},
    "elastic, 4 replicas, 4 local steps": {**KEEP, "local_steps": 4, "elastic": 0.2},
    "adasum, 4 replicas": {**KEEP, "combine": "adasum", "learning_rate": 0.02},
    **{
        f"{compress}, 4 replicas": {**KEEP, "compress": compress}
        for compress in ("fp16", "onebit", "topk:0.001")
    },
    "downpour, 4 replicas, staleness 8": {
        "strategy": "downpour",
        "replicas": 4,
        "staleness": 8,
        "learning_rate": 0.0125,
    },
    "tournament, 2 replicas, 10 local steps": {
        "strategy": "tournament",
        "replicas": 2,
        "local_steps": 10,
    },
}
#: The same settings on data whose shards have rows of one class each.
UNEVEN = "averaging, 8 replicas, 10 local steps"
#: Points that a strategy may be behind ``sync``.
BEHIND = 0.3


def mnist(quick: bool) -> Table:
    """The accuracy of each strategy with the same network, rows and epochs."""
    epochs, seeds = (1, 1) if quick else (10, 3)
    note = (
        f"`{NETWORK}`, batches of 128, momentum, cosine, learning rate 0.05 (adasum: 0.02, "
        "downpour: 0.0125, for four times as many steps). Accuracy on the 10,000 test images "
        "for each seed, and the rounds after which it was first at least 0.99, looked at after "
        "each epoch."
    )
    heads = ["strategy", "rounds", "accuracy", "points from sync", "rounds to 0.99"]
    result = Table(f"What strategies learn: MNIST, {epochs} epochs", note, heads)
    base = Settings(
        NETWORK,
        optimizer="momentum",
        learning_rate=0.05,
        schedule="cosine",
        batch_size=128,
        epochs=epochs,
    )
    means: dict[str, float] = {}
    with folder() as path:
        try:
            images(path, "mnist")
        except Missing as reason:
            result.skipped = str(reason)
            return result
        source = Path(os.environ["GRADREDUCE_DATA"]) / "mnist"
        labels = ["--labels", source / "train-labels-idx1-ubyte.gz", "--split-by", "label"]
        rows = source / "train-images-idx3-ubyte.gz"
        gradreduce("data", "import", rows, path / "uneven", "--format", "idx", *labels)
        places = {name: ("train", change) for name, change in LEARNERS.items()}
        places[f"{UNEVEN}, a class in each shard"] = "uneven", LEARNERS[UNEVEN]
        for name, (place, change) in places.items():
            runs = [
                _evaluated(
                    path / f"{len(means)}-{seed}",
                    replace(base, seed=seed, **change),
                    path / place,
                    path / "test",
                )
                for seed in range(seeds)
            ]
            accuracies = [run[-1].accuracy or 0.0 for run in runs]
            reached = [
                next((f"{one.completed:,}" for one in run if (one.accuracy or 0.0) >= 0.99), "–")
                for run in runs
            ]
            means[name] = statistics.mean(accuracies)
            points = f"{100 * (means[name] - means['sync']):+.2f}"
            each = ", ".join(f"{one:.4f}" for one in accuracies)
            rounds = f"{runs[0][-1].completed:,}"
            result.rows.append([name, rounds, each, points, ", ".join(reached)])
    best = means["sync"]
    near = [name for name in LEARNERS if 100 * (best - means[name]) <= BEHIND]
    if not quick and (best < 0.99 or len(near) < 7):
        result.missed = [f"sync {best:.4f}, at least 0.99 wanted, and six others near it: {near}"]
    return result


def _evaluated(run: Path, settings: Settings, data: Path, test: Path) -> list[Evaluated]:
    """The evaluations of a training, one after each epoch."""
    found: list[Evaluated] = []
    events = Events(lambda event: found.append(event) if isinstance(event, Evaluated) else None)
    driver.train(creating.create(run, settings, data, test), two_workers(), 1, events)
    return found


def _gang_of_four(path: Path) -> Timed:
    """Trainings of :class:`Sleeping` by four ranks, of which one is four times slower."""
    trust.trust(SPEC)
    clouds(path / "data", 2 * SLICES * ROWS, 20, 4)
    return Timed(path, path / "data", RANKS, slow_worker=f"1:{FACTOR}")


#: Seconds of the work of a round, divided by tasks that are worth the ranks, of which one is slow.
LEAST = SLICES * SLICE_SECONDS / (RANKS - 1 + 1 / FACTOR)


@case(
    "A round of four tasks, one of which is four times slower",
    repeats=(2, 3),
    limits=[((IDEAL,), 1.25)],
)
def uneven(bench: Bench) -> dict[str, Time]:
    """The benchmark of a gang of four, of which one is four times slower."""
    rounds = bench.pick(8, 10)
    timed = _gang_of_four(bench.path)
    settings = Settings(SPEC, batch_size=SLICES * ROWS, slice_rows=ROWS, rounds=rounds)

    def seconds() -> float:
        # The first rounds measure the speeds.
        return statistics.median(timed.seconds(settings, 1)[rounds // 2 :])

    def seconds_of_even() -> float:
        with _even():
            return seconds()

    bench.note = (
        f"{SLICES} slices of work that sleeps {SLICE_SECONDS * 1e3:g} ms each, `-r parallel "
        f"--executor gang --workers {RANKS} --slow-worker 1:{FACTOR}`: the median round of the "
        f"second half of {rounds}. This toolkit divides the slices by measured speed; the ideal is "
        f"the work divided by {RANKS - 1} 1/{FACTOR} tasks, without messages and updates."
    )
    return {OURS: seconds, EVEN: seconds_of_even, IDEAL: lambda: LEAST}


#: Rounds between two states that are published, and gradients of a round, of two slices each.
STRETCH, UNITS = 20, 32
PLANNED = "planned downpour"


@case(
    "Gradients applied as they arrive, one of four tasks being four times slower",
    limits=[((IDEAL,), 1.1)],
    few={PLANNED: 1},
)
def asynchronous(bench: Bench) -> dict[str, Time]:
    """The benchmark of gradients that are applied as they arrive, one of four ranks being slow."""
    timed = _gang_of_four(bench.path)
    settings = Settings(
        SPEC,
        strategy="downpour",
        rounds=3 * STRETCH,
        batch_size=SLICES * ROWS,
        slice_rows=ROWS,
        replicas=UNITS,
        checkpoint_every=STRETCH,
    )

    def seconds(settings: Settings) -> float:
        return statistics.median(timed.seconds(settings, STRETCH)) / STRETCH

    bench.note = (
        f"{SLICES} slices of work that sleeps {SLICE_SECONDS * 1e3:g} ms each, in {UNITS} "
        f"gradients, `--strategy downpour --asynchronous -r parallel --executor gang --workers "
        f"{RANKS} --slow-worker 1:{FACTOR}`: seconds of a round, with the log and with what is "
        f"published and waited for each {STRETCH} rounds. The ideal is the work divided by "
        f"{RANKS - 1} 1/{FACTOR} tasks."
    )
    return {
        OURS: lambda: seconds(replace(settings, asynchronous=True)),
        PLANNED: lambda: seconds(settings),
        IDEAL: lambda: LEAST,
    }


STALENESS = (0, 1, 2, 4, 8, 16, 32, 64)
#: Learning rates that are good without staleness.
OPTIMIZERS = {"sgd": 0.2, "momentum": 0.05, "adagrad": 0.02, "adam": 0.002}
TRAINED = 20_000


def staleness(quick: bool) -> Table:
    """The benchmark of gradients that are late."""
    note = (
        f"One epoch on {TRAINED:,} rows of MNIST, `--model mlp:64 --strategy downpour "
        f"--batch-size 32`: 625 gradients of 32 rows, one in a round. Each is computed at a "
        f"version that is drawn from the last ones. Accuracy on the 10,000 test images."
    )
    heads = ["staleness", *(f"{name}, rate {rate:g}" for name, rate in OPTIMIZERS.items())]
    result = Table("What staleness does to learning", note, heads)
    with folder() as path:
        try:
            images(path, "mnist")
        except Missing as reason:
            result.skipped = str(reason)
            return result
        for late in STALENESS[:1] if quick else STALENESS:
            cells = [str(late)]
            for optimizer, rate in OPTIMIZERS.items():
                settings = Settings(
                    "mlp:64",
                    strategy="downpour",
                    staleness=late,
                    optimizer=optimizer,
                    learning_rate=rate,
                    batch_size=32,
                    limit_rows=TRAINED,
                )
                place = path / f"{optimizer}{late}"
                run = creating.create(place, settings, path / "train", path / "test")
                driver.train(run, Execution("parallel", 1, executor="gang"), 1, Events())
                cells.append(f"{run.summary()['accuracy']:.4f}")
            result.rows.append(cells)
    return result
