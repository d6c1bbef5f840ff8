"""A served model: ready to compute, and never changed, since another one takes its place."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.errors import BadRowError
from mapreduce.inference.predictor import SLICE_ROWS, Predictor
from mapreduce.models.fitted import FittedModel
from mapreduce.runs.directory import RunDir
from mapreduce.runs.fits import model_path
from mapreduce.runs.models import is_file
from mapreduce.serving.refusals import Refused
from mapreduce.training.export import scaled


class Rows(ABC):
    """Rows of one request, which may be joined to those of others."""

    #: Whether some rows may be computed before others.
    can_be_cut: ClassVar[bool] = False

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def kind(self) -> object:
        """What rows have in common that may be joined; None if these are to stay alone."""

    def part(self, start: int, stop: int) -> Self:
        """Consecutive rows, of those that can be cut."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All rows of several requests, in order."""

    @abstractmethod
    def batch(self, model: "ServedModel") -> tuple[Batch, list[str]]:
        """The features, and what a user should know about the rows.

        Raises DataError (a field cannot be used), Refused.
        """


@dataclass(frozen=True, eq=False)
class Features(Rows):
    """Rows (rows, features) of an array as it is stored; the model sees ``array * scale``."""

    array: Array | Csr
    scale: float = 1.0
    can_be_cut: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.array)

    @property
    def kind(self) -> object:
        return None if isinstance(self.array, Csr) else (self.array.dtype.char, self.scale)

    def part(self, start: int, stop: int) -> "Features":
        return Features(self.array[start:stop], self.scale)

    @classmethod
    def joined(cls, parts: "Sequence[Features]") -> "Features":
        arrays: Any = [part.array for part in parts]
        return cls(np.concatenate(arrays), parts[0].scale)

    def batch(self, model: "ServedModel") -> tuple[Batch, list[str]]:
        return Batch(self.array, None, self.scale), []


class ServedModel:
    """A fitted model under a name. It computes in the thread that calls it first.

    Attributes
    ----------
    version : str
        Rounds of its training.
    row_shapes : tuple of list of int
        The shapes of a row that tensors may have: flat, and as the training data had it.
    outputs : int
        Numbers that are computed of a row.
    scale : float or None
        Of ``UINT8`` as the training data stored it; None where the model takes no such tensors.
    """

    def __init__(self, name: str, fitted: FittedModel) -> None:
        self.name, self.fitted, self.version = name, fitted, str(fitted.completed)
        self.classes, self.recipe = fitted.data.classes, fitted.recipe
        are_numbers = bool(self.classes) and isinstance(self.classes[0], int)
        self._numbers = np.array(self.classes, np.int64) if are_numbers else None
        self.sha256 = fitted.model_sha256
        self.row_shapes = [fitted.data.features], [*fitted.data.shape]
        self.outputs = max(1, len(self.classes))
        is_plain = self.recipe is None and fitted.data.standardised is None
        self.scale = fitted.scale if is_plain else None
        self.is_batch_invariant = fitted.about.is_batch_invariant

    def labels(self, places: Array) -> "Array | list[str]":
        """The classes at some places (rows,): an array of int64, or a list of texts."""
        if self._numbers is not None:
            return self._numbers[places]
        return [str(self.classes[at]) for at in places.tolist()]

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self.fitted)

    def warm(self) -> None:
        """Compute once, so that processes which are forked now share all that it takes."""
        zeros = np.zeros((2, self.fitted.data.features), self.fitted.dtype)
        self._predict(Batch(zeros, None))

    def compute(self, rows: Rows, first: int = 0) -> tuple[Array, list[str]]:
        """Probabilities (rows, classes), or numbers (rows,), and what a user should know.

        ``first``: Rows of the request that come before. Raises Refused, DataError.
        """
        batch, notes = rows.batch(self)
        parts, count = [], batch.rows
        for start in range(0, count, SLICE_ROWS):
            part = batch if count <= SLICE_ROWS else batch[start : start + SLICE_ROWS]
            try:
                parts.append(self._predict(part))
            except BadRowError as error:
                raise Refused(400, f"row {first + start + error.row + 1}: {error}") from error
        return parts[0] if len(parts) == 1 else np.concatenate(parts), notes

    def _predict(self, batch: Batch) -> Array:
        found = self._predictor.predict(batch)
        return found["probabilities" if self.classes else "prediction"]


def load(path: AnyPath, name: str | None = None) -> ServedModel:
    """The last model of a run, or the model in a file, under a name, by default that of its path.

    Raises MissingInputError, DataError, UntrustedError (there is none yet, it is damaged, or it
    names code that nobody trusts).
    """
    path = path.absolute()
    name = name or path.name.removesuffix(".safetensors" if is_file(path) else "")
    if is_file(path := model_path(path)):
        return ServedModel(name, FittedModel.load(path))
    return ServedModel(name, scaled(RunDir(path)))
