"""A module of PyTorch in a mapper, beside the same slices in a bare loop of torch.

Both compute in this process, in one thread, the gradients of the slices of some rounds: the mapper
as in a training, from parameters of the run and rows of a dataset; the loop from a tensor, with
torch's own loss and settings.
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OURS, Bench, Missing, case, wall
from benchmarks.paired import Timed
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.state import InFolder
from mapreduce.plan.settings import Settings
from mapreduce.runs.state import Position
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training import creating

ROWS, SLICES, SLICE_ROWS = 2048, 4, 32
LOOP = "a bare loop of torch"


def network() -> Any:
    """For images of 28 × 28 and 10 classes."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Mapper:
    """The mapper's part of rounds, whose parameters are published."""

    def __init__(self, path: Path, rounds: int) -> None:
        settings = Settings(
            "torch:benchmarks.torch_module:network",
            batch_size=SLICES * SLICE_ROWS,
            slice_rows=SLICE_ROWS,
            rounds=rounds + 1,
        )
        run = creating.create(path / "run", settings, path / "data", None)
        run.make_folders()
        first = Position.first(run.config.plan)
        for completed in range(rounds + 1):
            run.publish_round(replace(first, completed=completed), 1)
        context = TaskContext(run.config, 1)
        self._gradients = Gradients(context, TrainingState(context, InFolder(run.rounds, 1)))
        self._rounds = range(1, rounds + 1)
        # The first round compiles kernels, and tries whether the module keeps a state.
        self._round(0)

    def _round(self, completed: int) -> None:
        for _ in self._gradients.nodes(LeafRange(completed, 0, SLICES)):
            pass

    def __call__(self) -> None:
        for completed in self._rounds:
            self._round(completed)


class Loop:
    """The bare loop: one forward and backward pass for each slice, whose gradients torch adds."""

    def __init__(self, x: Any, labels: Any, rounds: int) -> None:
        import torch

        self._torch, self._rounds = torch, rounds
        self._module = network()
        self._x = torch.tensor(x).view(-1, 1, 28, 28)
        self._labels = torch.tensor(labels, dtype=torch.int64)

    def __call__(self) -> None:
        torch = self._torch
        # Its defaults, which ours changes.
        torch.set_deterministic_debug_mode("default")
        torch.backends.mkldnn.deterministic = False
        for number in range(self._rounds):
            self._module.zero_grad()
            for part in range(SLICES):
                start = (number * SLICES + part) * SLICE_ROWS % ROWS
                rows = slice(start, start + SLICE_ROWS)
                loss = torch.nn.functional.cross_entropy(
                    self._module(self._x[rows]), self._labels[rows], reduction="sum"
                )
                loss.backward()


@case("A module of PyTorch", repeats=(2, 11), limits=[((LOOP,), 1.15)])
def benchmark(bench: Bench) -> dict[str, Timed]:
    if find_spec("torch") is None:
        raise Missing("no torch")
    rounds, generator = bench.pick(2, 25), np.random.default_rng(0)
    x = generator.random((ROWS, 784), dtype=np.float32)
    labels = generator.integers(0, 10, ROWS)
    source = Source([Rows(x, labels)], (28, 28), 1.0, x.nbytes, {"format": "made"})
    import_rows(source, bench.path / "data", 0)
    mapper, loop = Mapper(bench.path, rounds), Loop(x, labels, rounds)
    bench.note = (
        f"{rounds} batches of {SLICES} slices of {SLICE_ROWS} rows. Gradients alone, in one "
        "thread: a convolution of 16 filters of 5 × 5, pooling, one of 32, pooling, 128 and 10 "
        "outputs, on images of 28 × 28. Ours reads the parameters of each round and adds the "
        "gradients of its slices along the tree."
    )
    return {OURS: lambda: wall(mapper), LOOP: lambda: wall(loop)}
