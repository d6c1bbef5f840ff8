"""The common part of programs that use a trained model."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from hdfs_utils.atomic import temporary_name
from hdfs_utils.paths import AnyPath, RemotePath, path_of
from mapreduce.data.batch import Array, Batch
from mapreduce.data.shards import Dataset
from mapreduce.data.slices import Slices
from mapreduce.engine.executor import Executor
from mapreduce.engine.program import Program
from mapreduce.errors import DataError
from mapreduce.executors.chain import Chain
from mapreduce.executors.here import InProcess
from mapreduce.inference.predictor import SLICE_ROWS, Predictor
from mapreduce.models.fitted import FittedModel
from mapreduce.plan.fitting import check_fits
from mapreduce.runs.execution import Execution
from mapreduce.runs.models import ModelPlace, place_of
from mapreduce.support import traits


def prepare(
    fitted: FittedModel,
    data: AnyPath,
    execution: Execution,
    labelled: bool,
    out: AnyPath | None = None,
    shown: str | None = None,
    device: str = "cpu",
) -> None:
    """Check that a model can be used on a dataset.

    ``labelled`` data must have labels, tasks write to ``out`` and compute on the ``device``. Errors
    call the data what is ``shown``, if they come from elsewhere than their folder.
    """
    shown = shown or str(data)
    manifest = Dataset(data).check_sizes()
    check_fits(manifest, data, fitted.data, shown, takes_files=True)
    if labelled and manifest.target is None:
        raise DataError(f"{shown}: expected labels to compare predictions with, found none")
    estimator = fitted.estimator(device)
    wanted = "number" if estimator.regression else "class"
    if manifest.target not in (None, wanted):
        raise DataError(
            f"the model predicts a {wanted}, but the labels of {shown} are of another kind"
        )
    if manifest.layout == "sparse" and not estimator.takes_sparse:
        raise DataError(
            f"{shown}: expected dense rows, since {fitted.name} takes no others, found sparse ones"
        )
    execution.check_places(fitted.path, data.absolute(), out)


@contextlib.contextmanager
def scratch(place: AnyPath, runner: str) -> Iterator[AnyPath]:
    """A temporary folder that tasks of a runner can open, to be made.

    It is on this machine, or beside a remote ``place`` if the tasks may run on others.
    """
    if not isinstance(place, RemotePath) or traits.of(runner).is_here:
        with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
            yield Path(folder, "made")
        return
    remote = temporary_name(place)
    try:
        yield remote
    finally:
        remote.rmtree()


def executor_of(
    execution: Execution, *paths: AnyPath, tasks: int = 0, reducers: int = 0
) -> Executor:
    """Who computes a program over these paths: this process, or jobs of so many tasks."""
    if execution.executor == InProcess.name:
        return InProcess(execution)
    return Chain(execution.for_paths(*paths), tasks, reducers)


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

    ``model`` and ``data`` are where they lie, ``content`` is the digest of the data.
    """

    model: ModelPlace
    data: str
    device: str
    content: str

    @classmethod
    def of(cls, fitted: FittedModel, data: AnyPath, device: str, **more: Any) -> Self:
        content = Dataset(data).manifest.sha256
        return cls(place_of(fitted), str(data), device, content, **more)

    @cached_property
    def inference(self) -> Inference:
        """The model and the data."""
        return Inference(self.model.open(), path_of(self.data), self.device)

    @cached_property
    def dataset(self) -> Dataset:
        """The data, for which the model is not loaded."""
        return Dataset(path_of(self.data))

    @property
    def slices(self) -> Slices:
        """The data in slices."""
        return Slices(self.dataset, SLICE_ROWS)
