"""What networks learn, beside PyTorch with the same parameters, rows and learning rates.

The peer needs an environment of its own::

    export GRADREDUCE_TORCH=torch-env/bin/python
"""

import json
import os
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, folder, two_workers
from benchmarks.mnist import gradreduce
from benchmarks.paired import Result
from mapreduce.data.shards import Dataset
from mapreduce.models import NETWORKS
from mapreduce.models.layers.sequential import Sequential
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Event, Events, RoundCompleted
from mapreduce.training import creating, driver

_TORCH = "GRADREDUCE_TORCH"
NO_DATA = "GRADREDUCE_DATA names no folder with cifar10/ and mnist/"


@dataclass
class Learned:
    """What came of a training: the loss of each round, and the accuracy on the test rows."""

    losses: list[float]
    accuracy: float


def imported(path: Path, kind: str) -> bool:
    """Import the training and test rows of ``cifar10`` or ``mnist``; False if they are not here."""
    source = Path(os.environ.get("GRADREDUCE_DATA", "")) / kind
    if kind == "cifar10":
        files = {"train": source / "data_batch_1.bin.gz", "test": source / "test_batch.bin.gz"}
        options: dict[str, list[Any]] = {name: ["--format", "cifar10"] for name in files}
    else:
        prefixes = {"train": "train", "test": "t10k"}
        files = {name: source / f"{one}-images-idx3-ubyte.gz" for name, one in prefixes.items()}
        options = {
            name: ["--format", "idx", "--labels", source / f"{one}-labels-idx1-ubyte.gz"]
            for name, one in prefixes.items()
        }
    if not files["train"].exists():
        return False
    for name, file in files.items():
        gradreduce("data", "import", file, path / name, *options[name])
    return True


def trained(path: Path, settings: Settings, name: str) -> tuple[RunDir, Learned]:
    losses: list[float] = []
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, RoundCompleted):
            losses.append(event.loss)

    events.subscribe(note)
    run = creating.create(path / name, settings, path / "train", None)
    driver.train(run, two_workers(), 1, events)
    scored = json.loads(gradreduce("evaluate", run.path, path / "test", "--json"))
    return run, Learned(losses, scored["accuracy"])


def _theirs(path: Path, plan: Plan, python: str, threads: int) -> Learned:
    """PyTorch's training by the same plan."""
    model = plan.create_model()
    assert isinstance(model, Sequential)
    train, tests = (rows_of(Dataset(path / name)) for name in ("train", "test"))
    shape = (-1, *((1, *(plan.data.shape or ()))[-3:]))
    schedule = plan.create_schedule()
    np.savez(
        path / "arrays.npz",
        images=train[0].reshape(shape),
        labels=train[1].astype(np.int64),
        tests=tests[0].reshape(shape),
        truth=tests[1].astype(np.int64),
        rounds=rows_of_rounds(plan),
        rates=np.array([schedule(number) for number in range(plan.rounds)]),
        **model.named(model.init(plan.seed)),  # type: ignore[arg-type]
    )
    momentum = plan.momentum if plan.optimizer == "momentum" else 0.0
    job = {"momentum": momentum, "dtype": plan.dtype, "threads": threads, "seed": plan.seed}
    job |= {"layers": described(model.stack)}
    (path / "job.json").write_text(json.dumps(job))
    peer = Path(__file__).parent / "peers" / "torch_network.py"
    done = subprocess.run(
        [python, peer, path],
        env=environment(threads),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Learned(found["losses"], found["accuracy"])


def rows_of_rounds(plan: Plan) -> Any:
    """The rows of each round by their numbers, (rounds, batch); -1 where a round has fewer."""
    starts = np.cumsum([0, *plan.data.shard_rows])
    rounds = np.full((plan.rounds, plan.batch_size), -1)
    for number in range(plan.rounds):
        rows = [np.arange(*(starts[one[0]] + one[1:])) for one in plan.slices(number)]
        drawn = np.concatenate(rows)
        rounds[number, : len(drawn)] = drawn
    return rounds


def rows_of(data: Dataset) -> tuple[Any, Any]:
    """All features, as stored, and labels."""
    shards = [data.shard(at).rows(0, one.rows) for at, one in enumerate(data.manifest.shards)]
    return tuple(
        np.concatenate([getattr(one, name) for one in shards]) for name in ("features", "labels")
    )


def described(stack: Any, prefix: str = "") -> list[dict[str, Any]]:
    """The layers of a stack as the peer builds them."""
    layers = []
    for number, layer in enumerate(stack.layers):
        name = f"{prefix}{number}"
        one = {"kind": layer.name(), "name": name, "shape": layer.shape, "output": layer.output}
        one |= {each.name: getattr(layer, each.name) for each in fields(layer)}
        if one["kind"] == "residual":
            one["layers"] = described(layer.inner, f"{name}.")
        layers.append(one)
    return layers


def steps(quick: bool) -> Result:
    """How far the losses of 20 float64 steps are from PyTorch's."""
    names = ("cifar-cnn", "resnet8")
    title = "The losses of 20 steps beside PyTorch's"
    python = os.environ.get(_TORCH, "")
    shown, worst = [], 0.0
    with folder() as path:
        if not python or not imported(path, "cifar10"):
            reason = NO_DATA if python else f"{_TORCH} names no interpreter with torch"
            return Result(title, "", "", [], skipped={"all": reason})
        for name in names[: 1 if quick else 2]:
            # PyTorch draws other numbers for dropout, and its batch norm takes the whole batch.
            spec = NETWORKS[name].replace(",dropout:0.25", "").replace(",dropout:0.5", "")
            settings = Settings(
                spec,
                optimizer="momentum",
                learning_rate=0.05,
                batch_size=64,
                slice_rows=64,
                rounds=20,
                dtype="float64",
            )
            run, ours = trained(path, settings, name)
            theirs = _theirs(path, run.config.plan, python, 2)
            apart = np.abs(np.array(ours.losses) - theirs.losses).max()
            worst = max(worst, float(apart))
            shown.append(f"{name}: {ours.losses[-1]:.6f} and {theirs.losses[-1]:.6f} at the end")
    return Result(
        title,
        "largest difference",
        "CIFAR-10, batches of 64, float64, from equal initial parameters, without dropout. "
        f"{'; '.join(shown)}.",
        [worst],
        limit=("", 1e-4),
    )


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


def cifar(quick: bool) -> Result:
    """Accuracy on CIFAR-10's images beside PyTorch's."""
    epochs, seeds = (1, 1) if quick else (4, 3)
    shown, behind = [], []
    title = f"CIFAR-10: {epochs} epochs, {seeds} seeds, beside PyTorch"
    python = os.environ.get(_TORCH, "")
    with folder() as path:
        if not python or not imported(path, "cifar10"):
            reason = NO_DATA if python else f"{_TORCH} names no interpreter with torch"
            return Result(title, "", "", [], skipped={"all": reason})
        for name in ("cifar-cnn", "resnet8"):
            pairs = []
            for seed in range(seeds):
                settings = _settings(name, epochs, seed)
                run, ours = trained(path, settings, f"{name}-{seed}")
                theirs = _theirs(path, run.config.plan, python, 2)
                pairs.append((ours.accuracy, theirs.accuracy))
            means = np.mean(pairs, axis=0)
            behind.append(float(100 * (means[1] - means[0])))
            each = ", ".join(f"{ours:.4f} and {theirs:.4f}" for ours, theirs in pairs)
            shown.append(f"{name}: {each}")
    return Result(
        title,
        "points behind",
        "10,000 images for training, 2,000 for the test, batches of 128 in slices of 32, momentum, "
        "cosine. Accuracies, ours and PyTorch's with the same initial parameters, batches and "
        f"learning rates: {'; '.join(shown)}.",
        [max(behind)],
        limit=("", 2.0),
    )


def mnist(quick: bool) -> Result:
    """A convolutional network with batch norm and dropout on MNIST."""
    epochs, seeds = (1, 1) if quick else (10, 3)
    spec = (
        "conv:16x5,batchnorm,relu,pool:2,conv:32x5,batchnorm,relu,pool:2,dense:128,relu,dropout:0.5"
    )
    title = f"MNIST: a convolutional network, {epochs} epochs, {seeds} seeds"
    with folder() as path:
        if not imported(path, "mnist"):
            return Result(title, "", "", [], skipped={"all": NO_DATA})
        wrong = []
        for seed in range(seeds):
            settings = _settings(spec, epochs, seed)
            wrong.append(1 - trained(path, settings, f"{seed}")[1].accuracy)
    shown = ", ".join(f"{1 - one:.4f}" for one in wrong)
    return Result(
        title,
        "share of test images that are wrong",
        f"`{spec}`, batches of 128 in slices of 32, momentum, cosine. Accuracy on the 10,000 test "
        f"images: {shown}.",
        [max(wrong)],
        limit=("", 0.01),
    )
