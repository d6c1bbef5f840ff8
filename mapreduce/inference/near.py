"""A few rows of an array, predicted in this process, without a dataset."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers import lists, memory
from mapreduce.errors import BadRowError, MemberError
from mapreduce.inference.base import trained_on
from mapreduce.inference.predictor import SLICE_ROWS, Predictor, columns
from mapreduce.plan.fitting import check_fits
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir

#: What errors call the rows.
_SHOWN = "the data"


class Near:
    """A run's last checkpoint, which each thread keeps for its next calls."""

    def __init__(self) -> None:
        self._kept = threading.local()

    def __reduce__(self) -> tuple[type["Near"], tuple[()]]:
        return Near, ()

    def predictor(self, run: RunDir, device: str) -> Predictor:
        """The model of the last checkpoint."""
        # What another program goes on with, or makes anew at this path, is another model.
        sign = checkpoint.sign(run), device
        if getattr(self._kept, "sign", None) != sign:
            completed = checkpoint.latest(run)
            params = checkpoint.load(run, run.config.plan.create_model(), completed).params
            self._kept.predictor = Predictor(run.config, params, device)
            self._kept.sign = sign
        found: Predictor = self._kept.predictor
        return found

    def predict(self, run: RunDir, data: Any, device: str) -> Any:
        """The columns of predictions of an array, in its order, as a job gives them: a table.

        :func:`mapreduce.data.readers.memory.table` says what ``data`` may be; labels are not looked
        at.
        """
        config = run.config
        rows = memory.table(data)["X"].combine_chunks()
        dtype = np.dtype(config.plan.dtype)
        features = lists.arrays(rows, dtype, Path(_SHOWN), 0, "X")
        shape = memory.shape(data)[1:]
        described = Manifest(
            rows=len(features),
            features=features.shape[1],
            shape=shape,
            dtype=dtype.name,
            scale=1.0,
            classes=None,
            seed=0,
            source={},
            shards=(),
        )
        check_fits(described, Path(_SHOWN), trained_on(run), _SHOWN, takes_files=True)
        batch = Batch(np.ascontiguousarray(features), None)
        try:
            found = self.predictor(run, device).predict(batch)
        except BadRowError as error:
            raise MemberError(f"{error}, for row {error.row + 1} of the data") from error
        return pa.table(columns(config, found))


def is_near(data: Any) -> bool:
    """Whether an array has so few rows that no job pays."""
    try:
        shape = memory.shape(data)
    except ValueError:
        # Its rows have several lengths, of which an error will tell.
        return False
    return bool(shape) and 0 < shape[0] <= SLICE_ROWS
