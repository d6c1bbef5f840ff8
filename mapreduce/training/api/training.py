"""``mapreduce.train``: the command of a training for Python."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hdfs_utils.paths import RemotePath
from mapreduce.data.readers import memory
from mapreduce.errors import UsageError
from mapreduce.models import FITS
from mapreduce.plan.flags import OF_GRADIENTS, refuse
from mapreduce.runs.events import Subscriber, Warned
from mapreduce.training import start
from mapreduce.training.api.calls import (
    TABLES,
    absolute_path,
    checked_options,
    displaying,
    naming_keywords,
    naming_parameter,
    quiet_mrjob,
    take_recipe,
)
from mapreduce.training.api.data import IMPORTED, import_both, is_table_file
from mapreduce.training.api.run import Fit, Run, new_folder
from mapreduce.training.given import in_a_file, specification
from mapreduce.training.request import TrainingRequest


@naming_keywords
def train(
    data: Any,
    model: Any = "auto",
    *,
    evaluation: Any = None,
    run: str | os.PathLike[str] | RemotePath | None = None,
    label: str | None = None,
    id: str | None = None,
    weights: Any = None,
    order_by: str | Iterable[str] | None = None,
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
    data : (X, y), table, DataFrame, Bunch, the file of a table, the folder of a dataset, or Source
        ``X`` is an array (rows, ...) of finite numbers, ``y`` an array (rows,) of classes, or of
        numbers for a model that predicts numbers. A table is a ``pyarrow.Table``, or a data frame
        that Arrow reads. Rows in memory are imported once, as by ``gradreduce data import``, into
        the folder ``.imported`` beside the run; a digest of the rows names the dataset. Features
        are stored in the dtype of the parameters. As in ``gradreduce data import``, the values of a
        column of a table, in memory or in a CSV or Parquet file, decide what the column becomes.
        For a DataFrame of Spark, Spark's executors make the dataset, with the rows in the order of
        their content. A :class:`mapreduce.data.importer.Source` is the result of a reader of your
        own.
    model : str, list of Layer, function, class or torch.nn.Module
        A text, as for ``--model``; the layers of a network; or a function or class that returns a
        ``torch.nn.Module`` when it is called without arguments. A module itself starts the training
        from its parameters; if the class of the module is called without arguments, the new module
        must have parameters of the same names and shapes. Tasks import the class from its file.
        Models without gradients, such as ``k-means:8`` and ``boosting``, have no history. Models
        that ignore labels take rows without labels.
    evaluation
        Data to evaluate on, like ``data``; ``eval`` is the same.
    run : path, optional
        Folder of the run, which must not exist. Default: a new folder in ``runs``, whose path is
        printed.
    label : str, optional
        A table's column of labels. Default: ``label``.
    id : str, optional
        A table's column that identifies each row.
    weights : str or array (rows,), optional
        How much each row of ``data`` counts: the name of a table's column, or an array for arrays.
    order_by : str or iterable of str, optional
        Columns of a DataFrame of Spark that order its rows, before all other columns do.
    task : {"classification", "regression"}, optional
        Whether labels are classes or numbers to be predicted. Default: what the model learns. If
        the model learns either, the labels decide: texts, and up to 20 different whole numbers of
        any type, are classes.
    recipe : path or mapping, optional
        What the columns of a table become: a TOML file, or a dictionary with the same content, such
        as ``{"missing": "mean", "na": ["?"]}``; see :class:`mapreduce.data.recipes.recipe.Recipe`.
    init_from : Run or path, optional
        A run, or a safetensors file, whose parameters the training starts from.
    callbacks : iterable of callables
        Each callback receives all events of :mod:`mapreduce.runs.events`, some of the events in
        another thread.
    progress : bool
        False shows warnings only.
    options
        The options of the command, with underscores: ``epochs``, ``learning_rate``, ``workers``,
        ``executor``, ..., and ``mrjob_arguments``. For tables also the options of a recipe:
        ``number``, ``category`` and ``text``, lists of columns, ``drop``, ``na``, ``missing`` and
        so on.

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
    recipe = take_recipe(recipe, options)
    if "eval" in options:
        # As the command calls it.
        if evaluation is not None:
            raise UsageError("eval and evaluation are one keyword: expected one of them")
        evaluation = options.pop("eval")
    if init_from is not None:
        path = init_from.path if isinstance(init_from, Run) else init_from
        with naming_parameter("init_from"):
            options["init_from"] = str(absolute_path(path))
    model, initial = specification(model)
    if initial is not None and init_from is not None:
        raise UsageError("init_from: the module has parameters to start from. Pass its class")
    path = absolute_path(run) if run is not None else new_folder(model)
    named: dict[str, Any] = {"label": label, "id": id, "recipe": recipe, "task": task}
    named |= {"order_by": order_by, "weights": weights}
    if FITS.fits(model):
        given = options if evaluation is None else {**options, "evaluation": evaluation}
        for name in given.keys() & OF_GRADIENTS:
            refuse(name, model)
    values = start.defaults(*TABLES) | checked_options(options, *TABLES)
    values |= {"model": model, "run": path, "data": data, "evaluation": evaluation, "stays": True}
    # Check the options before any data are imported.
    request = TrainingRequest.of(values)
    if request.is_fit:
        named |= _bare(data, label, FITS.parse(model))
    profile, settings = request.numeric_profile, request.settings
    shown = displaying(progress, callbacks, path)
    with quiet_mrjob(profile), in_a_file(initial) as parameters, shown as (bus, display):
        if parameters is not None:
            settings = replace(settings, init_from=parameters)
        if progress and (run is None or request.is_fit):
            display.say(f"run {path}")
        places = import_both(data, evaluation, path.parent / IMPORTED, settings, **named)
        request = replace(request, data=places[0], evaluation=places[1], settings=settings)
        summary = request.start(bus)[0].summary()
        if progress and summary.get("hardly_trained"):
            display.say(summary["hardly_trained"])
        for doubt in summary.get("warnings", ()):
            if doubt not in display.warned:
                display(Warned(doubt))
    return Fit(path) if request.is_fit else Run(path)


def _bare(data: Any, label: str | None, spec: Any) -> dict[str, bool]:
    """How data are imported for the model of a fit, which may take codes or need no labels."""
    is_table = memory.is_table(data) or is_table_file(data)
    is_bare = label is None if is_table else memory.is_unlabelled(data)
    how = {"trees": True} if is_table and spec.takes_codes else {}
    return how | ({"labelled": False} if is_bare and not spec.needs_labels else {})
