"""Several runs beside each other: what differs between them, and what they no longer need."""

from collections.abc import Callable, Iterator
from typing import Any

from hdfs_utils.folders import remove_folder
from hdfs_utils.paths import AnyPath, ordered
from mapreduce.errors import MissingInputError
from mapreduce.runs import checkpoint, events, lease
from mapreduce.runs.directory import FIT, RunDir
from mapreduce.runs.fits import FitDir, is_fit

#: Results that runs are sorted by; of the accuracy the highest comes first.
METRICS = ("loss", "accuracy", "eval_loss", "seconds")

Facts = dict[str, dict[str, Any]]


def open_run(path: AnyPath) -> RunDir | FitDir:
    """The run in a folder, of a training or of a fit."""
    return FitDir(path) if is_fit(path) else RunDir(path)


def find_runs(folder: AnyPath, warn: Callable[[str], None]) -> Iterator[RunDir | FitDir]:
    """The runs in a folder and below; ``warn`` gets a message for each that is damaged.

    Raises
    ------
    MissingInputError
        It is not a folder.
    """
    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder")
    for path in ordered([*folder.rglob("run.json"), *folder.rglob(FIT)]):
        run = open_run(path.parent)
        try:
            run.summary()
        except Exception as error:
            # A damaged run must not hide the others.
            warn(f"{run.path} is left out: {error}")
            continue
        yield run


def facts(run: RunDir | FitDir) -> Facts:
    """What is known of a run: its ``plan``, ``data``, ``execution``, ``results``, ``environment``.

    ``seconds`` are those that drivers were at work, up to their last events. A fit has a model and
    a seed for a plan.
    """
    if isinstance(run, FitDir):
        return _facts_of_fit(run)
    config, summary = run.config, run.summary()
    plan = config.plan.to_dict()
    plan |= {f"trunk.{name}": value for name, value in plan.pop("trunk", {}).items()}
    data = plan.pop("data")
    data |= {"rows": sum(data.pop("shard_rows")), "eval_sha256": plan.pop("eval_sha256")}
    names = ("state", "completed", "accuracy", "eval_loss", "model_sha256", "warnings")
    results = {"loss": summary["pass_loss"], **{name: summary[name] for name in names}}
    return {
        "plan": plan,
        "data": {"path": config.data, "evaluation": config.evaluation, **data},
        "execution": run.read_json("execution.json") or {},
        "results": {**results, "seconds": round(_seconds(run), 3)},
        "environment": run.read_json("profile.json") or {},
    }


def _facts_of_fit(run: FitDir) -> Facts:
    config, summary = run.config, run.summary()
    results = {name: summary.get(name) for name in ("state", "completed", "model_sha256")}
    return {
        "plan": {"model": config.model, "seed": config.seed},
        "data": {"path": config.data, "sha256": config.data_sha256},
        "execution": run.folder.read_json("execution.json") or {},
        "results": {
            **dict.fromkeys(METRICS),
            **results,
            "warnings": [],
            "seconds": round(_seconds(run), 3),
        },
        "environment": {},
    }


def _seconds(run: RunDir | FitDir) -> float:
    total = started = 0.0
    last = 0.0
    for event in events.read(run.path / "events.jsonl"):
        at = event.get("time")
        if type(at) is not float:
            continue
        if event["event"] == "RunStarted":
            total, started, last = total + last - started, at, at
        # A clock may be set back.
        last = max(last, at)
    return total + last - started


def differing(runs: list[Facts]) -> dict[str, list[str]]:
    """By the parts of :func:`facts`, the names whose values are not the same in all runs."""
    return {
        part: [
            name
            for name in dict.fromkeys(name for one in runs for name in one[part])
            if any(one[part].get(name) != runs[0][part].get(name) for one in runs)
        ]
        for part in runs[0]
    }


def order(metric: str) -> Callable[[Facts], Any]:
    """The key that sorts runs from the best to the worst; those without the metric come last."""
    sign = -1 if metric == "accuracy" else 1

    def key(run: Facts) -> tuple[bool, float]:
        value = run["results"][metric]
        return value is None, sign * (value or 0.0)

    return key


def needless(run: RunDir | FitDir, failed: bool) -> list[AnyPath]:
    """Files and folders of a run that are not needed any more; those of a live driver's run are.

    Of a run that has ended these are the blocks of rounds, and the checkpoints but its result's. If
    ``failed``, a run that never completed a round is needless as a whole.
    """
    if lease.is_held(run.path):
        return []
    if isinstance(run, FitDir):
        files = run.folder.rounds
        if run.model is not None:
            # A driver that was killed just before its end has left them.
            return [files.folder] if files.folder.exists() else []
        return [run.path] if failed and not max(files.complete(), default=0) else []
    result, saved = run.result(), checkpoint.saved_rounds(run)
    if result is None:
        is_failed = (
            not saved
            and not run.summary()["completed"]
            and not max(run.rounds.complete(), default=0)
        )
        return [run.path] if failed and is_failed else []
    if result.completed not in saved:
        # The rounds are needed to make it again.
        return []
    others = [run.checkpoints / f"{at:08d}" for at in saved if at != result.completed]
    rounds = run.rounds.folder
    return [*others, *ordered(rounds.glob("*.block")), *ordered(rounds.glob("*.unit"))]


def remove(run: RunDir | FitDir, paths: list[AnyPath]) -> None:
    """Delete what :func:`needless` found.

    Raises
    ------
    LeaseError
        A driver has begun to work on the run.
    """
    with lease.hold(run.path):
        for path in paths if paths != [run.path] else []:
            if isinstance(run, FitDir):
                run.end()
            elif path.is_dir():
                remove_folder(path, checkpoint.MARKER)
            else:
                path.unlink(missing_ok=True)
    if paths == [run.path]:
        remove_folder(run.path, FIT if isinstance(run, FitDir) else "run.json")
