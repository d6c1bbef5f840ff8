"""The common part of programs that use a trained model."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.data.batch import Array, Batch, Block
from mapreduce.data.importer import Finished, Rows
from mapreduce.data.shards import Dataset
from mapreduce.data.slices import Slices
from mapreduce.engine.program import Program
from mapreduce.errors import BadRowError, MemberError
from mapreduce.inference.predictor import SLICE_ROWS, Predictor
from mapreduce.inference.request import Request
from mapreduce.models.fitted import FittedModel
from mapreduce.runs.models import ModelPlace, place_of

#: Bytes of features at once.
_CHUNK_BYTES = 16 << 20


class Inference(Predictor):
    """A predictor, and data to use it on."""

    def __init__(self, fitted: FittedModel, data: AnyPath, device: str | None = None) -> None:
        super().__init__(fitted, device)
        self.dataset = Dataset(data)
        self._place = 0, 0

    @cached_property
    def _label_map(self) -> Array | None:
        """From the index of a label in the data to its index in the model, if they differ."""
        classes = self.dataset.manifest.classes
        if classes is None or classes == self.fitted.data.classes:
            return None
        places = {label: place for place, label in enumerate(self.fitted.data.classes)}
        return np.array([places[label] for label in classes], np.int32)

    def batch(self, shard: int, start: int, stop: int) -> Batch:
        self._place = shard, start
        rows = self.dataset.shard(shard).rows(start, stop)
        if not self.estimator.predicts_labels:
            return replace(rows, labels=None)
        if self._label_map is None or rows.labels is None:
            return rows
        return replace(rows, labels=self._label_map[rows.labels])

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the device, and of a model of one's own for rows of the last batch."""
        with super().errors(), self.dataset.naming_rows(*self._place):
            yield

    @cached_property
    def slices(self) -> Slices:
        """The data in slices."""
        return Slices(self.dataset, SLICE_ROWS)

    @property
    def leaves(self) -> int:
        """The number of slices of the data."""
        return len(self.slices)

    def leaf(self, number: int) -> Batch:
        """The rows of a slice."""
        return self.batch(*self.slices.place(number))


@dataclass(frozen=True)
class ModelProgram(Program):
    """A program that uses a fitted model on a dataset.

    ``model`` and ``data`` are where they lie, ``content`` is the digest of the data,
    whose features may be the model's logits.
    """

    model: ModelPlace
    data: str
    device: str
    content: str
    of_logits: bool

    @classmethod
    def of(cls, request: Request, **more: Any) -> Self:
        content, place = Dataset(request.data).manifest.sha256, place_of(request.fitted)
        return cls(place, str(request.data), request.device, content, request.of_logits, **more)

    @cached_property
    def inference(self) -> Inference:
        """The model and the data."""
        found = Inference(self.model.open(), path_of(self.data), self.device)
        of_logits = found.estimator.of_logits() if self.of_logits else None
        found.estimator = of_logits or found.estimator
        return found

    @cached_property
    def dataset(self) -> Dataset:
        """The data, for which the model is not loaded."""
        return Dataset(path_of(self.data))

    @property
    def slices(self) -> Slices:
        """The data in slices."""
        return Slices(self.dataset, SLICE_ROWS)


def in_batches(
    compute: Callable[[Batch], dict[str, Array]], rows: Rows, finished: Finished, shown: str
) -> dict[str, Array]:
    """What a function makes of rows of a table, some at a time; errors call the table ``shown``."""
    assert rows.numbers is not None, "readings tell them"
    found, count = [], len(rows.numbers)
    # Features may take many times the space of the fields that they are made of.
    length = max(1, _CHUNK_BYTES // (SLICE_ROWS * finished.row_bytes)) * SLICE_ROWS
    for start in range(0, count, length):
        chunk = slice(start, min(start + length, count))
        batch = Batch(finished.features(_part_of(rows.features, chunk)), None)
        for at in range(0, batch.rows, SLICE_ROWS):
            try:
                found.append(compute(batch[at : min(at + SLICE_ROWS, batch.rows)]))
            except BadRowError as error:
                row = int(rows.numbers[start + at + error.row]) + 1
                raise MemberError(f"{error}, for row {row} of {shown}") from error
    if len(found) == 1:
        return found[0]
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def _part_of(block: Any, rows: slice) -> Any:
    """Some rows of a block, or of sparse rows."""
    if not isinstance(block, Block):
        return block[rows]
    return Block(block.numbers[rows], {name: column[rows] for name, column in block.texts.items()})
