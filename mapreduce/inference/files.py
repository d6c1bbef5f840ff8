"""Prediction of a file: stretches of it become parts, none of which needs another."""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, RemotePath, path_of, size_of, stamp_of
from hdfs_utils.publish import new_file
from mapreduce.algorithms import shuffle
from mapreduce.algorithms.summarise import surveyed
from mapreduce.algorithms.tables import TableProgram, changed, described_by
from mapreduce.data import fields, ids
from mapreduce.data.batch import Array, Batch, Block
from mapreduce.data.importer import Finished, Rows
from mapreduce.data.manifest import ListedIds
from mapreduce.data.readers import TABLES, opening
from mapreduce.data.readers.files import check_sources
from mapreduce.data.readers.libsvm import Form, Lines
from mapreduce.data.readers.parquet import opened
from mapreduce.data.readers.reading import Reading
from mapreduce.data.readers.table import Stretch, Table, preview
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Layout, Pair, Phase
from mapreduce.errors import BadRowError, DataError, MemberError, UsageError
from mapreduce.inference import outputs, raw, unit_files
from mapreduce.inference.base import executor_of, scratch
from mapreduce.inference.predictor import SLICE_ROWS, Predictor, columns
from mapreduce.inference.unit_files import Tell, UnitFiles
from mapreduce.reduction.message import Message
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from mapreduce.support import unfinished
from mapreduce.support.jsonfiles import build
from mapreduce.support.suggest import did_you_mean

#: A part has at least so many bytes of text, or rows of Parquet, but for the last of a file.
_PART_BYTES = 16 << 20
_PART_ROWS = 1 << 16
#: Another one gives parts other bytes, or other rows.
_VERSION = 1
#: Bytes of features at once.
_CHUNK_BYTES = 16 << 20
#: Bytes of a row group of predictions in memory.
_GROUP_BYTES = 16 << 20
#: What to do if the file has changed.
_AGAIN = "Predict it again"
#: Where a part says how many of its fields a user should know about.
_COUNTS = b"gradreduce.counts"


@dataclass(frozen=True)
class TableFile:
    """A file to predict, and how it is cut into parts.

    ``reading``: Says how it is read, and counts what a user should know about it.
    ``parts``: In the order of the rows.
    ``ids``: The kind of its ids, see :class:`mapreduce.data.manifest.ListedIds`; empty without any.
    ``keep``: Columns that stand beside the predictions, too.
    ``layer``: Whose outputs do so; empty for none.
    ``sha256``: Digest of its content, and of how it is read.
    """

    reading: Reading | Lines
    parts: tuple[Stretch, ...]
    ids: str
    keep: tuple[str, ...]
    layer: str
    sha256: str

    @property
    def path(self) -> AnyPath:
        """Where it is."""
        return self.reading.table.paths[0].absolute()

    @property
    def rows(self) -> int:
        """How many rows it has, those that are left out among them."""
        return sum(part.rows for part in self.parts)


def cut(
    run: RunDir, data: AnyPath, execution: Execution, given: Mapping[str, Any], layer: str = ""
) -> TableFile | None:
    """Read a file of a table, or of libsvm's lines, once, here or by tasks near it, and cut it.

    None if it must be imported instead: it is a folder, or of another format, tasks could not open
    it, or the ids that count are only those of rows that are not left out.

    ``given``: See :func:`mapreduce.inference.raw.imported`; ``keep``, names of columns, or ``all``;
    and ``zero_based`` and ``dtype`` of libsvm's lines. ``layer``: As
    :func:`mapreduce.inference.predictor.layer_of` gives it.

    Raises UsageError (columns cannot be kept, or the model is not of such rows).
    """
    form = {name: given.get(name) for name in ("zero_based", "dtype")}
    if opening.is_sparse(data):
        raw.refuse(data, {name: value for name, value in given.items() if name not in form})
    else:
        raw.refuse(data, form, "files of libsvm's format")
    found = _cut(run, data, execution, given, layer)
    if found is None and opening.is_sparse(data) and data.is_file():
        raise UsageError(
            f"{data}: expected a file that tasks of -r {execution.runner} open and tell the rows "
            f"of. Take -r parallel, or make a dataset of it with 'gradreduce data import'"
        )
    if found is None and given.get("keep") and data.exists():
        what = "since a dataset has features alone"
        if data.is_file():
            what = (
                f"and one that tasks of -r {execution.runner} open, without ids (--id '') if rows "
                f"with missing fields are left out; {data} is another one"
            )
        raise UsageError(
            f"--keep: expected the file of a table, CSV or Parquet, {what}. Leave --keep out, and "
            f"join the predictions to the data by their ids or rows"
        )
    return found


def _cut(
    run: RunDir, data: AnyPath, execution: Execution, given: Mapping[str, Any], layer: str
) -> TableFile | None:
    is_near = isinstance(data, RemotePath) or execution.traits.shares_files
    # Tasks of mrjob's local runner cannot say which row is wrong.
    if not data.is_file() or not is_near or execution.runner == "local":
        return None
    if opening.is_sparse(data):
        return _cut_lines(run, data, given, layer)
    is_there = raw.is_read_there(data, execution) and opening.is_cut(data)
    like, kind = raw.recipe_of(run, data, come_here=not is_there), opening.format_of([data])
    if kind not in TABLES:
        return None
    _, recipe = opening.request([data], {**given, "labelled": False}, like, kind)
    table = opening.open_table([data], kind, recipe, like)
    if kind == "csv":
        # Tasks need not decide again.
        recipe = replace(recipe, header=table.has_names)
    has_ids = recipe.id in table.names
    drops = any(recipe.missing_rule(column.name) == "drop" for column in like.columns)
    if has_ids and drops:
        return None
    keep = _kept(table, tuple(given.get("keep") or ()), recipe.id if has_ids else None, layer)
    if not recipe.only:
        # What is kept, and is no feature, is no column that nobody knows.
        others = (name for name in keep if name not in {column.name for column in like.columns})
        recipe = replace(recipe, drop=tuple(dict.fromkeys((*recipe.drop, *others))))
    reading = Reading(table, recipe, like, keep=keep)
    # Of before it is read.
    (stamp,) = reading.stamps
    digest = hashlib.sha256(json.dumps([recipe.to_json(), like.sha256, *keep]).encode())
    if is_there:
        parts, listed = _counted_there(run, Reading(table, recipe, like), execution, digest)
    else:
        parts, listed = _counted(table, recipe.id if has_ids else None, digest)
    return _made(reading, stamp, parts, "" if listed is None else listed.kind, keep, layer, digest)


def _cut_lines(run: RunDir, data: AnyPath, given: Mapping[str, Any], layer: str) -> TableFile:
    """A file of libsvm's lines, cut into parts."""
    unfinished.files_of([data], come_here=True)
    check_sources([data], "the libsvm file")
    plan = run.config.plan
    if not plan.create_model().takes_sparse or run.recipe or plan.data.standardised:
        raise UsageError(
            f"{data}: expected a run of a model of sparse rows, trained on such rows as they stand "
            f"in libsvm's files; {run.path} is another one. Name a file or a dataset like its own"
        )
    base = int(not given.get("zero_based"))
    form = Form(None, given.get("dtype") or "float32", plan.data.features, base)
    lines = Lines(data, form)
    (stamp,) = lines.stamps
    digest = hashlib.sha256(json.dumps(form.to_json()).encode())
    return _made(lines, stamp, [*lines.index(digest)], "", (), layer, digest)


def _made(
    reading: Reading | Lines,
    stamp: str,
    parts: list[Stretch],
    ids_are: str,
    keep: tuple[str, ...],
    layer: str,
    digest: Any,
) -> TableFile:
    """The file of which the shortest stretches are known, in larger parts."""
    (data,) = reading.table.paths
    if not sum(part.rows for part in parts):
        raise DataError(f"{data.name}: expected at least one row, found none")
    if stamp_of(data) != stamp:
        raise changed(str(data), _AGAIN)
    bounds = _joined(parts, reading.table.format)
    digest.update(json.dumps([_VERSION, bounds]).encode())
    return TableFile(reading, tuple(bounds), ids_are, keep, layer, digest.hexdigest())


def _kept(table: Table, keep: tuple[str, ...], id: str | None, layer: str) -> tuple[str, ...]:
    """The columns that are to stand beside predictions, but for the ids, which do anyway."""
    names = tuple(table.names) if keep == ("all",) else tuple(dict.fromkeys(keep))
    own = outputs.id_name(id, layer) if id else None
    for name in names:
        if name not in table.names:
            raise UsageError(
                f"--keep {name}: {table.paths[0]} has no such column; it has "
                f"{preview(table.names)}.{did_you_mean(name, table.names)}"
            )
        # Labels of a file are not read, so that they may be kept.
        if name in {*outputs.columns(layer)} - {"label"} or (name == own and name != id):
            raise UsageError(
                f"--keep {name}: predictions have a column of this name themselves. Name the "
                f"others, or call it otherwise in the file"
            )
    return tuple(name for name in names if name != own)


def _counted(table: Table, name: str | None, digest: Any) -> tuple[list[Stretch], ListedIds | None]:
    """The shortest stretches of a file that is read here, and its column of ids, if it has one."""
    (data,) = table.paths
    parts: list[Stretch] = []
    rows = 0
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        with ids.Writer(Path(folder, ids.FILE)) as named:
            for stretch, column in table.index(name, digest):
                if name is not None:
                    texts = fields.ids_of(column, data, rows, name)
                    named.append(np.arange(rows, rows + stretch.rows), texts)
                rows += stretch.rows
                if parts and parts[-1][:3] == stretch[:3]:
                    # More of its rows.
                    stretch = stretch._replace(rows=parts.pop().rows + stretch.rows)
                parts.append(stretch)
        return parts, named.finish(data.name)


def _counted_there(
    run: RunDir, reading: Reading, execution: Execution, digest: Any
) -> tuple[list[Stretch], ListedIds | None]:
    """The same as :func:`_counted`, by jobs."""
    leaves, survey = surveyed(reading, execution, digested=True)
    digest.update(survey.sha256.tobytes())
    edges = [*(leaf.at or 0 for leaf in leaves), size_of(reading.table.paths[0])]
    parts = [
        Stretch(0, start, stop, rows)
        for (start, stop), rows in zip(pairwise(edges), survey.rows.tolist(), strict=True)
    ]
    if reading.roles.id is None:
        return parts, None
    with scratch(run.path / "data", execution.runner) as place:
        place.mkdir()
        return parts, shuffle.name_rows(reading, leaves, survey, place, execution)


def _joined(parts: list[Stretch], kind: str) -> list[Stretch]:
    """Neighbours as one, so that there are few enough, and none is small, or empty."""
    parts = [part for part in parts if part.rows]
    is_text = kind != "parquet"
    sizes = [part.stop - part.start if is_text else part.rows for part in parts]
    least = max(_PART_BYTES if is_text else _PART_ROWS, -(-sum(sizes) // outputs.MOST_PARTS))
    found: list[Stretch] = []
    filled = least
    for part, size in zip(parts, sizes, strict=True):
        if filled >= least:
            found.append(part)
            filled = size
        else:
            found[-1] = found[-1]._replace(stop=part.stop, rows=found[-1].rows + part.rows)
            filled += size
    return found


@dataclass(frozen=True)
class PredictFile(UnitFiles, TableProgram):
    """Predicts the parts of a file, and publishes each; a block says how many rows it has.

    Columns: see :class:`mapreduce.inference.predict.Predict`.

    ``run``, ``completed``, ``device``: The model, and where it computes.
    ``parts``, ``ids``, ``keep``, ``layer``: See :class:`TableFile`.
    ``out``: Folder of the parts. ``id_name``: What the ids are called.
    ``made_from``: Digest of the model and the file.
    """

    run: str
    completed: int
    device: str
    parts: tuple[Stretch, ...]
    ids: str
    keep: tuple[str, ...]
    layer: str
    out: str
    id_name: str
    made_from: str

    name = "predict-file"
    done = "parts are written"
    again = _AGAIN

    @classmethod
    def of(
        cls,
        run: RunDir,
        completed: int,
        file: TableFile,
        device: str,
        out: AnyPath | str,
        made_from: str,
    ) -> Self:
        return cls(
            **described_by(file.reading),
            run=str(run.path),
            completed=completed,
            device=device,
            parts=file.parts,
            ids=file.ids,
            keep=file.keep,
            layer=file.layer,
            out=str(out),
            id_name=outputs.id_name(file.reading.recipe.id, file.layer),
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
                self._write(number, str(temporary))

    def map(self, part: LeafRange) -> Iterator[Pair]:
        for number in range(part.start, part.stop):
            self.make(number)
            yield (number,), self.receipt(number)

    def receipt(self, number: int) -> Message:
        """What a part that is there holds: its rows, and what a user should know about them.

        Raises DataError (it holds those of other rows).
        """
        path = self.path(number)
        with opened(path) as file:
            found = file.metadata.metadata or {}
            outputs.check_part(path, found, self.made_from)
            counts = json.loads(found.get(_COUNTS, b"{}"))
            rows = file.metadata.num_rows
        expected = self.parts[number].rows
        if rows + counts.get("dropped", {}).get("", 0) != expected:
            raise DataError(
                f"{path} holds {rows:,} predictions: expected those of {expected:,} rows. "
                f"Remove it, then run the command again"
            )
        return Message({"rows": rows, "counts": counts})

    @cached_property
    def _run(self) -> RunDir:
        return RunDir(path_of(self.run))

    def _load(self) -> object:
        return self._predictor

    @cached_property
    def _predictor(self) -> Predictor:
        config = self._run.config
        params = checkpoint.load(self._run, config.plan.create_model(), self.completed).params
        return Predictor(config, params, self.device)

    @cached_property
    def _like(self) -> FittedRecipe:
        found = self._run.recipe
        assert found is not None, "the file was cut by it"
        return found

    def _reading(self) -> Reading | Lines:
        if self.format == "libsvm":
            return Lines(path_of(self.files[0]), build(Form, json.loads(self.recipe)))
        return Reading(self.table, self.given, self._like, keep=self.keep)

    def tables(self, number: int, reading: Reading | Lines) -> Iterator[Any]:
        """The predictions of a part, a table of each of its blocks.

        ``reading``: Of the file; it counts what a user should know about the part.
        """
        before = sum(part.rows for part in self.parts[:number])
        finished = reading.finish()
        for rows in reading.part(self.parts[number], before, before):
            yield self._predicted(rows, finished)

    def _write(self, number: int, path: str) -> None:
        self.check_unchanged(0)
        reading = self._reading()
        with contextlib.ExitStack() as stack:
            writer: Any = None
            for table in _grouped(self.tables(number, reading)):
                with storage_errors("write", path):
                    if writer is None:
                        writer = outputs.parquet_writer(path, table.schema)
                        stack.enter_context(_closing(writer, path))
                    writer.write_table(table)
            counts = {kind: found for kind, found in reading.counts.items() if found}
            about = {_COUNTS: json.dumps(counts).encode()} if counts else {}
            writer.add_key_value_metadata(about | outputs.marked(self.made_from))
        self.check_unchanged(0)

    def _predicted(self, rows: Rows, finished: Finished) -> Any:
        """The table of some rows, in the order of their numbers."""
        assert rows.numbers is not None, "readings tell them"
        if not len(rows.numbers):
            assert isinstance(rows.features, Block), "of lines none comes without rows"
            # For the names and types of the columns.
            return self._predicted(_any_row(rows, rows.features), finished).slice(0, 0)
        numbers, count = rows.numbers, len(rows.numbers)
        # Features may take many times the space of the fields that they are made of.
        length = max(1, _CHUNK_BYTES // (SLICE_ROWS * finished.row_bytes)) * SLICE_ROWS
        found = []
        for start in range(0, count, length):
            chunk = slice(start, min(start + length, count))
            batch = Batch(finished.features(_part_of(rows.features, chunk)), None)
            for at in range(0, batch.rows, SLICE_ROWS):
                part = slice(at, min(at + SLICE_ROWS, batch.rows))
                found.append(self._predict(batch[part], numbers[chunk][part]))
        places = np.argsort(numbers)
        arrays = {name: np.concatenate([one[name] for one in found])[places] for name in found[0]}
        named = {"row": numbers[places]}
        if self.ids:
            kind = pa.int64() if self.ids == "integer" else pa.string()
            named[self.id_name] = rows.ids.take(pa.array(places)).cast(kind)
        named |= {name: column.take(pa.array(places)) for name, column in rows.kept.items()}
        return pa.table({**named, **columns(self._predictor.config, arrays)})

    def _predict(self, batch: Batch, numbers: Array) -> dict[str, Array]:
        try:
            return self._predictor.predict(batch, self.layer)
        except BadRowError as error:
            row = int(numbers[error.row]) + 1
            raise MemberError(f"{error}, for row {row} of {self.shown[0]}") from error


def _part_of(block: Any, rows: slice) -> Any:
    """Some rows of a block, or of sparse rows."""
    if not isinstance(block, Block):
        return block[rows]
    length = rows.stop - rows.start
    texts = {name: column.slice(rows.start, length) for name, column in block.texts.items()}
    return Block(block.numbers[rows], texts)


@contextlib.contextmanager
def _closing(writer: Any, path: str) -> Iterator[None]:
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


def predict_here(
    run: RunDir, completed: int, predictor: Predictor, file: TableFile
) -> tuple[Any, list[str]]:
    """Predict a file in this process, by a model that is loaded; nothing is written.

    Returns the table of predictions, and what a user should know about the file.
    """
    program = PredictFile.of(run, completed, file, "cpu", "", "")
    # What it would load itself.
    vars(program)["_predictor"] = predictor
    found = [table for at in range(len(file.parts)) for table in program.tables(at, file.reading)]
    return pa.concat_tables(found), file.reading.notes()


def predict(
    run: RunDir,
    file: TableFile,
    out: AnyPath,
    execution: Execution,
    device: str = "cpu",
    tell: Tell = lambda text: None,
) -> tuple[int, list[str]]:
    """Predict a file into a folder of Parquet files, or into one file.

    Returns the rows, and what a user should know about the file. Parts of an attempt that was
    stopped are kept. ``tell`` is called now and then with how far it is, and when it is stopped.
    """
    run.config.plan.create_model(device)
    completed = checkpoint.latest(run)
    execution.check_places(run.path, file.path, out)
    made_from = outputs.made_from(run, completed, file.sha256, device, file.layer)
    with outputs.begun(out, made_from, len(file.parts)) as parts:
        digest = outputs.digest_of(made_from)
        program = PredictFile.of(run, completed, file, device, parts or out, digest)
        paths = run.path, file.path, parts or out
        executor = executor_of(execution, *paths, tasks=len(file.parts))
        found = unit_files.advance(program, executor, tell).blocks
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
        raise DataError(f"{program.shown[0]}: expected at least one row, found none")
    return rows, file.reading.notes()
