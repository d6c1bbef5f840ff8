"""``gradreduce train`` and ``resume`` of a fit: an estimator's rounds in the folder of a run."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import Hooks
from mapreduce.errors import DataError, UsageError
from mapreduce.executors.resumable import Resumable
from mapreduce.models import FITS
from mapreduce.plan.flags import PLAN
from mapreduce.runs import flags
from mapreduce.runs.events import Events, JsonLines, RoundPublished, RunEnded, RunStarted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.runs.fits import FitConfig, FitDir
from mapreduce.support import options, signals
from mapreduce.support.options import expect
from mapreduce.training import start as starting
from mapreduce.training.creating import check_data
from mapreduce.training.driver import tracing

#: The options of trainings by gradients, which no fit takes.
OTHERS = {row.name for row in PLAN} - {"model", "seed"} | {"evaluation", "keep", "dry_run"}


def is_fitted(model: str) -> bool:
    """Whether a model, as ``--model`` names it, is fitted without gradients."""
    return model.partition(":")[0] in FITS


def refuse(flag: str, model: str) -> None:
    """Raise a UsageError for an option of :data:`OTHERS`."""
    raise UsageError(
        f"{flag} is for trainings by gradients, and {model} is fitted without any. Leave it out. "
        f"'gradreduce models list' has the model's own options"
    )


def parse(text: str) -> Any:
    """The options of ``k-means:8`` or ``k-means:clusters=8,moves=20``.

    Raises UsageError (they are wrong, or the name is unknown).
    """
    name, values = FITS.split(text)
    kind = FITS.find(name)
    if values and "=" not in values.partition(",")[0]:
        values = f"{fields(kind)[0].name}={values}"
    return options.parse(kind, values, f"--model {name}")


def start(values: Mapping[str, Any], events: Events) -> FitDir:
    """Make the run of a fit by the options of ``gradreduce train``, and fit the model.

    Errors are those of the rounds, too.
    """
    model, seed, data = values["model"], values["seed"], Dataset(values["data"].absolute())
    if not parse(model).has_seed and seed:
        raise UsageError(f"--seed: {model} draws nothing. Leave it out")
    flags.trust_executor(values)
    how, run = flags.execution({**values, "stays": True}), FitDir(values["run"].absolute())
    if how.stays:
        how = flags.execution({**values, "executor": "here"})
    sha256, profile = data.check_sizes().sha256, values["numeric_profile"]
    run.create(FitConfig(model, str(data.folder), sha256, seed, profile))
    try:
        _fit(run, how, events)
    except Exception as error:
        # No other rows or options can follow: it would fail again.
        if getattr(error, "exit_code", None) in (DataError.exit_code, UsageError.exit_code):
            run.remove()
        raise
    return run


def resume(
    run: FitDir, given: Mapping[str, Any], events: Events, warn: Callable[[str], None]
) -> FitDir:
    """Continue a fit; see :func:`mapreduce.training.start.resume` for the parameters."""
    # Raises an error where there is no run.
    data = run.config.data
    for name, flag in {"evaluation": "--eval", "keep": "--keep"}.items():
        if given.get(name) is not None:
            raise UsageError(f"{flag} is for trainings, and {run.path} is a fit. Leave it out")
    moved, how = given.get("data"), starting.execution_again(run.folder, given, warn)[0]
    if moved is None:
        starting.require_named_places(run.path, [data], given.get("remote_data", ()))
    _fit(run, how, events, moved=moved, take_over=bool(given.get("take_over")))
    return run


def _fit(
    run: FitDir,
    how: Execution,
    events: Events,
    *,
    moved: AnyPath | None = None,
    take_over: bool = False,
) -> None:
    rounds = run.folder.rounds
    expect(how.stages == 1, "--stages", "1, since a fit has no layers to share", how.stages)
    with (
        signals.interrupting(),
        run.hold(take_over=take_over),
        contextlib.closing(JsonLines(run.path / "events.jsonl")) as lines,
    ):
        events.subscribe(lines)
        if run.model is not None:
            run.end()
            return
        place = run.config.data if moved is None else str(moved.absolute())
        how.check_places(run.path, place)
        how.check_trace(run.path)
        manifest = check_data(place, run.config.data_sha256)
        if moved is not None:
            run.move(place)
        config = run.config
        run.folder.write_json("execution.json", how.to_dict(), once=False)
        events.emit(
            RunStarted(
                run=str(run.path),
                completed=max(rounds.complete(), default=0),
                rounds=0,
                batch_size=manifest.rows,
                runner=how.runner,
                workers=how.workers,
                executor=how.executor,
                model=config.model,
            )
        )
        estimator = parse(config.model).estimator(manifest, config.seed)
        how = how.for_paths(run.path, path_of(config.data))
        estimator.executor = Resumable.of(how, place=rounds.folder)

        def warn(message: str) -> None:
            events.emit(Warned(message))

        estimator.executor.hooks = Hooks(
            news=lambda completed, blocks: events.emit(RoundPublished(completed)), warn=warn
        )
        with tracing(how, run.path, warn):
            estimator.fit(path_of(config.data))
        fitted = replace(
            estimator.fitted_,
            options={"model": config.model},
            numeric_profile=config.numeric_profile,
            completed=max(rounds.complete()),
        )
        run.save(fitted)
        events.emit(RunEnded(fitted.completed, fitted.model_sha256, stopped_early=False))
