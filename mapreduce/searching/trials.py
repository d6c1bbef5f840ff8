"""The trials of a search: units of a program, each a training as ``gradreduce train`` does it."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import create
from mapreduce.engine.program import Layout, Pair, Phase, Round
from mapreduce.errors import DataError, MemberError, NonFiniteError, UntrustedError, UsageError
from mapreduce.inference.evaluate import Score
from mapreduce.inference.unit_files import UnitFiles
from mapreduce.plan import flags as plan_flags
from mapreduce.plan.plan import Plan
from mapreduce.reduction.message import Message
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.searching.directory import Asked, Result, SearchConfig, SearchDir, encoded
from mapreduce.searching.samplers import Draw
from mapreduce.support import trust
from mapreduce.support.words import count
from mapreduce.training import creating, driver
from mapreduce.training import start as starting

#: The options of a trial, by their names. A trial has one worker, and its result no clock.
OPTIONS = {row.name: row for row in plan_flags.PLAN if row.name != "asynchronous"}
#: Share of the rows that is held out, and slices of as many rows, if a batch has that many.
HELD_OUT, _SLICES = 0.2, 4
#: How a trial is trained: as by ``gradreduce train --executor here``.
HERE = Execution("inline", executor="here")


def settings_of(options: Mapping[str, str]) -> plan_flags.Settings:
    """The settings of a training, from the texts of its options.

    Raises UsageError (a text is no value of its option), UntrustedError (a text names code of
    somebody's own that is not trusted: the search may be a stranger's).
    """
    # Where there are no data to evaluate on, rows are held out.
    values: dict[str, Any] = {**starting.defaults(plan_flags.PLAN), "evaluation": ""}
    for name, text in options.items():
        option = OPTIONS[name]
        try:
            values[name] = option.parse(text)
        except ValueError:
            kind = "a whole number" if option.type is int else "a number"
            raise UsageError(
                f"{option.flag}: expected {kind}, alternatives A|B or a range LOW..HIGH, found "
                f"{text!r:.60}"
            ) from None
        option.check(values[name])
        for code in option.members(values[name]):
            option.family.target(code)
    return plan_flags.settings(values)


def trust_members(options: Mapping[str, str]) -> None:
    """Let the code be imported that options of the user's own name."""
    for name, text in options.items():
        trust.trust(*(code for code in OPTIONS[name].members(text) if ":" in code))


def plan_of(options: Mapping[str, str], config: SearchConfig) -> Plan:
    """The plan of a training; errors are those of :func:`mapreduce.training.creating.plan`."""
    return creating.plan(settings_of(options), *places_of(config))


def places_of(config: SearchConfig) -> tuple[AnyPath, AnyPath | None]:
    """The data of a search, and those to evaluate on, if there are any."""
    evaluation = config.evaluation
    return path_of(config.data), None if evaluation is None else path_of(evaluation)


def asked_of(draw: Draw, config: SearchConfig) -> list[Asked]:
    """The trainings of a trial as it was drawn: one for each fold, if there are any.

    What a draw leaves open suits a training by one worker that nobody watches. A batch is one
    slice, and the model is evaluated at the end; a fifth of the rows is held out, if there are no
    other data to evaluate on. If one training cannot be planned, none is.
    """
    options = draw.options
    try:
        if config.evaluation is None:
            options = _holding_out(options, config)
        asked = []
        for number in range(max(config.folds, 1)):
            if config.folds:
                options = {**options, "fold": f"{number + 1}/{config.folds}"}
            asked.append(_asked(options, draw, config))
        return asked
    except UntrustedError:
        raise
    except (UsageError, DataError, MemberError) as error:
        failed = Asked(options, chosen=dict(draw.chosen), reason=str(error))
        return [failed] * max(config.folds, 1)


def _asked(options: dict[str, str], draw: Draw, config: SearchConfig) -> Asked:
    """A training, after what is held out was chosen."""
    plan = plan_of(options, config)
    is_one = plan.replicas == 1 and plan.batch_size < plan.rows and not plan.held_out_slices
    if is_one and "slice_rows" not in options and plan.slice_rows < plan.batch_size:
        whole = {**options, "slice_rows": str(plan.batch_size)}
        # Layers may take too much memory for it.
        with contextlib.suppress(UsageError):
            options, plan = whole, plan_of(whole, config)
    if not plan.is_evaluated:
        raise UsageError(f"--strategy {plan.strategy}: nothing is evaluated. Add --eval DATA")
    each, rungs = plan.rounds_per_epoch, config.rungs
    stops = tuple(rung * each for rung in rungs) or (plan.rounds,)
    every = each * math.gcd(*rungs) if rungs else plan.rounds
    is_due = all(map(plan.is_evaluation, stops))
    if "eval_every" not in options and plan.eval_every != every:
        if not (plan.patience and is_due):
            options = {**options, "eval_every": str(every)}
            plan = replace(plan, eval_every=every)
    elif not is_due:
        raise UsageError(
            f"--eval-every {plan.eval_every}: expected a divisor of {every}, so that there is "
            f"an evaluation at the end of each of the rungs"
        )
    return Asked(options, plan.sha256, stops, dict(draw.chosen))


def _holding_out(options: dict[str, str], config: SearchConfig) -> dict[str, str]:
    """The options with those by which a fifth of the rows, or a fold, is held out."""
    # Neither goes without an evaluation.
    bare = {name: text for name, text in options.items() if name not in ("patience", "eval_every")}
    plan, more = plan_of(bare, config), dict[str, str]()
    if plan.held_out_slices or "held_out" in options:
        return options
    rows, slice_rows, folds = plan.rows, plan.batch_size, config.folds
    least = _SLICES * (folds or round(1 / HELD_OUT))
    if "slice_rows" in options or plan.replicas > 1:
        slice_rows = plan.slice_rows
    elif plan.batch_size >= plan.rows:
        slice_rows = min(plan.slice_rows, -(-rows // least))
        # Rows that are held out would have another optimizer chosen, with smaller batches.
        more["optimizer"] = options.get("optimizer", plan.optimizer)
    elif folds and rows < least * slice_rows:
        slice_rows = plan.slice_rows
    if slice_rows != plan.slice_rows:
        more["slice_rows"] = str(slice_rows)
    if folds:
        return {**options, **more, "fold": f"1/{folds}"}
    slices = max(1, round(HELD_OUT * rows / slice_rows))
    return {**options, **more, "held_out": str(slices * slice_rows)}


@dataclass(frozen=True)
class Trials(UnitFiles):
    """Some units of a search, by their ``numbers``, up to a ``rung``; their files are results."""

    out: str
    made_from: str
    numbers: tuple[int, ...]
    rung: int

    name = "trials"
    done = "trials are done"

    @cached_property
    def search(self) -> SearchDir:
        """The search."""
        return SearchDir(self.place.parent)

    def units(self, completed: int) -> int:
        return len(self.numbers)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return ()

    def path(self, number: int) -> AnyPath:
        """See :meth:`UnitFiles.path`."""
        return self.search.result_path(self.numbers[number], self.rung)

    def _load(self) -> object:
        return self.search.config

    def make(self, number: int) -> None:
        """See :meth:`UnitFiles.make`."""
        if not self.path(number).exists():
            result = self._train(self.numbers[number])
            # Another attempt at this task may be quicker.
            with contextlib.suppress(FileExistsError):
                create(self.path(number), encoded(asdict(result)), sync=True)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        if self.search.config.sha256 != self.made_from:
            raise DataError(f"{self.search.path}: another search was begun there meanwhile")
        for number in units:
            self.make(number)
            yield (number,), Message()

    def _train(self, unit: int) -> Result:
        """Train a unit, from wherever its run stands.

        Raises what would be the same for others: of data, of the disk, and the like.
        """
        config, asked = self.search.config, self.search.asked(unit)
        run, number = self.search.run(unit), self.search.trial_of(unit)
        if asked is None:
            raise DataError(f"{self.search.path}: expected the options of trial {number}")
        if not (run.path / "run.json").exists():
            settings = settings_of(asked.options)
            creating.create(run.path, settings, *places_of(config), config.numeric_profile)
        places = run.config.data, run.config.evaluation
        if (run.config.plan.sha256, *places) != (
            asked.plan_sha256,
            config.data,
            config.evaluation,
        ):
            raise DataError(
                f"trial {number} has another plan than when the search began: the data have "
                f"changed, or code of your own, such as a model. Restore data and code, or "
                f"start a new search"
            )
        try:
            # An earlier attempt, which may have been elsewhere, has ended.
            until = asked.stops[self.rung]
            ended = driver.train(run, HERE, 1, Events(), take_over=True, until=until)
        except UntrustedError:
            raise
        except (NonFiniteError, MemberError) as error:
            return Result("failed", reason=str(error).replace(str(run.path), f"trial {number}"))
        loss, accuracy = _scores(run, ended.completed)
        state = "cut" if run.result() is None else "ended"
        return Result(state, ended.completed, loss, accuracy, ended.model_sha256)

    def progress(self) -> str:
        """How the search stands."""
        search = self.search
        trials, rung, waiting = search.standing(search.wanted)
        results = [trial.result.state for trial in trials if trial.result is not None]
        undone = {search.trial_of(unit) for unit in waiting}
        text = f"{len(trials) - len(undone):,} of {count(search.wanted, 'trial')}"
        if search.config.rungs:
            text += f" at rung {rung + 1}"
        if "failed" in results:
            text += f", {results.count('failed'):,} failed"
        for best in search.ranking(trials)[:1]:
            text += f", best {search.config.metric} {abs(search.score(best) or 0):.4g}"
            text += f" (trial {best.number})"
        return text


def _scores(run: RunDir, completed: int) -> tuple[float, float | None]:
    """Loss and accuracy of the model after some rounds."""
    sums = run.evaluation(completed)
    if sums is None:
        raise DataError(f"{run.path}: expected an evaluation after {completed} rounds")
    score = Score(**sums).evaluated(completed, run.config.plan.about.regression)
    return score.loss, score.accuracy
