"""A trained model: rows in, predictions out."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kernels import arrays
from mapreduce.data.batch import Array, Batch
from mapreduce.models.base import Model, device_errors
from mapreduce.models.context import Context, Workspace
from mapreduce.runs.directory import RunConfig
from mapreduce.support import blas

#: Rows that are scored at once. It is not an option, since the sum of losses depends on it.
SLICE_ROWS = 512


class Predictor:
    """The model of a run with parameters (size,), which may be replaced.

    It needs no folder and no data. An instance belongs to one thread.

    ``device``: Where it computes; by default where it was trained.
    """

    def __init__(self, config: RunConfig, params: Array, device: str | None = None) -> None:
        # Only single-threaded products have reproducible bits.
        blas.limit()
        self.config = config
        self.model = config.plan.create_model(device)
        device = self.model.device if self.model.stays_on_device else "cpu"
        self._device, self.context = device, Context(Workspace(device))
        self.params = params

    @property
    def model(self) -> Model:
        """The model, or a part of it, as the plan has it compute."""
        return self._model

    @model.setter
    def model(self, model: Model) -> None:
        self._model = model.batch_invariant() if self.config.plan.batch_invariant else model

    @property
    def params(self) -> Array:
        """The parameters, where the model keeps its arrays."""
        return self._params

    @params.setter
    def params(self, params: Array) -> None:
        with device_errors(self.model.device):
            self._params: Array = arrays.to_device(params, self._device)
        self.model.hold(self._params)

    def logits(self, batch: Batch) -> Array:
        """Logits (rows, classes) of a batch, which the next call may overwrite."""
        found: Array = arrays.values(self.model.logits(self.params, batch, self.context))
        return found

    def probabilities(self, batch: Batch) -> Array:
        """Probabilities (rows, classes) of a batch, which the next call may overwrite."""
        found: Array = arrays.values(self.model.probabilities(self.params, batch, self.context))
        return found

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the device."""
        with device_errors(self.model.device):
            yield

    def predict(self, batch: Batch) -> dict[str, Array]:
        """What the model says of some rows, and their labels if they have any.

        Returns ``label`` (rows,), and ``prediction`` (rows,) or ``probabilities`` (rows, classes).
        Raises DeviceError, and BadRowError (a model of one's own cannot take a row).
        """
        found = {} if batch.labels is None else {"label": batch.labels}
        with self.errors():
            if self.model.regression:
                return {**found, "prediction": self.logits(batch)[:, 0].copy()}
            return {**found, "probabilities": self.probabilities(batch).copy()}


def columns(config: RunConfig, predicted: dict[str, Array]) -> dict[str, Any]:
    """The columns of predictions, arrays (rows,), of what :meth:`Predictor.predict` gives.

    ``label`` if there are any, ``prediction``, and of a classifier ``probability`` and
    ``probabilities``.
    """
    if "prediction" in predicted:
        return dict(predicted)
    classes, found = pa.array(config.classes), {}
    values = predicted["probabilities"]
    best = values.argmax(axis=1)
    if "label" in predicted:
        found["label"] = classes.take(pa.array(predicted["label"]))
    found["prediction"] = classes.take(pa.array(best))
    found["probability"] = values[np.arange(len(best)), best]
    flat = pa.array(values.reshape(-1))
    found["probabilities"] = pa.FixedSizeListArray.from_arrays(flat, len(classes))
    return found
