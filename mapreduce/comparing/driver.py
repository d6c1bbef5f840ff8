"""The loop of a comparison: for each fold, a recipe, and for each model a run and its score.

::

    comparison.json       what is compared, on what; written once
    folds/fold-1.csv      the rows of a fold, as they stand in the table, in the order of their keys
    data/fold-1/train     the dataset of all other folds, whose recipe is fitted to them alone
    data/fold-1/test      that of the fold, by the same recipe
    data/fold-1/float64   both again, for models that compute with float64
    data/fold-1/trees     and for those that take missing numbers and codes of categories
    runs/softmax/fold-1   the run of a model
    scores/softmax/1.json its score, and its processor time
    scores.csv, times.csv all scores, once all are there, and all times
    lease.json            the driver that works on the comparison

What has been done follows from the files that are there. A run without a score is begun anew.
"""

import csv
import hashlib
import io
import json
import re
import resource
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from hdfs_utils.folders import new_folder, remove_folder
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from hdfs_utils.publish import replace as publish
from mapreduce.comparing import models as choice
from mapreduce.comparing.datasets import Datasets
from mapreduce.comparing.results import Comparison, Score
from mapreduce.data.columns import column_of
from mapreduce.data.copying import made_here
from mapreduce.data.manifest import MANIFEST
from mapreduce.data.readers import opening, roles
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.readers.table import Table
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.splitting import folds as dealing
from mapreduce.data.splitting.records import format_of
from mapreduce.errors import GradreduceError, Interrupted, LeaseError, OutputError, UsageError
from mapreduce.inference import using
from mapreduce.inference.request import Request
from mapreduce.models import FITS
from mapreduce.models.fitted import FittedModel
from mapreduce.plan import flags as plan_flags
from mapreduce.runs import flags, lease
from mapreduce.runs.directory import FIT
from mapreduce.runs.events import Event, Events, Warned
from mapreduce.runs.fits import is_fit, model_path
from mapreduce.runs.models import fitted_at
from mapreduce.support import jsonfiles, signals
from mapreduce.support.jsonfiles import build
from mapreduce.training import start
from mapreduce.training.api.data import how_to_import
from mapreduce.training.request import TrainingRequest

# After what makes mrjob import on Python 3.12 and later.
from mrjob.step import StepFailedException  # isort: skip

CONFIG = "comparison.json"
#: Files that a driver leaves that was stopped before it wrote :data:`CONFIG`.
_BEGUN = (f".{CONFIG}", "lease")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Config:
    """All that decides the scores of a comparison."""

    recipe: dict[str, Any]
    task: str
    group: str | None
    models: tuple[str, ...]
    folds: int
    seed: int
    numeric_profile: str
    rows: int
    table_sha256: str


def compare(
    sources: Iterable[AnyPath],
    path: AnyPath,
    *,
    models: Iterable[str] = (),
    folds: int = 5,
    seed: int = 0,
    group: str | None = None,
    reading: Mapping[str, Any],
    execution: Mapping[str, Any],
    say: Say,
    warn: Say,
) -> Comparison:
    """Compare models on a table, or go on with the comparison in the folder ``path``.

    Parameters
    ----------
    sources : iterable of paths
        Files of a table.
    path : path
    models : iterable of str
        By default, those that suit the task.
    folds : int
        How many, from 2 on.
    seed : int
        Of the folds, and of models that draw.
    group : str, optional
        A column; rows of one value are in one fold.
    reading : mapping
        What the columns become; see :func:`mapreduce.data.readers.opening.recipe_of`.
    execution : mapping
        Options of executions and runners that are given, and ``mrjob_arguments``.
    say, warn : callable
        Get lines of progress, and warnings.

    Raises
    ------
    UsageError, DataError, MissingInputError
        A model is unknown, the table has no label, a class has one row alone, and so on.
    OutputError
        The folder holds something else, or another comparison.
    LeaseError
        Another driver works on it.
    Interrupted
        SIGINT or SIGTERM. The same call goes on.
    """
    tables = plan_flags.PLAN, flags.EXECUTION, flags.RUNNER, (flags.PROFILE,)
    values = {**start.defaults(*tables), "evaluation": None, **execution, "seed": seed}
    choice.check(models, values)
    flags.trust_executor(values)
    flags.execution(values)
    with signals.interrupting():
        table, recipe = _opened([*sources], reading, group)
        group = group and column_of(group, table.all_names)
        assert recipe.label is not None
        task = dealing.task_of(table, recipe, recipe.label)
        dealt = dealing.deal(
            table, recipe, recipe.label if task == "classification" else None, folds, seed, group
        )
        recipe = replace(recipe, task=task)
        config = Config(
            json.loads(json.dumps(asdict(recipe))),
            task,
            group,
            tuple(models) or choice.DEFAULTS[task],
            folds,
            seed,
            values["numeric_profile"],
            sum(map(len, dealt.rows)),
            dealt.sha256,
        )
        _require(path, config)
        path.mkdir(parents=True, exist_ok=True)
        with lease.hold(path):
            _require(path, config)
            content = json.dumps(asdict(config), indent=1, sort_keys=True) + "\n"
            put_if_absent(path / CONFIG, content.encode(), sync=True)
            suffix = ".tsv" if recipe.delimiter == "\t" else ".csv"
            suffix = ".parquet" if isinstance(table, ParquetTable) else suffix
            if not (path / "folds").exists():
                last = f"fold-{folds}{suffix}"
                with made_here(path / "folds", last) as place, new_folder(place) as folder:
                    dealt.write(table, folder, suffix)
            try:
                return Driver(path, config, recipe, suffix, values, say, warn).run()
            except Interrupted:
                warn("the scores so far are saved. Go on by the same command, or the same call")
                raise


def _opened(
    sources: list[AnyPath], reading: Mapping[str, Any], group: str | None
) -> tuple[Table, Recipe]:
    """The table, and what its columns become, by names that it has."""
    for source in sources:
        if (source / MANIFEST).exists():
            raise UsageError(
                f"{source} is a dataset, whose recipe was fitted to all of its rows, so that "
                f"scores would be too good: expected the table that it comes from"
            )
    kind, recipe = opening.request(sources, reading, kind=format_of(sources))
    label = recipe.label or "label"
    known = [name for name in (label, recipe.id, recipe.weights, group) if name]
    table = opening.open_table(sources, kind, recipe, known=known)
    recipe = roles.fit_names(table, replace(recipe, label=label))
    named = {name: getattr(recipe, name) for name in ("label", "id", "weights")}
    for option, name in {**named, "group": group}.items():
        if name:
            roles.find(table, f"--{option}", name)
    if recipe.hash_bits is None and recipe.layout is None:
        # Not all models take sparse rows.
        recipe = replace(recipe, layout="dense")
    return table, recipe


def _require(path: AnyPath, config: Config) -> None:
    """Raise an OutputError if a folder holds anything but this comparison."""
    content = jsonfiles.read(path / CONFIG)
    if content is None:
        if path.exists() and not (
            path.is_dir() and all(each.name.startswith(_BEGUN) for each in path.iterdir())
        ):
            raise OutputError(f"{path} exists and is not a comparison. Name another folder")
        return
    before, now = content, json.loads(json.dumps(asdict(config)))
    before, now = ({**each.pop("recipe", {}), **each} for each in (before, now))
    for name in now:
        if before.get(name) != now[name]:
            raise OutputError(
                f"{path} is another comparison: {name} is {before.get(name)!r:.200} there, and "
                f"{now[name]!r:.200} now. Name another folder"
            )


def _processor_seconds() -> float:
    """Of this process, and of the processes that it has started and that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


class Driver:
    """Compares models in a folder, whose lease the caller holds; see :func:`compare`."""

    def __init__(
        self,
        path: AnyPath,
        config: Config,
        recipe: Recipe,
        suffix: str,
        values: Mapping[str, Any],
        say: Say,
        warn: Say,
    ) -> None:
        self._path, self._config = path.absolute(), config
        self._values, self._say, self._warn = values, say, warn
        self._data = Datasets(self._path, recipe, suffix, config.folds)

    def run(self) -> Comparison:
        """Score all models in all folds."""
        config, scores = self._config, []
        failed: set[str] = set()
        with self._data:
            for fold in range(1, config.folds + 1):
                for model in config.models:
                    if model in failed:
                        continue
                    score = self._score(model, fold)
                    scores.append(score)
                    failed |= {model} if score.error else set()
        found = Comparison(self._path, config.task, tuple(scores))
        names = [each.name for each in fields(Score)]
        self._write("scores.csv", scores, [name for name in names if name != "seconds"])
        self._write("times.csv", scores, ["model", "fold", "seconds"])
        return found

    def _write(self, name: str, scores: list[Score], columns: list[str]) -> None:
        lease.check(self._path)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(vars, scores))
        publish(self._path / name, text.getvalue().encode())

    def _score(self, model: str, fold: int) -> Score:
        """The score of a model in a fold, from its file, or by a new run."""
        name = re.sub(r"[^\w.]+", "-", model).strip("-")
        if len(name) > 60:
            name = f"{name[:50]}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"
        score = Score(model, fold, f"runs/{name}/fold-{fold}")
        file, run = self._path / "scores" / name / f"{fold}.json", self._path / score.run
        if (content := jsonfiles.read(file)) is not None:
            return build(Score, content)
        where = f"fold {fold} of {self._config.folds}, {model}"
        try:
            score = self._scored(score, run)
        except (GradreduceError, StepFailedException) as error:
            if isinstance(error, LeaseError | OutputError):
                raise
            # Scores are the same wherever the folder is.
            reason = str(error).replace(f"{self._path}/", "")
            self._warn(f"{where}: {reason}")
            return replace(score, error=reason)
        lease.check(self._path)
        file.parent.mkdir(parents=True, exist_ok=True)
        put_if_absent(file, (json.dumps(asdict(score), indent=1) + "\n").encode(), sync=True)
        names = ("accuracy", "rmse")
        found = next(f"{n} {getattr(score, n):.4g}" for n in names if getattr(score, n) is not None)
        self._say(f"{where}: {found}, {score.seconds:.1f} s")
        return score

    def _scored(self, score: Score, run: AnyPath) -> Score:
        data = self._data.folder(
            score.fold, how_to_import(plan_flags.settings({**self._values, "model": score.model}))
        )
        if run.exists():
            remove_folder(run, FIT if is_fit(run) else "run.json")
        values = {**self._values, "model": score.model, "data": data / "train", "run": run}
        values["stays"] = True

        def warn(event: Event) -> None:
            if isinstance(event, Warned):
                self._warn(f"fold {score.fold}, {score.model}: {event.message}")

        before = _processor_seconds()
        if FITS.fits(score.model) and not FITS.parse(score.model).has_seed:
            values["seed"] = 0
        TrainingRequest.of(values).start(Events(warn))
        seconds = _processor_seconds() - before
        fitted = fitted_at(model_path(run))
        report = using.evaluate(
            Request(fitted, data / "test", self._how_to_use(fitted), warn=self._warn)
        )
        numbers = {name: getattr(report, name) for name in ("rows", "accuracy", "roc_auc", "loss")}
        return replace(
            score,
            **numbers,
            rmse=report.rmse,
            mae=report.mae,
            r2=report.r2,
            bytes=sum(array.nbytes for array in fitted.arrays.values()),
            model_sha256=fitted.model_sha256,
            seconds=round(seconds, 3),
        )

    def _how_to_use(self, fitted: FittedModel) -> Any:
        """The execution of a model's use: by this process, unless somebody has said how."""
        if flags.execution({**self._values, "stays": True}).stays and (
            fitted.about.forks_after_use
        ):
            return flags.execution({"executor": "here"})
        names = [*(row.name for row in flags.RUNNER), "mrjob_arguments"]
        return flags.execution({n: self._values[n] for n in names if n in self._values})
