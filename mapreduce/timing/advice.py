"""What to try next, as a command: for each cause, another training, or a look at a job."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mapreduce.engine.registry import kind_of
from mapreduce.errors import DataError
from mapreduce.plan.flags import PLAN
from mapreduce.runs import flags
from mapreduce.runs.directory import RunDir
from mapreduce.support import traits
from mapreduce.support.commands import command
from mapreduce.timing.cause import START, Cause

#: By kind: what to do, and options of a training with other values; numbers are factors.
_TRAININGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "slow worker": ("do without the slow rank", {"workers": None}),
    "uneven shares": ("cut the batch into smaller slices", {"slice_rows": 0.5}),
    "exchange by bytes": ("exchange less often, by larger batches", {"batch_size": 4}),
    "exchange by delay": ("exchange less often, by larger batches", {"batch_size": 4}),
    "sums and updates": ("update less often, by larger batches", {"batch_size": 4}),
    "tiny slices": ("take larger slices", {"slice_rows": 8}),
    "fixed cost of a round": ("take larger batches", {"batch_size": 4}),
    "publishing": ("keep the run on a faster disk", {"run": "/dev/shm/run"}),  # noqa: S108
    "evaluation": ("evaluate less often", {"eval_every": 10}),
    "start and many jobs": ("train in one process, without jobs", {"executor": "here"}),
    "gaps of the driver": ("train by ranks that stay", {"executor": "gang"}),
    "slow task": ("train by ranks that stay, which share by speed", {"executor": "gang"}),
}
#: Without jobs.
_LONGER = "let more rounds share the start", {"rounds": 4}
_JOBS = {
    "tiny tasks": ("join the files", "cat INPUT/* > joined.txt"),
    "slow task": ("see whether it is slow again", "gradreduce run --trace FOLDER JOB INPUT"),
    "start and many jobs": ("run it in one process", "gradreduce run JOB INPUT -r inline"),
    "gaps of the driver": ("run it in one process", "gradreduce run JOB INPUT -r inline"),
}
_LOOK = "see which key it is", "gradreduce explain JOB INPUT"
_BUSY = "see what else runs on these processors", "ps -eo pcpu,pid,args --sort=-pcpu | head"


def advise(cause: Cause, run: RunDir | None, workers: int) -> tuple[str, str]:
    """What to try against a cause, in words and as a command.

    Parameters
    ----------
    cause : Cause
    run : RunDir or None
        None for the trace of a job.
    workers : int
        Of the run.
    """
    if cause.kind == "busy processors":
        return _BUSY
    if run is None:
        return _JOBS.get(cause.kind, _LOOK)
    if cause.kind == "slow reads":
        copy = command("cp", "-r", run.config.data, "/dev/shm/")  # noqa: S108
        return "copy the data into memory, and train on them", copy
    text, changes = _TRAININGS.get(cause.kind, _TRAININGS["slow task"])
    if cause.kind == START and _is_alone(run):
        text, changes = _LONGER
    plan, values = run.config.plan, dict(changes)
    if "workers" in changes:
        values["workers"] = max(workers - len(cause.ranks), 1)
    if "slice_rows" in changes:
        # Each replica needs a slice.
        most = min(plan.slice_rows * changes["slice_rows"], plan.batch_size // plan.replicas)
        divisors = (n for n in range(max(int(most), 1), 0, -1) if not plan.batch_size % n)
        values["slice_rows"] = next(divisors)
        if values["slice_rows"] == plan.slice_rows:
            text, values = "take larger batches", {"slice_rows": 4 * plan.slice_rows}
            values["batch_size"] = 4
    if "batch_size" in values:
        values["rounds"] = max(plan.rounds // values["batch_size"], 1)
        values["batch_size"] *= plan.batch_size
    if "rounds" in changes:
        values["rounds"] = changes["rounds"] * plan.rounds
    if "eval_every" in changes:
        values["eval_every"] = plan.eval_every * changes["eval_every"]
    return text, training(run, values)


def training(run: RunDir, changes: Mapping[str, Any]) -> str:
    """The command of a run with other options, into another folder; True is a flag."""
    config, rest = run.config, dict(changes)
    words = [config.data, "--run", rest.pop("run", f"{run.path}-2")]
    if config.evaluation:
        words += ["--eval", config.evaluation]
    for option in PLAN:
        value = rest.pop(option.name, getattr(config.plan, option.name, None))
        is_needless = option.name == "eval_every" and not config.evaluation
        is_default = value == option.default or (option.default is None and not value)
        if is_needless or is_default or not isinstance(value, str | int | float):
            continue
        words += [option.flag] if value is True else [option.flag, value]
    for name, value in {**_execution(run, rest), **rest}.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, value]
    return command("gradreduce", "train", *words)


def _is_alone(run: RunDir) -> bool:
    """Whether the run was last trained in one process, as far as is known."""
    with suppress(DataError):
        return bool(kind_of(flags.recorded(run)[0].get("executor")).is_alone)
    return False


def _execution(run: RunDir, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The options by which a run was executed, where they are no defaults, for another like it."""
    before: dict[str, Any] = {}
    # A report says more than what to try next.
    with suppress(DataError):
        before, _ = flags.recorded(run)
    executor = changes.get("executor", before.get("executor"))
    kind = kind_of(executor)
    if executor != before.get("executor") or kind.is_alone:
        before = flags.for_another(before, executor) | {"executor": executor}
    elif "workers" in changes:
        # There may be too few for the stages.
        before.pop("stages", None)
    elif (
        "trace" in changes
        and not kind.meets
        and not traits.of(before.get("runner", "")).notes_tasks
    ):
        # Ranks note their phases themselves.
        before.pop("runner", None)
    usual = {row.name: row.default for row in (*flags.EXECUTION, *flags.RUNNER)}
    usual["runner"] = kind.usual_runner
    left_out = {*changes, "trace", "slow_worker"}
    return {
        name: value
        for name, value in before.items()
        if name not in left_out and value != usual[name]
    }
