"""What networks learn, beside PyTorch with the same parameters, rows and learning rates.

``GRADREDUCE_TORCH`` names PyTorch's interpreter, as for :mod:`benchmarks.gang`.
"""

import json
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    OURS,
    Bench,
    Missing,
    case,
    gradreduce,
    images,
    rows_of,
    two_workers,
)
from benchmarks.gang import PEERS, answer
from benchmarks.networks import export
from benchmarks.paired import Timed
from benchmarks.sequences import library
from mapreduce.data.shards import Dataset
from mapreduce.models import NETWORKS
from mapreduce.models.layers.sequential import Sequential
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Event, Events, RoundCompleted
from mapreduce.training import creating, driver

CNN = "conv:16x5,batchnorm,relu,pool:2,conv:32x5,batchnorm,relu,pool:2,dense:128,relu,dropout:0.5"


#: Bytes of text, of which a tenth is held out.
TEXT = 1_200_000


def trained(path: Path, settings: Settings, python: str = "") -> list[dict[str, Any]]:
    """What we learn, and PyTorch by the same plan: ``losses``, and ``loss`` and ``accuracy``."""
    losses: list[float] = []
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, RoundCompleted):
            losses.append(event.loss)

    events.subscribe(note)
    run = creating.create(path / f"{len([*path.iterdir()])}", settings, path / "train", None)
    driver.train(run, two_workers(), 1, events)
    scored = json.loads(gradreduce("evaluate", run.path, path / "test", "--json"))
    ours = {**scored, "losses": losses}
    return [ours, _by_torch(path, run.config.plan, python)] if python else [ours]


def _by_torch(path: Path, plan: Plan, python: str) -> dict[str, Any]:
    model, schedule = plan.create_model(), plan.create_schedule()
    assert isinstance(model, Sequential)
    kind = "images" if plan.data.shape else "texts"
    (rows, labels), (tests, truth) = (rows_of(Dataset(path / name)) for name in ("train", "test"))
    if kind == "images":
        shape = (-1, *((1, *(plan.data.shape or ()))[-3:]))
        rows, tests = rows.reshape(shape), tests.reshape(shape)
    else:
        rows, tests = rows.astype(np.int64), tests.astype(np.int64)
    arrays = {
        "rows": rows,
        "labels": labels.astype(np.int64),
        "tests": tests,
        "truth": truth.astype(np.int64),
        "rounds": rows_of_rounds(plan),
        "rates": np.array([schedule(number) for number in range(plan.rounds)]),
    }
    momentum = plan.momentum if plan.optimizer == "momentum" else 0.0
    job = {"kind": kind, "momentum": momentum, "dtype": plan.dtype, "seed": plan.seed}
    export(path, model, job, plan.seed, **arrays)
    # An hour is more than any of them takes.
    return answer([python, str(PEERS / "torch_learning.py"), str(path)], 2, 3600)


def rows_of_rounds(plan: Plan) -> Any:
    """The rows of each round by their numbers, (rounds, batch); -1 where a round has fewer."""
    starts = np.cumsum([0, *plan.data.shard_rows])
    rounds = np.full((plan.rounds, plan.batch_size), -1)
    for number in range(plan.rounds):
        rows = [np.arange(*(starts[one[0]] + one[1:])) for one in plan.slices(number)]
        drawn = np.concatenate(rows)
        rounds[number, : len(drawn)] = drawn
    return rounds


def _torch(bench: Bench) -> str:
    if not (python := bench.interpreter("GRADREDUCE_TORCH", "torch")):
        raise Missing("GRADREDUCE_TORCH names no interpreter with torch")
    return python


def _settings(model: str, epochs: int, seed: int) -> Settings:
    return Settings(
        model,
        optimizer="momentum",
        learning_rate=0.05,
        schedule="cosine",
        batch_size=128,
        epochs=epochs,
        seed=seed,
    )


@case(
    "The losses of 20 steps beside PyTorch's",
    "largest difference",
    repeats=(1, 1),
    limits=[(("",), 1e-4)],
)
def steps(bench: Bench) -> dict[str, Timed]:
    """How far the losses of 20 float64 steps are from PyTorch's."""
    python, shown, worst = _torch(bench), [], 0.0
    images(bench.path, "cifar10")
    for name in ("cifar-cnn", "resnet8"):
        # PyTorch draws other numbers for dropout, and its batch norm takes the whole batch.
        settings = Settings(
            NETWORKS[name].replace(",dropout:0.25", "").replace(",dropout:0.5", ""),
            optimizer="momentum",
            learning_rate=0.05,
            batch_size=64,
            slice_rows=64,
            rounds=20,
            dtype="float64",
        )
        losses = np.array([one["losses"] for one in trained(bench.path, settings, python)])
        worst = max(worst, float(np.abs(losses[0] - losses[1]).max()))
        shown.append(f"{name}: {losses[0, -1]:.6f} and {losses[1, -1]:.6f} at the end")
    bench.note = (
        "CIFAR-10, batches of 64, float64, from equal initial parameters, without dropout. "
        f"{'; '.join(shown)}."
    )
    return {OURS: lambda: worst}


@case(
    "CIFAR-10: accuracy beside PyTorch's",
    "points behind",
    repeats=(1, 1),
    limits=[(("",), 2.0)],
)
def cifar(bench: Bench) -> dict[str, Timed]:
    """Accuracy on CIFAR-10's images."""
    python, (epochs, seeds) = _torch(bench), bench.pick((1, 1), (4, 3))
    images(bench.path, "cifar10")
    shown, behind = [], []
    for name in ("cifar-cnn", "resnet8"):
        pairs = []
        for seed in range(seeds):
            both = trained(bench.path, _settings(name, epochs, seed), python)
            pairs.append([one["accuracy"] for one in both])
        ours, theirs = np.mean(pairs, axis=0)
        behind.append(float(100 * (theirs - ours)))
        shown.append(f"{name}: {', '.join('{:.4f} and {:.4f}'.format(*pair) for pair in pairs)}")
    train, test = (Dataset(bench.path / name).manifest.rows for name in ("train", "test"))
    bench.note = (
        f"{train:,} images for training, {test:,} for the test, {epochs} epochs of batches of 128 "
        f"in slices of 32, momentum, cosine, {seeds} seeds. Accuracies, ours and PyTorch's with "
        f"the same initial parameters, batches and learning rates: {'; '.join(shown)}."
    )
    return {OURS: lambda: max(behind)}


@case(
    "MNIST: a convolutional network",
    "share of test images that are wrong",
    repeats=(1, 1),
    limits=[(("",), 0.01)],
)
def mnist(bench: Bench) -> dict[str, Timed]:
    """A convolutional network with batch norm and dropout on MNIST."""
    epochs, seeds = bench.pick((1, 1), (10, 3))
    images(bench.path, "mnist")
    right = [
        trained(bench.path, _settings(CNN, epochs, seed))[0]["accuracy"] for seed in range(seeds)
    ]
    bench.note = (
        f"`{CNN}`, {epochs} epochs of batches of 128 in slices of 32, momentum, cosine, {seeds} "
        f"seeds. Accuracy on the 10,000 test images: {', '.join(f'{one:.4f}' for one in right)}."
    )
    return {OURS: lambda: 1 - min(right)}


@case(
    "A language model of bytes: held-out text, beside PyTorch",
    "bits a byte more than PyTorch's",
    repeats=(1, 1),
    limits=[(("",), 0.02)],
)
def characters(bench: Bench) -> dict[str, Timed]:
    """Bits a byte on text that is held out."""
    python, (size, epochs) = _torch(bench), bench.pick((100_000, 1), (TEXT, 3))
    content, cut = library(size), size * 9 // 10
    for name, part in (("train", content[:cut]), ("test", content[cut:])):
        (bench.path / f"{name}.txt").write_bytes(part)
        source = bench.path / f"{name}.txt"
        gradreduce("data", "import", source, bench.path / name, "--format", "text", "-q")
    settings = Settings(
        "char-gru",
        optimizer="adam",
        learning_rate=0.004,
        schedule="cosine",
        batch_size=64,
        slice_rows=32,
        epochs=epochs,
    )
    ours, theirs = (one["loss"] / math.log(2) for one in trained(bench.path, settings, python))
    bench.note = (
        f"`char-gru` on the first {size:,} bytes of the standard library of Python "
        f"{platform.python_version()}, of which the last tenth is held out; {epochs} epochs of "
        f"batches of 64 rows of 64 bytes in slices of 32, Adam, cosine from 0.004. Bits a byte, "
        f"ours and PyTorch's with the same initial parameters, batches and learning rates: "
        f"{ours:.4f} and {theirs:.4f}."
    )
    return {OURS: lambda: ours - theirs}
