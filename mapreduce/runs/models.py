"""Where a fitted model lies: in the folder of a run, or in a file of its own."""

from pathlib import PurePosixPath
from typing import NamedTuple

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.errors import DataError
from mapreduce.models.fitted import FittedModel
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir


class ModelPlace(NamedTuple):
    """A model for a task: its path, rounds, and digest."""

    path: str
    completed: int
    sha256: str

    def open(self) -> FittedModel:
        """The model.

        Raises DataError (another one lies there, or it is damaged), MissingInputError.
        """
        path = path_of(self.path)
        found = fitted_at(path, self.completed)
        if found.sha256 != self.sha256:
            raise DataError(f"{path} holds another model than before. Run the command again")
        return found


def place_of(fitted: FittedModel) -> ModelPlace:
    """Where tasks find a model."""
    return ModelPlace(str(fitted.path), fitted.completed, fitted.sha256)


def fitted_at(path: AnyPath, completed: int | None = None) -> FittedModel:
    """The model in a file, or that of a run, by default of its last checkpoint.

    Errors are those of :meth:`FittedModel.load` and :func:`mapreduce.runs.checkpoint.fitted`.
    """
    if is_file(path):
        return FittedModel.load(path)
    return checkpoint.fitted(RunDir(path), completed)


def is_file(path: AnyPath) -> bool:
    """Whether a path is that of a model's file, which may be missing, and not a run's folder."""
    named = PurePosixPath(str(path)).suffix == ".safetensors"
    return path.is_file() or (named and not path.exists())
