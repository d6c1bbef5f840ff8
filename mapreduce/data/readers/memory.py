"""Arrays and tables of this process, as a table that is imported as a Parquet file is."""

from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Array
from mapreduce.errors import DataError, UsageError


def is_table(data: Any) -> bool:
    """Whether Arrow accepts it as a table: pyarrow's, or a data frame of pandas or Polars."""
    return hasattr(data, "__arrow_c_stream__")


def table(data: Any, weights: Any = None) -> Any:
    """A ``pyarrow.Table`` of rows in memory; arrays are its columns ``X``, ``y`` and ``weights``.

    Parameters
    ----------
    data : (X, y), X alone, table, or Bunch
        ``X`` is an array (rows, ...) of numbers, ``y`` one (rows,) of labels. A Bunch of
        scikit-learn has ``data`` and ``target``.
    weights : array (rows,), optional
        How much each row of arrays counts.

    Raises
    ------
    UsageError
        The data are of another kind.
    DataError
        The arrays' shapes do not fit, or ``X`` does not hold numbers.
    """
    if is_table(data):
        return pa.table(data)
    if hasattr(data, "data") and hasattr(data, "target"):
        data = (data.data, data.target)
    x, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    if isinstance(x, tuple | dict) or x is None:
        kind = type(data).__name__
        raise UsageError(f"expected (X, y), a table, or the folder of a dataset, found a {kind}")
    features = _array(x, "X")
    if features.ndim < 2 or not features[:1].size or features.dtype.kind not in "buif":
        raise DataError(
            f"X is an array {features.shape} of {features.dtype}: expected rows of one number or "
            f"more, (rows, features)"
        )
    numbers = pa.array(np.ascontiguousarray(features).reshape(-1))
    columns = {"X": pa.FixedSizeListArray.from_arrays(numbers, features[0].size)}
    for name, column in (("y", y), ("weights", weights)):
        if column is None:
            continue
        array = _array(column, name)
        if array.shape != features.shape[:1]:
            raise DataError(
                f"{name} is an array {array.shape}: expected one element for each of the "
                f"{len(features):,} rows of X"
            )
        try:
            columns[name] = pa.array(array)
        except (pa.ArrowException, TypeError) as error:
            raise DataError(f"{name}: expected numbers or texts: {error}") from error
    return pa.table(columns)


def _array(data: Any, name: str) -> Array:
    try:
        return np.asarray(data)
    except ValueError as error:
        raise DataError(f"{name}: expected an array: {error}") from error
