"""Rows in memory, predicted in this process by a model that stays loaded."""

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers import lists, memory
from mapreduce.errors import BadRowError, MemberError
from mapreduce.inference.base import trained_on
from mapreduce.inference.predictor import SLICE_ROWS, Extras, Predictor, table_of
from mapreduce.plan.fitting import check_fits
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir

#: What errors call the rows.
_SHOWN = "the data"


class Loaded(NamedTuple):
    """The checkpoint of a run after some rounds, which the folder held when it was read."""

    run: RunDir
    completed: int
    predictor: Predictor


class Near:
    """A run's last checkpoint, which each thread keeps for its next calls."""

    def __init__(self) -> None:
        self._kept = threading.local()

    def __reduce__(self) -> tuple[type["Near"], tuple[()]]:
        return Near, ()

    def loaded(self, run: RunDir, device: str) -> Loaded:
        """The model of the last checkpoint."""
        # What another program goes on with, or makes anew at this path, is another model.
        sign = checkpoint.sign(run), device
        if getattr(self._kept, "sign", None) != sign:
            completed = checkpoint.latest(run)
            params = checkpoint.load(run, run.config.plan.create_model(), completed).params
            self._kept.loaded = Loaded(run, completed, Predictor(run.config, params, device))
            self._kept.sign = sign
        found: Loaded = self._kept.loaded
        return found


def predict(kept: Loaded, data: Any, extras: Extras) -> Any:
    """The columns of predictions of an array, in its order, as a job gives them: a table.

    :func:`mapreduce.data.readers.memory.table` says what ``data`` may be; labels are not looked
    at.
    """
    config = kept.run.config
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
    check_fits(described, Path(_SHOWN), trained_on(kept.run), _SHOWN, takes_files=True)
    found = []
    for start in range(0, len(features), SLICE_ROWS):
        batch = Batch(np.ascontiguousarray(features[start : start + SLICE_ROWS]), None)
        try:
            predicted = kept.predictor.predict(batch, extras.layer)
            found.append(table_of(config, {}, predicted, extras))
        except BadRowError as error:
            row = start + error.row + 1
            raise MemberError(f"{error}, for row {row} of the data") from error
    return pa.concat_tables(found)


def is_small(data: Any) -> bool:
    """Whether rows in memory, of an array or a table, are so few that no job pays."""
    try:
        rows = len(memory.table(data)) if memory.is_table(data) else memory.shape(data)[0]
    except (ValueError, IndexError):
        # Its rows have several lengths, or it has none, of which an error will tell.
        return False
    return 0 < rows <= SLICE_ROWS
