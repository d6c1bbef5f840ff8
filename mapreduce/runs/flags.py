"""The table of the options of executions. ``--help`` needs it, so it imports nothing slow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapreduce.engine.registry import EXECUTORS, kind_of
from mapreduce.errors import UsageError
from mapreduce.support import traits
from mapreduce.support.options import Bound, checked, expect, is_count, option, table, up_to
from mapreduce.support.traits import MOST_FILES, RUNNERS, Traits
from mapreduce.support.trust import OWN as CODE
from mapreduce.support.trust import trust

if TYPE_CHECKING:
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.execution import Execution


@dataclass(frozen=True)
class _Executing:
    threads: int | None = option(
        None,
        "number of threads of each worker (default: auto, the fastest)",
        up_to(1024),
        is_auto=True,
    )
    executor: str = option(
        "auto",
        "chain runs each round as a step of a job; gang starts one job whose tasks stay, and "
        "exchange gradients themselves, so that rounds take milliseconds on clusters too; here "
        "computes in this process, without a job, for small data; auto tries the "
        "promising ways of chain and gang in the first rounds, and keeps the fastest; MODULE:NAME "
        "is an executor of your own (default: auto)",
        family=EXECUTORS,
        is_auto=True,
    )
    blocks: int | None = option(
        None,
        "number of parts of the parameters; each part has its own reducer (default: auto, which is "
        "1 for a chain, and more for a gang with a large model)",
        up_to(MOST_FILES),
        is_auto=True,
    )
    keep: int = option(
        3,
        "number of checkpoints to keep; 0 keeps all",
        Bound("a number of checkpoints", is_count),
    )
    trace: bool = option(
        False,
        "note where the time goes, in the folder timing of the run, for gradreduce report "
        "(default: no-trace)",
        flag="--trace/--no-trace",
    )


@dataclass(frozen=True)
class _Running:
    runner: str | None = option(None, "where the map and reduce tasks run (default: parallel)")
    workers: int | None = option(
        None,
        "number of map tasks at once (default: auto, for a training the fastest number, for other "
        "jobs one per core; emr: 4)",
        up_to(MOST_FILES),
        is_auto=True,
    )


@dataclass(frozen=True)
class _Profile:
    numeric_profile: str = option(
        "native",
        "native uses every instruction of the processor; portable gives the same bits on other "
        "processors too",
        choices=("native", "portable"),
    )


@dataclass(frozen=True)
class _Using:
    device: str = option(
        "cpu",
        "where predictions are computed; auto takes cuda if a GPU can be used",
        choices=("auto", "cpu", "cuda"),
    )


#: Options that decide how fast a result is computed. When resuming, None means as before.
EXECUTION = (*table(_Executing, "Execution"), *EXECUTORS.options)

#: Options that decide where a job runs. A run may name a runner that is not installed here.
RUNNER = (*table(_Running, "Execution"), *RUNNERS.options)

#: What a driver may choose for a training, if the user does not.
AUTO = ("executor", "workers", "threads", "blocks")

#: The options of executions that say nothing of jobs and workers.
ALONE = ("executor", "threads", "blocks", "keep", "trace")

(PROFILE,) = table(_Profile, "Execution")

#: Where a model computes that is in use; a training's device is of its plan.
(DEVICE,) = table(_Using, "Execution")


def recorded(run: "RunDir") -> tuple[dict[str, Any], list[str]]:
    """The last execution of a run, from a file that anybody may have written.

    Returns numbers and choices, by the names of options; and arguments for mrjob, to be shown. They
    can run programs, so they are not used.
    """
    from mapreduce.errors import DataError

    path, content = run.path / "execution.json", run.read_json("execution.json") or {}
    try:
        names = [row.name for row in (*RUNNER, *EXECUTION)]
        found = checked({n: content[n] for n in names if n in content}, RUNNER, EXECUTION)
        arguments = content.get("mrjob_arguments", [])
        if type(arguments) is not list or not all(type(part) is str for part in arguments):
            raise UsageError(f"mrjob_arguments: expected texts, found {arguments!r:.60}")
        # The runner may not be installed here, and no cluster is asked yet.
        is_harmless = traits.is_harmless(found.get("runner", "parallel"))
        execution(found, None if is_harmless else Traits())
    except (UsageError, OverflowError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    return {n: value for n, value in found.items() if value not in (None, "auto")}, arguments


def execution(
    given: Mapping[str, Any], runner: Traits | None = None, *, alone: bool = False
) -> "Execution":
    """The execution of some values of :data:`EXECUTION`, :data:`RUNNER` and ``mrjob_arguments``.

    Other values are the defaults. If nobody has said how rounds are run, ``alone`` runs them in
    this process, and ``stays`` allows :attr:`Execution.stays`. ``runner`` replaces the traits of
    the runner of the given name.
    """
    from mapreduce.runs.execution import OWN, Execution, expanded

    rows = (*RUNNER, *EXECUTION)
    values = {row.name: row.default for row in rows} | expanded(given)
    if alone and _is_open(values):
        values["executor"] = "here"
    spec = None if values["executor"] in (None, "auto") else values["executor"]
    needed = _needed_executor(values, spec)
    kind = kind_of(spec or needed)
    name = values["runner"] or kind.usual_runner
    if runner is None and not RUNNERS.has(name):
        known = ", ".join(RUNNERS.names)
        raise UsageError(f"--runner: expected one of {known}, found {name!r:.60}")
    runner = runner or traits.of(name)
    for row in rows:
        row.check(values[row.name])
    auto = tuple(each for each in AUTO if values[each] in (None, "auto"))
    values |= dict.fromkeys(auto)
    workers = values["workers"]
    if workers is not None:
        most = up_to(runner.most_workers)
        expect(most.holds(workers), "--workers", most.text, workers)
    how = Execution(
        name,
        workers or kind.usual_workers(runner),
        values["threads"] or 1,
        values["blocks"] or kind.usual_blocks,
        executor=spec or needed or "chain",
        mrjob_arguments=tuple(values.get("mrjob_arguments") or ()),
        auto=auto,
        stays=bool(values.get("stays")) and _is_open(values),
        trace=values["trace"],
        **{name: values[name] for name in OWN},
    )
    found: Execution = kind.settle(how, runner)
    return found


def for_another(before: Mapping[str, Any], executor: str) -> dict[str, Any]:
    """The values of an execution that also suit another executor."""
    kinds = kind_of(before.get("executor")), kind_of(executor)
    if any(kind.is_alone for kind in kinds):
        return {name: before[name] for name in ("keep", "threads", "trace") if name in before}
    own = {"blocks"} | {row.name for row in EXECUTION if row.needs_owner}
    return {name: value for name, value in before.items() if name not in own}


def _needed_executor(values: Mapping[str, Any], spec: str | None) -> str | None:
    """The executor that an option asks for; a UsageError if another was chosen."""
    for name, rows in EXECUTORS.tables().items():
        for row in rows:
            if row.needs_owner and (value := values[row.name]) != row.default:
                asked = f"{row.flag} {value}"
                expect(spec in (None, name), asked, f"--executor {name}", f"--executor {spec}")
                return name
    return None


def trust_executor(given: Mapping[str, Any]) -> None:
    """Let an executor be imported that the user has named."""
    if CODE.fullmatch(given.get("executor") or ""):
        trust(given["executor"])


def _is_open(values: Mapping[str, Any]) -> bool:
    """Whether nobody has said how the rounds are run."""
    fitting = {*ALONE} - {"executor", "trace"}
    others = [each for each in (*RUNNER, *EXECUTION) if each.name not in fitting]
    chosen = (values[each.name] for each in others if values[each.name] != each.default)
    return not values.get("mrjob_arguments") and all(value in (None, "auto") for value in chosen)
