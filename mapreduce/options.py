"""The options of a training, once, for the command line and for jobs run by mrjob's convention.

Imports nothing that is slow to load: ``--help`` needs this module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapreduce.executors.chain import Execution
    from mapreduce.rundir import RunDir
    from mapreduce.settings import Settings


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes
    ----------
    flag : str
    type : type
    default : object
        None where the default depends on other things; ``help`` says on which.
    help : str
    choices : tuple of str
    """

    flag: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


#: Options that decide the result.
PLAN = (
    Option(
        "--model",
        str,
        "softmax",
        "softmax, mlp:WIDTH[,WIDTH...], linear, logistic, svm, or hinge-svm",
    ),
    Option("--strategy", str, "sync", "what a round means", ("sync",)),
    Option(
        "--optimizer",
        str,
        "sgd",
        "what is done with a gradient",
        ("sgd", "momentum", "adagrad", "adam", "adamw", "lbfgs"),
    ),
    Option("--learning-rate", float, 0.1, "step size"),
    Option("--momentum", float, 0.9, "decay of the velocity, for --optimizer momentum"),
    Option(
        "--schedule",
        str,
        "constant",
        "of the learning rate: constant, step[:EVERY[,FACTOR]], cosine, warmup[:ROUNDS], or "
        "several joined by +",
    ),
    Option("--l1", float, 0.0, "L1 penalty on the weights, not on biases; for sgd and momentum"),
    Option("--l2", float, 0.0, "L2 penalty on the weights, not on biases"),
    Option(
        "--weight-decay",
        float,
        0.0,
        "share of all parameters, biases too, that is added to the gradient, or for adamw "
        "subtracted apart from it",
    ),
    Option(
        "--class-weight", str, None, "how much rows count: balanced, or LABEL=WEIGHT[,LABEL=WEIGHT]"
    ),
    Option("--clip-norm", float, None, "scale a gradient of a larger norm down to it"),
    Option(
        "--non-finite",
        str,
        "error",
        "a round whose gradient is not finite: end with an error, or skip the round",
        ("error", "skip"),
    ),
    Option("--history-size", int, 10, "steps that lbfgs remembers"),
    Option("--tol", float, 1e-6, "lbfgs ends when the gradient's norm is at most this"),
    Option("--batch-size", int, None, "rows of a round; 0 for all rows (default: 128; lbfgs: all)"),
    Option("--slice-rows", int, None, "rows of one gradient, a divisor of the batch size"),
    Option("--epochs", int, None, "passes over the data (default: 1; lbfgs: at most 100)"),
    Option("--rounds", int, None, "updates of the model, instead of --epochs"),
    Option("--limit-rows", int, None, "train on the first N rows only"),
    Option("--seed", int, 0, "of the initial parameters and the order of the slices"),
    Option("--dtype", str, "float32", "of the parameters", ("float32", "float64")),
    Option(
        "--precision",
        str,
        "full",
        "mixed: gradients from float16, with a scaled loss; parameters and sums stay float32",
        ("full", "mixed"),
    ),
    Option(
        "--device",
        str,
        "cpu",
        "where gradients are computed; auto: cuda, if it can be used",
        ("auto", "cpu", "cuda"),
    ),
    Option(
        "--eval-every",
        int,
        None,
        "rounds between evaluations (default: an epoch; lbfgs: at the end)",
    ),
    Option("--patience", int, 0, "stop after N evaluations without a lower loss; 0: never"),
    Option("--checkpoint-every", int, None, "rounds between checkpoints (default: 500)"),
)

#: Options that decide how fast the result comes, and where. None: as before, when resuming.
EXECUTION = (
    Option("--threads", int, 1, "slices that one worker computes at once"),
    Option(
        "--executor",
        str,
        "chain",
        "who runs the rounds. chain: each is a step of a job. gang: the tasks of one job, which "
        "stay and exchange gradients themselves; rounds take milliseconds, on clusters too",
        ("chain", "gang"),
    ),
    Option(
        "--blocks",
        int,
        None,
        "blocks of the parameters, each with a reducer (default: 1; gang: one more for every 4 MiB "
        "that its tasks send, at most one each)",
    ),
    Option("--fan-in", int, 0, "most partial sums that one reducer merges, a power of 2; 0: all"),
    Option("--rounds-per-job", int, 50, "most rounds in one mrjob job of a chain"),
    Option("--gang-wait", float, 60.0, "seconds that the tasks of a gang wait for each other"),
    Option(
        "--gang-fallback",
        str,
        "error",
        "if the tasks of a gang do not all run at once: end with an error, or go on as a chain",
        ("error", "chain"),
    ),
    Option("--keep", int, 3, "checkpoints to keep; 0: all"),
)

PROFILE = Option(
    "--numeric-profile",
    str,
    "native",
    "native: all that the processor has; portable: the same bits on other processors too",
    ("native", "portable"),
)


def settings(values: Mapping[str, Any]) -> "Settings":
    """The settings of a plan, from the values of :data:`PLAN` and ``evaluation``."""
    from mapreduce.errors import UsageError
    from mapreduce.settings import Settings

    if values["eval_every"] is not None and values["evaluation"] is None:
        raise UsageError("--eval-every: nothing is evaluated. Leave it out, or add --eval DATA")
    return Settings(**{option.name: values[option.name] for option in PLAN})


#: Runners that need nothing but this machine.
RUNNERS_HERE = ("inline", "parallel", "local")

_RUNNER = (
    Option("--runner", str, "parallel", "who runs the steps"),
    Option("--workers", int, None, "map tasks at once"),
    Option("--start-method", str, None, "how workers are started", ("fork", "forkserver")),
)

#: Bounds of what is counted: names of files have five digits for a block and for a gang's task.
_MOST = {"workers": 99_999, "threads": 1024, "blocks": 99_999, "rounds_per_job": 10_000}
_MOST_HERE = {"workers": 1024}


def recorded(run: "RunDir") -> tuple[dict[str, Any], list[str]]:
    """What a run says of its last execution: data, from anybody.

    Returns
    -------
    dict
        Numbers and choices, by the names of options; there may be none.
    list of str
        Arguments for mrjob. They can run programs: nobody takes them but the command line.

    Raises
    ------
    DataError
        A value is of another type, or out of range.
    """
    from mapreduce.errors import DataError, UsageError

    path, content = run.path / "execution.json", run.read_json("execution.json") or {}
    values: dict[str, Any] = {}
    try:
        for option in (*_RUNNER, *EXECUTION):
            value = values[option.name] = content.get(option.name, option.default)
            kinds = (float, int) if option.type is float else (option.type, type(option.default))
            choices = (*option.choices, option.default) if option.choices else (value,)
            if type(value) not in kinds or value not in choices:
                expected = " or ".join(option.choices) or option.type.__name__
                raise UsageError(f"{option.name}: expected {expected}, found {value!r:.60}")
        arguments = content.get("mrjob_arguments", [])
        if type(arguments) is not list or not all(type(part) is str for part in arguments):
            raise UsageError(f"mrjob_arguments: expected texts, found {arguments!r:.60}")
        # Of a cluster nothing is asked yet.
        cluster = {"runner": "hadoop", "workers": values["workers"] or 1}
        execution(values if values["runner"] in RUNNERS_HERE else {**values, **cluster})
    except (UsageError, OverflowError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    found = {name: value for name, value in values.items() if content.get(name) is not None}
    return found, arguments


def execution(values: Mapping[str, Any]) -> "Execution":
    """How to run, from the values of :data:`EXECUTION`, ``runner``, ``workers``, ``start_method``.

    Raises
    ------
    UsageError
        A value is out of range.
    """
    from mapreduce.errors import UsageError
    from mapreduce.executors.chain import Execution
    from mapreduce.runners.spawn import DEFAULT_START_METHOD

    here = _MOST_HERE if values["runner"] in RUNNERS_HERE else {}
    for name, most in {**_MOST, **here}.items():
        if values[name] is not None and not 1 <= values[name] <= most:
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"{flag}: expected a positive number up to {most:,}, found {values[name]}"
            )
    if values["gang_wait"] <= 0 or not math.isfinite(values["gang_wait"]):
        raise UsageError(
            f"--gang-wait: expected a positive number of seconds, found {values['gang_wait']}"
        )
    workers = values["workers"]
    is_gang = values["executor"] == "gang"
    if is_gang and values["runner"] == "emr":
        raise UsageError(
            "--executor gang does not run on EMR: its tasks meet in the run's directory, and S3 is "
            "no place for that. Leave it out, or use -r hadoop on the cluster itself"
        )
    if is_gang and values["runner"] == "inline":
        if workers is not None and workers > 1:
            raise UsageError(
                f"--executor gang needs {workers} tasks at once, and -r inline runs one after the "
                f"other: choose another runner, or --workers 1"
            )
        workers = 1
    workers = workers or _default_workers(values["runner"])
    fan_in = values["fan_in"]
    if fan_in and (fan_in < 2 or fan_in & (fan_in - 1)):
        raise UsageError(f"--fan-in: expected 0 or a power of two from 2 on, found {fan_in}")
    if values["keep"] < 0:
        raise UsageError(f"--keep: expected a number of checkpoints, found {values['keep']}")
    return Execution(
        runner=values["runner"],
        workers=workers,
        threads=values["threads"],
        blocks=values["blocks"] or (0 if is_gang else 1),
        fan_in=fan_in,
        rounds_per_job=values["rounds_per_job"],
        start_method=values["start_method"] or DEFAULT_START_METHOD,
        mrjob_arguments=tuple(values.get("mrjob_arguments") or ()),
        executor=values["executor"],
        gang_wait=values["gang_wait"],
        gang_fallback=values["gang_fallback"],
    )


def _default_workers(runner: str) -> int:
    if runner == "emr":
        # Nobody knows yet what cluster it will be; the smallest has as many cores.
        return 4
    if runner == "hadoop":
        from mapreduce.runners.yarn.submissions import cores

        return cores()
    from mapreduce.runners.parallel import available_cores

    return available_cores()
