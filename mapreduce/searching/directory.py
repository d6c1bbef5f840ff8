"""A search's directory: everything that a search writes, and from which it goes on.

::

    search.json     the space, the sampler, the data's paths and digests; written once
    execution.json  the last driver's runner and workers, and how many trials are wanted
    asked/          a file for each trial: its options; written before any of them is trained
    trials/         a run for each trial, which any command takes
    results/        a file for each trial and rung: score and digest; written once
                    with --folds, these three have an entry for each fold of a trial
    best/           a copy of the best trial's run
    trials.csv      the table of all trials
    folds.csv       with --folds, the table of the folds of all trials
    lease.json      the driver that works on the search
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import fmean, pstdev
from typing import Any, NamedTuple, TypeVar

from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from hdfs_utils.publish import replace as publish
from mapreduce.errors import DataError, MissingInputError
from mapreduce.runs import lease
from mapreduce.runs.directory import SEARCH, RunDir
from mapreduce.searching.space import Space
from mapreduce.strategies.options import MOST_FOLDS
from mapreduce.support import jsonfiles, numeric
from mapreduce.support.commands import command
from mapreduce.support.jsonfiles import build

TABLE, FOLDS = "trials.csv", "folds.csv"
FOLDERS = ("asked", "trials", "results")
_FORMAT, _FORMAT_VERSION = "gradreduce-search", 1
#: Options that are paths, and hold no ranges.
LITERAL = frozenset({"init_from", "features_from"})

T = TypeVar("T")


@dataclass(frozen=True)
class SearchConfig:
    """All that decides the table of a search.

    ``options``: The texts of options of ``gradreduce train``, with ranges and alternatives.
    ``rungs``: Epochs after which the best third goes on, and those of a whole training; or none.
    ``evaluation``: The path of data to evaluate on; None if trials hold rows out for that.
    ``folds``: Parts of the data, each of which is held out once; 0 without any.
    """

    options: dict[str, str]
    rungs: tuple[int, ...]
    data: str
    data_sha256: str
    evaluation: str | None
    eval_sha256: str | None
    sampler: str
    sampler_version: str
    sampler_seed: int
    width: int
    metric: str
    numeric_profile: str
    folds: int = 0

    @cached_property
    def space(self) -> Space:
        """What the options leave open."""
        return Space(self.options, LITERAL)

    @cached_property
    def sha256(self) -> str:
        """Digest of the configuration."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The content of ``search.json``."""
        return encoded({"format": _FORMAT, "format_version": _FORMAT_VERSION, **asdict(self)})


@dataclass(frozen=True)
class Asked:
    """A trial, or one of its folds, before its training.

    ``options``: The texts of its command. ``plan_sha256``: Digest of its plan; None if the options
    do not fit together, for a ``reason``. ``stops``: Rounds at the end of each rung. ``chosen``:
    What a sampler that learns is told later.
    """

    options: dict[str, str]
    plan_sha256: str | None = None
    stops: tuple[int, ...] = ()
    chosen: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Result:
    """What became of a trial; ``state`` is ``ended``, ``cut`` at a rung, or ``failed``.

    ``loss_std``, ``accuracy_std``: Standard deviations of the folds, whose means the scores are.
    """

    state: str
    completed: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    model_sha256: str | None = None
    reason: str | None = None
    loss_std: float | None = None
    accuracy_std: float | None = None


@dataclass(frozen=True)
class Trial:
    """A row of the table. ``same_as``: The trial of an equal plan, whose result this is.

    ``unit``: The number of the training, of which each fold has one. ``folds``: Rows of all folds,
    the first of which the trial's own row names; one alone for a search without folds.
    """

    number: int
    unit: int
    asked: Asked
    result: Result | None
    same_as: int | None = None
    folds: "tuple[Trial, ...]" = ()

    def conclude(self, results: Sequence[Result]) -> "Trial":
        """The trial with the results of its folds."""
        rows = (replace(row, result=each) for row, each in zip(self.folds, results, strict=True))
        return replace(self, result=_mean(results), folds=tuple(rows))


def _mean(results: Sequence[Result]) -> Result:
    """Means of the scores of all folds; the rounds and the model are those of the first."""
    first, *others = results
    if not others:
        return first
    for fold, result in enumerate(results, 1):
        if result.state == "failed":
            return replace(result, reason=f"fold {fold}: {result.reason}")
    scores: dict[str, Any] = {}
    for name in ("loss", "accuracy"):
        values = [getattr(result, name) for result in results]
        if None not in values:
            scores |= {name: fmean(values), f"{name}_std": pstdev(values)}
    is_cut = any(result.state == "cut" for result in results)
    return replace(first, state="cut" if is_cut else first.state, **scores)


class Standing(NamedTuple):
    """All trials, and the units of those that wait for their training up to a rung."""

    trials: list[Trial]
    rung: int
    waiting: list[int]


def encoded(content: Mapping[str, Any]) -> bytes:
    """A JSON file of a search."""
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


class SearchDir:
    """A search's directory, on this machine or in another filesystem."""

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.results, self.best = path / "results", path / "best"
        self._folder = RunDir(path)

    @cached_property
    def config(self) -> SearchConfig:
        """The configuration.

        Raises MissingInputError (there is no search), DataError (its file is damaged, or of another
        version).
        """
        self._folder.refuse_links()
        path = self.path / SEARCH
        if (content := jsonfiles.read(path)) is None:
            raise MissingInputError(
                f"{self.path} is not a search: it has no {SEARCH}. Start one with 'gradreduce "
                f"search'"
            )
        try:
            form = content.pop("format", None), content.pop("format_version", None)
            if form != (_FORMAT, _FORMAT_VERSION):
                raise ValueError(f"expected the format {_FORMAT} {_FORMAT_VERSION}, found {form}")
            config = build(SearchConfig, content)
            if not all(isinstance(text, str) for text in config.options.values()):
                raise ValueError("options: expected texts")
            if config.folds and not 2 <= config.folds <= MOST_FOLDS:
                raise ValueError(f"folds: {config.folds} is not a number from 2 to {MOST_FOLDS:,}")
            if config.numeric_profile not in numeric.PROFILES:
                raise ValueError(f"numeric_profile: {config.numeric_profile!r:.40} is unknown")
            return config
        except (ValueError, TypeError) as error:
            raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error

    def create(self, config: SearchConfig) -> None:
        """Make the folders, and publish the configuration.

        Raises ConflictError (there is another one).
        """
        for name in FOLDERS:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        put_if_absent(self.path / SEARCH, config.to_bytes(), sync=True)

    # Trials

    @property
    def _trainings(self) -> int:
        """Trainings of a trial."""
        return max(self.config.folds, 1)

    def units(self, number: int) -> range:
        """The units of a trial: one, or one for each fold."""
        return range(number * self._trainings, (number + 1) * self._trainings)

    def trial_of(self, unit: int) -> int:
        """The number of the trial of a unit."""
        return unit // self._trainings

    def _name(self, unit: int) -> str:
        number, fold = divmod(unit, self._trainings)
        return f"{number:05d}-{fold + 1}" if self.config.folds else f"{number:05d}"

    def run(self, unit: int) -> RunDir:
        """The run of a unit."""
        return RunDir(self.path / "trials" / self._name(unit))

    def asked(self, unit: int) -> Asked | None:
        """The options of a unit, or None if it was not asked."""
        return self._read(Asked, self.path / "asked" / f"{self._name(unit)}.json")

    def ask(self, unit: int, asked: Asked) -> None:
        """Publish the options of a unit."""
        lease.check(self.path)
        path = self.path / "asked" / f"{self._name(unit)}.json"
        put_if_absent(path, encoded(asdict(asked)), sync=True)

    def result_path(self, unit: int, rung: int) -> AnyPath:
        """The file of a unit's result at a rung."""
        return self.results / f"{self._name(unit)}.{rung}.json"

    def _trial(self, number: int) -> Trial | None:
        """A trial as it was asked; None if it was not."""
        rows = list[Trial]()
        for unit in self.units(number):
            if (asked := self.asked(unit)) is None:
                return None
            failed = None if asked.plan_sha256 else Result("failed", reason=asked.reason)
            rows.append(Trial(number, unit, asked, failed))
        return replace(rows[0], folds=tuple(rows))

    def _read(self, kind: type[T], path: AnyPath) -> T | None:
        content = jsonfiles.read(path)
        try:
            return None if content is None else build(kind, content)
        except ValueError as error:
            raise DataError(f"{path} is damaged: {error}") from error

    @property
    def wanted(self) -> int:
        """How many trials are wanted."""
        trials = (self._folder.read_json("execution.json") or {}).get("trials", 0)
        return trials if type(trials) is int else 0

    def want(self, trials: int, execution: Mapping[str, Any]) -> None:
        """Note how many trials are wanted, and how they are run."""
        content = {**execution, "trials": trials}
        self._folder.write_json("execution.json", content, once=False)

    def standing(self, trials: int, rungs: int = 0) -> "Standing":
        """How the first trials stand, as far as they were asked, up to the last of some rungs.

        It follows from results alone, and of those that a search of so many trials has.
        """
        first: dict[str, int] = {}
        rows: dict[int, Trial] = {}
        for number in range(trials):
            if (trial := self._trial(number)) is None:
                break
            same = first.setdefault(trial.asked.plan_sha256 or f"{number}", number)
            rows[number] = replace(trial, same_as=None if same == number else same)
        going = [n for n, row in rows.items() if row.same_as is None and row.result is None]
        waiting, rung = list[int](), 0
        for rung in range(rungs or max(len(self.config.rungs), 1)):
            for number in going:
                units = self.units(number)
                by_unit = {u: self._read(Result, self.result_path(u, rung)) for u in units}
                results = [result for result in by_unit.values() if result is not None]
                waiting += [unit for unit, result in by_unit.items() if result is None]
                if len(results) == len(units):
                    rows[number] = rows[number].conclude(results)
            if waiting:
                break
            ranked = self.ranking(rows[number] for number in going)
            going = [row.number for row in ranked[: max(1, len(going) // 3)]]
        for number, row in rows.items():
            if row.same_as is not None and (same_row := rows[row.same_as]).result is not None:
                results = [fold.result for fold in same_row.folds if fold.result is not None]
                rows[number] = row.conclude(results)
        return Standing([*rows.values()], rung, waiting)

    # What comes out

    def command(self, trial: Trial) -> str:
        """The training that a row of the table is, of its first fold if it has several."""
        config, words = self.config, list[str]()
        for name, text in trial.asked.options.items():
            words += [f"--{name.replace('_', '-')}", text]
        if config.numeric_profile != "native":
            words += ["--numeric-profile", config.numeric_profile]
        where = ["--run", f"trial-{self._name(trial.unit)}"]
        if config.evaluation is not None:
            where = ["--eval", config.evaluation, *where]
        return command("gradreduce", "train", config.data, *where, *words)

    def table(self, trials: Iterable[Trial], *, is_of_folds: bool = False) -> str:
        """The content of ``trials.csv``, or of ``folds.csv``."""
        out, varying = io.StringIO(), self.config.space.varying
        writer = csv.writer(out, lineterminator="\n")
        fold = ["fold"] * is_of_folds
        results = ["state", "completed", "loss", "accuracy", "model_sha256"]
        if self.config.folds and not is_of_folds:
            results[2:4] = ["loss", "loss_std", "accuracy", "accuracy_std"]
        names = ["trial", *fold, *varying, *results, "same_as", "reason", "command"]
        writer.writerow("rounds" if name == "completed" else name for name in names)
        for trial in trials:
            for number, row in enumerate(trial.folds if is_of_folds else [trial], 1):
                result = row.result or Result("waiting")
                cells: list[Any] = [trial.number, *[number for _ in fold]]
                cells += map(row.asked.options.get, varying)
                cells += map(vars(result).get, results)
                writer.writerow([*cells, trial.same_as, result.reason, self.command(row)])
        return out.getvalue()

    def write_table(self, trials: Sequence[Trial]) -> None:
        """Write ``trials.csv``, and ``folds.csv`` of a search with folds."""
        lease.check(self.path)
        publish(self.path / TABLE, self.table(trials).encode())
        if self.config.folds:
            publish(self.path / FOLDS, self.table(trials, is_of_folds=True).encode())

    @property
    def by_accuracy(self) -> bool:
        """Whether the accuracy decides, and not the loss."""
        return self.config.metric == "accuracy"

    def score(self, trial: Trial) -> float | None:
        """The score of a trial, lower is better; None if it has none."""
        if trial.result is None or trial.result.loss is None:
            return None
        return -(trial.result.accuracy or 0.0) if self.by_accuracy else trial.result.loss

    def ranking(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials with a score, the best first, those of the same score by their numbers."""
        scored = [(self.score(trial), trial.number, trial) for trial in trials]
        ranked = [(score, number, trial) for score, number, trial in scored if score is not None]
        return [trial for _, _, trial in sorted(ranked, key=lambda row: row[:2])]

    def best_of(self, trials: Iterable[Trial]) -> Trial | None:
        """The best trial that was not cut, unless all others failed; None if there is none."""
        ranked = self.ranking(trials)
        whole = [trial for trial in ranked if trial.result and trial.result.state == "ended"]
        return next(iter(whole or ranked), None)

    def _place(self, name: str) -> str | None:
        """The path of a table; None if it is not there."""
        path = self.path / name
        return str(path) if path.exists() else None

    def summary(self) -> dict[str, Any]:
        """The search in a line."""
        trials, _, waiting = self.standing(self.wanted)
        states = [trial.result.state for trial in trials if trial.result is not None]
        is_whole = len(trials) == self.wanted > 0 and not waiting
        state = "running" if lease.is_held(self.path) else "stopped"
        table, best, folds = self.table(trials), self.best_of(trials), self.config.folds
        result = best.result if best is not None and best.result is not None else Result("")
        return {
            "search": str(self.path),
            "state": "ended" if is_whole and state == "stopped" else state,
            "trials": self.wanted,
            **{name: states.count(name) for name in ("ended", "cut", "failed")},
            "equal": sum(trial.same_as is not None for trial in trials),
            "best": best and best.number,
            "loss": result.loss,
            "accuracy": result.accuracy,
            **({"loss_std": result.loss_std, "accuracy_std": result.accuracy_std} if folds else {}),
            "model_sha256": result.model_sha256,
            "options": best and {n: best.asked.options[n] for n in self.config.space.varying},
            "command": best and self.command(best),
            "run": str(self.best) if (self.best / "run.json").exists() else None,
            "table": self._place(TABLE),
            **({"folds": self._place(FOLDS)} if folds else {}),
            "table_sha256": hashlib.sha256(table.encode()).hexdigest(),
        }
