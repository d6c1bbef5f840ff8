"""``gradreduce train`` and ``resume`` of a fit: an estimator's rounds in the folder of a run."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.engine.executor import Hooks
from mapreduce.errors import UsageError
from mapreduce.executors.resumable import Resumable
from mapreduce.models import FITS
from mapreduce.models.fitted import FittedModel
from mapreduce.runs.events import Events, JsonLines, RoundPublished, RunEnded, RunStarted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.runs.fits import FitDir
from mapreduce.support import signals
from mapreduce.support.options import expect
from mapreduce.training import start as starting
from mapreduce.training.creating import check_data
from mapreduce.training.driver import tracing


def resume(
    run: FitDir, given: Mapping[str, Any], events: Events, warn: Callable[[str], None]
) -> RunEnded:
    """Continue a fit; see :func:`mapreduce.training.start.resume` for the parameters."""
    # Raises an error where there is no run.
    data = run.config.data
    for name, flag in {"evaluation": "--eval", "keep": "--keep"}.items():
        if given.get(name) is not None:
            raise UsageError(f"{flag} is for trainings, and {run.path} is a fit. Leave it out")
    moved, how = given.get("data"), starting.execution_again(run.folder, given, warn)[0]
    if moved is None:
        starting.require_named_places(run.path, [data], given.get("remote_data", ()))
    take_over = bool(given.get("take_over"))
    return fit(run, how, events, moved=moved, take_over=take_over)


def fit(
    run: FitDir,
    how: Execution,
    events: Events,
    *,
    moved: AnyPath | None = None,
    take_over: bool = False,
) -> RunEnded:
    """Fit the model of a run to its end, from wherever its rounds stand; see :func:`resume`."""
    rounds = run.folder.rounds
    expect(how.stages == 1, "--stages", "1, since a fit has no layers to share", how.stages)
    with (
        signals.interrupting(),
        run.hold(take_over=take_over),
        contextlib.closing(JsonLines(run.path / "events.jsonl")) as lines,
    ):
        events.subscribe(lines)
        if (fitted := run.model) is not None:
            run.end()
            return _ended(fitted)
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
        estimator = FITS.parse(config.model).estimator(manifest, config.seed)
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
        events.emit(ended := _ended(fitted))
        return ended


def _ended(fitted: FittedModel) -> RunEnded:
    return RunEnded(fitted.completed, fitted.model_sha256, stopped_early=False)
