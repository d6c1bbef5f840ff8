"""What a call costs that starts no job, beside the mathematics alone: processor time."""

import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mapreduce
from benchmarks.common import clouds, folder
from benchmarks.paired import Result, in_turn
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


def _microseconds(call: Callable[[], object], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times * 1e6


def _columns() -> dict[str, Any]:
    """Five columns of floats, one of integers, one of names and one of booleans."""
    draw = np.random.default_rng(0)
    found: dict[str, Any] = {f"x{number}": draw.normal(size=_ROWS) for number in range(5)}
    found["count"] = draw.integers(0, 50, _ROWS)
    found["colour"] = draw.choice(["red", "green", "blue"], _ROWS)
    return {**found, "yes": draw.integers(0, 2, _ROWS) > 0}


def _row(title: str, data: Any, one: Any, most: float, quick: bool, **label: Any) -> Result:
    """A row by a model of ``data`` that was read from a file."""
    with folder() as place, warnings.catch_warnings(action="ignore"):
        how: dict[str, Any] = {"epochs": 2, "runner": "inline", "executor": "here"}
        run = mapreduce.train(data, "mlp:7", run=place / "run", progress=False, **how, **label)
        run.export(path := place / "model.safetensors")
        loaded, fitted = mapreduce.load(path), FittedModel.load(path)
    predictor = Predictor(fitted, "cpu")
    batch = Batch(np.zeros((1, fitted.data.features), fitted.dtype), None)
    times = 50 if quick else 300
    for _ in range(20):
        loaded.predict(one)
        predictor.predict(batch)
    bare = "the predictor alone, of features"
    ours, peers = in_turn(
        lambda: _microseconds(lambda: loaded.predict(one), times),
        {bare: lambda: _microseconds(lambda: predictor.predict(batch), times)},
        3 if quick else 15,
    )
    note = "`mapreduce.load(file).predict(row)` of an `mlp:7`; processor time of a call."
    return Result(title, "µs", note, ours, peers, (bare, most))


def array(quick: bool) -> Result:
    """A row as an array."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(_ROWS, 8)).astype(np.float32), draw.integers(0, 2, _ROWS)
    return _row("One row of an array", (x, y), x[:1], 4, quick)


def table(quick: bool) -> Result:
    """A row as a table."""
    columns = _columns()
    labels = np.where(columns["x0"] > 0, "yes", "no")
    one = pa.table({name: column[:1] for name, column in columns.items()})
    data = pa.table({**columns, "y": labels})
    return _row("One row of a table with 8 columns", data, one, 30, quick, label="y")


def training(quick: bool) -> Result:
    """Ten rounds by the driver, with all that a run keeps."""
    numbers = count()
    # What a disk costs is another question.
    memory = Path("/dev/shm")
    with folder(memory if memory.is_dir() else None) as place:
        clouds(place / "data", 467, 64, 10)

        def milliseconds(train: Callable[[RunDir], object]) -> float:
            settings = Settings("mlp:7", batch_size=128, rounds=10, seed=next(numbers))
            run = creating.create(place / f"{settings.seed}", settings, place / "data", None)
            return _microseconds(lambda: train(run), 1) / 1e3

        def whole() -> float:
            how = Execution("inline", executor="here")
            return milliseconds(lambda run: driver.train(run, how, 0, Events()))

        def alone() -> float:
            return milliseconds(lambda run: Here().advance(Training.of(run)))

        # Kernels are compiled before.
        whole()
        bare = "`Here().advance` alone"
        ours, peers = in_turn(whole, {bare: alone}, 5 if quick else 41)
    note = (
        "`driver.train` by the executor `here`, `mlp:7` on 467 rows of 64 features in batches of "
        "128, in a folder in memory; with its lease, events, checkpoint and result. Processor time."
    )
    return Result("Ten rounds in the calling process", "ms", note, ours, peers, (bare, 1.3))
