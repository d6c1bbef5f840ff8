"""What strategies and executions of their rounds gain, where the work has a known length."""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.common import clouds, folder, two_workers
from benchmarks.gang import Timed
from benchmarks.learning import NO_DATA, imported
from benchmarks.mnist import gradreduce
from benchmarks.paired import Result, in_turn
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
#: Settings of each strategy; the learning rates are the best of a few for one epoch.
LEARNERS: dict[str, dict[str, Any]] = {
    "sync": {},
    "averaging, 8 replicas, 10 local steps": {
        "strategy": "averaging",
        "replicas": 8,
        "local_steps": 10,
        "replica_state": "keep",
    },
    "elastic, 4 replicas, 4 local steps": {
        "strategy": "averaging",
        "replicas": 4,
        "local_steps": 4,
        "replica_state": "keep",
        "elastic": 0.2,
    },
    "adasum, 4 replicas": {
        "strategy": "averaging",
        "replicas": 4,
        "combine": "adasum",
        "replica_state": "keep",
        "learning_rate": 0.02,
    },
    **{
        f"{compress}, 4 replicas": {
            "strategy": "averaging",
            "replicas": 4,
            "compress": compress,
            "replica_state": "keep",
        }
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


@dataclass
class Accuracies:
    """The accuracies of each strategy's seeds, and its rounds."""

    epochs: int
    found: dict[str, list[float]] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    #: The rounds after which an accuracy of 0.99 was first measured, or None.
    reached: dict[str, list[int | None]] = field(default_factory=dict)
    skipped: str = ""

    @property
    def measured(self) -> bool:
        return bool(self.found)

    def note(self, name: str, evaluations: list[Evaluated]) -> None:
        """Note the evaluations of a seed."""
        last = evaluations[-1]
        self.found.setdefault(name, []).append(last.accuracy or 0.0)
        self.rounds[name] = last.completed
        good = (one.completed for one in evaluations if (one.accuracy or 0.0) >= 0.99)
        self.reached.setdefault(name, []).append(next(good, None))

    def lines(self) -> list[str]:
        """The section of the page."""
        head = [f"## What strategies learn: MNIST, {self.epochs} epochs", ""]
        if self.skipped:
            return [*head, f"Skipped: {self.skipped}.", ""]
        best = statistics.mean(self.found["sync"])
        rows = [
            f"| {name} | {self.rounds[name]:,} | {', '.join(f'{one:.4f}' for one in each)} | "
            f"{100 * (statistics.mean(each) - best):+.2f} | "
            f"{', '.join('–' if at is None else f'{at:,}' for at in self.reached[name])} |"
            for name, each in self.found.items()
        ]
        return [
            *head,
            f"`{NETWORK}`, batches of 128, momentum, cosine, learning rate 0.05 (adasum: 0.02, "
            "downpour: 0.0125, for four times as many steps). Accuracy on the 10,000 test images "
            "for each seed, and the rounds after which it was first at least 0.99, looked at after "
            "each epoch.",
            "",
            "| strategy | rounds | accuracy | points from sync | rounds to 0.99 |",
            "|---|---|---|---|---|",
            *rows,
            "",
            self.verdict(),
            "",
        ]

    def verdict(self) -> str:
        """Whether the limits hold."""
        if self.skipped:
            return "Limit: skipped."
        best = statistics.mean(self.found["sync"])
        near = [
            name
            for name, each in self.found.items()
            if name in LEARNERS
            and name != "sync"
            and 100 * (best - statistics.mean(each)) <= BEHIND
        ]
        holds = best >= 0.99 and len(near) >= 6
        return (
            f"Limit: {'holds' if holds else 'missed'}: sync {best:.4f}, at least 0.99 wanted; "
            f"{len(near)} strategies are at most {BEHIND} points behind it, 6 wanted."
        )


def mnist(quick: bool) -> Accuracies:
    """The accuracy of each strategy with the same network, rows and epochs."""
    epochs, seeds = (1, 1) if quick else (10, 3)
    accuracies = Accuracies(epochs)
    base = Settings(
        NETWORK,
        optimizer="momentum",
        learning_rate=0.05,
        schedule="cosine",
        batch_size=128,
        epochs=epochs,
    )
    with folder() as path:
        if not imported(path, "mnist"):
            accuracies.skipped = NO_DATA
            return accuracies
        source = Path(os.environ["GRADREDUCE_DATA"]) / "mnist"
        labels = ["--labels", source / "train-labels-idx1-ubyte.gz", "--split-by", "label"]
        images = source / "train-images-idx3-ubyte.gz"
        gradreduce("data", "import", images, path / "uneven", "--format", "idx", *labels)
        places = {name: ("train", change) for name, change in LEARNERS.items()}
        places[f"{UNEVEN}, a class in each shard"] = "uneven", LEARNERS[UNEVEN]
        for name, (place, change) in places.items():
            for seed in range(seeds):
                settings = replace(base, seed=seed, **change)
                run = path / f"{len(accuracies.found)}-{seed}"
                accuracies.note(name, _evaluated(run, settings, path / place, path / "test"))
    return accuracies


def _evaluated(run: Path, settings: Settings, data: Path, test: Path) -> list[Evaluated]:
    """The evaluations of a training, one after each epoch."""
    found: list[Evaluated] = []
    events = Events(lambda event: found.append(event) if isinstance(event, Evaluated) else None)
    driver.train(creating.create(run, settings, data, test), two_workers(), 1, events)
    return found


def uneven(quick: bool) -> Result:
    """The benchmark of a gang of four, of which one is four times slower."""
    rounds, repeats = (8, 2) if quick else (10, 3)
    trust.trust(SPEC)
    with folder() as path:
        clouds(path / "data", 2 * SLICES * ROWS, 20, 4)
        timed = Timed(path, path / "data", RANKS, slow_worker=f"1:{FACTOR}")
        settings = Settings(SPEC, batch_size=SLICES * ROWS, slice_rows=ROWS, rounds=rounds)

        def seconds() -> float:
            # The first rounds measure the speeds.
            return statistics.median(timed.seconds(settings, 1)[rounds // 2 :])

        def seconds_of_even() -> float:
            with _even():
                return seconds()

        ours, theirs = in_turn(seconds, {EVEN: seconds_of_even}, repeats)
    theirs[IDEAL] = [SLICES * SLICE_SECONDS / _tasks()] * repeats
    return Result(
        "A round of four tasks, one of which is four times slower",
        "s",
        f"{SLICES} slices of work that sleeps {SLICE_SECONDS * 1e3:g} ms each, `-r parallel "
        f"--executor gang --workers {RANKS} --slow-worker 1:{FACTOR}`: the median round of the "
        f"second half of {rounds}. This toolkit divides the slices by measured speed; the ideal is "
        f"the work divided by {RANKS - 1} 1/{FACTOR} tasks, without messages and updates.",
        ours,
        theirs,
        (IDEAL, 1.25),
    )


#: Rounds between two states that are published, and gradients of a round, of two slices each.
STRETCH, UNITS = 20, 32


def asynchronous(quick: bool) -> Result:
    """The benchmark of gradients that are applied as they arrive, one of four ranks being slow."""
    repeats = 1 if quick else 3
    trust.trust(SPEC)
    with folder() as path:
        clouds(path / "data", 2 * SLICES * ROWS, 20, 4)
        timed = Timed(path, path / "data", RANKS, slow_worker=f"1:{FACTOR}")
        shared = {"batch_size": SLICES * ROWS, "slice_rows": ROWS, "replicas": UNITS}
        settings = Settings(SPEC, strategy="downpour", rounds=3 * STRETCH, **shared)
        settings = replace(settings, checkpoint_every=STRETCH)

        def seconds(settings: Settings) -> float:
            return statistics.median(timed.seconds(settings, STRETCH)) / STRETCH

        ours = [seconds(replace(settings, asynchronous=True)) for _ in range(repeats)]
        planned = [seconds(settings)]
    return Result(
        "Gradients applied as they arrive, one of four tasks being four times slower",
        "s",
        f"{SLICES} slices of work that sleeps {SLICE_SECONDS * 1e3:g} ms each, in {UNITS} "
        f"gradients, `--strategy downpour --asynchronous -r parallel --executor gang --workers "
        f"{RANKS} --slow-worker 1:{FACTOR}`: seconds of a round, with the log and with what is "
        f"published and waited for each {STRETCH} rounds. The ideal is the work divided by "
        f"{RANKS - 1} 1/{FACTOR} tasks.",
        ours,
        {"planned downpour": planned, IDEAL: [SLICES * SLICE_SECONDS / _tasks()] * repeats},
        (IDEAL, 1.1),
    )


def _tasks() -> float:
    """Tasks that are worth the ranks, one of which is slow."""
    return RANKS - 1 + 1 / FACTOR


STALENESS = (0, 1, 2, 4, 8, 16, 32, 64)
#: Learning rates that are good without staleness.
OPTIMIZERS = {"sgd": 0.2, "momentum": 0.05, "adagrad": 0.02, "adam": 0.002}
TRAINED = 20_000


@dataclass
class Curve:
    """The accuracy of each optimizer for each staleness."""

    accuracies: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""

    @property
    def measured(self) -> bool:
        return bool(self.accuracies)

    def verdict(self) -> str:
        return "no limit" if self.measured else f"not measured: {self.reason}"

    def lines(self) -> list[str]:
        """The curve as a Markdown section."""
        if not self.measured:
            return ["## What staleness does to learning", "", f"Skipped: {self.reason}.", ""]
        rates = [f"{name}, rate {rate:g}" for name, rate in OPTIMIZERS.items()]
        rows = zip(STALENESS, *self.accuracies.values(), strict=False)
        return [
            "## What staleness does to learning",
            "",
            f"One epoch on {TRAINED:,} rows of MNIST, `--model mlp:64 --strategy downpour "
            f"--batch-size 32`: 625 gradients of 32 rows, one in a round. Each is computed at a "
            f"version that is drawn from the last ones. Accuracy on the 10,000 test images.",
            "",
            f"| staleness | {' | '.join(rates)} |",
            f"|---{'|---' * len(rates)}|",
            *(f"| {late} | {' | '.join(f'{one:.4f}' for one in found)} |" for late, *found in rows),
            "",
        ]


def staleness(quick: bool) -> Curve:
    """The benchmark of gradients that are late."""
    with folder() as path:
        if not imported(path, "mnist"):
            return Curve(reason=NO_DATA)
        curve = Curve()
        for optimizer, rate in OPTIMIZERS.items():
            found = curve.accuracies[optimizer] = []
            for late in STALENESS[:1] if quick else STALENESS:
                settings = Settings(
                    "mlp:64",
                    strategy="downpour",
                    staleness=late,
                    optimizer=optimizer,
                    learning_rate=rate,
                    batch_size=32,
                    limit_rows=TRAINED,
                )
                evaluation = path / "test"
                run = creating.create(
                    path / f"{optimizer}{late}", settings, path / "train", evaluation
                )
                gang = Execution("parallel", 1, executor="gang")
                driver.train(run, gang, 1, Events())
                found.append(run.summary()["accuracy"])
        return curve
