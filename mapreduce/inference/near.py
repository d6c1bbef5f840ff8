"""Rows in memory, predicted in this process by a model that stays loaded."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers import lists, memory
from mapreduce.errors import BadRowError, MemberError
from mapreduce.inference.predictor import SLICE_ROWS, Extras, Predictor, table_of
from mapreduce.models.fitted import FittedModel
from mapreduce.plan.fitting import check_fits

#: What errors call the rows.
_SHOWN = "the data"


class Near:
    """The last model that was used, and each thread's predictor of it, for the next calls."""

    def __init__(self) -> None:
        self._last: tuple[object, FittedModel] | None = None
        self._own = threading.local()

    def __reduce__(self) -> tuple[type["Near"], tuple[()]]:
        return Near, ()

    def fitted(self, sign: object, read: Callable[[], FittedModel]) -> FittedModel:
        """The model of a ``sign``, which ``read`` reads if the last one was another."""
        if self._last is None or self._last[0] != sign:
            self._last = sign, read()
        return self._last[1]

    def predictor(self, fitted: FittedModel, device: str) -> Predictor:
        """The calling thread's predictor of a model."""
        key = fitted, device
        if getattr(self._own, "key", None) != key:
            self._own.predictor, self._own.key = Predictor(fitted, device), key
        found: Predictor = self._own.predictor
        return found


def predict(predictor: Predictor, data: Any, extras: Extras) -> Any:
    """The columns of predictions of an array, in its order, as a job gives them: a table.

    :func:`mapreduce.data.readers.memory.table` says what ``data`` may be; labels are not looked
    at.
    """
    fitted = predictor.fitted
    rows = memory.table(data)["X"].combine_chunks()
    dtype = predictor.estimator.dtype
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
    check_fits(described, Path(_SHOWN), fitted.data, _SHOWN, takes_files=True)
    found = []
    for start in range(0, len(features), SLICE_ROWS):
        batch = Batch(np.ascontiguousarray(features[start : start + SLICE_ROWS]), None)
        try:
            predicted = predictor.predict(batch, extras.layer)
            found.append(table_of(fitted.data.classes, {}, predicted, extras))
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
