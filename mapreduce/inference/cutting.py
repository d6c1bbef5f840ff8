"""A file that is to be predicted, and the parts that it is cut into: none needs another."""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from hdfs_utils.paths import AnyPath, RemotePath, size_of, stamp_of
from mapreduce.data import fields, ids
from mapreduce.data.columns import column_of
from mapreduce.data.manifest import ListedIds
from mapreduce.data.readers import TABLES, opening
from mapreduce.data.readers.files import check_sources
from mapreduce.data.readers.libsvm import Form, Lines
from mapreduce.data.readers.parquet import MemoryTable, ParquetTable
from mapreduce.data.readers.reading import Reading
from mapreduce.data.readers.roles import fit_names
from mapreduce.data.readers.table import Stretch, Table, preview
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, UsageError
from mapreduce.inference import outputs, raw
from mapreduce.inference.predictor import Extras
from mapreduce.inference.request import Request
from mapreduce.models.fitted import FittedModel
from mapreduce.support import unfinished
from mapreduce.support.suggest import did_you_mean
from mapreduce.tables import shuffle
from mapreduce.tables.summarise import surveyed
from mapreduce.tables.tables import change_error

#: A part has at least so many bytes of text, or rows of Parquet, but for the last of a file.
_PART_BYTES = 16 << 20
_PART_ROWS = 1 << 16
#: Another one gives parts other bytes, or other rows.
_VERSION = 1
#: What to do if the file has changed.
AGAIN = "Predict it again"


@dataclass(frozen=True)
class TableFile:
    """A file to predict, and how it is cut into parts.

    ``reading``: Says how it is read, and counts what a user should know about it.
    ``parts``: In the order of the rows.
    ``ids``: The kind of its ids, see :class:`mapreduce.data.manifest.ListedIds`; empty without any.
    ``keep``: Columns that stand beside the predictions, too.
    ``extras``: What else does so.
    ``sha256``: Digest of its content, and of how it is read.
    """

    reading: Reading | Lines
    parts: tuple[Stretch, ...]
    ids: str
    keep: tuple[str, ...]
    extras: Extras
    sha256: str

    @property
    def path(self) -> AnyPath:
        """Where it is."""
        return self.reading.table.paths[0].absolute()

    def notes(self) -> list[str]:
        """What a user should know about it, once it is predicted."""
        name, found = self.reading.recipe.id, self.reading.notes()
        if name and not self.ids:
            found.append(
                f"it has no column {name!r:.60}, which has the ids of the training data: rows are "
                f"predicted without ids. Name its own by --id, or say --id '' for none"
            )
        return found

    @property
    def rows(self) -> int:
        """How many rows it has, those that are left out among them."""
        return sum(part.rows for part in self.parts)


def cut(request: Request) -> TableFile | None:
    """Read a file of a table, or of libsvm's lines, once, here or by tasks near it, and cut it.

    None if it must be imported instead: it is a folder, or of another format, tasks could not open
    it, or the ids that count are only those of rows that are not left out.

    Its ``reading`` may have ``zero_based`` and ``dtype`` of libsvm's lines.

    Raises UsageError (columns cannot be kept, or the model is not of such rows).
    """
    data, given, runner = request.data, request.reading, request.execution.runner
    form = {name: given.get(name) for name in ("zero_based", "dtype")}
    if opening.is_sparse(data):
        raw.refuse(data, {name: value for name, value in given.items() if name not in form})
    else:
        raw.refuse(data, form, "files of libsvm's format")
    found = _cut(request)
    if found is None and opening.is_sparse(data) and data.is_file():
        raise UsageError(
            f"{data}: expected a file that tasks of -r {runner} open and tell the rows "
            f"of. Take -r parallel, or make a dataset of it with 'gradreduce data import'"
        )
    if found is None and given.get("keep") and data.exists():
        what = "since a dataset has features alone"
        if data.is_file():
            what = (
                f"and one that tasks of -r {runner} open, without ids (--id '') if rows "
                f"with missing fields are left out; {data} is another one"
            )
        raise UsageError(
            f"--keep: expected the file of a table, CSV or Parquet, {what}. Leave --keep out, and "
            f"join the predictions to the data by their ids or rows"
        )
    return found


def _cut(request: Request) -> TableFile | None:
    data, given, execution = request.data, request.reading, request.execution
    is_near = isinstance(data, RemotePath) or execution.traits.shares_files
    # Else tasks cannot say which row is wrong.
    if not data.is_file() or not is_near or not execution.traits.tells_causes:
        return None
    if opening.is_sparse(data):
        return _cut_lines(request)
    is_there = raw.is_read_there(request) and opening.is_cut(data)
    like, kind = raw.recipe_of(request, come_here=not is_there), opening.format_of([data])
    if kind not in TABLES:
        return None
    _, recipe = opening.request([data], {**given, "labelled": False}, like, kind)
    table = opening.open_table([data], kind, recipe, like)
    recipe = fit_names(table, recipe, like)
    if kind == "csv":
        # Tasks need not decide again.
        recipe = replace(recipe, header=table.has_names)
    has_ids = recipe.id in table.names
    if has_ids and _drops(recipe, like):
        return None
    recipe, keep = _keeping(table, recipe, like, given, request.extras)
    reading = Reading(table, recipe, like, keep=keep)
    # Of before it is read.
    (stamp,) = reading.stamps
    digest = hashlib.sha256(json.dumps([recipe.to_json(), like.sha256, *keep]).encode())
    if is_there:
        parts, listed = _counted_there(request, Reading(table, recipe, like), digest)
    else:
        parts, listed = _count_rows(table, recipe.id if has_ids else None, digest)
    ids_are = "" if listed is None else listed.kind
    return _table_file(reading, stamp, parts, ids_are, keep, request.extras, digest)


def in_memory(
    fitted: FittedModel, rows: Any, given: Mapping[str, Any], extras: Extras, shown: str
) -> TableFile | None:
    """A table of this process as a file of one part; None if it must be imported instead.

    See :func:`cut`; ``shown`` is what errors call it. What is asked of a table, and how it is read,
    serves the model's next table of the same columns.
    """
    asked, known = (repr(given), extras, shown), _known.get(fitted)
    if known is None or known[0] != asked or not known[1].equals(rows.schema):
        _known[fitted] = known = asked, rows.schema, table_like(fitted, rows, given, extras, shown)
    if (file := known[2]) is None:
        return None
    if not len(rows):
        raise DataError(f"{shown}: expected at least one row, found none")
    reading, kind = file.reading, ""
    assert isinstance(reading, Reading) and isinstance(reading.table, MemoryTable)
    table = reading.table.over(rows)
    reading = reading.over(table)
    if (name := reading.roles.id) is not None:
        column = [table.parse(leaf, {}, [name])[name] for leaf in table.leaves()]
        texts = fields.ids_of(pa.chunked_array(column), table.paths[0], 0, name)
        kind = ids.kind_of_all(texts, shown)
    return replace(file, reading=reading, parts=(Stretch(0, 0, 1, len(rows)),), ids=kind)


#: Of each model, what was asked of its last table in memory, that table's schema, and the table
#: without its rows.
_known: WeakKeyDictionary[FittedModel, tuple[Any, Any, Any]] = WeakKeyDictionary()


def table_like(
    fitted: FittedModel, rows: Any, given: Mapping[str, Any], extras: Extras, shown: str
) -> TableFile | None:
    """A table like one in memory, without rows; None if no recipe reads it, or rows with ids are
    left out.
    """
    if (like := fitted.recipe) is None:
        return None
    table = MemoryTable(rows.schema.empty_table(), shown)
    _, recipe = opening.request(table.paths, {**given, "labelled": False}, like, "parquet")
    recipe = fit_names(table, recipe, like)
    if recipe.id in table.names and _drops(recipe, like):
        return None
    recipe, keep = _keeping(table, recipe, like, given, extras)
    return TableFile(Reading(table, recipe, like, keep=keep), (), "", keep, extras, "")


def _drops(recipe: Recipe, like: FittedRecipe) -> bool:
    """Whether rows with missing fields are left out."""
    return any(recipe.missing_rule(column.name) == "drop" for column in like.columns)


def _keeping(
    table: Table, recipe: Recipe, like: FittedRecipe, given: Mapping[str, Any], extras: Extras
) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe that lets columns stand beside predictions, and these columns."""
    id = recipe.id if recipe.id in table.names else None
    keep = _kept(table, tuple(given.get("keep") or ()), id, extras)
    if keep and not recipe.only:
        # What is kept, and is no feature, is no column that nobody knows.
        others = (name for name in keep if name not in {column.name for column in like.columns})
        recipe = replace(recipe, drop=tuple(dict.fromkeys((*recipe.drop, *others))))
    return recipe, keep


def _cut_lines(request: Request) -> TableFile:
    """A file of libsvm's lines, cut into parts."""
    fitted, data, given = request.fitted, request.data, request.reading
    unfinished.files_of([data], come_here=True)
    check_sources([data], "the libsvm file")
    if not fitted.about.takes_sparse or fitted.recipe or fitted.data.standardised:
        raise UsageError(
            f"{data}: expected a run of a model of sparse rows, trained on such rows as they stand "
            f"in libsvm's files; {fitted.path} is another one. Name a file or a dataset like its "
            f"own"
        )
    base = int(not given.get("zero_based"))
    form = Form(None, given.get("dtype") or "float32", fitted.data.features, base)
    lines = Lines(data, form)
    (stamp,) = lines.stamps
    digest = hashlib.sha256(json.dumps(form.to_json()).encode())
    return _table_file(lines, stamp, [*lines.index(digest)], "", (), request.extras, digest)


def _table_file(
    reading: Reading | Lines,
    stamp: str,
    parts: list[Stretch],
    ids_are: str,
    keep: tuple[str, ...],
    extras: Extras,
    digest: Any,
) -> TableFile:
    """The file of which the shortest stretches are known, in larger parts."""
    (data,) = reading.table.paths
    if not sum(part.rows for part in parts):
        raise DataError(f"{data.name}: expected at least one row, found none")
    if stamp_of(data) != stamp:
        raise change_error(str(data), AGAIN)
    bounds = _joined(parts, reading.table.format)
    digest.update(json.dumps([_VERSION, bounds]).encode())
    return TableFile(reading, tuple(bounds), ids_are, keep, extras, digest.hexdigest())


def _kept(table: Table, keep: tuple[str, ...], id: str | None, extras: Extras) -> tuple[str, ...]:
    """The columns that are to stand beside predictions, but for the ids, which do anyway."""
    keep = tuple(table.names) if keep == ("all",) else keep
    names = tuple(dict.fromkeys(column_of(name, table.names) for name in keep))
    own = outputs.id_name(id, extras) if id else None
    for name in names:
        if name not in table.names:
            raise UsageError(
                f"--keep {name}: {table.paths[0]} has no such column; it has "
                f"{preview(table.names)}.{did_you_mean(name, table.names)}"
            )
        if isinstance(table, ParquetTable) and not table.is_plain(name):
            raise UsageError(
                f"--keep {name}: expected a column of numbers, texts, dates or booleans, found the "
                f"type {table.types[name]}. Name the others"
            )
        # Labels of a file are not read, so that they may be kept.
        if name in {*outputs.columns(extras)} - {"label"} or (name == own and name != id):
            raise UsageError(
                f"--keep {name}: predictions have a column of this name themselves. Name the "
                f"others, or call it otherwise in the file"
            )
    return tuple(name for name in names if name != own)


def _count_rows(
    table: Table, name: str | None, digest: Any
) -> tuple[list[Stretch], ListedIds | None]:
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
    request: Request, reading: Reading, digest: Any
) -> tuple[list[Stretch], ListedIds | None]:
    """The same as :func:`_count_rows`, by jobs."""
    leaves, survey = surveyed(reading, request.execution, digested=True)
    digest.update(survey.sha256.tobytes())
    edges = [*(leaf.at or 0 for leaf in leaves), size_of(reading.table.paths[0])]
    parts = [
        Stretch(0, start, stop, rows)
        for (start, stop), rows in zip(pairwise(edges), survey.rows.tolist(), strict=True)
    ]
    if reading.roles.id is None:
        return parts, None
    with request.scratch() as place:
        place.mkdir()
        return parts, shuffle.name_rows(reading, leaves, survey, place, request.execution)


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
