"""Rounds of a gang: what one costs, and an epoch of them beside others on one or two processes.

PyTorch and Horovod are large, so they are looked for in environments of their own, whose
interpreters these variables name::

    python -m venv torch-env && torch-env/bin/pip install torch numpy \\
        --index-url https://download.pytorch.org/whl/cpu
    export GRADREDUCE_TORCH=torch-env/bin/python

Horovod is built with the PyTorch of the system; these are packages of Debian 12::

    apt-get install python3-torch libtorch-dev pybind11-dev python3-dev python3-venv \\
        libopenblas0-pthread cmake g++
    /usr/bin/python3 -m venv --system-site-packages horovod-env
    horovod-env/bin/pip install packaging cloudpickle psutil pyyaml cffi wheel "setuptools<70"
    HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \\
        horovod-env/bin/pip install --no-build-isolation --no-binary horovod horovod
    export GRADREDUCE_HOROVOD=horovod-env/bin/python
"""

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OURS, Bench, case, clouds, environment, rows_of
from benchmarks.paired import Result
from benchmarks.paired import Timed as Time
from mapreduce.data.shards import Dataset
from mapreduce.executors.gang import rank
from mapreduce.executors.gang.rounds import Rounds
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Event, Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.support.cores import available_cores
from mapreduce.training import creating, driver

ROWS, FEATURES, CLASSES, BATCH, SMALL = 60_000, 784, 10, 1_000, 128
LEARNING_RATE = 0.1
DDP, HOROVOD = "PyTorch DDP, Gloo", "Horovod, Gloo"
PEERS = Path(__file__).parent / "peers"
ALONE, ALONE_PINNED = "PyTorch, one process", "PyTorch, one process with one thread"


class Timed:
    """Trainings by gangs whose rank 0 notes when each round was done.

    Parameters
    ----------
    path : Path
        A folder for runs.
    data : Path
    ranks : int
    slow_worker : str, optional
    stages : int
        As the options of these names.

    Attributes
    ----------
    losses : list of float
        The loss of each round of the last training.
    """

    def __init__(
        self, path: Path, data: Path, ranks: int, slow_worker: str | None = None, stages: int = 1
    ) -> None:
        self._path = path
        self._data = data
        self._execution = Execution(
            "parallel", ranks, blocks=0, executor="gang", stages=stages, slow_worker=slow_worker
        )
        self._runs = 0
        self.losses: list[float] = []

    def seconds(self, settings: Settings, every: int) -> list[float]:
        """Seconds that each ``every`` rounds took, but for the first ones, which warm up."""
        self._runs += 1
        notes = self._path / f"notes-{self._runs}"

        class Noting(Rounds):
            def run(self, start: int, is_evaluated: bool) -> None:
                moments: list[float] = []
                report = self._on_round

                def note(completed: int) -> None:
                    if completed % every == 0:
                        moments.append(time.perf_counter())
                    report(completed)

                self._on_round = note
                super().run(start, is_evaluated)
                if self._mesh.rank == 0:
                    notes.write_text(json.dumps(moments))

        run = creating.create(self._path / f"run-{self._runs}", settings, self._data, None)
        # The ranks are forked, and so they have it.
        self.losses = []
        rank.Rounds = Noting  # type: ignore[misc]
        try:
            driver.train(run, self._execution, 1, Events(self._note))
        finally:
            rank.Rounds = Rounds  # type: ignore[misc]
        moments = json.loads(notes.read_text())
        return [after - before for before, after in pairwise(moments)]

    def _note(self, event: Event) -> None:
        if isinstance(event, RoundCompleted):
            self.losses.append(event.loss)


def rounds_of(model: str, features: int, parameters: str, most: float) -> Callable[[bool], Result]:
    """The benchmark of a round of four tasks."""
    title = f"A round of a gang of four tasks, {parameters} parameters"

    @case(title, "ms", repeats=(3, 7), limits=[(("",), most)])
    def benchmark(bench: Bench) -> dict[str, Time]:
        clouds(bench.path / "data", 4096, features, 10)
        timed = Timed(bench.path, bench.path / "data", 4)
        settings = Settings(model, batch_size=128, rounds=400)
        bench.note = (
            f"`{model}` on {features} features, batches of 128 in slices of 32, `-r parallel "
            f"--executor gang --workers 4`: the median over 20 rounds in one job of 400."
        )
        return {OURS: lambda: statistics.median(timed.seconds(settings, 20)) / 20 * 1e3}

    return benchmark


small = rounds_of("softmax", 99, "1,000", 4.0)
large = rounds_of("mlp:900", 100, "100,000", 12.0)
million = rounds_of("mlp:9000", 100, "1,000,000", 25.0)


def answer(command: list[str], threads: int = 1, seconds: float = 600) -> dict[str, Any]:
    """What a peer prints as JSON in its last line."""
    done = subprocess.run(
        command,
        env=environment(threads),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds,
    )
    last = done.stdout.splitlines()[-1]
    # horovodrun writes the rank before each line.
    found: dict[str, Any] = json.loads(last[last.index("{") :])
    return found


def horovod_command(python: str, *arguments: str) -> list[str]:
    """A program on two processes of Horovod."""
    runner = str(Path(python).parent / "horovodrun")
    return [runner, "--gloo", "-np", "2", "-H", "localhost:2", python, *arguments]


def epochs_beside(
    bench: Bench,
    settings: Settings,
    ranks: int,
    peers: dict[str, tuple[str, int]],
) -> dict[str, Time]:
    """The median epoch of a gang, but for the first, on the rows in ``data``; and that of peers.

    ``peers`` have a kind of ``torch_data_parallel.py`` and threads by their names.
    """
    data = Dataset(bench.path / "data")
    for name, rows in zip(("features", "labels"), rows_of(data), strict=True):
        np.save(bench.path / f"{name}.npy", rows)
    timed = Timed(bench.path, bench.path / "data", ranks)
    per_epoch = -(-data.manifest.rows // settings.batch_size)
    found: dict[str, Time] = {OURS: lambda: statistics.median(timed.seconds(settings, per_epoch))}
    for name, (kind, threads) in peers.items():
        wanted = ("HOROVOD", "horovod.torch") if kind == "horovod" else ("TORCH", "torch")
        if python := bench.interpreter(f"GRADREDUCE_{wanted[0]}", wanted[1], name):
            command = [str(PEERS / "torch_data_parallel.py"), kind, str(bench.path)]
            command += [str(settings.epochs), str(settings.batch_size)]
            command = horovod_command(python, *command) if kind == "horovod" else [python, *command]
            found[name] = lambda command=command, threads=threads: float(
                answer(command, threads)["seconds"]
            )
    return found


def _perceptron(
    bench: Bench, batch: int, ranks: int, peers: dict[str, tuple[str, int]]
) -> dict[str, Time]:
    clouds(bench.path / "data", bench.pick(6_000, ROWS), FEATURES, CLASSES)
    settings = Settings(
        "mlp:128", batch_size=batch, learning_rate=LEARNING_RATE, epochs=bench.pick(4, 6)
    )
    bench.note = (
        f"The median epoch of a training of {settings.epochs}, without the first, by a gang of "
        f"{ranks} in slices of 32 rows, {bench.pick(6_000, ROWS):,} rows of float32. PyTorch and "
        f"Horovod hold the rows in memory."
    )
    return epochs_beside(bench, settings, ranks, peers)


@case(
    "An epoch of a perceptron 784-128-10 on two processes, batches of 1,000",
    repeats=(3, 7),
    limits=[((DDP,), 0.85)],
)
def epoch(bench: Bench) -> dict[str, Time]:
    """The benchmark of an epoch on two processes, with one thread each."""
    return _perceptron(bench, BATCH, 2, {DDP: ("ddp", 1), HOROVOD: ("horovod", 1)})


@case(
    "An epoch of a perceptron 784-128-10, batches of 128", repeats=(3, 7), limits=[((ALONE,), 1.4)]
)
def minibatch(bench: Bench) -> dict[str, Time]:
    """The benchmark of an epoch of small batches, beside PyTorch in one process."""
    cores = available_cores()
    peers = {ALONE: ("alone", cores), ALONE_PINNED: ("alone", 1)}
    return _perceptron(bench, SMALL, min(2, cores), peers)
