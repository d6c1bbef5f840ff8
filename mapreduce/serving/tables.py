"""Rows of a table in requests: columns of JSON and of tensors, CSV, and streams of Arrow."""

import contextlib
import io
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from mapreduce.data.batch import Batch
from mapreduce.data.readers.records import RecordEnds
from mapreduce.errors import DataError, GradreduceError, UsageError
from mapreduce.inference import cutting, files, outputs
from mapreduce.inference.predictor import NOTHING, Predictor, plain
from mapreduce.inference.request import Request
from mapreduce.runs.execution import Execution
from mapreduce.serving.model import Features, Rows, ServedModel
from mapreduce.serving.refusals import Refused, refuse

#: Rows of a table that wait as they are; features are made of more beside the event loop.
FEW_ROWS = 64
#: Rows of a request.
MOST_ROWS = 100_000
#: Columns of a request beside twice those of the training data, of which many are refused anyway.
_MORE_COLUMNS = 1_000
#: Bytes of a line of a file; of one with many columns, those of a field in the mean.
_MOST_LINE, _FIELD_BYTES = 1 << 20, 100
#: What errors call the rows of a request.
SHOWN = "the rows"
CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, eq=False)
class TableRows(Rows):
    """Rows of a table in memory, of which features are made together."""

    table: Any

    def __len__(self) -> int:
        return len(self.table)

    @property
    def kind(self) -> object:
        return self.table.schema

    @classmethod
    def joined(cls, parts: "Sequence[TableRows]") -> "TableRows":
        return cls(pa.concat_tables([part.table for part in parts]).combine_chunks())

    def batch(self, model: ServedModel) -> tuple[Batch, list[str]]:
        features, notes = features_of(model, self.table)
        return Batch(features.array, None), notes


def features_of(model: ServedModel, table: Any) -> tuple[Features, list[str]]:
    """The features of the rows of a table, and what a user should know about these.

    Raises DataError (a field cannot be used), Refused (a row would be left out).
    """
    file = cutting.in_memory(model.fitted, table, {"id": ""}, NOTHING, SHOWN)
    assert file is not None, "a model without a recipe takes arrays"
    finished, parts = file.reading.finish(), list[Any]()
    rows: Any
    for rows in file.reading.part(file.parts[0], 0, 0):
        if file.reading.counts["dropped"]:
            _refuse_left_out(model, table)
        parts.append(finished.features(rows.features))
    # Only few rows may be sparse: they are one block.
    return Features(parts[0] if len(parts) == 1 else np.concatenate(parts)), file.notes()


def warm(model: ServedModel) -> None:
    """Make features once, of a row without fields, which the recipe may refuse."""
    if model.recipe is not None:
        with contextlib.suppress(GradreduceError, Refused):
            features_of(
                model, of_columns(model, {name: [None] for name in model.recipe.kinds}).table
            )


def _refuse_left_out(model: ServedModel, table: Any) -> NoReturn:
    """Name the first field that is missing where the training data left such rows out."""
    recipe, places = model.recipe, []
    assert recipe is not None, "it leaves rows out"
    for column in recipe.columns:
        missing = table.column(column.name).is_null(nan_is_null=True).to_numpy()
        if recipe.recipe.missing_rule(column.name) == "drop" and missing.any():
            places.append((int(missing.argmax()), column.name))
    where = "row {}, column {}".format(*min((row + 1, name) for row, name in places))
    raise Refused(
        400,
        f"{SHOWN}, {where}: the field is missing. The training data left such rows out, and so "
        f"the model has no answer. Leave the row out",
    )


def of_columns(model: ServedModel, columns: Mapping[str, Sequence[Any]]) -> TableRows:
    """Rows of values of JSON by column, None where one is missing.

    Raises Refused (a column has values of several types, or of none that a table has).
    """
    kinds = model.recipe.kinds if model.recipe else {}
    return TableRows(
        pa.table({name: _column(name, kinds.get(name, ""), v) for name, v in columns.items()})
    )


_JSON = {int: "numbers", float: "numbers", str: "texts", bool: "booleans"}


def _column(name: str, kind: str, values: Sequence[Any]) -> Any:
    """A column of values of one type, of which some may be None."""
    where = f"column {name:.80}"
    found = {_JSON.get(one, "others") for one in {*map(type, values)} - {type(None)}}
    if len(found) > 1 or "others" in found:
        first = _JSON.get(next(type(value) for value in values if value is not None))
        if kind:
            # As the training data had them, whatever comes first.
            first = {"number": "numbers", "boolean": "booleans"}.get(kind, "texts")
        for row, value in enumerate(values, 1):
            if value is not None and (first is None or _JSON.get(type(value)) != first):
                refuse(f"row {row}, {where}", first or "a number, a text or a boolean", value)
    if not found:
        is_text = kind == "text" or kind.startswith("date")
        return pa.nulls(len(values), pa.string() if is_text else pa.float64())
    if found == {"booleans"} and kind.startswith("number"):
        refuse(where, "numbers", "booleans")
    try:
        if found == {"numbers"} and kind.startswith("number"):
            return pa.array([v if v is None else float(v) for v in values], pa.float64())
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        refuse(where, "numbers that 64 bits hold")


def of_objects(model: ServedModel, rows: Any) -> TableRows:
    """Rows that are objects of JSON, all with the same names."""
    if model.recipe is None:
        refuse("rows", 'a tensor, "inputs", since the model was not trained on a table')
    if type(rows) is not list or not all(type(row) is dict for row in rows):
        refuse("rows", "a list of objects", rows)
    check_count(len(rows))
    names = rows[0].keys()
    check_columns(model, len(names))
    for number, row in enumerate(rows, 1):
        if row.keys() != names:
            odd = min(row.keys() ^ names)
            refuse(f"row {number}", "the same names in all rows", odd)
    return of_columns(model, {name: [row[name] for row in rows] for name in names})


def check_count(rows: int) -> None:
    """Refuse no rows, and too many."""
    if not rows:
        raise Refused(400, f"{SHOWN}: expected at least one row, found none")
    if rows > MOST_ROWS:
        raise Refused(413, f"{SHOWN}: expected at most {MOST_ROWS:,}, found {rows:,}. Send parts")


def check_columns(model: ServedModel, columns: int) -> None:
    """Refuse so many columns that others would wait long for the error that names one."""
    if columns > (most := _most_columns(model)):
        raise Refused(413, f"the columns: expected at most {most:,}, found {columns:,}")


def _most_columns(model: ServedModel) -> int:
    assert model.recipe is not None, "the model was trained on a table"
    return _MORE_COLUMNS + 2 * (len(model.recipe.columns) + len(model.recipe.left_out))


def _check_lines(model: ServedModel, body: bytes) -> None:
    """Refuse a first line of too many names, and long lines, before there is an object of each
    field.
    """
    assert model.recipe is not None, "the model was trained on a table"
    recipe, most = model.recipe.recipe, max(_MOST_LINE, _FIELD_BYTES * _most_columns(model))
    start, at = body[:most], 0
    end = b"\n" if b"\n" in start else b"\r"
    while len(body) - at > most:
        at = body.rfind(end, at, at + most) + 1
        if not at:
            raise Refused(413, f"the file: expected lines of at most {most:,} bytes")
    first = RecordEnds(recipe, end).first(start) or most
    check_columns(model, start[:first].count(recipe.delimiter.encode()) + 1)


def answer_file(
    predictor: Predictor, model: ServedModel, body: bytes, kind: str, to: str
) -> tuple[bytes, list[str], int]:
    """The file that ``gradreduce predict`` writes for the file ``body``.

    Beside it, what it would warn of, and how many rows there are. ``kind`` and ``to`` are the types
    of both files, :data:`CSV` or :data:`ARROW`. It runs beside the event loop.

    Raises DataError, UsageError (see :func:`mapreduce.inference.cutting.cut`), Refused.
    """
    if kind == CSV:
        _check_lines(model, body)
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        path = Path(folder, "rows.csv" if kind == CSV else "rows.parquet")
        if kind == CSV:
            path.write_bytes(body)
        else:
            pq.write_table(
                _arrow_table(model, body), path, compression="none", use_dictionary=False
            )
        try:
            file = cutting.cut(Request(model.fitted, path, Execution(runner="inline")))
            if file is None:
                refuse(
                    "the file",
                    "no column of ids, since the training data left rows with missing fields out. "
                    "Send the file without that column, or rows as JSON",
                )
            check_count(file.rows)
            found, notes = files.predict_here(predictor, file)
        except (DataError, UsageError) as error:
            # Not the name of a file that the client has never seen.
            text = str(error).replace(str(path), "the file").replace(path.name, "the file")
            raise DataError(text) from error
    found, sink = plain(found), io.BytesIO()
    if to == CSV:
        found = outputs.flat(found)
    with (csv.CSVWriter if to == CSV else pa.ipc.new_stream)(sink, found.schema) as writer:
        writer.write_table(found)
    return sink.getvalue(), notes, len(found)


def _arrow_table(model: ServedModel, body: bytes) -> Any:
    """The table of a stream that no memory is wasted on: checked, and not compressed."""
    batches, rows, size = [], 0, 0
    try:
        for message in pa.ipc.MessageReader.open_stream(body):
            if is_compressed(message.metadata.to_pybytes()):
                refuse("the Arrow stream", "buffers that are not compressed")
        with pa.ipc.open_stream(body) as stream:
            check_columns(model, len(stream.schema))
            for batch in stream:
                rows += len(batch)
                check_count(rows or 1)
                batch.validate(full=True)
                # Columns may share their bytes.
                size += batch.nbytes
                if size > 4 * len(body) + (1 << 20):
                    refuse("the Arrow stream", "columns that do not share their bytes")
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise Refused(400, f"the body is no Arrow stream, or cut: {error!s:.200}") from error


def is_compressed(metadata: bytes) -> bool:
    """Whether a message of Arrow's streams says that its buffers are compressed.

    Flatbuffers: a table begins with the distance to the places of its fields.
    """

    def field(table: int, number: int) -> int:
        places = table - _int(metadata, table, "i")
        if 4 + 2 * number >= _int(metadata, places, "H"):
            return 0
        offset = _int(metadata, places + 4 + 2 * number, "H")
        return table + offset if offset else 0

    def followed(place: int) -> int:
        return place + _int(metadata, place, "I")

    message = followed(0)
    kind, header = field(message, 1), field(message, 2)
    kind = metadata[kind] if kind else 0
    if not header or kind not in (_DICTIONARY, _BATCH):
        return False
    batch = followed(header)
    if kind == _DICTIONARY:
        batch = followed(field(batch, 1))
    return bool(field(batch, 3))


_DICTIONARY, _BATCH = 2, 3


def _int(content: bytes, place: int, kind: str) -> int:
    """An integer within a message, which has other bytes if it is damaged."""
    try:
        return int(struct.unpack_from(f"<{kind}", content, place)[0])
    except struct.error as error:
        raise ValueError(f"a message is damaged: {error}") from error
