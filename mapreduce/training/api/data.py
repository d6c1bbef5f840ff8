"""Data that Python passes: datasets of arrays, tables, files and readers."""

import contextlib
import hashlib
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import StorageError
from hdfs_utils.folders import is_published
from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce import models
from mapreduce.data import copying, importer
from mapreduce.data.manifest import MANIFEST
from mapreduce.data.manifest import load as read_manifest
from mapreduce.data.readers import FILE_OPTIONS, labels, memory, opening
from mapreduce.data.readers.reading import Reading
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.errors import DataError, OutputError, UsageError
from mapreduce.plan.settings import Settings
from mapreduce.runs import flags
from mapreduce.runs.execution import Execution
from mapreduce.support import signals
from mapreduce.support.spelling import in_python
from mapreduce.tables.shuffle import import_table
from mapreduce.training.api.calls import (
    KEYWORDS,
    PATHS,
    READING,
    absolute_path,
    naming_parameter,
    texts,
)

#: Beside a run's folder: datasets that were imported from memory, named by their digests.
IMPORTED = ".imported"


class Like(NamedTuple):
    """What data for a model have to be like: classes, and the recipe of its table."""

    classes: tuple[int | str, ...] | None
    recipe: FittedRecipe | None

    @classmethod
    def of(cls, folder: AnyPath) -> "Like":
        """What the dataset in a folder is like."""
        manifest = read_manifest(folder)
        return cls(manifest.classes, opening.fitted_of(folder, manifest))


def _warn(remark: str) -> None:
    warnings.warn(in_python(remark, KEYWORDS), stacklevel=3)


@dataclass(frozen=True)
class Import:
    """How files of tables, and what becomes such files, are imported.

    ``place``: The folder of the datasets, each of which is named by the digest of all that decides
      it.
    ``given``: What the columns become: see :func:`mapreduce.data.readers.opening.recipe_of`.
    ``like``: What the data have to be like.
    ``shape``: The shape of a row, where it has several axes.
    ``warn``: Receives what a user should know about the data.
    """

    place: AnyPath
    given: Mapping[str, Any]
    like: Like | None = None
    shape: tuple[int, ...] = ()
    warn: Callable[[str], None] = _warn

    def file(self, file: AnyPath) -> AnyPath:
        """The folder of the dataset that a file becomes."""
        with storage_errors("read", file), file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        return self._files([file], sha256)

    def frame(self, frame: Any, order_by: str | Iterable[str]) -> AnyPath:
        """The folder of the dataset that a DataFrame becomes, in jobs on its executors."""
        from mapreduce.runners.spark import snapshots

        if isinstance(self.place, RemotePath):
            raise UsageError(
                f"{self.place}: expected a folder of this machine for a DataFrame, whose executors "
                f"write there. Name such a run"
            )
        self.place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".frame-", dir=self.place) as folder:
            files, sha256 = snapshots.write(frame, Path(folder), texts(order_by))
            runner = "parallel" if "connect" in type(frame).__module__ else "spark"
            try:
                return self._files(files, sha256, flags.execution({"runner": runner}))
            except (DataError, UsageError) as error:
                # Not the name of a file that the user has never seen.
                name = rf"(?:{re.escape(folder)}/)?part-\d+\.parquet"
                raise type(error)(re.sub(name, "the DataFrame", str(error))) from error

    def _files(
        self, files: Sequence[AnyPath], sha256: str, execution: Execution | None = None
    ) -> AnyPath:
        """Import files of one digest, by jobs if there is an execution."""
        kind, (classes, fitted) = opening.format_of(files), self.like or Like(None, None)
        recipe = opening.recipe_of(self.given, files, fitted)
        is_refused = self.given.get("labelled") is not False and recipe.labelled is False
        if fitted is None and is_refused and kind != "parquet":
            raise UsageError("the data have no labels")
        content = [recipe.to_json(), classes, fitted.sha256 if fitted else None, *self.shape[1:]]
        digest = hashlib.sha256(repr(content).encode())
        digest.update(bytes.fromhex(sha256))
        out = self.place / digest.hexdigest()[:32]
        if not is_published(out, MANIFEST):
            source = opening.table(files, kind, recipe, fitted)
            if self.shape:
                source = replace(source, shape=self.shape)
            with signals.interrupting(), _accept_other_import(out):
                if execution is not None and isinstance(source.chunks, Reading):
                    import_table(source.chunks, out, 0, execution, classes)
                else:
                    with copying.made_here(out) as made:
                        importer.import_rows(source, made, 0, classes)
            for note in source.remarks:
                self.warn(note)
        return out


def import_data(
    data: Any,
    place: AnyPath,
    model: str,
    dtype: str,
    like: Like | None = None,
    *,
    weights: Any = None,
    **given: Any,
) -> AnyPath:
    """The folder of a dataset, which other data become in ``place``, named by their digest."""
    is_path, is_table = isinstance(data, PATHS), memory.is_table(data)
    is_frame, order_by = memory.is_frame(data), given.pop("order_by", None)
    if order_by is not None and not is_frame:
        raise UsageError("order_by is for DataFrames of Spark, whose rows have no order")
    is_file = is_table_file(data)
    for name in ("label", "id", "recipe", "missing_label", *READING):
        if given.get(name) is not None and not (is_file or is_table):
            if isinstance(data, PATHS) and (path := absolute_path(data)).is_file():
                # It may well be a table's, though its name does not show the format.
                opening.format_of([path])
            raise UsageError(f"{name}: it is for tables, and the data are not a table")
    is_folder = is_path and not is_file
    if weights is not None and (is_folder or isinstance(weights, str) != (is_table or is_file)):
        raise UsageError("weights: expected a column's name for a table, an array for arrays")
    is_source = isinstance(data, importer.Source)
    if is_folder or is_source:
        kind = "rows of a reader" if is_source else "a dataset"
        for name, one in {"task": given.get("task"), "weights": weights}.items():
            if one is not None:
                raise UsageError(f"{name}: it is for arrays and tables, and the data are {kind}")
        return _read(data, place, like) if is_source else absolute_path(data)
    if like is None:
        given |= {"task": given.get("task") or _task(model), "dtype": dtype}
    elif like.recipe is None and is_frame and has_lists(data):
        # Features as they stand.
        given["task"] = "regression" if like.classes is None else "classification"
        given["dtype"] = dtype
    elif like.recipe is None and (is_file or is_table):
        raise UsageError(
            "the model was not trained on a table: expected an array, or the folder of a dataset"
        )
    elif like.recipe is not None and not (is_file or is_table):
        raise UsageError(
            "the model was trained on a table: expected a table, a dictionary for a row or a list "
            "of them, the file of a table, or the folder of a dataset"
        )
    how = Import(place, {**given, "weights": weights}, like)
    if is_file:
        return how.file(absolute_path(data))
    if is_frame:
        return how.frame(data, order_by or ())
    rows = memory.table(data, None if is_table else weights)
    if not is_table:
        is_labelled = given.get("labelled") is not False
        if is_labelled and "y" not in rows.column_names:
            raise DataError("the data have no labels: expected (X, y), found X alone")
        given |= {"only": ("X",), "label": "y" if is_labelled else None, "dtype": dtype}
        task = given.get("task")
        if like is not None:
            task = "regression" if like.classes is None else "classification"
        elif is_labelled and task is None:
            task = labels.task_of(rows["y"].combine_chunks(), Path("the data"), "y")
        given["task"] = task if is_labelled else None
        given["weights"] = "weights" if weights is not None else None
        like = None if like is None else like._replace(recipe=None)
        how = Import(place, given, like, memory.shape(data)[1:])
    with as_file(rows, "the table" if is_table else "the data") as file:
        return how.file(file)


def has_lists(frame: Any) -> bool:
    """Whether a DataFrame of Spark has a column of vectors, or of arrays of numbers."""
    from mapreduce.runners.spark import snapshots

    return any(snapshots.is_list(field.dataType) for field in frame.schema.fields)


def _read(source: importer.Source, place: AnyPath, like: Like | None) -> AnyPath:
    """The folder of a reader's rows, named by what they became."""
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        made = Path(folder, "data")
        manifest = importer.import_rows(source, made, 0, like.classes if like else None)
        out = place / manifest.sha256[:32]
        if not is_published(out, MANIFEST):
            with signals.interrupting(), _accept_other_import(out):
                copying.copy(made, out)
    return out


@contextlib.contextmanager
def _accept_other_import(out: AnyPath) -> Iterator[None]:
    """Take what another training has imported from the same data meanwhile."""
    try:
        yield
    except (OutputError, StorageError):
        if not is_published(out, MANIFEST):
            raise


def import_files(
    values: Mapping[str, Any], settings: Settings, place: AnyPath, warn: Callable[[str], None]
) -> tuple[AnyPath, AnyPath | None]:
    """The folders of a training's data and of its evaluation data, which files of tables become.

    They are imported into ``place``, and the evaluation's rows like the others. ``values``: The
    paths of both, and those of the options for files. ``warn`` receives what a user should know
    about the data.
    """
    data, evaluation = (values[name] and values[name].absolute() for name in ("data", "evaluation"))
    given = {row.name: values[row.name] for row in FILE_OPTIONS}
    is_file = opening.is_table(data)
    is_eval_file = evaluation is not None and opening.is_table(evaluation)
    for name, value in given.items():
        if value is not None and not is_file:
            if data.is_file():
                # It may well be a table's, though its name does not show the format.
                opening.format_of([data])
            elif not (data / MANIFEST).exists():
                # Who reads it as a dataset says so.
                return data, evaluation
            raise UsageError(f"--{name} {value}: it is for the file of a table. Leave it out")
    if not is_file and not is_eval_file:
        return data, evaluation
    if is_file:
        how = how_to_import(settings)
        given |= how | {"task": given["task"] or how["task"]}
        if how["labelled"] is False and given["label"] is None:
            given["task"] = None
        else:
            del given["labelled"]
        data = Import(place, given, warn=warn).file(data)
    if is_eval_file:
        like = Like.of(data)
        if like.recipe is None:
            raise UsageError(
                f"--eval {evaluation}: the data were not imported from a table. Expected the "
                f"folder of a dataset"
            )
        evaluation = Import(place, {}, like, warn=warn).file(evaluation)
    return data, evaluation


def how_to_import(settings: Settings) -> dict[str, Any]:
    """What the import of a table follows from a model: ``dtype``, ``trees`` and the like."""
    how = {"dtype": settings.dtype_for(True), "task": _task(settings.model), "labelled": True}
    if not models.FITS.fits(settings.model):
        return how
    spec = models.FITS.parse(settings.model)
    return how | {"trees": spec.takes_codes, "labelled": spec.needs_labels}


@contextlib.contextmanager
def as_file(rows: Any, shown: str) -> Iterator[Path]:
    """A Parquet file of a table in memory, which errors call what is ``shown``."""
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        file = Path(folder, "data.parquet")
        try:
            pq.write_table(rows, file, compression="none", use_dictionary=False)
        except pa.ArrowException as error:
            raise DataError(f"the table has a column that no file can hold: {error}") from error
        try:
            yield file
        except (DataError, UsageError) as error:
            # Not the name of a file that the user has never seen.
            text = str(error).replace(str(file), shown).replace(file.name, shown)
            raise type(error)(text) from error


def is_table_file(data: Any) -> bool:
    """Whether data are the file of a table; errors are those of :func:`opening.is_table`."""
    return isinstance(data, PATHS) and opening.is_table(absolute_path(data))


def data_name(data: Any) -> str:
    """What errors call data; not by the name of a folder that the user has never seen."""
    return str(data) if isinstance(data, PATHS) else "the data"


def import_both(
    data: Any, evaluation: Any, place: AnyPath, settings: Settings, **named: Any
) -> tuple[AnyPath, AnyPath | None]:
    """The folders of data for a training, and of evaluation data that are like them, if any."""
    # A mistyped name is an error before other data are imported.
    is_table_file(evaluation)
    is_table = memory.is_table(data) or is_table_file(data)
    how = place, settings.model, settings.dtype_for(is_table)
    folder = import_data(data, *how, **named)
    if evaluation is None:
        return folder, None
    with naming_parameter("evaluation"):
        return folder, import_data(evaluation, *how, Like.of(folder))


def _task(model: str) -> str | None:
    """What the labels are for; None for a model that learns classes or numbers, as they look."""
    if model == "auto":
        return None
    if models.FITS.fits(model):
        task: str | None = models.FITS.parse(model).task
        return task
    kind = models.find(model)
    if kind.for_numbers is not None:
        return None
    return "regression" if kind.regression else "classification"
