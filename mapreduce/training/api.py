"""``mapreduce.train`` and what it returns: the commands of a training for Python."""

import contextlib
import hashlib
import html
import io
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, RemotePath, ordered, path_of
from mapreduce import models, optim
from mapreduce.data import copying, importer
from mapreduce.data.batch import Array
from mapreduce.data.manifest import load as read_manifest
from mapreduce.data.readers import CSV_OPTIONS, labels, memory, opening
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, GradreduceError, Interrupted, UsageError
from mapreduce.inference import cutting, files, near, using
from mapreduce.inference import importance as permuting
from mapreduce.inference.metrics import Report
from mapreduce.inference.predictor import NOTHING, Extras, extras_of, plain
from mapreduce.inference.request import Request
from mapreduce.models.fitted import FittedModel
from mapreduce.plan import flags as plan_flags
from mapreduce.plan import settings as plan_settings
from mapreduce.plan.plan import Plan
from mapreduce.runs import checkpoint, events, flags, plotting
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, Subscriber, Warned
from mapreduce.runs.models import is_file
from mapreduce.support import blas, numeric, signals
from mapreduce.support import trust as trusted
from mapreduce.support.spelling import in_python, in_words_of_python
from mapreduce.training import console, replaying, start
from mapreduce.training.export import described, export
from mapreduce.training.given import in_a_file, specification

# After what makes mrjob import on Python 3.12 and later.
from mrjob.step import StepFailedException  # isort: skip

#: The folder of runs for which no folder is named.
RUNS = Path("runs")
#: What :func:`train` takes, beside the options of a plan and of executions: what the columns of a
#: table become, as ``gradreduce data import`` takes it.
_COLUMNS = {field.name for field in fields(Recipe)} | {"number", "category", "text"}
_TABLES = (plan_flags.PLAN, flags.EXECUTION, flags.RUNNER, (flags.PROFILE,))
_PLANS = {option.name for table in _TABLES for option in table}
#: The options that messages name by keywords of this module.
_KEYWORDS = _COLUMNS | _PLANS
_KEYWORDS |= {"by", "data", "device", "evaluation", "importance", "keep", "layer", "path"}
_KEYWORDS |= {
    "date_format",
    "probability_of",
    "remote_data",
    "repeats",
    "run",
    "take_over",
    "trust",
}
_in_python = in_words_of_python(_KEYWORDS)
#: How the file of a table is read, where that of the training data was read otherwise.
_READING = ("drop", "na", *CSV_OPTIONS)
#: Beside a run's folder: datasets that were imported from memory, named by their digests.
IMPORTED = ".imported"

_PATHS = (str, os.PathLike, RemotePath)
_NUMBERS = ("learning_rate", "eval_accuracy", "eval_loss")


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

    @_in_python
    def export(self, path: Any) -> dict[str, Array]:
        """Write the model to a file; see :func:`mapreduce.training.export.export`."""
        return export(self._fitted, _path(path))

    def __repr__(self) -> str:
        fitted = self._fitted
        return f"<TrainedModel {fitted.path}: {fitted.name}, model {fitted.model_sha256[:12]}>"

    @_in_python
    def evaluate(
        self,
        data: Any,
        *,
        label: str | None = None,
        weights: Any = None,
        by: str | None = None,
        importance: bool = False,
        repeats: int | None = None,
        seed: int | None = None,
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
        reading = {"label": label, "weights": weights, **_reading(options, "missing_label")}
        permutations = permuting.settings(importance, repeats, seed)
        if by is not None and not (memory.is_table(data) or isinstance(data, _PATHS)):
            raise UsageError(f"by={by!r}: expected a table, or the file of one")
        with _request(self._fitted, data, reading, options) as request:
            return using.evaluate(request, by, permutations)

    @_in_python
    def predict(
        self,
        data: Any,
        *,
        probabilities: bool = False,
        probability_of: int | str | Iterable[int | str] = (),
        id: str | None = None,
        keep: str | Iterable[str] = (),
        layer: str | int | None = None,
        here: bool = False,
        **options: Any,
    ) -> Any:
        """Predict rows, in their order.

        Parameters
        ----------
        data : array, table, row, rows, the file of a table, or the folder of a dataset
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
        array or pyarrow.Table
            Of arrays (rows,) classes or numbers, or outputs (rows, n) of the layer. Of tables and
            datasets a table with ``row``, the id, called as its column, if the data have any, the
            ``label`` of a dataset that has them, the columns of ``keep``, ``prediction``,
            ``probability``, that of each ``probability_of``, ``probabilities`` in the order of
            :attr:`classes`, which the schema's metadata have as ``gradreduce.classes``, and
            ``features``, the outputs of the layer.

        Raises
        ------
        UsageError
            Probabilities of a model that predicts numbers; a ``layer`` or a class that there is
            not.
        DataError
            The data do not fit the model.
        """
        is_array = not (isinstance(data, _PATHS) or memory.is_table(data))
        fitted, reading, execution = self._fitted, _reading(options), options
        if probabilities and not fitted.data.classes:
            raise UsageError(f"probabilities: {fitted.name} predicts numbers")
        of: Any = probability_of
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
        if here and execution.keys() - {"device"}:
            raise UsageError(
                f"here=True starts no job: expected no options of one, found {', '.join(execution)}"
            )
        if memory.is_table(data):
            # Once: a data frame is copied.
            data = memory.table(data)
        is_near = here or (not execution and not isinstance(data, _PATHS) and near.is_small(data))
        # What was used in this process may not be forked after it.
        is_near = is_near and fitted.about.forks_after_use
        if is_near and is_array and id is None and not (keep or reading) and fitted.recipe is None:
            # Nothing is written, not even a temporary folder.
            with _pinned(fitted.numeric_profile), _interrupting(data):
                predictor = self._near.predictor(fitted, _device(execution))
                return near.predict(predictor, data, wanted, array)
        keep = _texts(keep)
        if is_near and memory.is_table(data):
            with _pinned(fitted.numeric_profile), _interrupting(data):
                given = {"id": id, "keep": keep, **reading}
                if file := cutting.in_memory(fitted, data, given, wanted, "the table"):
                    predictor = self._near.predictor(fitted, _device(execution))
                    found, notes = files.predict_here(predictor, file)
                    _warn_of(notes)
                    return _returned(found, array)
        if keep and (fitted.recipe is None or not (memory.is_table(data) or _is_file(data))):
            raise UsageError("keep is for tables and their files, by a run that learned from one")
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
        return _returned(found, array)


class Run(TrainedModel):
    """A training in the folder ``path``: its model, its history, and how to go on with it."""

    @_in_python
    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._near = near.Near()
        _ = self._run.config

    @property
    def _run(self) -> RunDir:
        # Made anew each time, since another program may have gone on with the run.
        return RunDir(self.path)

    @property
    def _fitted(self) -> FittedModel:
        # What another program goes on with, or makes anew at this path, is another model.
        run = self._run
        return self._near.fitted(checkpoint.sign(run), lambda: checkpoint.fitted(run))

    @property
    def _about(self) -> FittedModel:
        return checkpoint.untrained(self._run)

    @property
    def plan(self) -> Plan:
        """Everything that decides the result."""
        return self._run.config.plan

    @property
    def model_sha256(self) -> str | None:
        """Digest of the result, or of the last checkpoint; None before there is one."""
        found: str | None = self._run.summary()["model_sha256"]
        return found

    @property
    def history(self) -> Any:
        """A ``pyarrow.Table`` with a row for each round.

        Columns: ``round`` (int64, from 1), ``rows`` (int64), ``loss`` (float64, the mean before the
        update; null if it was not finite), ``learning_rate`` (float64, null for L-BFGS),
        ``eval_accuracy`` and ``eval_loss`` (float64, null where nothing was evaluated).
        """
        rounds, evaluated = self._recorded("RoundCompleted"), self._recorded("Evaluated")
        has_rate = "learning_rate" in optim.find(self.plan.optimizer).takes
        rate = self.plan.create_schedule() if has_rate else lambda step: None
        steps = self.plan.steps_per_round
        for at, event in rounds.items():
            scores = {f"eval_{name}": value for name, value in evaluated.get(at, {}).items()}
            event |= {"learning_rate": rate((at - 1) * steps), **scores}
        return _table(rounds, "loss", *_NUMBERS)

    @property
    def evaluations(self) -> Any:
        """A ``pyarrow.Table`` of evaluations: ``round``, ``rows``, ``accuracy`` and ``loss``."""
        return _table(self._recorded("Evaluated"), "accuracy", "loss")

    def _recorded(self, kind: str) -> dict[int, dict[str, Any]]:
        recorded = events.read(self.path / "events.jsonl")
        return {event["completed"]: event for event in recorded if event["event"] == kind}

    @_in_python
    def resume(
        self, *, callbacks: Iterable[Subscriber] = (), progress: bool = True, **execution: Any
    ) -> "Run":
        """Continue from the last round, to the same bits as if the training had never stopped.

        Parameters
        ----------
        callbacks, progress
            As :func:`train` takes them.
        execution
            Options of ``gradreduce resume``, such as ``workers`` and ``take_over``, and the folders
            ``data`` and ``evaluation`` of data that have moved. All others keep their values.
        """
        given = _moving(execution)
        if "take_over" in execution:
            given["take_over"] = execution.pop("take_over")
        with _quiet(self._run.config.numeric_profile):
            given |= _checked(execution, flags.EXECUTION, flags.RUNNER)
            with _shown(progress, callbacks, self.path) as (bus, display):
                start.resume(self._run, given, bus, lambda text: display(Warned(text)))
        return self

    @_in_python
    def replay(
        self,
        run: Any = None,
        *,
        callbacks: Iterable[Subscriber] = (),
        progress: bool = True,
        **execution: Any,
    ) -> "Run":
        """Repeat an asynchronous training from its log, to the same bits; returns the new run.

        Parameters
        ----------
        run : path, optional
            Folder of the new run, which must not exist; without one, a new folder of ``runs/``.
        callbacks, progress
            As :func:`train` takes them.
        execution
            Options of ``gradreduce replay``, such as ``workers``, and the folders ``data`` and
            ``evaluation`` of data that have moved.

        Raises
        ------
        UsageError
            The run is not asynchronous, has not ended, or the folder exists.
        DataError
            The log is damaged, not whole, or another run's; or the models differ.
        """
        moved = start.moved_data(self._run, _moving(execution))
        place = _new_folder(self.plan.model) if run is None else _path(run)
        if isinstance(place, RemotePath):
            raise UsageError(f"run={place}: expected a folder of this machine")
        with _quiet(self._run.config.numeric_profile):
            given = flags.execution(_checked(execution, flags.RUNNER))
            with _shown(progress, callbacks, place) as (bus, _):
                replaying.replay(self._run, place, given, bus, moved)
        return Run(place)

    @_in_python
    def export(self, path: Any, *, data: Any = None) -> dict[str, Array]:
        """Write the model to a file; see :func:`mapreduce.training.export.described`."""
        fitted = described(self._run, None if data is None else _path(data))
        return export(fitted, _path(path))

    @_in_python
    def plot(self, *others: "Run", against: str = "rounds") -> Any:
        """Curves of this run and of others: see :func:`mapreduce.runs.plotting.figure`.

        A ``matplotlib.figure.Figure``, whose method ``savefig(path)`` writes it to a file.
        """
        return plotting.figure([self._run, *(other._run for other in others)], against)

    def _repr_html_(self) -> str:
        """What a notebook shows: the run in a line, and its curves where matplotlib is."""
        text = f"<pre>{html.escape(repr(self))}</pre>"
        with contextlib.suppress(UsageError), io.StringIO() as svg:
            self.plot().savefig(svg, format="svg")
            text += svg.getvalue().partition("<svg")[1] + svg.getvalue().partition("<svg")[2]
        return text

    def __repr__(self) -> str:
        summary = self._run.summary()
        return (
            f"<Run {self.path}: {summary['model']}, {summary['state']} after "
            f"{summary['completed']:,} of {summary['rounds']:,} rounds, model "
            f"{(summary['model_sha256'] or 'none')[:12]}>"
        )


@_in_python
def train(
    data: Any,
    model: Any = "auto",
    *,
    evaluation: Any = None,
    run: str | os.PathLike[str] | RemotePath | None = None,
    label: str | None = None,
    id: str | None = None,
    weights: Any = None,
    task: str | None = None,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    init_from: Any = None,
    callbacks: Iterable[Subscriber] = (),
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train a model as a chain of map/reduce rounds, as ``gradreduce train`` does.

    Parameters
    ----------
    data : (X, y), table, Bunch, the file of a table, the folder of a dataset, or Source
        ``X`` is an array (rows, ...) of finite numbers, ``y`` an array (rows,) of classes, or of
        numbers for a model that predicts those. A table is a ``pyarrow.Table``, or another
        that Arrow reads. Rows in memory are imported once, as ``gradreduce data import`` does it,
        into a folder ``.imported`` beside the run, and are named by their digest. Features are
        stored in the dtype of the parameters. What the columns of a table, in memory or in a CSV or
        Parquet file, become is inferred, as by ``gradreduce data import``. A
        :class:`mapreduce.data.importer.Source` is what a reader of one's own returns.
    model : str, list of Layer, function, class or torch.nn.Module
        The same as for ``--model``. Or the layers of a network. Or what returns a
        ``torch.nn.Module`` when it is called without arguments. Or such a module, from whose
        parameters the training starts; a module that its class makes without arguments must have
        the same. Tasks import it from its file.
    evaluation
        Data to evaluate on, like ``data``; ``eval`` is the same.
    run : path, optional
        Folder of the run, which must not exist. Default: a new one in ``runs``, which is printed.
    label : str, optional
        A table's column of labels. Default: ``label``.
    id : str, optional
        A table's column that identifies each row.
    weights : str or array (rows,), optional
        How much each row of ``data`` counts: the name of a table's column, or an array for arrays.
    task : {"classification", "regression"}, optional
        Whether labels are classes or numbers to be predicted. Default: what the model learns; for a
        model that learns either, as they look: texts and up to 20 different whole numbers are
        classes, of whatever type.
    recipe : path or mapping, optional
        What the columns of a table become: a TOML file, or the same as a dictionary, such as
        ``{"missing": "mean", "na": ["?"]}``; see :class:`mapreduce.data.recipes.recipe.Recipe`.
    init_from : Run or path, optional
        A run, or a safetensors file, whose parameters the training starts from.
    callbacks : iterable of callables
        Each receives all events of :mod:`mapreduce.runs.events`, some of them in another thread.
    progress : bool
        False shows warnings only.
    options
        The options of the command, with underscores: ``epochs``, ``learning_rate``, ``workers``,
        ``executor``, ..., and ``mrjob_arguments``. For tables also those of a recipe: ``number``,
        ``category`` and ``text``, lists of columns, ``drop``, ``na``, ``missing`` and so on.

    Raises
    ------
    UsageError
        An option is unknown, or has a wrong value.
    DataError, MissingInputError
        The data are malformed or missing.
    OutputError
        The run exists already.
    Interrupted
        SIGINT or SIGTERM, from ``Ctrl-C`` or the notebook's button.
    GradreduceError
        A task or the runner failed. :meth:`Run.resume` continues, as after an interruption.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> run = train((X / 16, y), "mlp:32", epochs=10, run=folder / "digits", progress=False)
    >>> run.history.column_names[:3]
    ['round', 'rows', 'loss']
    >>> accuracy = (run.predict(X / 16) == y).mean()
    >>> bool(accuracy > 0.9)
    True
    """
    if columns := {name: options.pop(name) for name in _COLUMNS & options.keys() - _PLANS}:
        if recipe is not None and not isinstance(recipe, Mapping):
            raise UsageError(f"recipe and {', '.join(columns)}: expected all of it in the file")
        recipe = {**(recipe or {}), **columns}
    if "eval" in options:
        # As the command calls it.
        if evaluation is not None:
            raise UsageError("eval and evaluation are one keyword: expected one of them")
        evaluation = options.pop("eval")
    if init_from is not None:
        path = init_from.path if isinstance(init_from, Run) else init_from
        with _named("init_from"):
            options["init_from"] = str(_path(path))
    model, initial = specification(model)
    if initial is not None and init_from is not None:
        raise UsageError("init_from: the module has parameters to start from. Pass its class")
    given = _checked({"model": model, **options}, *_TABLES)
    path = _path(run) if run is not None else _new_folder(model)
    values = {**start.defaults(*_TABLES), **given, "run": path, "evaluation": evaluation}
    # Check the options before any data are imported.
    settings = plan_flags.settings(values)
    plan_settings.trust_members(settings)
    flags.execution(values)
    profile = values["numeric_profile"]
    shown = _shown(progress, callbacks, path)
    with _quiet(profile), in_a_file(initial) as parameters, shown as (bus, display):
        if parameters is not None:
            values["init_from"] = parameters
        if run is None and progress:
            display.say(f"run {path}")
        is_table = memory.is_table(data) or _is_file(data)
        optimizer = settings.decided(is_table, None).optimizer
        dtype = plan_settings.dtype(optimizer, values["dtype"])
        how = path.parent / IMPORTED, model, dtype
        named: dict[str, Any] = {"label": label, "id": id, "recipe": recipe, "task": task}
        if recipe is not None and not isinstance(recipe, Mapping):
            named["recipe"] = path_of(str(recipe))
        values["data"] = _imported(data, *how, weights=weights, **named)
        if evaluation is not None:
            manifest = read_manifest(values["data"])
            like = _Like(manifest.classes, opening.fitted_of(values["data"], manifest))
            with _named("evaluation"):
                values["evaluation"] = _imported(evaluation, *how, like)
        trained, _ = start.start(values, bus)
        summary = trained.summary()
        if progress and summary["hardly_trained"]:
            display.say(summary["hardly_trained"])
        for doubt in summary["warnings"]:
            if doubt not in display.warned:
                display(Warned(doubt))
    return Run(path)


@_in_python
def open_run(path: str | os.PathLike[str] | RemotePath, *, trust: str | Iterable[str] = ()) -> Run:
    """The run in a folder.

    Parameters
    ----------
    path : path
    trust : str or iterable of str
        ``MODULE:NAME`` of one's own models and the like, which the run names and this process may
        import, as ``--trust``.

    Raises
    ------
    MissingInputError, DataError
        There is none, or it is damaged.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> run = train((X / 16, y), rounds=2, run=folder / "short", progress=False)
    >>> open_run(run.path).model_sha256 == run.model_sha256
    True
    """
    trusted.trust(*_texts(trust))
    return Run(_path(path))


@_in_python
def load(
    path: str | os.PathLike[str] | RemotePath, *, trust: str | Iterable[str] = ()
) -> TrainedModel:
    """The model in a file, which ``gradreduce export`` or :meth:`Run.export` has written.

    Parameters
    ----------
    path : path
        Of a file ``.safetensors``, on this machine, on HDFS or S3.
    trust : str or iterable of str
        ``MODULE:NAME`` of somebody's own model or PyTorch module, which the file names and this
        process may import, as ``--trust``. No other code is imported.

    Raises
    ------
    MissingInputError, DataError
        There is none; or it is damaged, of another version, or holds no model.
    UntrustedError
        It names code that is not trusted.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> run = train((X / 16, y), rounds=2, run=folder / "for-a-file", progress=False)
    >>> arrays = run.export(folder / "digits.safetensors")
    >>> model = load(folder / "digits.safetensors")
    >>> bool((model.predict(X / 16) == run.predict(X / 16)).all())
    True
    """
    trusted.trust(*_texts(trust))
    place = _path(path)
    if (place / "run.json").exists():
        raise UsageError(
            f"{place} is the folder of a run: expected the file of a model. Open it with "
            f"mapreduce.open_run({str(path)!r})"
        )
    return TrainedModel(FittedModel.load(place))


def _opened(path: str | os.PathLike[str], trust: str | Iterable[str]) -> TrainedModel:
    """The model in a file, or the run in a folder."""
    if is_file(_path(path)):
        return load(path, trust=trust)
    return open_run(path, trust=trust)


def evaluate(
    run: str | os.PathLike[str], data: Any, *, trust: str | Iterable[str] = (), **options: Any
) -> Report:
    """:meth:`TrainedModel.evaluate` of a model's file, or of the run in a folder.

    :func:`load` and :func:`open_run` open them.
    """
    return _opened(run, trust).evaluate(data, **options)


def predict(
    run: str | os.PathLike[str], data: Any, *, trust: str | Iterable[str] = (), **options: Any
) -> Any:
    """:meth:`TrainedModel.predict` of a model's file, or of the run in a folder.

    :func:`load` and :func:`open_run` open them.
    """
    return _opened(run, trust).predict(data, **options)


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
        stack.enter_context(_quiet(fitted.numeric_profile))
        stack.enter_context(signals.interrupting())
        values = _checked(options, flags.RUNNER, (flags.DEVICE,))
        device = plan_settings.device_of(values.pop("device", flags.DEVICE.default))
        execution = flags.execution({**values, "executor": "here"} if here else values)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-")))
        shown = _shown_as(data)
        if fitted.recipe is not None and memory.is_table(data):
            data = stack.enter_context(_as_file(memory.table(data), "the table"))
        elif fitted.recipe is None or not _is_file(data):
            like = _Like(fitted.data.classes or None, fitted.recipe)
            how = {**reading, **({} if labelled else {"labelled": False})}
            data, reading = _imported(data, place, fitted.name, fitted.dtype, like, **how), {}
        yield Request(
            fitted,
            _path(data),
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


def _warn_of(notes: list[str], level: int = 4) -> None:
    """Warn of what a user should know about a table, at the line that predicts it."""
    for note in notes:
        warnings.warn(in_python(note, _KEYWORDS), stacklevel=level)


def _returned(found: Any, column: str | list[str]) -> Any:
    """A table of predictions, or an array of one of its columns, or of several."""
    if not column:
        return found
    if isinstance(column, list):
        return np.stack([found[name].to_numpy() for name in column], axis=1)
    values = found[column].combine_chunks()
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy().reshape(len(found), -1)
    return found[column].to_numpy()


class _Like(NamedTuple):
    """What data for a model have to be like: classes, and the recipe of its table."""

    classes: tuple[int | str, ...] | None
    recipe: FittedRecipe | None


def _imported(
    data: Any,
    place: AnyPath,
    model: str,
    dtype: str,
    like: _Like | None = None,
    *,
    weights: Any = None,
    **given: Any,
) -> AnyPath:
    """The folder of a dataset, which other data become in ``place``, named by their digest."""
    is_path, is_table = isinstance(data, _PATHS), memory.is_table(data)
    is_file = _is_file(data)
    for name in ("label", "id", "recipe", "missing_label", *_READING):
        if given.get(name) is not None and not (is_file or is_table):
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
        return _read(data, place, like) if is_source else _path(data)
    if like is None:
        given |= {"task": given.get("task") or _task(model), "dtype": dtype}
    elif like.recipe is None and (is_file or is_table):
        raise UsageError(
            "the model was not trained on a table: expected an array, or the folder of a dataset"
        )
    elif like.recipe is not None and not (is_file or is_table):
        raise UsageError(
            "the model was trained on a table: expected a table, the file of one, or the folder of "
            "a dataset"
        )
    if is_file:
        path = _path(data)
        return _made(path, opening.format_of([path]), place, like, {**given, "weights": weights})
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
        weights = "weights" if weights is not None else None
        like = None if like is None else like._replace(recipe=None)
        given["shape"] = memory.shape(data)[1:]
    with _as_file(rows, "the table" if is_table else "the data") as file:
        return _made(file, "parquet", place, like, {**given, "weights": weights})


def _read(source: importer.Source, place: AnyPath, like: _Like | None) -> AnyPath:
    """The folder of a reader's rows, named by what they became."""
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        made = Path(folder, "data")
        manifest = importer.import_rows(source, made, 0, like.classes if like else None)
        out = place / manifest.sha256[:32]
        if not out.exists():
            copying.copy(made, out)
    return out


@contextlib.contextmanager
def _as_file(rows: Any, shown: str) -> Iterator[Path]:
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


def _is_file(data: Any) -> bool:
    """Whether data are the file of a table."""
    is_path = isinstance(data, _PATHS)
    return is_path and opening.is_table(_path(data)) and _path(data).is_file()


def _shown_as(data: Any) -> str:
    """What errors call data; not by the name of a folder that the user has never seen."""
    return str(data) if isinstance(data, _PATHS) else "the data"


def _task(model: str) -> str | None:
    """What the labels are for; None for a model that learns classes or numbers, as they look."""
    if model == "auto":
        return None
    kind = models.find(model)
    if kind.for_numbers is not None:
        return None
    return "regression" if kind.regression else "classification"


def _made(
    file: AnyPath, kind: str, place: AnyPath, like: _Like | None, given: Mapping[str, Any]
) -> AnyPath:
    """Import a file; the folder is named by the digest of all that decides the dataset."""
    classes, fitted = like or _Like(None, None)
    recipe = opening.recipe_of(given, [file], fitted)
    if fitted is None and recipe.labelled is False and kind != "parquet":
        raise UsageError("the data have no labels")
    shape = given.get("shape", ())
    content = [asdict(recipe), classes, fitted.sha256 if fitted else None, *shape[1:]]
    digest = hashlib.sha256(repr(content).encode())
    with storage_errors("read", file), file.open("rb") as content_of:
        digest.update(hashlib.file_digest(content_of, "sha256").digest())
    out = place / digest.hexdigest()[:32]
    if not out.exists():
        source = opening.table([file], kind, recipe, fitted)
        if shape:
            source = replace(source, shape=shape)
        with copying.made_here(out) as made:
            importer.import_rows(source, made, 0, classes)
        for note in source.remarks:
            warnings.warn(in_python(note, _KEYWORDS), stacklevel=2)
    return out


@contextlib.contextmanager
def _named(parameter: str) -> Iterator[None]:
    """Begin the errors of data with the parameter that they were given by."""
    try:
        yield
    except (DataError, UsageError) as error:
        raise type(error)(f"{parameter}: {error}") from error


def _reading(given: dict[str, Any], *more: str) -> dict[str, Any]:
    """Take out how the file of a table is read."""
    found = {n: given.pop(n) for n in (*_READING, *more) if n in given}
    found = {name: value for name, value in found.items() if value is not None}
    if not found:
        return {}
    checked = Recipe.parse(found)
    return {name: getattr(checked, name) for name in found}


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """One text or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def _checked(given: Mapping[str, Any], *tables: tuple[plan_flags.Option, ...]) -> dict[str, Any]:
    """Options given by keyword, and arguments for mrjob."""
    rest = {name: value for name, value in given.items() if name != "mrjob_arguments"}
    return {
        **plan_flags.checked(rest, *tables),
        "mrjob_arguments": given.get("mrjob_arguments", ()),
    }


def _table(found: Mapping[int, Mapping[str, Any]], *numbers: str) -> Any:
    columns = [(name, pa.int64()) for name in ("round", "rows")]
    schema = pa.schema([*columns, *((name, pa.float64()) for name in numbers)])
    rows = [{**event, "round": at} for at, event in sorted(found.items())]
    return pa.Table.from_pylist(rows, schema)


def _moving(given: dict[str, Any]) -> dict[str, Any]:
    """Take out what says where the data of a run lie."""
    found = {name: given.pop(name) for name in start.MOVING if name in given}
    return found | {name: _path(found[name]) for name in ("data", "evaluation") if found.get(name)}


def _path(place: Any) -> AnyPath:
    if not isinstance(place, _PATHS):
        raise UsageError(f"expected a path, found {place!r:.60}")
    found = place if isinstance(place, RemotePath) else path_of(os.fspath(place))
    return found.absolute()


def _new_folder(model: str) -> Path:
    """A folder named after the model and the first free number."""
    # That of a network of many layers would be too long; one that is to suit the data has none yet.
    name = re.sub(r"[^\w.]+", "-", "run" if model == "auto" else model)[:60].strip("-")
    paths = ((RUNS / f"{name}-{number}").absolute() for number in count(1))
    return next(path for path in paths if not path.exists())


def _device(execution: Mapping[str, Any]) -> str:
    """Where options say that a model computes, of which there are no others."""
    if not execution:
        return str(flags.DEVICE.default)
    given = _checked(execution, (flags.DEVICE,))
    return plan_settings.device_of(given.get("device", flags.DEVICE.default))


def _interrupting(rows: Any) -> contextlib.AbstractContextManager[None]:
    """Signals interrupt the prediction of many rows; few are over before."""
    return contextlib.nullcontext() if near.is_small(rows) else signals.interrupting()


def _pinned(profile: str) -> contextlib.AbstractContextManager[None]:
    """Refuse another numeric profile; BLAS computes in one thread, and then as before."""
    if profile != "native" and not numeric.is_set(variables := numeric.environment(profile)):
        shown = " ".join(f"{name}={value}" for name, value in variables.items())
        raise UsageError(f"numeric_profile={profile!r}: start Python with {shown}")
    return blas.in_one_thread()


@contextlib.contextmanager
def _quiet(profile: str) -> Iterator[None]:
    """Silence mrjob's log, raise its errors as ours, and pin the numeric profile."""
    pinned = _pinned(profile)
    log = logging.getLogger("mrjob")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with pinned:
            yield
    except StepFailedException as error:
        raise GradreduceError(str(error)) from error
    finally:
        # A thread that came meanwhile has found the level of this one.
        if level != logging.ERROR:
            log.setLevel(level)


@contextlib.contextmanager
def _shown(
    progress: bool, callbacks: Iterable[Subscriber], path: AnyPath
) -> Iterator[tuple[Events, console.Display]]:
    display = console.Display(not progress, lambda text: in_python(text, _KEYWORDS))
    try:
        yield Events(display, *callbacks), display
    except Interrupted as error:
        again = f"mapreduce.open_run({str(path)!r}).resume()"
        error.add_note(f"The last round is saved. Continue with {again}")
        raise
    finally:
        display.close()
