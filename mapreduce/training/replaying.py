"""Repeating an asynchronous training from its log, to the same bits."""

import shutil
from pathlib import Path

from hdfs_utils.atomic import storage_errors
from mapreduce.data.manifest import RECIPE
from mapreduce.errors import DataError, UsageError
from mapreduce.plan import strategies
from mapreduce.plan.plan import Plan
from mapreduce.runs import pushes
from mapreduce.runs.directory import INITIAL, Moved, RunDir
from mapreduce.runs.events import Events, RunEnded
from mapreduce.runs.execution import Execution
from mapreduce.support.commands import resume
from mapreduce.training import driver


def replay(
    run: RunDir, place: Path, execution: Execution, events: Events, moved: Moved | None = None
) -> RunEnded:
    """Train an asynchronous run that has ended anew, by its log, in the new folder ``place``.

    The run is only read. The number of workers may be another, and the data may have moved.
    """
    plan, result = run.config.plan, run.result()
    if not plan.asynchronous:
        raise UsageError(
            f"{run.path}: expected a run with --asynchronous. The plan of this one decides its "
            f"result: 'gradreduce train' with the same data and options repeats it"
        )
    if result is None:
        raise UsageError(
            f"{run.path} has not ended: there is no model to compare with. Continue it with "
            f"'{resume(run.path)}'"
        )
    if place.exists():
        raise UsageError(f"{place} exists. Name a new folder")
    execution = execution.for_arrivals(place)
    pushes.require_whole(run, lambda start, stop: _units(plan, start, stop))
    with storage_errors("make", place):
        place.mkdir(parents=True)
    source = Path(str(run.path))
    shutil.copytree(source / pushes.FOLDER, place / pushes.FOLDER)
    for name in (RECIPE, INITIAL, "moved.json", "run.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, place / name)
    again = RunDir(place)
    again.make_folders()
    ended = driver.train(again, execution, 1, events, moved=moved)
    if ended.model_sha256 != result.model_sha256:
        raise DataError(
            f"the log gives the model {ended.model_sha256}, and the result of {run.path} is "
            f"{result.model_sha256}. The log may be that of another run with the same options, or "
            f"processor and libraries are not those of the run: compare 'gradreduce runs show'"
        )
    return ended


def _units(plan: Plan, start: int, stop: int) -> int:
    units = strategies.find(plan.strategy).units
    return sum(units(plan, completed) for completed in range(start, stop))
