"""What tests make again and again: datasets of rows in memory, and short trainings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.errors import Interrupted
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import CheckpointSaved, Events
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

INLINE = Execution("inline")
CHAIN = Execution("parallel", 2, blocks=2, rounds_per_job=1, start_method="fork")
GANG = Execution("parallel", 2, start_method="fork", executor="gang")


def imported(
    folder: Path, features: Any, labels: Any, weights: Any = None, scale: float = 1.0, **more: Any
) -> Dataset:
    """A dataset of arrays; images have their shape, and ``more`` are attributes of the source."""
    shape = tuple(features.shape[1:])
    flat = features.reshape(len(features), -1) if len(shape) > 1 else features
    rows = Rows(flat, labels, weights)
    import_rows(Source([rows], shape, scale, 0, {"format": "test"}, **more), folder, 0)
    return Dataset(folder)


def create(path: Path, data: Path, settings: Settings, evaluation: Path | None = None) -> RunDir:
    """A run that has not begun."""
    return driver.create(path, settings, data, evaluation)


def trained(
    path: Path,
    data: Path,
    settings: Settings,
    execution: Execution = INLINE,
    *subscribers: Callable[[Any], None],
    evaluation: Path | None = None,
) -> RunDir:
    """A run that has ended, and has kept all its checkpoints."""
    run = create(path, data, settings, evaluation)
    driver.train(run, execution, 0, Events(*subscribers))
    return run


def sha256(run: RunDir) -> str:
    """The hash of a run that has ended."""
    return run.result().model_sha256


def train(path: Path, data: Path, settings: Settings, execution: Execution = INLINE) -> str:
    """The hash of a training."""
    return sha256(trained(path, data, settings, execution))


def params_of(run: RunDir) -> np.ndarray:
    """The parameters in the end."""
    model = run.config.plan.create_model()
    return checkpoint.load(run, model, run.result().completed).params


def plan_and_params(path: Path, data: Path, settings: Settings) -> tuple[Plan, np.ndarray]:
    """The plan of a training, and the parameters in its end."""
    run = trained(path, data, settings)
    return run.config.plan, params_of(run)


def left_by(run: RunDir) -> dict[str, Any]:
    """The state after the last round, to the bit, and what was evaluated."""
    last = run.latest_round()
    arrays = {**last.state, "params": last.params, "history": last.history, "memory": last.scalars}
    found = {name: array.tobytes() for name, array in arrays.items()}
    return {**found, "completed": last.completed, "losses": run.evaluation_losses()}


def stopped(run: RunDir, execution: Execution, after: int) -> None:
    """Train until a checkpoint is saved."""

    def stop(event: object) -> None:
        if isinstance(event, CheckpointSaved) and event.completed == after:
            raise Interrupted(2)

    with pytest.raises(Interrupted):
        driver.train(run, execution, 0, Events(stop))
    assert run.result() is None
    assert run.latest_round().completed == after


def forget_rounds(run: RunDir) -> None:
    """Leave a run nothing but its checkpoints."""
    for path in run.rounds.iterdir():
        path.unlink()
