"""Prediction of DataFrames of Spark, a record batch at a time, in the tasks that compute them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from mapreduce.data.batch import Batch
from mapreduce.data.readers import lists
from mapreduce.errors import DataError, UsageError
from mapreduce.inference import cutting, files, near
from mapreduce.inference.predictor import SLICE_ROWS, Extras, Predictor, table_of
from mapreduce.runners.spark import snapshots
from mapreduce.runs.models import ModelPlace, place_of
from mapreduce.support import numeric, trust

_SHOWN = "the DataFrame"
#: The column of lists that a model without a recipe reads.
_LISTS = "gradreduce.features"


@dataclass(frozen=True)
class PredictBatches:
    """Predicts record batches: what ``DataFrame.mapInArrow`` calls in a task of Spark.

    ``model``, ``device``: Where the model lies, and where it computes.
    ``given``, ``extras``: How columns are read, and what is wanted.
    ``names``: What the columns of a batch are called.
    ``environment``: Which code may be imported.
    """

    model: ModelPlace
    device: str
    given: Mapping[str, Any]
    extras: Extras
    names: tuple[str, ...]
    environment: Mapping[str, str]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        os.environ.update(self.environment)
        trust.look_in_folders()
        predictor = _predictor(self.model, self.device)
        for batch in batches:
            if not len(batch):
                continue
            rows = pa.Table.from_batches([batch]).rename_columns([*self.names])
            predicted = self.predict(predictor, rows)
            if "row" in predicted.column_names:
                # Some may be left out.
                rows, predicted = rows.take(predicted["row"]), predicted.drop_columns(["row"])
            for name, column in zip(self.names, rows.columns, strict=True):
                if name != _LISTS:
                    predicted = predicted.add_column(self.names.index(name), name, column)
            yield from predicted.combine_chunks().to_batches()

    def predict(self, predictor: Predictor, rows: Any) -> Any:
        """The predictions of a table; without rows, their columns."""
        recipe = predictor.fitted.recipe
        if recipe is None:
            predicted = self._of_lists(predictor, rows[_LISTS].combine_chunks())
        else:
            rows = rows.select([each.name for each in recipe.columns if each.name in self.names])
            rows = pa.table({name: _in_utc(rows[name]) for name in rows.column_names})
            cut = cutting.in_memory if len(rows) else cutting.table_like
            file = cut(predictor.fitted, rows, self.given, self.extras, _SHOWN)
            assert file is not None, "there are no ids"
            predicted = files.predict_rows(predictor, file)
        kinds = [
            pa.list_(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind
            for kind in predicted.schema.types
        ]
        return predicted.cast(pa.schema([*zip(predicted.column_names, kinds, strict=True)]))

    def _of_lists(self, predictor: Predictor, column: Any) -> Any:
        """The predictions of lists of numbers."""
        data, count = predictor.fitted.data, len(column)
        if not count:
            column = pa.array([[0.0] * data.features])
        rows = lists.arrays(column, predictor.estimator.dtype, Path(_SHOWN), 0, "features")
        rows, tables = near.features(rows.reshape(-1, *data.shape), predictor), []
        for start in range(0, len(rows), SLICE_ROWS):
            batch = Batch(rows[start : start + SLICE_ROWS], None)
            arrays = predictor.predict(batch, self.extras.layer)
            tables.append(table_of(data.classes, {}, arrays, self.extras))
        return pa.concat_tables(tables).slice(0, count)


@lru_cache(maxsize=2)
def _predictor(model: ModelPlace, device: str) -> Predictor:
    fitted = model.open()
    profile = fitted.numeric_profile
    if profile != "native" and not numeric.is_set(numeric.environment(profile)):
        raise UsageError(
            f"numeric_profile={profile!r}: this worker of Spark has not its variables. Start the "
            f"program with them, or set spark.executorEnv"
        )
    return Predictor(fitted, device)


def _in_utc(column: Any) -> Any:
    """A column whose times are in UTC, as in training, whatever the session's time zone."""
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz
    return column.cast(snapshots.UTC) if is_zoned else column


def predict(
    predictor: Predictor, frame: Any, extras: Extras, device: str, given: Mapping[str, Any]
) -> Any:
    """The DataFrame with the predictions of its rows, in columns behind its own.

    Nothing is computed before somebody asks for rows. The columns are those of
    :func:`mapreduce.inference.predictor.table_of`.

    Raises UsageError (pandas is missing, the context has stopped, a column has a prediction's
    name), DataError (a column is missing, or of another type).
    """
    from pyspark.sql import types
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

    snapshots.check(frame)
    fitted = predictor.fitted
    # Spark looks for columns by their names, in which it would not have dots.
    names, read = [*frame.schema.names], frame.toDF(*snapshots.short_names(frame))
    fields = {field.name: field.dataType for field in frame.schema.fields}
    if fitted.recipe is None:
        several = [name for name, kind in fields.items() if snapshots.is_list(kind)]
        if len(several) != 1:
            raise DataError(
                f"{_SHOWN}: expected one column of vectors or arrays, since the model was not "
                f"trained on a table, found {len(several)}. Drop the others: df.drop(...)"
            )
        column = read[names.index(several[0])]
        read = read.withColumn("lists", snapshots.plain(several[0], column, fields[several[0]]))
        names.append(_LISTS)
        empty = {_LISTS: pa.array([], pa.list_(pa.float64()))}
    else:
        some = {each.name for each in fitted.recipe.columns}.intersection(fields)
        for name in some:
            snapshots.plain(name, read[names.index(name)], fields[name])
        kinds = {name: to_arrow_type(fields[name], timezone="UTC") for name in some}
        empty = {name: pa.array([], kind) for name, kind in kinds.items()}
    environment = {name: os.environ[name] for name in trust.VARIABLES if name in os.environ}
    given = {"id": "", "keep": (), **given}
    program = PredictBatches(place_of(fitted), device, given, extras, tuple(names), environment)
    new = program.predict(predictor, pa.table(empty)).schema
    own = [field for field in new if field.name != "row"]
    known = {name.casefold() for name in fields}
    for field in own:
        if field.name.casefold() in known:
            raise UsageError(
                f"{_SHOWN}: its column {field.name!r:.60} has the name of a column of predictions. "
                f"Rename or drop it: df.withColumnRenamed(...)"
            )
    more = from_arrow_schema(pa.schema(own)).fields
    return read.mapInArrow(program, types.StructType([*frame.schema.fields, *more]))
