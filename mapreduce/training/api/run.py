"""``mapreduce.open_run`` and what it returns: a training for Python."""

import contextlib
import html
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce import optim
from mapreduce.data.batch import Array
from mapreduce.errors import UsageError
from mapreduce.inference import near
from mapreduce.inference.metrics import Report
from mapreduce.models.fitted import FittedModel
from mapreduce.plan.plan import Plan
from mapreduce.runs import checkpoint, events, flags, plotting
from mapreduce.runs.directory import FIT, RunDir
from mapreduce.runs.events import Events, Subscriber, Warned
from mapreduce.runs.fits import FitDir, is_fit, model_path
from mapreduce.runs.models import is_file
from mapreduce.support import trust as trusted
from mapreduce.training import fitting, replaying, start
from mapreduce.training.api.calls import (
    absolute_path,
    checked_options,
    displaying,
    naming_keywords,
    quiet_mrjob,
    texts,
)
from mapreduce.training.api.use import TrainedModel, load
from mapreduce.training.export import described, export

#: The folder of runs for which no folder is named.
RUNS = Path("runs")
_NUMBERS = ("learning_rate", "eval_accuracy", "eval_loss")


class Run(TrainedModel):
    """A training in the folder ``path``: its model, its history, and how to go on with it."""

    @naming_keywords
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

    @naming_keywords
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
        with quiet_mrjob(self._profile):
            given |= checked_options(execution, flags.EXECUTION, flags.RUNNER)
            with displaying(progress, callbacks, self.path) as (bus, display):
                self._go_on(given, bus, lambda text: display(Warned(text)))
        return self

    @property
    def _profile(self) -> str:
        return self._run.config.numeric_profile

    def _go_on(self, given: dict[str, Any], bus: Events, warn: Callable[[str], None]) -> None:
        start.resume(self._run, given, bus, warn)

    @naming_keywords
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
        place = new_folder(self.plan.model) if run is None else absolute_path(run)
        if isinstance(place, RemotePath):
            raise UsageError(f"run={place}: expected a folder of this machine")
        with quiet_mrjob(self._run.config.numeric_profile):
            given = flags.execution(checked_options(execution, flags.RUNNER))
            with displaying(progress, callbacks, place) as (bus, _):
                replaying.replay(self._run, place, given, bus, moved)
        return Run(place)

    @naming_keywords
    def export(self, path: Any, *, data: Any = None) -> dict[str, Array]:
        """Write the model to a file; see :func:`mapreduce.training.export.described`."""
        out = absolute_path(path)
        fitted = described(self._run, None if data is None else absolute_path(data), out=out)
        return export(fitted, out)

    @naming_keywords
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


class Fit(Run):
    """A fit without gradients, which has neither a plan nor a history."""

    @naming_keywords
    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._near = near.Near()
        _ = self._fit.config

    @property
    def _fit(self) -> FitDir:
        return FitDir(self.path)

    @property
    def _fitted(self) -> FittedModel:
        file = model_path(self.path)
        # What it says decides the model.
        sign = (self.path / FIT).read_bytes()
        return self._near.fitted(sign, lambda: FittedModel.load(file))

    @property
    def _about(self) -> FittedModel:
        return self._fitted

    @property
    def _profile(self) -> str:
        return self._fit.config.numeric_profile

    @property
    def model_sha256(self) -> str | None:
        digest: str | None = self._fit.summary()["model_sha256"]
        return digest

    def _go_on(self, given: dict[str, Any], bus: Events, warn: Callable[[str], None]) -> None:
        fitting.resume(self._fit, given, bus, warn)

    @naming_keywords
    def export(self, path: Any, *, data: Any = None) -> dict[str, Array]:
        """Write the model to a file, for which no ``data`` are needed."""
        if data is not None:
            raise UsageError(f"data: {self.path} is the run of a fit, whose model needs no data")
        return TrainedModel.export(self, path)

    def __repr__(self) -> str:
        summary = self._fit.summary()
        return (
            f"<Fit {self.path}: {summary['model']}, {summary['state']} after "
            f"{summary['completed']:,} rounds, model {(summary['model_sha256'] or 'none')[:12]}>"
        )


@naming_keywords
def open_run(path: str | os.PathLike[str] | RemotePath, *, trust: str | Iterable[str] = ()) -> Run:
    """Open the folder of a run: of a training, or of a fit.

    Parameters
    ----------
    path : path
    trust : str or iterable of str
        ``MODULE:NAME`` of models and other code of your own that the run names and this process may
        import, as for ``--trust``.

    Raises
    ------
    MissingInputError, DataError
        The folder has no run, or the run is damaged.

    Examples
    --------
    >>> import mapreduce
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> run = mapreduce.train((X / 16, y), rounds=2, run=folder / "short", progress=False)
    >>> mapreduce.open_run(run.path).model_sha256 == run.model_sha256
    True
    """
    trusted.trust(*texts(trust))
    place = absolute_path(path)
    return Fit(place) if is_fit(place) else Run(place)


def _open_model(path: str | os.PathLike[str], trust: str | Iterable[str]) -> TrainedModel:
    """The model in a file, or the run in a folder."""
    if is_file(model_path(absolute_path(path))):
        return load(path, trust=trust)
    return open_run(path, trust=trust)


def evaluate(
    run: str | os.PathLike[str], data: Any, *, trust: str | Iterable[str] = (), **options: Any
) -> Report:
    """:meth:`TrainedModel.evaluate` of a model's file, or of the run in a folder.

    :func:`load` and :func:`open_run` open them.
    """
    return _open_model(run, trust).evaluate(data, **options)


def predict(
    run: str | os.PathLike[str], data: Any, *, trust: str | Iterable[str] = (), **options: Any
) -> Any:
    """:meth:`TrainedModel.predict` of a model's file, or of the run in a folder.

    :func:`load` and :func:`open_run` open them.
    """
    return _open_model(run, trust).predict(data, **options)


def _table(found: Mapping[int, Mapping[str, Any]], *numbers: str) -> Any:
    columns = [(name, pa.int64()) for name in ("round", "rows")]
    schema = pa.schema([*columns, *((name, pa.float64()) for name in numbers)])
    rows = [{**event, "round": at} for at, event in sorted(found.items())]
    return pa.Table.from_pylist(rows, schema)


def _moving(given: dict[str, Any]) -> dict[str, Any]:
    """Take out what says where the data of a run lie."""
    found = {name: given.pop(name) for name in start.MOVING if name in given}
    return found | {
        name: absolute_path(found[name]) for name in ("data", "evaluation") if found.get(name)
    }


def new_folder(model: str) -> Path:
    """A folder named after the model and the first free number."""
    # That of a network of many layers would be too long; one that is to suit the data has none yet.
    name = re.sub(r"[^\w.]+", "-", "run" if model == "auto" else model)[:60].strip("-")
    paths = ((RUNS / f"{name}-{number}").absolute() for number in count(1))
    return next(path for path in paths if not path.exists())
