"""Convolutional networks: one step beside PyTorch's, with a profile by kernel, and an epoch.

The step is the forward pass, the loss and the backward pass of a batch of 128 on one thread: ours
in four slices of 32, whose gradients are added. ``GRADREDUCE_TORCH`` names PyTorch's interpreter,
as for :mod:`benchmarks.gang`.
"""

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import folder
from benchmarks.gang import ALONE, DDP, Timed, _as_arrays, _interpreter, _peer
from benchmarks.paired import Result, in_turn
from kernels import dispatch
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.models.context import Context, Key
from mapreduce.plan.settings import Settings

CNN = "conv:16x5,relu,pool:2,conv:32x5,relu,pool:2,dense:128,relu"
BATCH, SLICE, CLASSES = 128, 32, 10
CHANNELS_LAST = "PyTorch, channels_last"
#: Beside the faster of PyTorch's two orders of memory.
LIMIT = ((ALONE, CHANNELS_LAST), 1.1)
PEERS = Path(__file__).parent / "peers"


class Step:
    """Steps of a network on random images.

    Parameters
    ----------
    layers : str
    channels, size : int
        Of the images.
    """

    def __init__(self, layers: str, channels: int, size: int) -> None:
        shape = (channels, size, size) if channels > 1 else (size, size)
        self.model = models.create(f"sequential:{layers}", shape, CLASSES, "float32")
        random = np.random.default_rng(0)
        rows = random.integers(0, 256, (BATCH, channels * size * size), np.uint8)
        labels = random.integers(0, CLASSES, BATCH).astype(np.int32)
        self._batch = Batch(rows, labels, 1 / 255)
        self._params = self.model.init(0)
        self._grads = np.empty((BATCH // SLICE, self.model.size), np.float32)
        self._context = Context(training=True)
        self._add = dispatch.get("add_into")

    def seconds(self, steps: int) -> float:
        """The median seconds of a step."""
        times = []
        for _ in range(steps + 1):
            started = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - started)
        return statistics.median(times[1:])

    def run(self) -> None:
        for number, grad in enumerate(self._grads):
            first = number * SLICE
            self._context.key = Key(row=first)
            batch = self._batch[first : first + SLICE]
            self.model.gradient(self._params, batch, grad, self._context)
        for left, right in ((0, 1), (2, 3), (0, 2)):
            self._add(self._grads[left], self._grads[right])

    def profile(self, steps: int) -> list[str]:
        """A table of the kernels, by what each step takes of them."""
        spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        kernels = dict(self.model._kernels)
        for name, kernel in kernels.items():
            self.model._kernels[name] = _noting(name, kernel, spent)
        started = time.perf_counter()
        for _ in range(steps):
            self.run()
        total = time.perf_counter() - started
        self.model._kernels.update(kernels)
        peak = peak_flops()
        lines = [
            f"Products of 512 × 512 reach {peak / 1e9:.3g} GFLOP/s on one thread.",
            "",
            "| kernel, what it reads and writes | calls a step | ms a step | GFLOP/s | of that |",
            "|---|---|---|---|---|",
        ]
        others = total - sum(seconds for _, seconds, _ in spent.values())
        for name, (calls, seconds, flops) in sorted(spent.items(), key=lambda one: -one[1][1]):
            rate = flops / seconds
            share = f"{rate / 1e9:.3g} | {rate / peak:.0%}" if flops else " | "
            lines.append(f"| {name} | {calls / steps:g} | {seconds / steps * 1e3:.3f} | {share} |")
        return [*lines, f"| between kernels | | {others / steps * 1e3:.3f} | | |"]


def _noting(name: str, kernel: Callable[..., Any], spent: dict[str, list[float]]) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        result = kernel(*arguments, **options)
        seconds = time.perf_counter() - started
        shapes = [one.shape for one in arguments if isinstance(one, np.ndarray) and one.ndim > 1]
        described = ", ".join("×".join(map(str, shape)) for shape in shapes)
        noted = spent[f"{name} {described}"]
        noted[0] += 1
        noted[1] += seconds
        noted[2] += flops(name, shapes)
        return result

    return call


def flops(name: str, shapes: list[tuple[int, ...]]) -> float:
    """Operations of a kernel that is a product, for its arrays; otherwise 0."""
    if name.startswith("convolve"):
        weight = {"convolve": 1, "convolve_weight_gradient": 2, "convolve_input_gradient": 1}[name]
        outputs = {"convolve": 2, "convolve_weight_gradient": 1, "convolve_input_gradient": 0}[name]
        return 2.0 * math.prod(shapes[weight][:3]) * math.prod(shapes[outputs])
    if name.startswith("affine"):
        return 2.0 * math.prod(shapes[0]) * shapes[1][1 if name != "affine_input_gradient" else 0]
    return 0.0


def peak_flops() -> float:
    """Operations a second of BLAS on large square matrices."""
    a = np.random.default_rng(0).random((512, 512), np.float32)
    out, times = np.empty_like(a), []
    for _ in range(10):
        started = time.perf_counter()
        np.matmul(a, a, out=out)
        times.append(time.perf_counter() - started)
    return 2 * 512**3 / min(times)


def step_of(name: str, layers: str, channels: int, size: int) -> Callable[[bool], Result]:
    """The benchmark of a step of a network, by its layers and its images."""

    def benchmark(quick: bool) -> Result:
        repeats, steps = (2, 3) if quick else (5, 5)
        ours = Step(layers, channels, size)
        ours.run()
        peers: dict[str, Callable[[], float]] = {}
        skipped, version = {}, "none measured"
        if python := _interpreter("GRADREDUCE_TORCH", "torch"):
            sizes = map(str, (channels, size, BATCH, steps))
            command = [python, str(PEERS / "torch_steps.py"), layers, *sizes]
            version = f"torch {_peer(command)['torch']}"
            peers[ALONE] = lambda: 1e3 * _peer(command)["seconds"]
            peers[CHANNELS_LAST] = lambda: 1e3 * _peer([*command, "channels_last"])["seconds"]
        else:
            skipped = dict.fromkeys(LIMIT[0], "GRADREDUCE_TORCH names no interpreter with torch")
        mine, theirs = in_turn(lambda: 1e3 * ours.seconds(steps), peers, repeats)
        note = [
            f"`{layers}` on images of {size} × {size} × {channels}, batches of {BATCH}, one "
            f"thread; ours in slices of {SLICE}, PyTorch at once ({version}): the median of "
            f"{steps} steps.",
            "",
            *ours.profile(steps),
        ]
        title = f"A step of {name}"
        return Result(title, "ms", "\n".join(note), mine, theirs, None, skipped, [LIMIT])

    return benchmark


cnn = step_of("a small CNN", CNN, 1, 28)
cifar_cnn = step_of("cifar-cnn", models.NETWORKS["cifar-cnn"], 3, 32)
resnet8 = step_of("resnet8", models.NETWORKS["resnet8"], 3, 32)


def epoch(quick: bool) -> Result:
    """The benchmark of an epoch of the small CNN on two processes."""
    rows, repeats, epochs = (2_560, 2, 3) if quick else (30_720, 5, 3)
    peers: dict[str, Callable[[], float]] = {}
    skipped = {}
    with folder() as path:
        _images(path / "data", rows)
        _as_arrays(path / "data", path)
        if python := _interpreter("GRADREDUCE_TORCH", "torch"):
            script = str(PEERS / "torch_data_parallel.py")
            command = [python, script, "ddp", str(path), str(epochs), str(BATCH), CNN]
            peers[DDP] = lambda: float(_peer(command)["seconds"])
        else:
            skipped[DDP] = "GRADREDUCE_TORCH names no interpreter with torch"
        timed = Timed(path, path / "data", 2)
        settings = Settings(f"sequential:{CNN}", batch_size=BATCH, learning_rate=0.1, epochs=epochs)
        ours, theirs = in_turn(
            lambda: statistics.median(timed.seconds(settings, rows // BATCH)), peers, repeats
        )
    return Result(
        f"An epoch of a small CNN on two processes, {rows:,} images, batches of {BATCH}",
        "s",
        f"`{CNN}` on images of 28 × 28: the median epoch of a training of {epochs}, without the "
        f"first. Rows are float32, and the peer holds them in memory, one thread a process.",
        ours,
        theirs,
        (DDP, 1.0),
        skipped,
    )


def _images(out: Path, rows: int) -> None:
    """Write random images with labels."""
    random = np.random.default_rng(0)
    images = random.random((rows, 28 * 28), np.float32)
    labels = random.integers(0, CLASSES, rows)
    source = Source(iter([Rows(images, labels)]), (28, 28), 1.0, images.nbytes, {"format": "noise"})
    import_rows(source, out, seed=0)
