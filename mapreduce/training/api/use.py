"""``mapreduce.load`` and what it returns: a trained model for Python."""

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.paths import RemotePath, ordered
from mapreduce.data.batch import Array
from mapreduce.data.readers import memory
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.errors import DataError, UsageError
from mapreduce.inference import cutting, files, near, using
from mapreduce.inference.flags import EXTRAS, report_options
from mapreduce.inference.metrics import Report
from mapreduce.inference.predictor import NOTHING, Extras, extras_of, plain
from mapreduce.inference.request import Request
from mapreduce.models.fitted import FittedModel
from mapreduce.plan import settings as plan_settings
from mapreduce.runs import flags
from mapreduce.runs.fits import model_path
from mapreduce.support import signals
from mapreduce.support import trust as trusted
from mapreduce.support.spelling import in_python
from mapreduce.training.api.calls import (
    KEYWORDS,
    PATHS,
    REPORTED,
    WANTED,
    absolute_path,
    checked_options,
    naming_keywords,
    pinned,
    quiet_mrjob,
    take,
    take_reading,
    texts,
)
from mapreduce.training.api.data import Like, as_file, data_name, import_data, is_table_file
from mapreduce.training.export import export
from mapreduce.training.start import defaults


class TrainedModel:
    """A trained model, as :func:`load` reads it from a file: how to use it."""

    def __init__(self, fitted: FittedModel) -> None:
        self._model, self._near = fitted, near.Near()

    @property
    def _fitted(self) -> FittedModel:
        """The model."""
        return self._model

    @property
    def _about(self) -> FittedModel:
        """The model, of which no array is looked at."""
        return self._model

    @property
    def classes(self) -> tuple[int | str, ...]:
        """The labels of a classifier, in the order of its probabilities."""
        return self._about.data.classes

    @property
    def recipe(self) -> FittedRecipe | None:
        """What the columns of the training data became, if they were a table: ``columns`` has
        ``name``, ``kind``, ``features`` and ``note`` of each, ``left_out`` the others and why.
        """
        return self._about.recipe

    @property
    def model_sha256(self) -> str | None:
        """Digest of the model's parameters."""
        return self._fitted.model_sha256

    @property
    def parameters(self) -> dict[str, Array]:
        """The model's parameters by name, arrays of its dtype.

        Raises
        ------
        MissingInputError, DataError
            There is no checkpoint yet, or it is damaged.
        """
        # Whoever changes them does not change the model.
        return {name: array.copy() for name, array in self._fitted.arrays.items()}

    @naming_keywords
    def export(self, path: Any) -> dict[str, Array]:
        """Write the model to a file; see :func:`mapreduce.training.export.export`."""
        return export(self._fitted, absolute_path(path))

    def __repr__(self) -> str:
        fitted = self._fitted
        return f"<TrainedModel {fitted.path}: {fitted.name}, model {fitted.model_sha256[:12]}>"

    @naming_keywords
    def evaluate(
        self,
        data: Any,
        *,
        label: str | None = None,
        weights: Any = None,
        **options: Any,
    ) -> Report:
        """Report on the model, on data with labels: ``accuracy``, ``loss``, ``confusion``, ....

        Parameters
        ----------
        data, label, weights
            As :func:`train` takes them.
        by : str, optional
            A column of a table, or of its file, of few values: the report has ``groups``, a report
            on the rows of each.
        importance : bool
            Whether the report has the permutation ``importance`` of the columns of the table.
        repeats, seed : int, optional
            Permutations of each column, by default 5, and what they are drawn from, by default 0.
        options
            Others of ``gradreduce evaluate``: for tables and their files ``drop``, ``na``,
            ``delimiter`` and so on, and ``missing_label``; of a job ``workers``, ``runner``, ....

        Raises
        ------
        DataError
            The data do not fit the model, or have no labels.
        UsageError
            The data have no column ``by``, or it has too many values.
        """
        reading = {"label": label, "weights": weights, **take_reading(options, "missing_label")}
        wanted = report_options(take(options, REPORTED))
        if memory.is_frame(data) and (wanted.by is not None or wanted.importance):
            raise UsageError("by, importance: expected a table or its file, found a DataFrame")
        if memory.is_table(data) and wanted.by is None and not wanted.importance:
            data, reading = _rows_of(self._fitted, data, reading)
        if (by := wanted.by) is not None and not (memory.is_table(data) or isinstance(data, PATHS)):
            raise UsageError(f"by={by!r}: expected a table, or the file of one")
        with _request(self._fitted, data, reading, options) as request:
            return using.evaluate(request, wanted)

    @naming_keywords
    def predict(
        self,
        data: Any,
        *,
        probabilities: bool = False,
        here: bool = False,
        **options: Any,
    ) -> Any:
        """Predict rows, in their order.

        Parameters
        ----------
        data : array, table, DataFrame, row, rows, the file of a table, or the folder of a dataset
            As :func:`train` takes them, without labels. A row of a table is a dictionary.
        id : str, optional
            A table's column that identifies each row; ``""`` for none. Default: that of the
            training data.
        probabilities : bool
            Return an array (rows, classes), in the order of :attr:`classes`.
        probability_of : int, str or iterable of them
            A class, whose probability stands beside predictions, in a column ``probability of
            NAME``; or several. Of arrays, the probabilities (rows,) alone, or (rows, n) of several.
        keep : str or iterable of str
            Columns of a table, or of its file, that stand beside predictions; ``"all"`` for all.
        layer : str or int, optional
            Layer whose outputs are wanted, by the name or number that ``gradreduce models show``
            prints, such as ``3``; ``layers.0`` of ``mlp``; the name of a PyTorch module; or -1 for
            the last.
        here : bool
            Predict any number of rows in this process and thread, and start no job: for a task of a
            job, or a service. A few rows are anyway. The model stays loaded for the next call.
        options
            Others of ``gradreduce predict``: for tables and their files ``drop``, ``na``,
            ``delimiter`` and so on; of a job ``workers``, ``runner``, ....

        Returns
        -------
        array, pyarrow.Table or pyspark.sql.DataFrame
            Of arrays (rows,) classes or numbers, or outputs (rows, n) of the layer. Of tables and
            datasets a table with ``row``, the id, called as its column, if the data have any, the
            ``label`` of a dataset that has them, the columns of ``keep``, ``prediction``,
            ``probability``, that of each ``probability_of``, ``probabilities`` in the order of
            :attr:`classes`, which the schema's metadata have as ``gradreduce.classes``, and
            ``features``, the outputs of the layer. Of a DataFrame of Spark one with its columns,
            and those from ``prediction`` on, which Spark computes once rows are asked for.

        Raises
        ------
        UsageError
            Probabilities of a model that predicts numbers; a ``layer`` or a class that there is
            not.
        DataError
            The data do not fit the model.
        """
        is_array = not (isinstance(data, PATHS) or memory.is_table(data))
        named = defaults(EXTRAS) | take(options, WANTED)
        fitted, reading, execution = self._fitted, take_reading(options), options
        if memory.is_table(data) and not named["keep"] and named["id"] is None:
            data, reading = _rows_of(fitted, data, reading)
        id, layer, of = named["id"], named["layer"], named["probability_of"]
        if probabilities and not fitted.data.classes:
            raise UsageError(f"probabilities: {fitted.name} predicts numbers")
        is_single = isinstance(of, str) or not isinstance(of, Iterable)
        of = (of,) if is_single else tuple(of)
        arrays = {"probabilities": probabilities, "layer": layer is not None}
        arrays["probability_of"] = bool(of)
        asked = [name for name, is_asked in arrays.items() if is_asked]
        if (is_array or probabilities) and len(asked) > 1:
            raise UsageError(f"{' and '.join(asked)}: each is an array. Ask for one of them")
        wanted = extras_of(fitted, None if layer is None else str(layer), of)
        array: str | list[str] = "probabilities" if probabilities else ""
        if is_array and not probabilities:
            array = "features" if wanted.layer else wanted.columns or "prediction"
            array = array[0] if of and is_single else array
        if memory.is_frame(data):
            if named["keep"] or id:
                raise UsageError(
                    "id, keep: all columns of a DataFrame stay. Leave out these options"
                )
            from mapreduce.inference import frames

            with pinned(fitted.numeric_profile):
                predictor = self._near.predictor(fitted, device := _device(execution))
                return frames.predict(predictor, data, wanted, device, reading)
        if here and execution.keys() - {"device"}:
            raise UsageError(
                f"here=True starts no job: expected no options of a job, found "
                f"{', '.join(execution)}"
            )
        if memory.is_table(data):
            # Once: a data frame is copied.
            data = memory.table(data)
        # A file of rows has no missing numbers of arrays.
        is_small = near.is_small(data) or (fitted.about.takes_missing and near.has_missing(data))
        is_near = here or (not execution and not isinstance(data, PATHS) and is_small)
        # What was used in this process may not be forked after it.
        is_near = is_near and fitted.about.forks_after_use
        keep = texts(named["keep"])
        is_rows = not (isinstance(data, PATHS) or memory.is_table(data))
        if is_near and is_rows and id is None and not (keep or reading) and fitted.recipe is None:
            # Nothing is written, not even a temporary folder.
            with pinned(fitted.numeric_profile), _interrupting(data):
                predictor = self._near.predictor(fitted, _device(execution))
                if is_array:
                    return near.predict(predictor, data, wanted, array)
                return _result(near.table(predictor, data, wanted), array)
        if is_near and memory.is_table(data):
            with pinned(fitted.numeric_profile), _interrupting(data):
                given = {"id": id, "keep": keep, **reading}
                if file := cutting.in_memory(fitted, data, given, wanted, "the table"):
                    predictor = self._near.predictor(fitted, _device(execution))
                    found, notes = files.predict_here(predictor, file)
                    _warn_of(notes)
                    return _result(found, array)
        if keep and (fitted.recipe is None or not (memory.is_table(data) or is_table_file(data))):
            raise UsageError("keep is for tables and their files, and for models of tables")
        reading = {"id": id, "keep": keep, **reading}
        with _request(
            fitted, data, reading, execution, wanted, labelled=False, here=here
        ) as request:
            if is_near and (file := cutting.cut(request)):
                predictor = self._near.predictor(fitted, request.device)
                found, notes = files.predict_here(predictor, file)
                for note in notes:
                    request.warn(note)
            else:
                using.predict(request)
                parts = map(pq.read_table, ordered(request.out.glob("part-*.parquet")))
                found = plain(pa.concat_tables(parts))
        return _result(found, array)


@naming_keywords
def load(
    path: str | os.PathLike[str] | RemotePath, *, trust: str | Iterable[str] = ()
) -> TrainedModel:
    """Load a model from a file that ``gradreduce export`` or :meth:`Run.export` has written.

    Parameters
    ----------
    path : path
        A file ``.safetensors``, on this machine, on HDFS or S3.
    trust : str or iterable of str
        ``MODULE:NAME`` of a model or a PyTorch module that the file names and this process may
        import, as for ``--trust``. No other code is imported.

    Raises
    ------
    MissingInputError, DataError
        The file does not exist, is damaged, has another version, or holds no model.
    UntrustedError
        The file names code that is not trusted.

    Examples
    --------
    >>> import mapreduce
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> run = mapreduce.train((X / 16, y), rounds=2, run=folder / "for-a-file", progress=False)
    >>> arrays = run.export(folder / "digits.safetensors")
    >>> model = mapreduce.load(folder / "digits.safetensors")
    >>> bool((model.predict(X / 16) == run.predict(X / 16)).all())
    True
    """
    trusted.trust(*texts(trust))
    place = model_path(absolute_path(path))
    if (place / "run.json").exists():
        raise UsageError(
            f"{place} is the folder of a run: expected the file of a model. Open it with "
            f"mapreduce.open_run({str(path)!r})"
        )
    return TrainedModel(FittedModel.load(place))


@contextlib.contextmanager
def _request(
    fitted: FittedModel,
    data: Any,
    reading: dict[str, Any],
    options: Mapping[str, Any],
    extras: Extras = NOTHING,
    *,
    labelled: bool = True,
    here: bool = False,
) -> Iterator[Request]:
    """What a call asks of a model; its data have become a file, or the folder of a dataset."""
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet_mrjob(fitted.numeric_profile))
        stack.enter_context(signals.interrupting())
        values = checked_options(options, flags.RUNNER, (flags.DEVICE,))
        device = plan_settings.device_of(values.pop("device", flags.DEVICE.default))
        execution = flags.execution({**values, "executor": "here"} if here else values)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-")))
        shown = data_name(data)
        is_table = memory.is_table(data) and not memory.is_frame(data)
        if fitted.recipe is not None and is_table:
            data = stack.enter_context(as_file(memory.table(data), "the table"))
        elif fitted.recipe is None or not is_table_file(data):
            like = Like(fitted.data.classes or None, fitted.recipe)
            how = {**reading, **({} if labelled else {"labelled": False})}
            data, reading = import_data(data, place, fitted.name, fitted.dtype, like, **how), {}
        yield Request(
            fitted,
            absolute_path(data),
            execution,
            place / "out",
            device,
            reading,
            extras,
            shown,
            few_here=not options,
            warn=notes.append,
        )
    # Behind this function, its context, the method and what names keywords in its errors.
    _warn_of(notes, 6)


def _rows_of(fitted: FittedModel, data: Any, reading: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A table as the arrays that a model of a data frame takes, and how other tables are read.

    Raises DataError (a column is missing, or has no numbers).
    """
    columns = fitted.data.columns
    if fitted.recipe is not None or columns is None:
        return data, reading
    table = memory.table(data)
    names = {"label": reading.get("label"), "weights": reading.get("weights")}
    if "label" in reading:
        names["label"] = names["label"] or "label"
    known = {*table.column_names}
    if lost := [name for name in (*columns, *filter(None, names.values())) if name not in known]:
        raise DataError(f"the table has no column {lost[0]!r}: expected {', '.join(columns)}")
    rows: Any = memory.numbers(table.select(columns))
    label, weights = (name and table[name].to_numpy() for name in names.values())
    reading = {key: value for key, value in reading.items() if key not in names}
    more = {} if weights is None else {"weights": weights}
    return rows if label is None else (rows, label), reading | more


def _warn_of(notes: list[str], level: int = 4) -> None:
    """Warn of what a user should know about a table, at the line that predicts it."""
    for note in notes:
        warnings.warn(in_python(note, KEYWORDS), stacklevel=level)


def _result(found: Any, column: str | list[str]) -> Any:
    """A table of predictions, or an array of one of its columns, or of several."""
    if not column:
        return found
    if isinstance(column, list):
        return np.stack([found[name].to_numpy() for name in column], axis=1)
    values = found[column].combine_chunks()
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy().reshape(len(found), -1)
    return found[column].to_numpy()


def _device(execution: Mapping[str, Any]) -> str:
    """Where options say that a model computes, of which there are no others."""
    if not execution:
        return str(flags.DEVICE.default)
    given = checked_options(execution, (flags.DEVICE,))
    return plan_settings.device_of(given.get("device", flags.DEVICE.default))


def _interrupting(rows: Any) -> contextlib.AbstractContextManager[None]:
    """Signals interrupt the prediction of many rows; few are over before."""
    return contextlib.nullcontext() if near.is_small(rows) else signals.interrupting()
