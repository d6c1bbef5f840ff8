"""``mapreduce.search`` and what it returns: the command of a search for Python."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv

from hdfs_utils.paths import RemotePath
from mapreduce.errors import Interrupted, UsageError
from mapreduce.runs import flags
from mapreduce.searching import driver, plotting
from mapreduce.searching.directory import FOLDS, TABLE, SearchDir
from mapreduce.searching.options import SEARCH, SearchOptions
from mapreduce.searching.trials import OPTIONS
from mapreduce.support import trust as trusted
from mapreduce.support.options import names
from mapreduce.support.printable import echo
from mapreduce.support.spelling import in_python
from mapreduce.training.api.calls import (
    KEYWORDS,
    absolute_path,
    checked_options,
    naming_keywords,
    quiet_mrjob,
    take_recipe,
)
from mapreduce.training.api.calls import texts as text_of
from mapreduce.training.api.data import IMPORTED, import_both
from mapreduce.training.api.run import Run, new_folder

__all__ = ["Search", "search"]


def _teller(progress: bool) -> Callable[[str], None]:
    """What prints lines of progress, in the words of Python."""
    return lambda text: echo(in_python(text, KEYWORDS), err=True) if progress else None


_EXECUTION = (*(row for row in flags.EXECUTION if row.name == "executor"), *flags.RUNNER)


class Search:
    """A search in the folder ``path``: its table, and its best trial.

    ``trust``: As :func:`mapreduce.open_run` takes it, of what the search names.
    """

    @naming_keywords
    def __init__(
        self, path: str | os.PathLike[str] | RemotePath, *, trust: str | Iterable[str] = ()
    ) -> None:
        trusted.trust(*text_of(trust))
        self.path = absolute_path(path)
        self._search = SearchDir(self.path)
        _ = self._search.config

    @property
    def table(self) -> Any:
        """A ``pyarrow.Table`` with a row for each trial: the columns of ``trials.csv``."""
        return self._read(TABLE)

    @property
    def folds(self) -> Any:
        """A ``pyarrow.Table`` with a row for each fold of each trial: the columns of ``folds.csv``.

        Raises UsageError (a search without folds).
        """
        if not self._search.config.folds:
            raise UsageError(f"{self.path}: this search has no folds. Start one with folds=5")
        return self._read(FOLDS)

    def _read(self, name: str) -> Any:
        content = pa.BufferReader((self.path / name).read_bytes())
        lines = csv.ParseOptions(newlines_in_values=True)
        nulls = csv.ConvertOptions(strings_can_be_null=True)
        return csv.read_csv(content, parse_options=lines, convert_options=nulls)

    @property
    def best(self) -> Run:
        """The run of the best trial."""
        return Run(self._search.best)

    @property
    def options(self) -> dict[str, str]:
        """What was chosen for the best trial, as texts."""
        return dict(self._search.summary()["options"])

    @naming_keywords
    def plot(self) -> Any:
        """A ``matplotlib.figure.Figure`` of the best score so far, and of scores by option."""
        return plotting.figure(self._search)

    @naming_keywords
    def resume(
        self, *, trials: int | None = None, progress: bool = True, **execution: Any
    ) -> "Search":
        """Go on with the search, to the same table as if it had never stopped.

        Parameters
        ----------
        trials : int, optional
            So many trials in all; more than before extend the search.
        progress : bool
            False shows warnings only.
        execution
            Options of ``gradreduce resume``, such as ``workers``.
        """
        say = _teller(progress)
        with quiet_mrjob(self._search.config.numeric_profile):
            options = checked_options(execution, _EXECUTION)
            driver.resume(self._search, {**options, "trials": trials}, say, say)
        return self

    def __repr__(self) -> str:
        summary = self._search.summary()
        best = "" if summary["best"] is None else f", best trial {summary['best']}"
        return f"<Search {self.path}: {summary['state']}, {summary['trials']} trials{best}>"


@naming_keywords
def search(
    data: Any,
    *,
    evaluation: Any = None,
    run: str | os.PathLike[str] | RemotePath | None = None,
    trials: int | None = None,
    rungs: str | Sequence[int] | None = None,
    folds: int | None = None,
    label: str | None = None,
    id: str | None = None,
    weights: Any = None,
    order_by: str | Iterable[str] | None = None,
    task: str | None = None,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> Search:
    """Train with many values of options, and keep the best model, as ``gradreduce search`` does.

    Parameters
    ----------
    data, evaluation, label, id, weights, order_by, task, recipe
        The same as for :func:`mapreduce.train`; ``eval`` is another name of ``evaluation``. Without
        ``evaluation`` a fifth of the rows is held out, and the best trial is trained again on all
        rows.
    run : path, optional
        Folder of the search. If the folder has a search with the same data and options, the search
        continues. Default: a new folder in ``runs``.
    trials : int, optional
        Number of trainings in all. Default: 32, or all points of a grid.
    rungs : sequence of int or str, optional
        Epochs after which only the best third of the trials goes on; the last number is the epochs
        of a whole training: ``(1, 3, 9)``.
    folds : int, optional
        Number of parts of the data. Each trial has a model for each part, which is trained on the
        other parts and evaluated on this one. The mean of the scores decides. Not with ``eval``.
    progress : bool
        False shows warnings only.
    options
        The options of a training, as texts with ranges and alternatives, or as values:
        ``model="mlp:16..64|softmax"``, ``learning_rate="log:0.001..1"``, ``epochs=3``. Also the
        options of ``gradreduce search``: ``sampler``, ``metric``, ``workers``, ``runner``,
        ``executor``, .... For a table also the options of a recipe, such as ``drop`` and
        ``missing_label``.

    Raises
    ------
    UsageError
        An option or a range is wrong, or in no trial do the options go together.
    OutputError
        The folder has another search, or other files.
    GradreduceError
        All trials failed; or as :func:`mapreduce.train`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = (X[:1500] / 16, y[:1500]), (X[1500:] / 16, y[1500:])
    >>> where = {"eval": test, "run": folder / "found", "progress": False, "executor": "here"}
    >>> found = search(train, model="mlp:{8|16}", epochs=2, sampler="grid", **where)
    >>> found.table.column("model").to_pylist()
    ['mlp:8', 'mlp:16']
    >>> found.best.model_sha256 in found.table.column("model_sha256").to_pylist()
    True
    """
    if "eval" in options:
        if evaluation is not None:
            raise UsageError("eval and evaluation are one keyword: expected one of them")
        evaluation = options.pop("eval")
    texts = {name: str(options.pop(name)) for name in [*options] if name in OPTIONS}
    recipe = take_recipe(recipe, options)
    # For an unknown name, one of a training may be meant.
    rows = _EXECUTION, (flags.PROFILE,), SEARCH, tuple(OPTIONS.values())
    epochs = rungs if rungs is None or isinstance(rungs, str) else ",".join(map(str, rungs))
    options |= {"trials": trials, "rungs": epochs, "folds": folds}
    execution = checked_options(options, *rows)
    chosen = {name: execution.pop(name) for name in names(SearchOptions) if name in execution}
    profile = execution.pop("numeric_profile", flags.PROFILE.default)
    settings = driver.first_settings(texts)
    path = new_folder("search") if run is None else absolute_path(run)
    named: dict[str, Any] = {"label": label, "id": id, "task": task, "weights": weights}
    named |= {"recipe": recipe, "order_by": order_by}
    say = _teller(progress)
    with quiet_mrjob(profile):
        place = path.parent / IMPORTED
        trained_on, evaluated_on = import_both(data, evaluation, place, settings, **named)
        try:
            driver.start(
                path,
                trained_on,
                evaluated_on,
                texts,
                execution,
                say,
                SearchOptions(**chosen),
                numeric_profile=profile,
            )
        except Interrupted as error:
            error.add_note(f"Trials that ended are kept in {path}. The same call goes on")
            raise
    return Search(path)
