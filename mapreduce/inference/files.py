"""Prediction of a file that is cut: each of its parts becomes a file of predictions."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import new_file
from mapreduce.data import ipc
from mapreduce.data.batch import Block
from mapreduce.data.importer import Finished, Rows
from mapreduce.data.readers.libsvm import Form, Lines
from mapreduce.data.readers.reading import Reading
from mapreduce.data.readers.table import Stretch
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.engine.program import Layout, Pair, Phase, Round
from mapreduce.errors import DataError
from mapreduce.inference import outputs, unit_files
from mapreduce.inference.base import in_batches
from mapreduce.inference.cutting import AGAIN, TableFile
from mapreduce.inference.predictor import Extras, Predictor, table_of
from mapreduce.inference.request import Request
from mapreduce.inference.unit_files import UnitFiles
from mapreduce.reduction.message import Message
from mapreduce.runs.models import ModelPlace, place_of
from mapreduce.support.jsonfiles import build
from mapreduce.support.words import count
from mapreduce.tables.tables import TableProgram, described_by

#: Bytes of a row group of predictions in memory.
_GROUP_BYTES = 16 << 20
#: Where a part says how many of its fields a user should know about.
_COUNTS = b"gradreduce.counts"


@dataclass(frozen=True)
class PredictFile(UnitFiles, TableProgram):
    """Predicts the parts of a file, and publishes each; a block says how many rows it has.

    Columns: see :class:`mapreduce.inference.predict.Predict`.

    ``model``, ``device``: Where the model lies, and where it computes.
    ``parts``, ``ids``, ``keep``, ``extras``: See :class:`TableFile`.
    ``out``: Folder of the parts. ``id_name``: What the ids are called.
    ``made_from``: Digest of the model and the file.
    """

    model: ModelPlace
    device: str
    parts: tuple[Stretch, ...]
    ids: str
    keep: tuple[str, ...]
    extras: Extras
    out: str
    id_name: str
    made_from: str

    name = "predict-file"
    done = "parts are written"
    again = AGAIN

    @classmethod
    def of(cls, request: Request, file: TableFile, made_from: str) -> Self:
        return cls(
            **described_by(file.reading),
            model=place_of(request.fitted),
            device=request.device,
            parts=file.parts,
            ids=file.ids,
            keep=file.keep,
            extras=file.extras,
            out=str(request.out),
            id_name=outputs.id_name(file.reading.recipe.id, file.extras),
            made_from=made_from,
        )

    def units(self, completed: int) -> int:
        return len(self.parts)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return ()

    def path(self, number: int) -> AnyPath:
        """See :meth:`UnitFiles.path`."""
        return outputs.part_path(self.place, number)

    def make(self, number: int) -> None:
        """See :meth:`UnitFiles.make`."""
        path = self.path(number)
        if not path.exists():
            # Another attempt at this task may be quicker.
            with (
                self.as_shown(),
                contextlib.suppress(FileExistsError),
                new_file(path) as temporary,
            ):
                self._write(number, temporary)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        for number in units:
            self.make(number)
            yield (number,), self.receipt(number)

    def receipt(self, number: int) -> Message:
        """What a part that is there holds: its rows, and what a user should know about them.

        Raises DataError (it is damaged, or holds those of other rows).
        """
        path = self.path(number)
        footer = outputs.read_footer(path, self.made_from)
        counts, rows = json.loads(footer.metadata.get(_COUNTS, b"{}")), footer.num_rows
        expected = self.parts[number].rows
        if rows + counts.get("dropped", {}).get("", 0) != expected:
            raise DataError(
                f"{path} holds {rows:,} predictions: expected those of {expected:,} rows. "
                f"Remove it, then run the command again"
            )
        return Message({"rows": rows, "counts": counts})

    def _load(self) -> object:
        return self._predictor

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self.model.open(), self.device)

    @cached_property
    def _like(self) -> FittedRecipe:
        found = self._predictor.fitted.recipe
        assert found is not None, "the file was cut by it"
        return found

    def _reading(self) -> Reading | Lines:
        if self.format == "libsvm":
            return Lines(path_of(self.files[0]), build(Form, json.loads(self.recipe)))
        return Reading(self.table, self.given, self._like, keep=self.keep)

    def _write(self, number: int, path: Path) -> None:
        self.check_unchanged(0)
        reading, before = self._reading(), sum(part.rows for part in self.parts[:number])
        tables = _Tables(self._predictor, self.extras, self.ids, self.id_name, self.shown[0])
        with contextlib.ExitStack() as stack:
            writer: Any = None
            for table in _grouped(tables.of_part(reading, self.parts[number], before)):
                with storage_errors("write", path):
                    if writer is None:
                        sink = stack.enter_context(ipc.output_file(path))
                        writer = outputs.parquet_writer(sink, table.schema)
                        stack.enter_context(_closing(writer, path))
                    writer.write_table(table)
            counts = {kind: found for kind, found in reading.counts.items() if found}
            about = {_COUNTS: json.dumps(counts).encode()} if counts else {}
            writer.add_key_value_metadata(about | outputs.part_metadata(self.made_from))
        with storage_errors("write", path), path.open("r+b") as file:
            outputs.seal(file)
        self.check_unchanged(0)


class _Tables(NamedTuple):
    """Makes tables of predictions of the rows of a table; see :class:`PredictFile` for the others.

    ``shown``: What errors call the table.
    """

    predictor: Predictor
    extras: Extras
    ids: str
    id_name: str
    shown: str

    def of_part(self, reading: Reading | Lines, part: Stretch, before: int) -> Iterator[Any]:
        """The predictions of a part, behind so many rows, a table of each of its blocks.

        ``reading``: Of the file; it counts what a user should know about the part.
        """
        finished = reading.finish()
        for rows in reading.part(part, before, before):
            yield self.of(rows, finished)

    def of(self, rows: Rows, finished: Finished) -> Any:
        """The table of some rows, in the order of their numbers."""
        assert rows.numbers is not None, "readings tell them"
        if not len(rows.numbers):
            assert isinstance(rows.features, Block), "of lines none comes without rows"
            # For the names and types of the columns.
            return self.of(_any_row(rows, rows.features), finished).slice(0, 0)
        predict = partial(self.predictor.predict, layer=self.extras.layer)
        arrays, numbers = in_batches(predict, rows, finished, self.shown), rows.numbers
        columns = dict(rows.kept)
        if self.ids:
            kind = pa.int64() if self.ids == "integer" else pa.string()
            columns = {self.id_name: rows.ids.cast(kind), **columns}
        if (np.diff(numbers) < 0).any():
            places = np.argsort(numbers)
            numbers, arrays = numbers[places], {n: each[places] for n, each in arrays.items()}
            columns = {name: column.take(pa.array(places)) for name, column in columns.items()}
        first = {"row": numbers, **columns}
        return table_of(self.predictor.fitted.data.classes, first, arrays, self.extras)


@contextlib.contextmanager
def _closing(writer: Any, path: Path) -> Iterator[None]:
    """Close a writer of Arrow's, whose last bytes may not fit on the disk."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            writer.close()
        raise
    with storage_errors("write", path):
        writer.close()


def _grouped(tables: Iterable[Any]) -> Iterator[Any]:
    """Tables of a row group each: small ones together, which take less space on the disk."""
    pending: list[Any] = []
    for table in tables:
        pending.append(table)
        if sum(one.nbytes for one in pending) >= _GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)


def _any_row(rows: Rows, block: Block) -> Rows:
    """A row of the same columns as others, all of its fields missing."""
    texts = {name: pa.nulls(1, column.type) for name, column in block.texts.items()}
    one = Block(np.full((1, block.numbers.shape[1]), np.nan), texts)
    named = None if rows.ids is None else pa.array(["0"])
    kept = {name: pa.nulls(1, column.type) for name, column in rows.kept.items()}
    return Rows(one, None, None, named, np.zeros(1, np.int64), kept)


def predict_here(predictor: Predictor, file: TableFile) -> tuple[Any, list[str]]:
    """Predict a file in this process, by a model that is loaded; nothing is written.

    Returns the table of predictions, and what a user should know about the file. Raises DataError
    (no row is left).
    """
    predicted = predict_rows(predictor, file)
    if not len(predicted):
        raise none_left(str(file.reading.table.paths[0]), file)
    return predicted, file.notes()


def predict_rows(predictor: Predictor, file: TableFile) -> Any:
    """The table of predictions of those rows that are not left out; of no parts, its columns."""
    reading, before = file.reading, 0
    id_name = outputs.id_name(reading.recipe.id, file.extras)
    shown = str(reading.table.paths[0])
    tables = _Tables(predictor, file.extras, file.ids, id_name, shown)
    found: list[Any] = []
    for part in file.parts:
        found += tables.of_part(reading, part, before)
        before += part.rows
    if not found:
        assert isinstance(reading, Reading), "lines have parts"
        nothing = Rows(reading.empty, None, numbers=np.empty(0, np.int64))
        return tables.of(nothing, reading.finish())
    return found[0] if len(found) == 1 else pa.concat_tables(found)


def predict(request: Request, file: TableFile) -> tuple[int, list[str]]:
    """Predict a file into a folder of Parquet files, or into one file.

    Returns the rows, and what a user should know about the file. Parts of an attempt that was
    stopped are kept.
    """
    request.fitted.estimator(request.device)
    request.execution.check_places(request.fitted.path, file.path, request.out)
    made_from = outputs.made_from(request, file.sha256)
    with outputs.open_output(request.out, made_from, len(file.parts), request.tell) as parts:
        there = replace(request, out=parts or request.out)
        program = PredictFile.of(there, file, outputs.digest_of(made_from))
        executor = request.executor(there.out, tasks=len(file.parts))
        found = unit_files.advance(program, executor, request.tell).blocks
        return concluded(program, file, found)


def concluded(
    program: PredictFile, file: TableFile, receipts: Iterable[Message]
) -> tuple[int, list[str]]:
    """The rows that are predicted, and what a user should know about the file.

    Raises DataError (no row is left); then there are no parts any more.
    """
    rows = 0
    for block in receipts:
        rows += block.meta["rows"]
        file.reading.add(block.meta["counts"])
    if not rows:
        for number in range(len(file.parts)):
            program.path(number).unlink(missing_ok=True)
        raise none_left(program.shown[0], file)
    return rows, file.notes()


def none_left(shown: str, file: TableFile) -> DataError:
    """The error for a file of which no row has a prediction."""
    return DataError(
        f"{shown}: expected a row without missing fields, found none in {count(file.rows, 'row')}. "
        f"The training data left rows with missing fields out, and so the model has no answer"
    )
