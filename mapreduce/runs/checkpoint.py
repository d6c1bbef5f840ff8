"""Checkpoints: the whole state of a training in safetensors, and the digest of a model.

A checkpoint is a folder ``checkpoints/NNNNNNNN`` named by the rounds completed::

    model.safetensors      the parameters by name, for any program that reads safetensors
    optimizer.safetensors  the optimizer's state and the losses since the last planned checkpoint
    checkpoint.json        digests of both files and of the model

The folder is written under a temporary name, synced and renamed; on S3 its marker,
``checkpoint.json``, is written last. safetensors does not notice a flipped bit, so a checkpoint is
compared with its digests when it is read.
"""

import contextlib
import hashlib
import json
import re
from dataclasses import asdict, replace

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from hdfs_utils.errors import StorageError
from hdfs_utils.folders import is_published, publish_folder, remove_folder
from hdfs_utils.paths import AnyPath
from mapreduce.errors import DataError, MissingInputError
from mapreduce.models import MODELS
from mapreduce.models.base import Model
from mapreduce.models.base import model_sha256 as model_sha256
from mapreduce.models.fitted import FittedModel, TrainedOn
from mapreduce.models.gradient import KIND
from mapreduce.runs import lease
from mapreduce.runs.directory import INITIAL, RunDir
from mapreduce.runs.events import RunEnded
from mapreduce.runs.state import Array, Position
from mapreduce.support.commands import resume
from mapreduce.support.jsonfiles import require_file

MODEL, OPTIMIZER, MARKER = "model.safetensors", "optimizer.safetensors", "checkpoint.json"

_NAME = re.compile("[0-9]{8}")
_GONE = (FileNotFoundError, NotADirectoryError)


def save(run: RunDir, model: Model, position: Position) -> str:
    """Save a checkpoint, if there is none yet; returns the model's digest.

    Raises
    ------
    StorageError
        It could not be written. Earlier checkpoints are not changed.
    """
    named = model.named(position.params)
    digest = model_sha256(named)
    final = run.checkpoints / f"{position.completed:08d}"
    if is_published(final, MARKER):
        return digest
    tensors = {
        MODEL: save_tensors(named, {"completed_rounds": str(position.completed)}),
        OPTIMIZER: save_tensors(
            {**position.state, "history": position.history, "memory": position.scalars}
        ),
    }
    marker = {
        "completed": position.completed,
        "model_sha256": digest,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in tensors.items()},
    }
    files = {**tensors, MARKER: json.dumps(marker, indent=1).encode()}
    lease.check(run.path)
    publish_folder(final, files, MARKER)
    return digest


def saved_rounds(run: RunDir) -> list[int]:
    """Rounds completed at each checkpoint, in order."""
    if not run.checkpoints.is_dir():
        return []
    folders = [path for path in run.checkpoints.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(int(path.name) for path in folders if is_published(path, MARKER))


def load(run: RunDir, model: Model, completed: int) -> Position:
    """Read a checkpoint.

    Raises
    ------
    DataError
        It is missing, damaged, or belongs to another model.
    OSError, StorageError
        It cannot be read.
    """
    folder = run.checkpoints / f"{completed:08d}"
    try:
        for name in (MARKER, MODEL, OPTIMIZER):
            require_file(folder / name)
        marker = json.loads((folder / MARKER).read_bytes())
        contents = {name: (folder / name).read_bytes() for name in (MODEL, OPTIMIZER)}
        if marker["completed"] != completed:
            raise DataError(f"{folder} is damaged: it is of round {marker['completed']}")
        for name, content in contents.items():
            found = hashlib.sha256(content).hexdigest()
            if found != marker["files"][name]:
                raise DataError(
                    f"{folder / name} is damaged: sha256 {found[:16]}…, {MARKER} says "
                    f"{marker['files'][name][:16]}…"
                )
        named, state = load_tensors(contents[MODEL]), load_tensors(contents[OPTIMIZER])
    except (*_GONE, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{folder} is damaged: {type(error).__name__}: {error}") from error
    if any(array.dtype != model.dtype for array in named.values()):
        raise DataError(f"{folder / MODEL} does not hold the parameters of the run's model")
    params = model.flat(named, folder / MODEL)
    try:
        return Position.of(completed, {**state, "params": params}, run.config.plan)
    except DataError as error:
        raise DataError(f"{folder / OPTIMIZER}: {error}") from error


def load_file(path: AnyPath) -> dict[str, Array]:
    """The arrays of a safetensors file, by name.

    Raises
    ------
    MissingInputError, DataError
        There is none, or it is damaged.
    """
    try:
        require_file(path)
        return dict(load_tensors(path.read_bytes()))
    except _GONE:
        raise MissingInputError(f"{path} does not exist: expected a safetensors file") from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no safetensors file: {error}") from error


def first(run: RunDir) -> Position:
    """The state before the first round, from the model's own parameters or those of another run.

    Raises
    ------
    MissingInputError, DataError
        The file of those is gone, or is not that of the plan.
    """
    plan = run.config.plan
    if plan.initial_sha256 is None:
        return Position.first(plan)
    model = plan.about
    params = model.flat(load_file(run.path / INITIAL), run.path / INITIAL)
    if (digest := model_sha256(model.named(params))) != plan.initial_sha256:
        raise DataError(
            f"{run.path / INITIAL} is damaged: its parameters have the sha256 {digest[:16]}…, the "
            f"plan says {plan.initial_sha256[:16]}…. Start a new run"
        )
    return Position.first(plan, params)


def check_result(model: Model, position: Position, result: RunEnded) -> None:
    """Raise a :class:`DataError` if a state does not hold the model that a run ended with."""
    digest = model_sha256(model.named(position.params))
    if digest != result.model_sha256:
        raise DataError(
            f"the model after {position.completed:,} rounds is {digest[:16]}…, expected "
            f"{result.model_sha256[:16]}…, as in the run's result.json"
        )


def sign(run: RunDir) -> tuple[bytes, ...]:
    """What differs if :func:`latest` would find another model: the run, and its last checkpoint."""
    result, known = run.result(), saved_rounds(run)
    completed = [result.completed] if result else known[-1:]
    files = [run.path / name for name in ("run.json", "moved.json")]
    files += [run.checkpoints / f"{number:08d}" / MARKER for number in completed]
    return tuple(map(_content, files))


def _content(path: AnyPath) -> bytes:
    """The content of a file; empty if it cannot be read."""
    with contextlib.suppress(OSError, StorageError):
        return path.read_bytes()
    return b""


def latest(run: RunDir) -> int:
    """Rounds completed of the run's result if it has ended, else of the last checkpoint.

    Raises
    ------
    MissingInputError
        There is no checkpoint yet.
    DataError
        It is damaged.
    """
    return fitted(run).completed


def fitted(run: RunDir, completed: int | None = None) -> FittedModel:
    """The model of a checkpoint, by default of :func:`latest`, whose errors are these, too."""
    model = run.config.plan.about
    if completed is not None:
        return fitted_with(run, load(run, model, completed).params, completed)
    result, known = run.result(), saved_rounds(run)
    if result is None and not known:
        raise MissingInputError(
            f"{run.path} has no checkpoint yet. Continue with '{resume(run.path)}'"
        )
    completed = known[-1] if result is None else result.completed
    try:
        position = load(run, model, completed)
        if result is not None:
            check_result(model, position, result)
    except DataError as error:
        raise DataError(f"{error}. '{resume(run.path)}' computes it again") from error
    return fitted_with(run, position.params, completed)


def fitted_with(run: RunDir, params: Array, completed: int = 0) -> FittedModel:
    """The model of a run with parameters (size,)."""
    arrays = run.config.plan.about.named(params)
    return replace(untrained(run), arrays=arrays, completed=completed, model_sha256="")


def untrained(run: RunDir) -> FittedModel:
    """The model of a run without arrays."""
    config, plan = run.config, run.config.plan
    data = TrainedOn(
        config.data,
        config.data,
        plan.data.features,
        config.shape,
        config.classes,
        plan.data.shape,
        config.columns,
        plan.data.standardised,
        plan.data.recipe,
        lambda: run.recipe,
    )
    options = json.loads(json.dumps(asdict(plan.specification)))
    own = f"{MODELS.code(plan.model)}="
    sources = tuple(source for source in plan.sources if source.startswith(own))
    return FittedModel(
        KIND,
        options,
        {},
        data,
        plan.dtype,
        config.numeric_profile,
        path=run.path,
        sources=sources,
    )


def remove(run: RunDir, completed: int) -> None:
    """Delete a checkpoint."""
    lease.check(run.path)
    remove_folder(run.checkpoints / f"{completed:08d}", MARKER)


def remove_old(run: RunDir, keep: int, needed: set[int]) -> None:
    """Delete all but the last ``keep`` checkpoints and those that are needed."""
    for completed in saved_rounds(run)[: -keep or None]:
        if completed not in needed:
            remove(run, completed)
