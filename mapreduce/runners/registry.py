"""Teaches mrjob the runners of this toolkit.

mrjob has no hook for runners. Its seams are a set of aliases, a table of options, and the function
that turns an alias into a class; :func:`install` adds to the first two and wraps the third, so that
stock ``MRJob`` classes accept the runners too. It also lets classes run that have no file, as those
of a notebook, on the runners that do not need one.
"""

import io
import logging
import os
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mrjob.fs.local
import mrjob.job
import mrjob.options
import mrjob.runner
from mrjob.job import MRJob
from mrjob.runner import MRJobRunner

from hdfs_utils.paths import local_matching
from mapreduce import compat, signals
from mapreduce.errors import UsageError

#: Alias, and where the class is.
RUNNERS = {
    "parallel": "mapreduce.runners.parallel:ParallelMRJobRunner",
    "hadoop": "mapreduce.runners.hadoop:HadoopMRJobRunner",
    "emr": "mapreduce.runners.emr:EmrMRJobRunner",
}

#: MiB for records of ``-r parallel``, if the user does not say.
DEFAULT_MEMORY = 400

#: Processes of one machine.
MOST_WORKERS = 1024

START_METHODS = ("fork", "forkserver")


def _number(flag: str, text: str) -> dict[str, Any]:
    return {"switches": [([flag], {"type": int, "help": text})]}


#: Options of the runners, in the form of mrjob's own table.
OPTIONS: dict[str, dict[str, Any]] = {
    "workers": {
        "switches": [
            (["--workers"], {"type": int, "help": "Worker processes (default: one per core)"})
        ]
    },
    "start_method": {
        "switches": [
            (
                ["--start-method"],
                {
                    "choices": START_METHODS,
                    "help": "How worker processes start (default: fork on Linux)",
                },
            )
        ]
    },
    "memory": {
        "switches": [
            (
                ["--memory"],
                {
                    "type": int,
                    "help": "MiB that records may take in memory, on all workers together, before "
                    f"they go to the disk (default: {DEFAULT_MEMORY})",
                },
            )
        ]
    },
    "map_memory": _number("--map-memory", "MiB of a map task's container, half of it for Java"),
    "reduce_memory": _number("--reduce-memory", "MiB of a reduce task's container"),
    "vcores": _number("--vcores", "Cores of a task's container"),
    "gpus_per_task": _number("--gpus-per-task", "GPUs of a map task's container"),
    "gpu_resource": {
        "switches": [
            (["--gpu-resource"], {"help": "YARN's name of GPUs (default: yarn.io/gpu)"}),
        ]
    },
    "max_attempts": _number("--max-attempts", "Attempts at a task before its job fails"),
    "speculative": {
        "switches": [
            (
                ["--speculative"],
                {"action": "store_true", "help": "Start a second attempt at tasks that are slow"},
            )
        ]
    },
    "uber": {
        "switches": [
            (
                ["--uber"],
                {
                    "action": "store_true",
                    "help": "Run steps of little input within the application master (default: on "
                    "a cluster of gradreduce cluster up)",
                },
            ),
            (
                ["--no-uber"],
                {"action": "store_false", "help": "Give every step tasks in containers"},
            ),
        ]
    },
    "packed": {
        "switches": [
            (
                ["--packed"],
                {"help": "Archive of gradreduce pack, for nodes that lack packages"},
            )
        ]
    },
    "yes": {
        "switches": [
            (
                ["--yes"],
                {"action": "store_true", "help": "Start a cluster that costs money unasked"},
            )
        ]
    },
    "hourly_price": {
        "switches": [
            (
                ["--hourly-price"],
                {
                    "metavar": "TYPE=USD",
                    "help": "Price of an instance type, for the estimate of what a cluster costs; "
                    "several joined by commas",
                },
            )
        ]
    },
}


def runner_class(alias: str) -> Any:
    """The class of one of our runners, imported when it is first asked for."""
    module, _, name = RUNNERS[alias].partition(":")
    compat.delay("pyspark")
    return getattr(import_module(module), name)


def install() -> None:
    """Make the runners known to mrjob; calling it again changes nothing."""
    if RUNNERS.keys() <= mrjob.options._RUNNER_ALIASES:
        return
    mrjob.options._RUNNER_ALIASES.update(RUNNERS)
    mrjob.options._RUNNER_OPTS.update(OPTIONS)
    theirs = mrjob.runner._runner_class

    @wraps(theirs)
    def ours(alias: str) -> Any:
        if alias in RUNNERS:
            return runner_class(alias)
        found = theirs(alias)
        if alias == "inline":
            _take_text_on_stderr(found)
        return found

    mrjob.runner._runner_class = mrjob.job._runner_class = ours
    runner_kwargs = MRJob._runner_kwargs

    @wraps(runner_kwargs)
    def with_class(self: Any) -> dict[str, Any]:
        kwargs: dict[str, Any] = runner_kwargs(self)
        if self._runner_class().alias in RUNNERS:
            # mrjob gives the class to its inline and Spark runners only.
            kwargs["mrjob_cls"] = type(self)
        return kwargs

    MRJob._runner_kwargs = with_class
    logging.getLogger("mrjob.conf").addFilter(_is_news)
    _check_configurations()
    _allow_classes_without_file()
    # mrjob takes every path for a pattern: it would find nothing in a folder such as data[1].
    mrjob.fs.local.glob = SimpleNamespace(glob=local_matching)
    _make_keys_unique()
    _keep_to_the_user()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of mrjob's says more than that no mrjob.conf was found, which few have."""
    return not str(record.msg).startswith("No configs ")


def _make_keys_unique() -> None:
    theirs = MRJobRunner._make_unique_job_key

    @wraps(theirs)
    def ours(self: Any, *arguments: Any, **options: Any) -> str:
        # mrjob takes the time: of two that start in one microsecond one removes the other's files.
        return f"{theirs(self, *arguments, **options)}{os.getpid():07}"

    MRJobRunner._make_unique_job_key = ours


def _keep_to_the_user() -> None:
    """Have folders of temporary files be the user's alone."""
    theirs = MRJobRunner._get_local_tmp_dir

    @signals.deferred()  # a folder that was made is one that the runner knows of
    @wraps(theirs)
    def ours(self: Any) -> str:
        is_new = not self._local_tmp_dir
        path: str = theirs(self)
        if is_new:
            os.chmod(path, 0o700)  # noqa: PTH101
        return path

    MRJobRunner._get_local_tmp_dir = ours


def _take_text_on_stderr(inline: Any) -> None:
    """mrjob's file of bytes raises a TypeError for warnings, log records and tracebacks."""
    theirs = inline._invoke_task_func
    if hasattr(theirs, "__wrapped__"):
        return

    @wraps(theirs)
    def ours(self: Any, *arguments: Any) -> Any:
        invoke = theirs(self, *arguments)

        def invoke_task(stdin: Any, stdout: Any, stderr: Any, wd: str, env: Any) -> None:
            # mrjob's methods find the file of bytes as its buffer.
            text = io.TextIOWrapper(stderr, "utf-8", "backslashreplace", write_through=True)
            try:
                invoke(stdin, stdout, text, wd, env)
            finally:
                text.detach()

        return invoke_task

    inline._invoke_task_func = ours


def _check_configurations() -> None:
    theirs = mrjob.runner.load_opts_from_mrjob_confs

    @wraps(theirs)
    def ours(runner_alias: str, conf_paths: list[str] | None = None) -> Any:
        if runner_alias not in RUNNERS:
            return theirs(runner_alias, conf_paths)
        from mapreduce.runners import conf

        return conf.load(theirs, runner_class(runner_alias), conf_paths)

    mrjob.runner.load_opts_from_mrjob_confs = ours


def _allow_classes_without_file() -> None:
    script = MRJob.mr_job_script.__func__

    @wraps(script)
    def existing_script(cls: type) -> str:
        # The module of a notebook has no file, or a name that is none. mrjob looks for a job's
        # files beside its script: with "", in the working folder.
        try:
            path: str | None = script(cls)
        except OSError:
            return ""
        return path if path and os.path.isfile(path) else ""  # noqa: PTH113

    MRJob.mr_job_script = classmethod(existing_script)
    check_step = MRJobRunner._check_step

    @wraps(check_step)
    def check(self: Any, step: dict[str, Any], step_num: int) -> None:
        if self._script_path or step["type"] != "streaming":
            check_step(self, step, step_num)
            return
        substeps = [step[mrc] for mrc in ("mapper", "combiner", "reducer") if mrc in step]
        if any(substep["type"] == "script" for substep in substeps):
            _check_needs_no_file(self, step, substeps)
        # mrjob's other checks, as if there were a file.
        before, self._script_path = self._script_path, "-"
        try:
            check_step(self, step, step_num)
        finally:
            self._script_path = before

    MRJobRunner._check_step = check


def _check_needs_no_file(runner: Any, step: dict[str, Any], substeps: list[dict[str, Any]]) -> None:
    """Raise an error if tasks of a step start in processes that do not have the job's class."""
    from mapreduce.runners.spawn import DEFAULT_START_METHOD

    advice = ""
    if runner.alias == "inline":
        return
    if runner.alias != "parallel":
        what, advice = f"the runner {runner.alias}", ", or use the runner inline or parallel"
    elif (runner._opts["start_method"] or DEFAULT_START_METHOD) != "fork":
        what, advice = "the start method forkserver", ", or use the runner inline"
    elif step.get("input_manifest"):
        what = "a mapper_raw"
    elif any("pre_filter" in substep for substep in substeps):
        what = "a pre-filter"
    else:
        return
    raise UsageError(
        f"{what} needs the job's class in a file, from which other processes import it; this one "
        f"was defined in a notebook or on standard input. Put the class in a file and import it"
        f"{advice}"
    )
