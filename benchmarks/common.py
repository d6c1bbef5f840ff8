"""What the benchmarks share: synthetic datasets, and rounds timed without the program's start."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.executors.chain import Chain
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position
from mapreduce.strategies.program import Training
from mapreduce.support.cores import available_cores
from mapreduce.training import creating


@contextlib.contextmanager
def folder(place: Path | None = None) -> Iterator[Path]:
    """A temporary folder, by default on the disk."""
    with tempfile.TemporaryDirectory(prefix="gradreduce-bench-", dir=place) as name:
        yield Path(name)


def clouds(out: Path, rows: int, features: int, classes: int) -> None:
    """A dataset of float32 rows around one centre for each class."""
    centres = np.random.default_rng(0).normal(size=(classes, features)).astype(np.float32)
    step = 50_000

    def chunks() -> Iterator[Rows]:
        for start in range(0, rows, step):
            generator = np.random.default_rng(start + 1)
            count = min(step, rows - start)
            labels = generator.integers(0, classes, count)
            noise = generator.standard_normal((count, features), np.float32)
            yield Rows(centres[labels] * np.float32(0.1) + noise, labels)

    source = Source(chunks(), (features,), 1.0, rows * features * 4, {"format": "clouds"})
    import_rows(source, out, seed=0)


class Rounds:
    """A training whose rounds are timed alone: workers are up, data and kernels are warm.

    Parameters
    ----------
    run : Path
    settings : Settings
        With enough ``rounds`` for all that will be timed.
    data : Path
    execution : Execution
    """

    def __init__(self, run: Path, settings: Settings, data: Path, execution: Execution) -> None:
        created = creating.create(run, settings, data, None)
        self.run = created
        self._execution = execution.for_paths(run, data).with_blocks_for(
            created.config.plan.create_model()
        )
        self._chain = Chain(self._execution, place=created.rounds.folder)
        self._training = Training.from_cache(created)
        self._position = 0

    def __enter__(self) -> "Rounds":
        self._stack = contextlib.ExitStack()
        self.run.make_folders()
        self.run.publish_round(Position.first(self.run.config.plan), self._execution.blocks)
        self._training.context.warm_up()
        self._stack.enter_context(self._chain.workers())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def seconds(self, rounds: int) -> float:
        """Seconds that the next rounds take, in one job."""
        started = time.perf_counter()
        stop = self._position + rounds
        self._chain.run(self._training, self._position, stop)
        self._position = stop
        return time.perf_counter() - started


def two_workers() -> Execution:
    """``-r parallel`` as on the machine that the limits are for."""
    return Execution("parallel", workers=min(2, available_cores()))


def environment(threads: int) -> dict[str, str]:
    """The environment of a peer that may use so many BLAS threads."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}
