"""Rows in memory, predicted in this process by a model that stays loaded."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Array, Batch
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
        last = self._last
        if last is None or last[0] != sign:
            self._last = last = sign, read()
        return last[1]

    def predictor(self, fitted: FittedModel, device: str) -> Predictor:
        """The calling thread's predictor of a model."""
        key = fitted, device
        if getattr(self._own, "key", None) != key:
            self._own.predictor, self._own.key = Predictor(fitted, device), key
        found: Predictor = self._own.predictor
        return found


def predict(predictor: Predictor, data: Any, extras: Extras, wanted: str | Sequence[str]) -> Array:
    """An array of what is predicted of the rows of an array, as a job gives it.

    ``data``: See :func:`mapreduce.data.readers.memory.table`; labels are not looked at.
    ``wanted``: ``prediction``, ``probabilities``, ``features``, or columns of ``extras``.
    """
    classes = _names(predictor.fitted.data.classes)
    parts = []
    for _, _, predicted in _batches(predictor, data, extras):
        if isinstance(wanted, str) and wanted in predicted:
            parts.append(predicted[wanted])
        elif wanted == "prediction":
            parts.append(classes[predicted["probabilities"].argmax(axis=1)])
        else:
            places = [*map(predictor.fitted.data.classes.index, extras.classes)]
            columns = predicted["probabilities"][:, places]
            parts.append(columns[:, 0] if isinstance(wanted, str) else columns)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def table(predictor: Predictor, data: Any, extras: Extras) -> Any:
    """The table of predictions of the rows of an array; see :func:`.predictor.table_of`."""
    classes = predictor.fitted.data.classes
    return pa.concat_tables(
        table_of(classes, {"row": np.arange(start, start + len(batch))}, predicted, extras)
        for start, batch, predicted in _batches(predictor, data, extras)
    )


def _batches(
    predictor: Predictor, data: Any, extras: Extras
) -> Iterator[tuple[int, Array, dict[str, Array]]]:
    """The first row's number of each batch of an array, its rows, and what is predicted of them."""
    rows = features(data, predictor)
    for start in range(0, len(rows), SLICE_ROWS):
        batch = rows[start : start + SLICE_ROWS]
        try:
            yield start, batch, predictor.predict(Batch(batch, None), extras.layer)
        except BadRowError as error:
            row = start + error.row + 1
            raise MemberError(f"{error}, for row {row} of the data") from error


@lru_cache(maxsize=8)
def _names(classes: tuple[int | str, ...]) -> Array:
    """The classes as an array, of the type that a column of predictions has."""
    found: Array = pa.array(classes).to_numpy(zero_copy_only=False)
    return found


def features(data: Any, predictor: Predictor) -> Array:
    """The rows of an array, which fit the model, in its dtype."""
    dtype, fits = predictor.estimator.dtype, predictor.fits
    # Of other types, and of what cannot be, Arrow tells.
    if type(data) is np.ndarray and data.dtype.kind == "f" and data.ndim > 1:
        if data.shape[1:] in fits:
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(data, dtype).reshape(len(data), -1)
            if len(data) and np.isfinite(rows).all():
                return rows
        if predictor.estimator.takes_missing and (missing := np.isnan(data)).any():
            rows = features(np.where(missing, 0, data), predictor).copy()
            rows[missing.reshape(rows.shape)] = np.nan
            return rows
    table = memory.table(data)["X"].combine_chunks()
    rows, shape = lists.arrays(table, dtype, Path(_SHOWN), 0, "X"), memory.shape(data)[1:]
    described = Manifest(
        rows=len(rows),
        features=rows.shape[1],
        shape=shape,
        dtype=dtype.name,
        scale=1.0,
        classes=None,
        seed=0,
        source={},
        shards=(),
    )
    check_fits(described, Path(_SHOWN), predictor.fitted.data, _SHOWN, takes_files=True)
    fits.add(shape)
    return np.ascontiguousarray(rows)


def has_missing(data: Any) -> bool:
    """Whether an array has NaN."""
    is_float = type(data) is np.ndarray and data.dtype.kind == "f"
    return is_float and bool(np.isnan(data).any())


def is_small(data: Any) -> bool:
    """Whether rows in memory, of an array or a ``pyarrow.Table``, are so few that no job pays."""
    try:
        rows = len(data) if isinstance(data, pa.Table) else memory.shape(data)[0]
    except (ValueError, IndexError):
        # Its rows have several lengths, or it has none, of which an error will tell.
        return False
    return 0 < rows <= SLICE_ROWS
