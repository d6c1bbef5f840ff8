"""The harness of the benchmarks: cases, data, commands, and rounds timed without the start."""

import contextlib
import functools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.paired import Result, Timed, in_turn
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.executors.chain import Chain
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position
from mapreduce.strategies.program import Training
from mapreduce.support.cores import available_cores
from mapreduce.training import creating

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
OURS = "this toolkit"
GRADREDUCE = [sys.executable, "-m", "mapreduce.cli.main"]


class Missing(Exception):
    """A case cannot be measured here; the message says why."""


class Bench:
    """A measurement of a case.

    Attributes
    ----------
    quick : bool
        Small sizes.
    path : Path
        A temporary folder.
    title : str
    note : str or callable
        Of the section; a function is called after the programs have run.
    skipped : dict of str to str
        Peers that are not here, and why.
    """

    def __init__(self, quick: bool, title: str, stack: contextlib.ExitStack) -> None:
        self.quick, self.title, self._stack = quick, title, stack
        self.path = self.enter(folder())
        self.note: str | Callable[[], str] = ""
        self.skipped: dict[str, str] = {}

    def pick(self, small: T, full: T) -> T:
        """The first of two sizes in a quick run, the second otherwise."""
        return small if self.quick else full

    def enter(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enter a context that ends with the measurement."""
        return self._stack.enter_context(context)

    def interpreter(self, variable: str, module: str, *peers: str) -> str:
        """The interpreter that a variable names; "" if it lacks a module, and peers are skipped."""
        python = interpreter(variable, module)
        if not python:
            reason = f"{variable} names no interpreter with {module.partition('.')[0]}"
            self.skipped |= dict.fromkeys(peers, reason)
        return python


Measure = Callable[[Bench], dict[str, Timed]]
Limits = Sequence[tuple[tuple[str, ...], float]]


def case(
    title: str,
    unit: str = "s",
    *,
    repeats: tuple[int, int] = (1, 3),
    limits: Limits = (),
    few: Mapping[str, int] | None = None,
) -> Callable[[Measure], Callable[[bool], Result]]:
    """Make a benchmark of a function that gives the programs of a case, ours and its peers.

    Parameters
    ----------
    title, unit : str
        A function may change ``title`` of its :class:`Bench`.
    repeats : tuple of int
        Of a quick run, and of a whole one.
    limits : sequence of (tuple of str, float)
        As those of :class:`Result`; a quick run has none.
    few : dict of str to int, optional
        As of :func:`in_turn`.
    """

    def decorate(measure: Measure) -> Callable[[bool], Result]:
        @functools.wraps(measure)
        def benchmark(quick: bool) -> Result:
            with contextlib.ExitStack() as stack:
                bench = Bench(quick, title, stack)
                try:
                    programs = measure(bench)
                except Missing as reason:
                    peers = [peer or OURS for among, _ in limits for peer in among] or [OURS]
                    skipped = dict.fromkeys(peers, str(reason))
                    return Result(title, unit, "", [], skipped=skipped, limits=[*limits])
                ours = programs.pop(OURS)
                times, theirs = in_turn(ours, programs, repeats[not quick], few)
                note = bench.note if isinstance(bench.note, str) else bench.note()
            result = Result(bench.title, unit, note, times, theirs, skipped=bench.skipped)
            result.limits = [] if quick else [*limits]
            return result

        return benchmark

    return decorate


def gradreduce(*arguments: object) -> str:
    """What a command prints."""
    command = [*GRADREDUCE, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def interpreter(variable: str, module: str) -> str:
    """The interpreter that a variable names, or "" if it does not have a module."""
    python = os.environ.get(variable, "")
    command = [python, "-c", f"import {module}"]
    if not shutil.which(python):
        return ""
    return "" if subprocess.run(command, capture_output=True, check=False).returncode else python


def wall(call: Callable[[], object], times: int = 1) -> float:
    """Seconds of a call, of so many that follow each other."""
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


def processor(call: Callable[[], object], times: int = 1) -> float:
    """Processor seconds of a call in this process, of so many that follow each other."""
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times


def processor_of_children(call: Callable[[], object]) -> float:
    """Processor seconds of all processes that a call starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(after[:2]) - sum(before[:2])


def images(path: Path, kind: str) -> None:
    """Import the training and test rows of ``cifar10`` or ``mnist``.

    Raises Missing (they are not here).
    """
    source = Path(os.environ.get("GRADREDUCE_DATA", "")) / kind
    if kind == "cifar10":
        files = {"train": source / "data_batch_1.bin.gz", "test": source / "test_batch.bin.gz"}
    else:
        prefixes = {"train": "train", "test": "t10k"}
        files = {name: source / f"{one}-images-idx3-ubyte.gz" for name, one in prefixes.items()}
    if not files["train"].exists():
        raise Missing(f"GRADREDUCE_DATA names no folder with {kind}/")
    for name, file in files.items():
        labels = str(file).replace("images-idx3", "labels-idx1")
        options = ["cifar10"] if kind == "cifar10" else ["idx", "--labels", labels]
        gradreduce("data", "import", file, path / name, "--format", *options)


def rows_of(data: Dataset) -> tuple[Any, Any]:
    """All features, as stored, and labels."""
    shards = [data.shard(at).rows(0, one.rows) for at, one in enumerate(data.manifest.shards)]
    return tuple(
        np.concatenate([getattr(one, name) for one in shards]) for name in ("features", "labels")
    )


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
