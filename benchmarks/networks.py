"""Convolutional networks: one step beside PyTorch's, and an epoch.

The step is the forward pass, the loss and the backward pass of a batch of 128 on one thread: ours
in four slices of 32, whose gradients are added. ``GRADREDUCE_TORCH`` names PyTorch's interpreter,
as for :mod:`benchmarks.gang`.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OURS, Bench, case, wall
from benchmarks.gang import ALONE, DDP, PEERS, answer, epochs_beside
from benchmarks.paired import Result, Timed
from kernels import dispatch
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.models.context import Context, Key
from mapreduce.models.layers.sequential import Sequential
from mapreduce.plan.settings import Settings

CNN = "conv:16x5,relu,pool:2,conv:32x5,relu,pool:2,dense:128,relu"
BATCH, SLICE, CLASSES = 128, 32, 10
CHANNELS_LAST = "PyTorch, channels_last"


def network(layers: str, channels: int, size: int) -> Sequential:
    shape = (channels, size, size) if channels > 1 else (size, size)
    model = models.create(f"sequential:{layers}", shape, CLASSES, "float32")
    assert isinstance(model, Sequential)
    return model


def export(
    path: Path, model: Sequential, job: dict[str, Any] | None = None, seed: int = 0, **arrays: Any
) -> None:
    """Write what PyTorch reads: layers, the first parameters of a seed, and more."""
    (path / "job.json").write_text(json.dumps({"layers": described(model.stack), **(job or {})}))
    named = model.named(model.init(seed))
    np.savez(path / "arrays.npz", **arrays, **named)  # type: ignore[arg-type]


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


def step_on(model: Sequential) -> Callable[[], None]:
    """A step of a network on random images."""
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (BATCH, model.features), np.uint8)
    labels = random.integers(0, CLASSES, BATCH).astype(np.int32)
    batch, params, context = Batch(rows, labels, 1 / 255), model.init(0), Context(training=True)
    gradients = np.empty((BATCH // SLICE, model.size), np.float32)
    add = dispatch.get("add_into")

    def step() -> None:
        for number, gradient in enumerate(gradients):
            first = number * SLICE
            context.key = Key(row=first)
            model.gradient(params, batch[first : first + SLICE], gradient, context)
        for left, right in ((0, 1), (2, 3), (0, 2)):
            add(gradients[left], gradients[right])

    return step


def step_of(name: str, layers: str, channels: int, size: int) -> Callable[[bool], Result]:
    """The benchmark of a step of a network, by its layers and its images."""

    # Beside the faster of PyTorch's two orders of memory.
    @case(f"A step of {name}", "ms", repeats=(2, 5), limits=[((ALONE, CHANNELS_LAST), 1.1)])
    def benchmark(bench: Bench) -> dict[str, Timed]:
        steps, model = bench.pick(3, 5), network(layers, channels, size)
        run = step_on(model)

        def ours() -> float:
            return 1e3 * statistics.median([wall(run) for _ in range(steps + 1)][1:])

        found: dict[str, Timed] = {OURS: ours}
        if python := bench.interpreter("GRADREDUCE_TORCH", "torch", ALONE, CHANNELS_LAST):
            export(bench.path, model)
            sizes = map(str, (channels, size, BATCH, steps))
            command = [python, str(PEERS / "torch_steps.py"), str(bench.path), *sizes]
            found[ALONE] = lambda: 1e3 * answer(command)["seconds"]
            found[CHANNELS_LAST] = lambda: 1e3 * answer([*command, "channels_last"])["seconds"]
        bench.note = (
            f"`{layers}` on images of {size} × {size} × {channels}, batches of {BATCH}, one "
            f"thread; ours in slices of {SLICE}, PyTorch at once: the median of {steps} steps."
        )
        return found

    return benchmark


cnn = step_of("a small CNN", CNN, 1, 28)
cifar_cnn = step_of("cifar-cnn", models.NETWORKS["cifar-cnn"], 3, 32)
resnet8 = step_of("resnet8", models.NETWORKS["resnet8"], 3, 32)


@case("An epoch of a small CNN on two processes", repeats=(2, 5), limits=[((DDP,), 1.0)])
def epoch(bench: Bench) -> dict[str, Timed]:
    """The benchmark of an epoch of the small CNN on two processes."""
    rows = bench.pick(2_560, 30_720)
    noise(bench.path / "data", rows)
    export(bench.path, network(CNN, 1, 28))
    bench.note = (
        f"`{CNN}` on {rows:,} images of 28 × 28, batches of {BATCH}: the median epoch of a "
        f"training of 3, without the first. Rows are float32, and the peer holds them in memory, "
        f"one thread a process."
    )
    settings = Settings(f"sequential:{CNN}", batch_size=BATCH, learning_rate=0.1, epochs=3)
    return epochs_beside(bench, settings, 2, {DDP: ("ddp", 1)})


def noise(out: Path, rows: int) -> None:
    """Write random images with labels."""
    random = np.random.default_rng(0)
    images = random.random((rows, 28 * 28), np.float32)
    labels = random.integers(0, CLASSES, rows)
    source = Source(iter([Rows(images, labels)]), (28, 28), 1.0, images.nbytes, {"format": "noise"})
    import_rows(source, out, seed=0)
