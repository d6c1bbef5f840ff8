"""Arrays and tables of this process, as a table that is imported as a Parquet file is."""

from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Array
from mapreduce.data.fields import plain_type, without_views
from mapreduce.errors import DataError, UsageError


def is_table(data: Any) -> bool:
    """Whether Arrow accepts it as a table: pyarrow's, or a data frame of pandas or Polars.

    So is a dictionary of a row, or a list of them, and a DataFrame of Spark.
    """
    if type(data) is np.ndarray:
        # A service asks for each of its rows.
        return False
    is_own = hasattr(data, "__arrow_c_stream__") or is_frame(data)
    return is_own or bool(_dictionaries(data))


def is_frame(data: Any) -> bool:
    """Whether it is a DataFrame of Spark, whose rows do not come here."""
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "mapInArrow")


def _dictionaries(data: Any) -> list[Any]:
    """The rows, if they are dictionaries."""
    rows = data if isinstance(data, list) else [data]
    return rows if all(type(row) is dict for row in rows) else []


def _check_rows(rows: list[Any]) -> None:
    """Raise a DataError for other names, of which Arrow would take the first's, and for columns."""
    for number, row in enumerate(rows, 1):
        if odd := row.keys() ^ rows[0].keys():
            name = next(iter(odd))
            where = "too many" if name in row else "missing"
            raise DataError(
                f"row {number}: expected the names of row 1, found {name!r:.60} {where}. Give all "
                f"rows the same names, and None to a field that is missing"
            )
        for name, value in row.items():
            if isinstance(value, list | tuple | np.ndarray):
                raise DataError(
                    f"row {number}, {name!r:.60}: expected the field of a row, found {len(value)} "
                    f"values. Columns are a table as pyarrow.table(columns)"
                )


def table(data: Any, weights: Any = None) -> Any:
    """A ``pyarrow.Table`` of rows in memory; arrays are its columns ``X``, ``y`` and ``weights``.

    ``data``: (X, y), X alone, a table, or a Bunch of scikit-learn, with ``data`` and ``target``.
    ``X`` is an array (rows, ...) of numbers, ``y`` one (rows,) of labels. ``weights``, an array
    (rows,): How much each row of arrays counts.

    Raises UsageError (the data are of another kind), DataError (the arrays' shapes do not fit, or
    ``X`` does not hold numbers).
    """
    if is_frame(data):
        raise UsageError(
            "expected a table in memory, found a DataFrame of Spark, which mapreduce.train, "
            "search, evaluate and predict alone take. Fetch the rows, if they are few: df.toArrow()"
        )
    if is_table(data):
        try:
            rows = [] if isinstance(data, pa.Table) else _dictionaries(data)
            _check_rows(rows)
            found = pa.Table.from_pylist(rows) if rows else pa.table(data)
            if found.schema.metadata is None and all(map(_is_as_in_a_file, found.schema)):
                return found
            return pa.table([_plain(one) for one in found.columns], names=found.column_names)
        except pa.ArrowException as error:
            raise DataError(
                f"the table has a column of which Arrow makes none: {error}. Give all its fields "
                f"one type"
            ) from error
        except (TypeError, ValueError) as error:
            # A frame of pandas, with two columns of one name, or one that it stores sparse.
            raise DataError(
                f"Arrow makes no table of the data: {error}. Give columns names of their own, and "
                f"store their values one by one"
            ) from error
    x, y = _parts(data)
    if isinstance(x, tuple | dict) or x is None:
        kind = f"a tuple of {len(data)}" if isinstance(data, tuple) else f"a {type(data).__name__}"
        raise UsageError(
            f"expected (X, y), a table, or the folder of a dataset, found {kind}. Weights are a "
            f"parameter of their own"
        )
    if hasattr(x, "tocsr"):
        raise UsageError(
            "X is a sparse matrix: save it with sklearn.datasets.dump_svmlight_file, and import "
            "the file with 'gradreduce data import --format libsvm'"
        )
    features = _array(x, "X")
    if features.ndim > 1 and not len(features):
        raise DataError(f"X is an array {features.shape}: expected at least one row, found none")
    if np.ma.is_masked(x):
        raise DataError(
            "X is an array with masked elements: expected a number in each place. Fill them, as "
            "by X.filled(0)"
        )
    if features.ndim < 2 or not features[:1].size or features.dtype.kind not in "buif":
        advice = ""
        if features.dtype.kind not in "buif":
            advice = ". Convert it with X.astype('float32')"
        elif features.ndim == 1 and features.size:
            advice = ". One row is X[None], one column X[:, None]"
        raise DataError(
            f"X is an array {features.shape} of {features.dtype}: expected rows of one number or "
            f"more, (rows, features){advice}"
        )
    if not (finite := np.isfinite(features)).all():
        at = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        place = ", ".join(map(str, at))
        raise DataError(f"X[{place}] is {features[at]}: expected finite numbers")
    numbers = pa.array(np.ascontiguousarray(features).reshape(-1))
    columns = {"X": pa.FixedSizeListArray.from_arrays(numbers, features[0].size)}
    for name, column in (("y", y), ("weights", weights)):
        if column is None:
            continue
        array = _array(column, name)
        if array.shape != features.shape[:1]:
            advice = f". Take {name}.ravel()" if array.shape == (len(features), 1) else ""
            raise DataError(
                f"{name} is an array {array.shape}: expected ({len(features)},), an element for "
                f"each row of X{advice}"
            )
        try:
            columns[name] = pa.array(array)
        except (pa.ArrowException, TypeError) as error:
            raise DataError(f"{name}: expected numbers or texts: {error}") from error
    return pa.table(columns)


def _is_as_in_a_file(field: Any) -> bool:
    """Whether :func:`_plain` would leave a column, and all that a schema says of it, as it is."""
    is_plain: bool = plain_type(field.type) == field.type
    return is_plain and field.nullable and field.metadata is None


def _plain(column: Any) -> Any:
    """A column of a type that a file can hold."""
    kind = plain_type(column.type)
    if kind == column.type:
        return column
    return pa.chunked_array([without_views(part) for part in column.chunks], kind)


def is_number(column: Any) -> bool:
    """Whether a column of Arrow has numbers."""
    kinds = ("int", "uint", "float", "double", "bool", "halffloat")
    return str(column.type).startswith(kinds)


def numbers(table: Any) -> Array:
    """The columns (rows, columns) of a ``pyarrow.Table``, missing numbers as NaN.

    Raises DataError (a column has no numbers).
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not is_number(column):
            raise DataError(
                f"column {name!r}: expected numbers, found {column.type}. Import the table with "
                f"'gradreduce data import', and fit the folder of the dataset"
            )
    return np.column_stack([column.to_numpy() for column in table.columns])


def is_unlabelled(data: Any) -> bool:
    """Whether arrays that :func:`table` takes are ``X`` alone."""
    return _parts(data)[1] is None


def shape(data: Any) -> tuple[int, ...]:
    """Shape of the ``X`` of arrays, which :func:`table` takes."""
    found: tuple[int, ...] = np.shape(_parts(data)[0])
    return found


def _parts(data: Any) -> tuple[Any, Any]:
    """``X``, and ``y`` or None."""
    if hasattr(data, "data") and hasattr(data, "target"):
        return data.data, data.target
    return data if isinstance(data, tuple) and len(data) == 2 else (data, None)


def _array(data: Any, name: str) -> Array:
    try:
        return np.asarray(data)
    except ValueError as error:
        raise DataError(f"{name}: expected an array: {error}") from error
