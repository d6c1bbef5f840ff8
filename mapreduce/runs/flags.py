"""The table of the options of executions. ``--help`` needs it, so it imports nothing slow."""

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mapreduce.engine.registry import EXECUTORS
from mapreduce.errors import UsageError
from mapreduce.plan.flags import Option, checked, expect, grouped, is_count, up_to
from mapreduce.support import traits
from mapreduce.support.options import Bound
from mapreduce.support.traits import MOST_FILES, RUNNERS, Traits
from mapreduce.support.trust import OWN, trust

if TYPE_CHECKING:
    from mapreduce.runs.directory import RunDir
    from mapreduce.runs.execution import Execution

#: Options that decide how fast a result is computed. When resuming, None means as before.
EXECUTION = grouped(
    "Execution",
    Option(
        "--threads",
        int,
        None,
        "number of threads of each worker (default: auto, the fastest)",
        bound=up_to(1024),
        is_auto=True,
    ),
    Option(
        "--executor",
        str,
        "auto",
        "chain runs each round as a step of a job; gang starts one job whose tasks stay, and "
        "exchange gradients themselves, so that rounds take milliseconds on clusters too; here "
        "computes in this process, without a job, for small data; auto tries what is promising of "
        "chain and gang in the first rounds, and keeps the fastest; MODULE:NAME is one of your own "
        "(default: auto)",
        family=EXECUTORS,
        is_auto=True,
    ),
    Option(
        "--blocks",
        int,
        None,
        "number of parts of the parameters; each part has its own reducer (default: auto, which is "
        "1 for a chain, and more for a gang with a large model)",
        bound=up_to(MOST_FILES),
        is_auto=True,
    ),
    Option(
        "--stages",
        int,
        1,
        "number of tasks of a gang that hold a network together, each some of its layers; the "
        "number of workers is a multiple of it",
        bound=up_to(1024),
    ),
    Option(
        "--keep",
        int,
        3,
        "number of checkpoints to keep; 0 keeps all",
        bound=Bound("a number of checkpoints", is_count),
    ),
) + grouped(
    "Clusters",
    Option(
        "--fan-in",
        int,
        0,
        "largest number of partial sums that one reducer merges, a power of 2; 0 merges all",
        bound=Bound(
            "0 or a power of two from 2 on",
            lambda number: number == 0 or (number >= 2 and not number & (number - 1)),
        ),
    ),
    Option(
        "--rounds-per-job",
        int,
        50,
        "largest number of rounds in one mrjob job of a chain",
        bound=up_to(10_000),
    ),
    Option(
        "--gang-wait",
        float,
        60.0,
        "how many seconds the tasks of a gang wait for each other",
        bound=Bound("a positive number of seconds", lambda number: 0 < number < math.inf),
    ),
    Option(
        "--gang-fallback",
        str,
        "error",
        "what to do when the tasks of a gang cannot all run at once: end with an error, or "
        "continue as a chain",
        ("error", "chain"),
    ),
    Option(
        "--slow-worker",
        str,
        None,
        "for experiments: make a worker of a gang slower by a factor, as 1:4; workers are numbered "
        "from 0",
        bound=Bound(
            "RANK:FACTOR, a worker's number and a factor from 1 on, such as 1:4",
            lambda text: slow_worker(text) is not None,
        ),
    ),
)

#: What a driver may choose for a training, if the user does not.
AUTO = ("executor", "workers", "threads", "blocks")

#: Options of executions that the executor here takes.
_ALONE = ("executor", "threads", "blocks", "keep")

PROFILE = Option(
    "--numeric-profile",
    str,
    "native",
    "native uses every instruction of the processor; portable gives the same bits on other "
    "processors too",
    ("native", "portable"),
    group="Execution",
)


#: Options that decide where a job runs. A run may name a runner that is not installed here.
RUNNER = grouped(
    "Execution",
    Option("--runner", str, None, "where the map and reduce tasks run (default: parallel)"),
    Option(
        "--workers",
        int,
        None,
        "number of map tasks at once (default: auto, which is the fastest number for a training, "
        "and else one per core; emr: 4)",
        bound=up_to(MOST_FILES),
        is_auto=True,
    ),
    Option(
        "--start-method",
        str,
        None,
        "how -r parallel starts its workers (default: fork on Linux)",
        ("fork", "forkserver"),
    ),
)

#: Where a model computes that is in use; a training's device is of its plan.
DEVICE = Option(
    "--device",
    str,
    "cpu",
    "where predictions are computed; auto takes cuda if a GPU can be used",
    ("auto", "cpu", "cuda"),
    group="Execution",
)


def recorded(run: "RunDir") -> tuple[dict[str, Any], list[str]]:
    """The last execution of a run, from a file that anybody may have written.

    Returns numbers and choices, by the names of options; and arguments for mrjob, to be shown. They
    can run programs, so they are not used.
    """
    from mapreduce.errors import DataError

    path, content = run.path / "execution.json", run.read_json("execution.json") or {}
    try:
        names = [option.name for option in (*RUNNER, *EXECUTION)]
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


def execution(given: Mapping[str, Any], runner: Traits | None = None) -> "Execution":
    """The execution of some values of :data:`EXECUTION`, :data:`RUNNER` and ``mrjob_arguments``.

    Other values are the defaults. ``runner`` replaces the traits of the runner of the given name.
    """
    from mapreduce.runs.execution import Execution

    values = {option.name: option.default for option in (*RUNNER, *EXECUTION)} | {**given}
    is_alone = values["executor"] == "here"
    name = values["runner"] = values["runner"] or ("inline" if is_alone else "parallel")
    if runner is None and not RUNNERS.has(name):
        known = ", ".join(RUNNERS.names)
        raise UsageError(f"--runner: expected one of {known}, found {name!r:.60}")
    runner = runner or traits.of(name)
    for option in (*RUNNER, *EXECUTION):
        option.check(values[option.name])
    auto = tuple(each for each in AUTO if values[each] in (None, "auto"))
    values |= dict.fromkeys(auto)
    if values["executor"] is not None:
        executor, arguments = EXECUTORS.split(values["executor"])
        expect(arguments is None, "--executor", "no arguments", f"{executor}:{arguments}")
        # What those of others cost is not known, so that nothing is tried.
        auto = auto if executor in EXECUTORS else ()
    if values["stages"] > 1:
        values, auto = _staged(values, runner), ()
    if is_alone:
        values, auto = _alone(values), ()
    workers, is_gang = values["workers"], values["executor"] == "gang"
    if workers is not None:
        most = up_to(runner.most_workers)
        expect(most.holds(workers), "--workers", most.text, workers)
    if is_gang:
        asked = f"--stages {values['stages']}" if values["stages"] > 1 else "--executor gang"
        traits.require_gangs(runner, name, asked)
    if (slow := values["slow_worker"]) is not None:
        _check_slow_worker(slow, is_gang, workers)
    values |= {"auto": auto, "executor": values["executor"] or "chain"}
    values |= {"workers": workers or runner.default_workers(), "threads": values["threads"] or 1}
    values["blocks"] = values["blocks"] or (0 if is_gang else 1)
    values["mrjob_arguments"] = tuple(values.get("mrjob_arguments") or ())
    used = [one.name for one in fields(Execution) if values.get(one.name) is not None]
    return Execution(**{name: values[name] for name in used})


def trust_executor(given: Mapping[str, Any]) -> None:
    """Let an executor be imported that the user has named."""
    if OWN.fullmatch(given.get("executor") or ""):
        trust(given["executor"])


def _alone(values: dict[str, Any]) -> dict[str, Any]:
    """The values for this process alone, which takes no option of jobs and of other processes."""
    from mapreduce.runs.execution import Execution

    usual = vars(Execution("inline"))
    others = [option for option in (*RUNNER, *EXECUTION) if option.name not in _ALONE]
    given = {option.flag: values[option.name] for option in others}
    wrong = [
        f"{one.flag} {given[one.flag]}"
        for one in others
        if given[one.flag] not in (None, usual[one.name])
    ]
    if arguments := values.get("mrjob_arguments"):
        wrong.append(f"-- {' '.join(arguments)}")
    wanted = "no option of jobs and workers, since this process computes alone"
    expect(not wrong, "--executor here", wanted, ", ".join(wrong))
    return {**values, "runner": "inline", "workers": 1}


def is_open(values: Mapping[str, Any]) -> bool:
    """Whether nobody has said how the rounds are run."""
    free = {*_ALONE} - {"executor"}
    others = [option for option in (*RUNNER, *EXECUTION) if option.name not in free]
    given = (values[each.name] for each in others if values[each.name] != each.default)
    return not values.get("mrjob_arguments") and all(value in (None, "auto") for value in given)


def _staged(values: dict[str, Any], runner: Traits) -> dict[str, Any]:
    """The values for tasks that have stages of the model, of which nothing is tried."""
    stages, workers = values["stages"], values["workers"]
    given, option = values["executor"], f"--stages {stages}"
    expect(given in (None, "gang"), option, "--executor gang", f"--executor {given}")
    expect(values["threads"] in (None, 1), option, "--threads 1", f"--threads {values['threads']}")
    workers = workers or max(runner.default_workers() // stages, 1) * stages
    multiple = f"--workers that are a multiple of {stages}"
    expect(workers % stages == 0, option, multiple, f"--workers {workers}")
    return {**values, "executor": "gang", "workers": workers}


def slow_worker(text: str) -> tuple[int, float] | None:
    """The number and the factor of ``--slow-worker``; None if a text is not of that form."""
    found = re.fullmatch(r"(\d{1,9}):(\d+(?:\.\d*)?)", text, re.ASCII)
    if found is None or not 1 <= float(found[2]) < math.inf:
        return None
    return int(found[1]), float(found[2])


def _check_slow_worker(text: str, is_gang: bool, workers: int | None) -> None:
    if not is_gang or workers is None:
        raise UsageError(
            f"--slow-worker {text}: expected --executor gang and a number of --workers, since only "
            f"the workers of a gang have numbers"
        )
    rank, _ = slow_worker(text) or (0, 1)
    expect(rank < workers, "--slow-worker", f"a number from 0 to {workers - 1}", rank)
