"""The run of a fit: a folder with its rounds, and in the end with the fitted model.

::

    fit.json           the model's options, and the data's path and digest; written once
    moved.json         where the data lie now, if they have been moved
    execution.json     the last driver's runner, workers and so on
    events.jsonl       what happened, a JSON object on each line
    rounds/            the rounds of the fit, until it has ended
    model.safetensors  the fitted model
    lease.json         the driver that works on the run
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from hdfs_utils.folders import remove_folder
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from mapreduce.errors import DataError, MissingInputError
from mapreduce.models.fitted import FittedModel
from mapreduce.runs import lease
from mapreduce.runs.directory import FIT, Moved, RunDir
from mapreduce.support import jsonfiles, numeric
from mapreduce.support.commands import resume
from mapreduce.support.jsonfiles import build

MODEL = "model.safetensors"
_FORMAT, _FORMAT_VERSION = "gradreduce-fit", 1


@dataclass(frozen=True)
class FitConfig:
    """The model and the data of a fit, which never change."""

    model: str
    data: str
    data_sha256: str
    seed: int
    numeric_profile: str


class FitDir:
    """The folder of the run of a fit, which ``folder`` reads as those of all runs."""

    def __init__(self, path: AnyPath) -> None:
        self.path, self.folder = path, RunDir(path)

    def create(self, config: FitConfig) -> None:
        """Make the folder of a new run; an OutputError if it exists."""
        self.folder.require_new()
        self.folder.rounds.folder.mkdir(parents=True, exist_ok=True)
        content = {"format": _FORMAT, "format_version": _FORMAT_VERSION, **asdict(config)}
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        put_if_absent(self.path / FIT, text.encode(), sync=True)

    @cached_property
    def config(self) -> FitConfig:
        """The model and the data.

        Raises DataError (its file is damaged, or of another version).
        """
        self.folder.refuse_links()
        path = self.path / FIT
        try:
            content = jsonfiles.read(path) or {}
            form = content.pop("format", None), content.pop("format_version", None)
            if form != (_FORMAT, _FORMAT_VERSION):
                raise ValueError(f"expected the format {_FORMAT} {_FORMAT_VERSION}, found {form}")
            config = build(FitConfig, content)
            if config.numeric_profile not in numeric.PROFILES:
                raise ValueError(f"numeric_profile: {config.numeric_profile!r:.40} is unknown")
        except (ValueError, TypeError) as error:
            raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error
        return (self.folder.read_json("moved.json", Moved) or Moved()).apply_to(config)

    def move(self, data: str) -> None:
        """Note where the data, which are the same, lie now."""
        # The rounds go on with these data.
        (self.folder.rounds.folder / "program").unlink(missing_ok=True)
        self.folder.write_json("moved.json", {"data": data}, once=False)
        vars(self).pop("config", None)

    @property
    def model(self) -> FittedModel | None:
        """The fitted model; None if the fit has not ended."""
        path = self.path / MODEL
        return FittedModel.load(path) if path.exists() else None

    def save(self, fitted: FittedModel) -> None:
        """Publish the fitted model, and remove the rounds."""
        lease.check(self.path)
        fitted.save(self.path / MODEL)
        self.end()

    def end(self) -> None:
        """Remove the rounds of a fit that has ended."""
        if (rounds := self.folder.rounds.folder).exists():
            remove_folder(rounds, "program")

    def remove(self) -> None:
        """Delete the run."""
        remove_folder(self.path, FIT)

    @contextmanager
    def hold(self, *, take_over: bool) -> Iterator[None]:
        """Hold the lease of the run, and so that of its rounds; see :func:`lease.hold`."""
        with lease.hold(self.path, take_over=take_over):
            (self.folder.rounds.folder / "lease.json").unlink(missing_ok=True)
            yield

    def summary(self) -> dict[str, Any]:
        """The run in a line."""
        model, state = self.model, "running" if lease.is_held(self.path) else "stopped"
        rounds = max(self.folder.rounds.complete(), default=0)
        return {
            "run": str(self.path),
            "state": "ended" if model else state,
            "model": self.config.model,
            "completed": model.completed if model else rounds,
            "model_sha256": model.model_sha256 if model else None,
        }


def is_fit(path: AnyPath) -> bool:
    """Whether a path is the folder of the run of a fit."""
    return (path / FIT).exists()


def model_path(path: AnyPath) -> AnyPath:
    """The file of the model, if a path is the folder of the run of a fit; else the path.

    Raises MissingInputError (the fit has not ended).
    """
    if not is_fit(path):
        return path
    if not (path / MODEL).exists():
        raise MissingInputError(f"{path} has no model yet. Continue with '{resume(path)}'")
    return path / MODEL
