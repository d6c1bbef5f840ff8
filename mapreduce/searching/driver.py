"""The loop of a search: ask, train what was asked, rank; again after any crash.

All that is known lies in the search's directory, so starting and resuming are the same.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from hdfs_utils.errors import ConflictError
from hdfs_utils.folders import remove_ended, remove_folder
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import replace as publish
from mapreduce.data.shards import Dataset
from mapreduce.errors import GradreduceError, OutputError, UsageError
from mapreduce.executors.chain import Chain
from mapreduce.executors.here import InProcess
from mapreduce.executors.resumable import Resumable
from mapreduce.inference import unit_files
from mapreduce.plan.settings import Settings
from mapreduce.runs import flags, lease
from mapreduce.runs.directory import SEARCH, RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.searching import samplers
from mapreduce.searching.directory import FOLDERS, LITERAL, SearchConfig, SearchDir, Standing, Trial
from mapreduce.searching.options import SEARCH as OPTIONS_OF_SEARCH
from mapreduce.searching.options import SearchOptions
from mapreduce.searching.space import Space
from mapreduce.searching.trials import (
    HERE,
    OPTIONS,
    Trials,
    asked_of,
    plan_of,
    settings_of,
    trust_members,
)
from mapreduce.support import signals
from mapreduce.support.options import expect
from mapreduce.support.suggest import did_you_mean
from mapreduce.support.words import count
from mapreduce.training import creating
from mapreduce.training import driver as training
from mapreduce.training import start as starting
from mapreduce.training.creating import check_data

#: Trials, if nobody says how many and the space has no end.
TRIALS = 32
#: Tasks of a job for each worker, where a task takes long to start.
_TASKS = 4

Say = Callable[[str], None]


def first_settings(options: Mapping[str, str]) -> Settings:
    """The settings of a first point of a space: data are imported as suits these.

    Raises UsageError (a range or a value is wrong).
    """
    first = Space(options, LITERAL).first()
    trust_members(first)
    return settings_of(first)


def start(
    folder: AnyPath,
    data: AnyPath,
    evaluation: AnyPath | None,
    options: Mapping[str, str],
    execution: Mapping[str, Any],
    say: Say,
    wanted: SearchOptions,
    *,
    numeric_profile: str = "native",
) -> SearchDir:
    """Search, or go on with a search of the same configuration in the folder.

    ``options``: Texts of options of a training. ``execution``: As for
    :func:`mapreduce.runs.flags.execution`.

    Raises UsageError (an option or a range is wrong), OutputError (the folder has another search,
    or something else), GradreduceError (no trial has ended, and why), and what a job raises.
    """
    for name in options:
        if name not in OPTIONS:
            raise UsageError(
                f"there is no option {name!r} to search by.{did_you_mean(name, OPTIONS)}"
            )
    for texts in Space(options, LITERAL).alternatives():
        trust_members(texts)
    how, search = flags.execution(execution), SearchDir(folder.absolute())
    places = [path.absolute() for path in (data, evaluation) if path is not None]
    names = [str(path) for path in places]
    digests = [Dataset(path).check_sizes().sha256 for path in places]
    for row in OPTIONS_OF_SEARCH:
        row.check(getattr(wanted, row.name))
    rungs = _rungs(wanted.rungs, options)
    if rungs:
        options = {**options, "epochs": str(rungs[-1])}
    _check_folds(wanted.folds, evaluation, options)
    config = SearchConfig(
        options=dict(sorted(options.items())),
        rungs=rungs,
        data=names[0],
        data_sha256=digests[0],
        evaluation=names[1] if evaluation is not None else None,
        eval_sha256=digests[1] if evaluation is not None else None,
        sampler=wanted.sampler,
        sampler_version=samplers.version(wanted.sampler),
        sampler_seed=wanted.sampler_seed,
        # Other samplers choose each trial alone.
        width=0 if wanted.sampler in samplers.BLIND else wanted.width,
        metric=wanted.metric,
        numeric_profile=numeric_profile,
        folds=wanted.folds or 0,
    )
    most = samplers.size(config.sampler, config.space)
    is_new = not (search.path / SEARCH).exists()
    if is_new:
        _check(config)
    for note in config.space.notes():
        say(f"note: {note}")
    _begin(search, config)
    try:
        _run(search, how, wanted.trials or max(most or TRIALS, search.wanted), say)
    except UsageError:
        if is_new:
            # With other options it is another search.
            remove_folder(search.path, SEARCH)
        raise
    return search


def resume(search: SearchDir, chosen: Mapping[str, Any], say: Say, warn: Say) -> None:
    """Go on with a search; see :func:`mapreduce.training.start.resume` for the parameters.

    ``chosen`` may have ``trials``, too: so many in all.
    """
    config = search.config
    for name, flag in {"data": "--data", "evaluation": "--eval", "keep": "--keep"}.items():
        if chosen.get(name) is not None:
            raise UsageError(f"{flag} is for trainings, and {search.path} is a search")
    for texts in config.space.alternatives():
        settings_of(texts)
    places = filter(None, (config.data, config.evaluation))
    starting.require_named_places(search.path, places, chosen.get("remote_data", ()))
    how, _ = starting.execution_again(RunDir(search.path), chosen, warn)
    trials = chosen.get("trials") or search.wanted
    _run(search, how, trials, say, take_over=bool(chosen.get("take_over")))


def _rungs(text: str | None, options: Mapping[str, str]) -> tuple[int, ...]:
    """The epochs of rungs; none without any."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    rungs = tuple(int(part) if part.isdecimal() else 0 for part in parts)
    grows = all(low < high for low, high in pairwise((0, *rungs)))
    expect(grows, "--rungs", "numbers of epochs that grow, such as 1,3,9", text)
    for name in ("epochs", "rounds"):
        if options.get(name, parts[-1]) != parts[-1]:
            raise UsageError(f"--{name} is for searches without --rungs {text}. Leave it out")
    return rungs


def _check_folds(folds: int | None, evaluation: object, options: Mapping[str, str]) -> None:
    """Refuse folds of data beside other rows to evaluate on."""
    flags_of = {"held_out": "--held-out", "fold": "--fold"}
    chosen = ["--eval"] * (evaluation is not None) + [flags_of[n] for n in options if n in flags_of]
    if folds and chosen:
        raise UsageError(
            f"--folds {folds}: each part of the data evaluates the models of the others, and "
            f"{chosen[0]} has other rows for that. Leave out one of them"
        )


def _check(config: SearchConfig) -> None:
    """Refuse values that no trial can have: alternatives that are no values, and ends of ranges."""
    space = config.space
    for texts in space.alternatives():
        settings_of(texts)
    for each in space.ranges():
        for end in (each.low, each.high):
            texts = space.holding(each, each.rounded(end))
            settings_of(texts)
            middle = space.holding(each, each.at(0.5))
            # Where other options do not fit to this one, its value does not matter.
            if (reason := _unfit(texts, config)) and not _unfit(middle, config):
                raise UsageError(
                    f"the end {each.rounded(end):g} of a range cannot be taken: {reason}"
                )


def _unfit(texts: Mapping[str, str], config: SearchConfig) -> str:
    """Why there is no plan of some options; "" if there is."""
    try:
        plan_of(texts, config)
    except UsageError as error:
        return str(error)
    return ""


def _begin(search: SearchDir, config: SearchConfig) -> None:
    """Make the folder of a search, or see that it is the same one."""
    path = search.path
    is_other = path.exists() and not (path / SEARCH).exists()
    # A driver that was killed while it began has left an unfinished file.
    names = {entry.name for entry in path.iterdir()} if is_other else set()
    if any(name not in FOLDERS and not name.startswith(f".{SEARCH}.") for name in names):
        raise OutputError(f"{path} exists and is not a search. Name another folder")
    try:
        search.create(config)
    except ConflictError as error:
        before, now = asdict(search.config), asdict(config)
        before |= before.pop("options")
        now |= now.pop("options")
        changes = [
            f"{name.replace('_', ' ')} was {before.get(name)!s:.60}, now {now.get(name)!s:.60}"
            for name in dict.fromkeys([*before, *now])
            if before.get(name) != now.get(name)
        ]
        raise OutputError(
            f"{path} is the folder of another search: {'; '.join(changes)}. Take the options of "
            f"before, or choose another folder"
        ) from error


def _run(
    search: SearchDir, how: Execution, wanted: int, say: Say, *, take_over: bool = False
) -> None:
    config = search.config
    how.check_places(search.path, config.data, config.evaluation)
    places = filter(None, (config.data, config.evaluation))
    how = how.for_paths(search.path, *map(path_of, places))
    with signals.interrupting(), lease.hold(search.path, take_over=take_over):
        if wanted < search.wanted:
            raise UsageError(
                f"--trials {wanted}: {search.path} has {count(search.wanted, 'trial')} already, "
                f"expected as many or more"
            )
        most = samplers.size(config.sampler, config.space)
        if most is not None and wanted > most:
            raise UsageError(
                f"--trials {wanted}: expected at most {most:,}, the points of the grid"
            )
        check_data(config.data, config.data_sha256)
        if config.evaluation is not None and config.eval_sha256 is not None:
            check_data(config.evaluation, config.eval_sha256, "--eval")
        search.want(wanted, how.to_dict())
        for folder in (search.path, *(search.path / name for name in FOLDERS)):
            remove_ended(folder)
        workers = f"{count(how.workers, 'worker')} of runner {how.runner}"
        where = "in this process" if how.kind.is_alone else workers
        say(f"{count(wanted, 'trial')} by {config.sampler}: {where}")
        step = config.width or wanted
        # Workers stay from job to job.
        with Resumable.of(how).workers():
            for start in range(0, wanted, step):
                _ask(search, range(start, start + step))
                standing = search.standing(min(start + step, wanted), 1)
                if all(trial.asked.plan_sha256 is None for trial in standing.trials):
                    raise UsageError(_all_failed(search, standing.trials))
                _train(search, how, standing, say)
            while (standing := search.standing(wanted)).waiting:
                _train(search, how, standing, say)
        search.write_table(standing.trials)
        if (best := search.best_of(standing.trials)) is None:
            raise GradreduceError(_all_failed(search, standing.trials))
        _publish_best(search, best)


def _ask(search: SearchDir, numbers: range) -> None:
    """Publish the options of a generation, all of it, before any of it is trained.

    It follows from the results of all trials before it, in the order of their numbers.
    """
    config = search.config
    if all(search.asked(unit) is not None for n in numbers for unit in search.units(n)):
        return
    before = search.standing(numbers.start, 1).trials
    earlier = [samplers.Scored(trial.asked.chosen, search.score(trial)) for trial in before]
    draws = samplers.ask(config.sampler, config.space, config.sampler_seed, numbers, earlier)
    for number, draw in zip(numbers, draws, strict=True):
        for unit, asked in zip(search.units(number), asked_of(draw, config), strict=True):
            if search.asked(unit) is None:
                search.ask(unit, asked)


def _train(search: SearchDir, how: Execution, standing: Standing, say: Say) -> None:
    """Have the trials that wait trained up to their rung, in one job."""
    trials, rung, numbers = standing
    if not numbers:
        return
    program = Trials(str(search.results), search.config.sha256, tuple(numbers), rung)
    began, first = time.monotonic(), len(program.missing())

    def tell(text: str) -> None:
        done = first - len(program.missing())
        seconds = (time.monotonic() - began) * (first - done) / max(done, 1)
        minutes, seconds_left = divmod(round(seconds), 60)
        say(f"{text}, {minutes}:{seconds_left:02d} left" if done else text)

    if how.kind.is_alone:
        unit_files.advance(program, InProcess(how), tell)
        return
    tasks = len(numbers) if how.traits.is_here else min(len(numbers), _TASKS * how.workers)
    try:
        unit_files.advance(program, Chain(how, tasks), tell)
    except Exception as error:
        killed = [number for number in numbers if _was_killed(search.run(number))]
        if not killed:
            raise
        trial = trials[search.trial_of(killed[0])]
        (row,) = (row for row in trial.folds if row.unit == killed[0])
        raise GradreduceError(
            f"{error}. The worker of trial {trial.number} was killed, perhaps for lack of memory: "
            f"{search.command(row)}"
        ) from error


def _was_killed(run: RunDir) -> bool:
    """Whether who trained a run has ended without giving its lease back."""
    holder = lease.holder(run.path)
    return holder is not None and not lease.is_alive(holder)


def _all_failed(search: SearchDir, trials: Sequence[Trial]) -> str:
    """The reasons for which no trial has a model, and how often each occurs."""
    reasons = Counter(trial.result.reason for trial in trials if trial.result is not None)
    listed = "; ".join(f"{number:,} × {reason!s:.300}" for reason, number in reasons.most_common(3))
    more = f"; and {len(reasons) - 3:,} other reasons" if len(reasons) > 3 else ""
    return f"{search.path}: all {count(len(trials), 'trial')} failed: {listed}{more}"


def _publish_best(search: SearchDir, trial: Trial) -> None:
    """Copy the run of the best trial; or train it again on all rows, if it has held some out.

    What is there is taken as it is. With patience, rows that are held out say when a training ends.
    """
    config, options, best = search.config, trial.asked.options, RunDir(search.best)
    is_again = config.evaluation is None and "patience" not in options
    wanted = trial.asked.plan_sha256
    if is_again:
        left_out = ("held_out", "fold", "eval_every")
        settings = settings_of({n: text for n, text in options.items() if n not in left_out})
        wanted = creating.plan(settings, path_of(config.data), None).sha256
    # One without a configuration was left by a driver that was killed.
    is_whole = (best.path / "run.json").exists() and best.config.plan.sha256 == wanted
    if best.path.exists() and not (is_whole and (is_again or best.result() is not None)):
        remove_folder(best.path, "run.json")
        is_whole = False
    if is_again:
        if not is_whole:
            creating.create(best.path, settings, path_of(config.data), None, config.numeric_profile)
        training.train(best, HERE, 1, Events())
        return
    if is_whole:
        return
    number = trial.number if trial.same_as is None else trial.same_as
    source = search.run(search.units(number)[0]).path
    skipped = {"lease.json", "lease.lock"}
    files = [path for path in source.rglob("*") if path.is_file() and path.name not in skipped]
    for path in sorted(files, key=lambda path: path.name == "run.json"):
        target = best.path / str(path).removeprefix(f"{source}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        publish(target, path.read_bytes())
