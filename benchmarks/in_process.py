"""What a call costs that starts no job, beside the mathematics alone: processor time."""

import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mapreduce
from benchmarks.common import OURS, Bench, case, clouds, folder, processor
from benchmarks.paired import Timed
from mapreduce.data.batch import Batch
from mapreduce.executors.here import Here
from mapreduce.inference.predictor import Predictor
from mapreduce.models.fitted import FittedModel
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.strategies.program import Training
from mapreduce.training import creating, driver

_ROWS = 400
BARE, HERE = "the predictor alone, of features", "`Here().advance` alone"


def _columns() -> dict[str, Any]:
    """Five columns of floats, one of integers, one of names and one of booleans."""
    draw = np.random.default_rng(0)
    found: dict[str, Any] = {f"x{number}": draw.normal(size=_ROWS) for number in range(5)}
    found["count"] = draw.integers(0, 50, _ROWS)
    found["colour"] = draw.choice(["red", "green", "blue"], _ROWS)
    return {**found, "yes": draw.integers(0, 2, _ROWS) > 0}


def _row(bench: Bench, data: Any, one: Any, **label: Any) -> dict[str, Timed]:
    """A row by a model of ``data`` that was read from a file."""
    with warnings.catch_warnings(action="ignore"):
        how: dict[str, Any] = {"epochs": 2, "runner": "inline", "executor": "here"}
        run = mapreduce.train(data, "mlp:7", run=bench.path / "run", progress=False, **how, **label)
        run.export(path := bench.path / "model.safetensors")
        loaded, fitted = mapreduce.load(path), FittedModel.load(path)
    predictor, times = Predictor(fitted, "cpu"), bench.pick(50, 300)
    batch = Batch(np.zeros((1, fitted.data.features), fitted.dtype), None)
    calls = {OURS: lambda: loaded.predict(one), BARE: lambda: predictor.predict(batch)}
    for call in calls.values():
        processor(call, 20)
    bench.note = "`mapreduce.load(file).predict(row)` of an `mlp:7`; processor time of a call."
    return {
        who: lambda call=call: 1e6 * processor(call, times)  # type: ignore[misc]
        for who, call in calls.items()
    }


@case("One row of an array", "µs", repeats=(3, 15), limits=[((BARE,), 4)])
def array(bench: Bench) -> dict[str, Timed]:
    """A row as an array."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(_ROWS, 8)).astype(np.float32), draw.integers(0, 2, _ROWS)
    return _row(bench, (x, y), x[:1])


@case("One row of a table with 8 columns", "µs", repeats=(3, 15), limits=[((BARE,), 30)])
def table(bench: Bench) -> dict[str, Timed]:
    """A row as a table."""
    columns = _columns()
    labels = np.where(columns["x0"] > 0, "yes", "no")
    one = pa.table({name: column[:1] for name, column in columns.items()})
    return _row(bench, pa.table({**columns, "y": labels}), one, label="y")


def _trainings(
    bench: Bench, model: str, rows: int, batch_size: int
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """What some rounds take by the driver, and by the executor alone, in milliseconds."""
    numbers = count()
    # What a disk costs is another question.
    place = bench.enter(folder(Path("/dev/shm")))
    clouds(place / "data", rows, 64, 10)

    def milliseconds(train: Callable[[RunDir], object], rounds: int) -> float:
        settings = Settings(model, batch_size=batch_size, rounds=rounds, seed=next(numbers))
        run = creating.create(place / f"{settings.seed}", settings, place / "data", None)
        return processor(lambda: train(run)) * 1e3

    def whole(rounds: int) -> float:
        how = Execution("inline", executor="here")
        return milliseconds(lambda run: driver.train(run, how, 0, Events()), rounds)

    def alone(rounds: int) -> float:
        return milliseconds(lambda run: Here().advance(Training.of(run)), rounds)

    # Kernels are compiled before.
    whole(10)
    return whole, alone


@case("Ten rounds in the calling process", "ms", repeats=(5, 41), limits=[((HERE,), 1.3)])
def training(bench: Bench) -> dict[str, Timed]:
    """Ten rounds by the driver, with all that a run keeps."""
    whole, alone = _trainings(bench, "mlp:7", 467, 128)
    bench.note = (
        "`driver.train` by the executor `here`, `mlp:7` on 467 rows of 64 features in batches of "
        "128, in a folder in memory; with its lease, events, checkpoint and result. Processor time."
    )
    return {OURS: lambda: whole(10), HERE: lambda: alone(10)}


@case("A round in the calling process", "µs", repeats=(3, 21), limits=[((HERE,), 1.3)])
def rounds(bench: Bench) -> dict[str, Timed]:
    """A round by the driver, without the start and the end of the training."""
    whole, alone = _trainings(bench, "softmax", 1000, 32)
    many = bench.pick(50, 400)
    bench.note = (
        f"`driver.train` by the executor `here`, softmax on 1,000 rows of 64 features in batches "
        f"of 32, in a folder in memory: what {many} rounds add to ten. Processor time."
    )

    def each(some: Callable[[int], float]) -> float:
        return (some(10 + many) - some(10)) / many * 1e3

    return {OURS: lambda: each(whole), HERE: lambda: each(alone)}
