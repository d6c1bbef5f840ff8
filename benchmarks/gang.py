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
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import clouds, environment, folder
from benchmarks.paired import Result, in_turn
from mapreduce.data.shards import Dataset
from mapreduce.executors.gang import rank
from mapreduce.executors.gang.rounds import Rounds
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Event, Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.support.cores import available_cores
from mapreduce.training import creating, driver

ROWS, FEATURES, CLASSES, HIDDEN, BATCH, SMALL = 60_000, 784, 10, 128, 1_000, 128
LEARNING_RATE = 0.1
DDP, HOROVOD = "PyTorch DDP, Gloo", "Horovod, Gloo"
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

    def benchmark(quick: bool) -> Result:
        repeats = 3 if quick else 7
        with folder() as path:
            clouds(path / "data", 4096, features, 10)
            timed = Timed(path, path / "data", 4)
            settings = Settings(model, batch_size=128, rounds=400)
            ours = [
                statistics.median(timed.seconds(settings, 20)) / 20 * 1e3 for _ in range(repeats)
            ]
        return Result(
            f"A round of a gang of four tasks, {parameters} parameters",
            "ms",
            f"`{model}` on {features} features, batches of 128 in slices of 32, `-r parallel "
            f"--executor gang --workers 4`: the median over 20 rounds in one job of 400.",
            ours,
            {},
            ("", most),
        )

    return benchmark


small = rounds_of("softmax", 99, "1,000", 4.0)
large = rounds_of("mlp:900", 100, "100,000", 12.0)
million = rounds_of("mlp:9000", 100, "1,000,000", 25.0)


def _interpreter(variable: str, module: str) -> str:
    """The interpreter that a variable names, or "" if it does not have a module."""
    python = os.environ.get(variable, "")
    if not python:
        return ""
    done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
    return "" if done.returncode else python


def _peer(command: list[str], threads: int = 1) -> dict[str, Any]:
    done = subprocess.run(
        command,
        env=environment(threads),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    last = done.stdout.splitlines()[-1]
    # horovodrun writes the rank before each line.
    found: dict[str, Any] = json.loads(last[last.index("{") :])
    return found


def epoch(quick: bool) -> Result:
    """The benchmark of an epoch on two processes."""
    rows, repeats, epochs = (6_000, 3, 4) if quick else (ROWS, 7, 6)
    peers: dict[str, Callable[[], float]] = {}
    skipped = {}
    with folder() as path:
        clouds(path / "data", rows, FEATURES, CLASSES)
        _as_arrays(path / "data", path)
        script = str(Path(__file__).parent / "peers" / "torch_data_parallel.py")
        python = _interpreter("GRADREDUCE_TORCH", "torch")
        versions = []
        if python:
            command = [python, script, "ddp", str(path), str(epochs), str(BATCH)]
            versions.append(f"torch {_peer(command)['torch']}")
            peers[DDP] = lambda: float(_peer(command)["seconds"])
        else:
            skipped[DDP] = "GRADREDUCE_TORCH names no interpreter with torch"
        with_horovod = _interpreter("GRADREDUCE_HOROVOD", "horovod.torch")
        if with_horovod:
            runner = str(Path(with_horovod).parent / "horovodrun")
            launch = [runner, "--gloo", "-np", "2", "-H", "localhost:2", with_horovod, script]
            launch += ["horovod", str(path), str(epochs), str(BATCH)]
            peers[HOROVOD] = lambda: float(_peer(launch)["seconds"])
        else:
            skipped[HOROVOD] = "GRADREDUCE_HOROVOD names no interpreter with horovod"
        timed = Timed(path, path / "data", 2)
        settings = Settings(
            f"mlp:{HIDDEN}", batch_size=BATCH, learning_rate=LEARNING_RATE, epochs=epochs
        )
        per_epoch = rows // BATCH
        ours, theirs = in_turn(
            lambda: statistics.median(timed.seconds(settings, per_epoch)), peers, repeats
        )
    return Result(
        f"An epoch of a perceptron 784-128-10 on two processes, {rows:,} rows, batches of 1,000",
        "s",
        f"The median epoch of a training of {epochs}, without the first; rows are float32, and the "
        f"peers hold them in memory, one thread each ({', '.join(versions) or 'none measured'}). "
        f"The gang gives the bits that any other number of tasks gives; the peers do not.",
        ours,
        theirs,
        (DDP, 0.85),
        skipped,
    )


def minibatch(quick: bool) -> Result:
    """The benchmark of an epoch of small batches, beside PyTorch in one process."""
    rows, repeats, epochs = (6_000, 3, 4) if quick else (ROWS, 7, 6)
    ranks = min(2, available_cores())
    peers: dict[str, Callable[[], float]] = {}
    skipped = {}
    with folder() as path:
        clouds(path / "data", rows, FEATURES, CLASSES)
        _as_arrays(path / "data", path)
        script = str(Path(__file__).parent / "peers" / "torch_data_parallel.py")
        if python := _interpreter("GRADREDUCE_TORCH", "torch"):
            command = [python, script, "alone", str(path), str(epochs), str(SMALL)]
            for name, threads in ((ALONE, available_cores()), (ALONE_PINNED, 1)):
                peers[name] = lambda threads=threads: float(_peer(command, threads)["seconds"])
        else:
            skipped[ALONE] = "GRADREDUCE_TORCH names no interpreter with torch"
        timed = Timed(path, path / "data", ranks)
        settings = Settings(
            f"mlp:{HIDDEN}", batch_size=SMALL, learning_rate=LEARNING_RATE, epochs=epochs
        )
        per_epoch = -(-rows // SMALL)
        ours, theirs = in_turn(
            lambda: statistics.median(timed.seconds(settings, per_epoch)), peers, repeats
        )
    return Result(
        f"An epoch of a perceptron 784-128-10, {rows:,} rows, batches of {SMALL}",
        "s",
        f"The median epoch of a training of {epochs}, without the first, by a gang of {ranks} in "
        f"slices of 32 rows; PyTorch holds the rows in memory, and has a thread for each core, or "
        f"one.",
        ours,
        theirs,
        (ALONE, 1.4),
        skipped,
    )


def _as_arrays(data: Path, out: Path) -> None:
    """The rows of a dataset, for programs that do not know its format."""
    import numpy as np

    dataset = Dataset(data)
    shards = [
        dataset.shard(number).rows(0, entry.rows)
        for number, entry in enumerate(dataset.manifest.shards)
    ]
    np.save(out / "features.npy", np.concatenate([shard.features for shard in shards]))
    np.save(out / "labels.npy", np.concatenate([shard.labels for shard in shards]))
