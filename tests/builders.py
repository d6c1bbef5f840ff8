"""What tests make again and again: datasets of rows in memory, and short trainings."""

import ast
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from mrjob.step import StepFailedException

import datasets
import programs
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.readers import text
from mapreduce.data.shards import Dataset
from mapreduce.engine.state import InFolder
from mapreduce.errors import GradreduceError
from mapreduce.executors.chain import Chain
from mapreduce.executors.here import Here
from mapreduce.plan.plan import Plan, Slice
from mapreduce.plan.settings import Settings
from mapreduce.reduction.vectors import dense
from mapreduce.runs import checkpoint, events
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import CheckpointSaved, Events
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position
from mapreduce.strategies.program import Training
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.task_context import TaskContext
from mapreduce.tables import shuffle, summarise, tables
from mapreduce.training import creating, driver

ARGUMENTS = ("features", "classes", "dtype", "shape")

INLINE = Execution("inline")
HERE = Execution("inline", executor="here")
CHAIN = Execution("parallel", 2, blocks=2, rounds_per_job=1, start_method="fork")
GANG = Execution("parallel", 2, start_method="fork", executor="gang")


def blobs_in(**given: Any) -> Any:
    """The fixture ``data`` of a module: a folder with a dataset for each number of rows by shard.

    Other values are arguments of :func:`datasets.blobs`. Of a single dataset the folder is its own.
    """
    parts = {name: value for name, value in given.items() if name not in ARGUMENTS}
    options = {name: value for name, value in given.items() if name in ARGUMENTS}

    @pytest.fixture(scope="module", name="data")
    def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("data")
        for seed, (name, rows) in enumerate(parts.items()):
            datasets.blobs(folder / name, rows, seed=seed, **options)
        return folder / name if len(parts) == 1 else folder

    return made


def images_and_text(folder: Path) -> Path:
    """Images of four classes in three shards, some of whose last slices are single rows; texts."""
    words = Random(0).choices(["map ", "reduce ", "shuffle ", "sort\n"], k=400)
    (folder / "text").mkdir()
    for seed, (part, shards) in enumerate({"train": (60, 49, 40), "test": (40, 31)}.items()):
        options = {"shape": (3, 8, 8), "classes": 4, "dtype": "uint8", "seed": seed}
        datasets.blobs(folder / "images" / part, shards, **options)
        (file := folder / f"{part}.txt").write_text("".join(words[300 * seed :][:300]))
        import_rows(text.source([file], 12), folder / "text" / part, 0)
    return folder


def imported(
    folder: Path, features: Any, labels: Any, weights: Any = None, scale: float = 1.0, **more: Any
) -> Dataset:
    """A dataset of arrays; images have their shape, and ``more`` are attributes of the source."""
    shape = tuple(features.shape[1:])
    flat = features.reshape(len(features), -1) if len(shape) > 1 else features
    rows = Rows(flat, labels, weights)
    import_rows(Source([rows], shape, scale, 0, {"format": "test"}, **more), folder, 0)
    return Dataset(folder)


def keywords(text: str) -> dict[str, Any]:
    """Keywords from words, as ``rounds=3 optimizer=adam``; values are Python's, or else texts."""
    values: dict[str, Any] = dict(word.split("=", 1) for word in text.split())
    for name, value in values.items():
        with contextlib.suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(value)
    return values


def tables_here(patch: pytest.MonkeyPatch) -> None:
    """Have programs over the blocks of tables computed in this process, without a job of mrjob.

    Executors agree on them: tests/mapreduce/engine/test_program.py.
    """
    for module in (tables, summarise, shuffle):
        patch.setattr(module, "chain_for", lambda *given: Here())


def create(path: Path, data: Path, settings: Settings, evaluation: Path | None = None) -> RunDir:
    """A run that has not begun."""
    return creating.create(path, settings, data, evaluation)


def trained(
    path: Path,
    data: Path,
    settings: Settings,
    execution: Execution = HERE,
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


def train(path: Path, data: Path, settings: Settings, execution: Execution = HERE) -> str:
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


def mean_gradient(context: TaskContext, slices: Iterable[Slice], params: Any) -> Any:
    """The gradient of some slices, the penalty's too, by a loop over them."""
    model, total, rows = context.model, np.zeros_like(params), 0
    for one in slices:
        total = total + dense(context.gradient(params, context.batch(one))[1])
        rows += one.stop - one.start
    return total / rows + context.plan.l2 * model.penalised(0, model.size) * params


def state_of(run: RunDir, context: TaskContext, blocks: int) -> TrainingState:
    """The state in a run's folder, as a strategy reads it."""
    return TrainingState(context, InFolder(run.rounds, blocks, context.plan.owners))


def left_by(run: RunDir) -> dict[str, Any]:
    """The state after the last round, to the bit, and what was evaluated."""
    last = run.latest_round()
    arrays = {**last.state, "params": last.params, "history": last.history, "memory": last.scalars}
    found = {name: array.tobytes() for name, array in arrays.items()}
    return {**found, "completed": last.completed, "losses": run.evaluation_losses()}


def stopped(run: RunDir, execution: Execution, after: int) -> None:
    """Train until a checkpoint is saved, after which a gang may go on for some rounds."""

    def stop(event: object) -> None:
        if isinstance(event, CheckpointSaved) and event.completed == after:
            raise GradreduceError("stopped")

    with pytest.raises((GradreduceError, StepFailedException), match="stopped"):
        driver.train(run, execution, 0, Events(stop))
    assert run.result() is None
    completed = run.latest_round().completed
    assert completed >= after if execution.executor == "gang" else completed == after


def advanced(run: RunDir, execution: Execution, stop: int) -> Position:
    """Run a chain's job of rounds up to ``stop``, and nothing else; the state after them."""
    before = run.latest_round() or Position.first(run.config.plan)
    execution = execution.with_blocks_for(run.config.plan.create_model())
    run.publish_round(before, execution.blocks)
    chain = Chain(execution, place=run.rounds.folder)
    with chain.workers():
        chain.run(Training.of(run), before.completed, stop)
    after = run.latest_round()
    assert after.completed == stop
    return after


def forget_rounds(run: RunDir) -> None:
    """Leave a run nothing but its checkpoints."""
    for path in run.rounds.folder.iterdir():
        path.unlink()


#: How much further a run has come when its driver is killed after a task.
_LATER = 5


def killed(
    run: RunDir,
    mark: str,
    moments: list[int],
    chance: Random,
    how: Any,
    progress: Any,
    program: Callable[[int], list[Any]] = lambda _: programs.GRADREDUCE,
) -> Iterator[bool]:
    """Resume a run by ``how()`` for each moment, and kill -9 its driver then.

    That is when ``progress()`` has come to the moment, or to a later one if a task is killed. Gives
    each time whether the driver lives still, before it is killed; and nobody is left. ``program``
    may be one that does not come to its end before it has come some way past a moment.
    """
    env = {**os.environ, "GRADREDUCE_TEST_MARK": mark}
    for number, moment in enumerate(sorted(moments), 1):
        way = program(moment + _LATER)
        process = programs.start("resume", run.path, *how(), program=way, env=env)

        def come_to(at: int, number: int = number, process: Any = process) -> None:
            programs.wait_until(
                lambda: (
                    process.poll() is not None
                    or (progress() >= at and len(events_of(run, "RunStarted")) == number)
                )
            )

        come_to(moment)
        tasks = [pid for pid in programs.processes_of(mark) if pid != process.pid]
        if tasks and process.poll() is None and chance.random() < 0.5:
            os.kill(chance.choice(tasks), signal.SIGKILL)
            come_to(moment + _LATER)
        yield process.poll() is None
        programs.kill(process)
        programs.wait_until(lambda: not programs.processes_of(mark))


def events_of(run: RunDir, *kinds: str) -> list[dict[str, Any]]:
    """Some events of the run's log."""
    path = run.path / "events.jsonl"
    return [one for one in events.read(path) if one["event"] in kinds] if path.exists() else []


def damages(content: bytes, chance: Random, count: int) -> Iterator[bytes]:
    """Copies of a file, each with a flipped bit, a cut, or bytes that were inserted."""
    for number in range(count):
        at = chance.randrange(len(content))
        if number % 3 == 0:
            flipped = content[at] ^ 1 << chance.randrange(8)
            yield content[:at] + bytes([flipped]) + content[at + 1 :]
        elif number % 3 == 1:
            yield content[:at] + content[at + 1 + chance.randrange(20) :]
        else:
            yield content[:at] + chance.randbytes(1 + chance.randrange(20)) + content[at:]
