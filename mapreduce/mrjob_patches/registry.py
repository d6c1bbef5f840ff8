"""Teaches mrjob the runners of this toolkit.

mrjob has no hook for runners. Its seams are a set of aliases, a table of options, and the function
that turns an alias into a class; :func:`install` adds to the first two and wraps the third, so that
stock ``MRJob`` classes accept the runners too. It also lets classes run that have no file, as those
of a notebook, on the runners that do not need one.
"""

import contextlib
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial, wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mrjob.cat
import mrjob.fs.local
import mrjob.job
import mrjob.options
import mrjob.runner
from mrjob.job import MRJob
from mrjob.parse import is_uri, parse_mr_job_stderr
from mrjob.runner import MRJobRunner

from hdfs_utils import codecs
from hdfs_utils.paths import local_matching
from mapreduce.errors import MemberError, UsageError
from mapreduce.mrjob_patches.options import OPTIONS, give_way
from mapreduce.support import collector, parents, signals, task_log, traits, turns
from mapreduce.support.reading import reading_compressed, refuse_compressed
from mapreduce.support.traits import DEFAULT_START_METHOD

log = logging.getLogger(__name__)

#: What is said of what a task, of some kind, has printed, and how many characters it shows.
PRINTED = (
    "a %s printed to standard output, which on Hadoop would have become records; print to standard "
    "error instead. It printed:\n%s"
)
_SHOWN = 1 << 10

#: The runners that arguments of a job name, joined by blanks.
NAMED = re.compile(r"(?:^|\s)(?:-r|--runner)[\s=]*(\S+)")


def runner_class(alias: str, is_warm: bool = False) -> Any:
    """The class of one of our runners, imported when it is first asked for.

    With ``is_warm`` that for jobs that are ``WARM``, or None if there is none.
    """
    found = traits.of(alias)
    module, _, name = (found.warm_runner if is_warm else found.runner).partition(":")
    if is_warm and not module:
        return None
    import mapreduce.mrjob_patches.bin  # noqa: F401

    try:
        with collector.resting():
            return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise MemberError(f"-r {alias}: {module}:{name} cannot be imported: {error}") from error


def install() -> None:
    """Make the runners known to mrjob; calling it again changes nothing."""
    if mrjob.options._RUNNER_ALIASES.issuperset(traits.RUNNERS):
        return
    mrjob.options._RUNNER_ALIASES.update(traits.RUNNERS)
    mrjob.options._RUNNER_OPTS.update(OPTIONS)
    theirs = mrjob.runner._runner_class

    @wraps(theirs)
    def ours(alias: str) -> Any:
        if traits.of(alias).runner:
            return runner_class(alias)
        found = theirs(alias)
        if not traits.of(alias).runs_at_once:
            _take_text(found)
        if traits.of(alias).shares_files:
            _name_inputs_in_full(found)
            _tell_logs(found)
        if traits.of(alias).is_here and traits.of(alias).runs_at_once:
            _end_with_driver(sys.modules[found.__module__])
        return found

    mrjob.runner._runner_class = mrjob.job._runner_class = ours
    runner_kwargs = MRJob._runner_kwargs

    @wraps(runner_kwargs)
    def with_class(self: Any) -> dict[str, Any]:
        kwargs: dict[str, Any] = runner_kwargs(self)
        found = traits.of(self._runner_class().alias)
        for name in ("output_dir", "step_output_dir") if found.shares_files else ():
            kwargs[name] = _local_folder(f"--{name.replace('_', '-')}", kwargs.get(name))
        if found.runner:
            # mrjob gives the class to its inline and Spark runners only.
            kwargs["mrjob_cls"] = type(self)
        return kwargs

    MRJob._runner_kwargs = with_class
    start = MRJob.__init__

    @wraps(start)
    def with_runners(self: Any, args: Any = None) -> None:
        # Packages are asked for their runners, which takes a while, only if one may be named.
        args = None if args is None else list(args)
        named = NAMED.findall(" ".join(map(str, args or sys.argv)))
        if not mrjob.options._RUNNER_ALIASES.issuperset(named):
            mrjob.options._RUNNER_ALIASES.update(traits.RUNNERS.names)
        start(self, args)

    MRJob.__init__ = with_runners
    for name in ("conf", "runner", "sim"):
        logging.getLogger(f"mrjob.{name}").addFilter(_is_news)
    _check_configurations()
    give_way()
    _allow_classes_without_file()
    # mrjob takes every path for a pattern: it would find nothing in a folder such as data[1].
    mrjob.fs.local.glob = SimpleNamespace(glob=local_matching)
    _decompress_all()
    _make_keys_unique()
    _keep_to_the_user()
    _take_turns()


def _local_folder(flag: str, given: str | None) -> str | None:
    """The path of a folder, also of one that is named by a URI, which mrjob takes for a path."""
    if given and is_uri(given) and not given.startswith("file:///"):
        raise UsageError(f"{flag} {given}: expected a folder of this machine, for this runner")
    return given and given.removeprefix("file://")


#: Lines of mrjob's log that are the same for each job.
_ROUTINE = ("Creating temp", "Running step", "job output is", "Streaming final", "Removing temp")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of mrjob's log is asked for by ``-v``, or says something of this job.

    That no mrjob.conf was found is not said at all: few have one.
    """
    is_verbose = logging.getLogger("mrjob").isEnabledFor(logging.DEBUG)
    return not str(record.msg).startswith(("No configs ", *(() if is_verbose else _ROUTINE)))


def _decompress_all() -> None:
    """mrjob knows two formats, ends with the first part of a file, and takes a cut for an end."""
    theirs, get_input_paths = mrjob.cat.decompress, MRJobRunner._get_input_paths

    @wraps(theirs)
    def decompress(file: Any, path: str, bufsize: int = 1 << 20) -> Iterator[bytes]:
        if not is_compressed(path):
            return theirs(file, path, bufsize)  # type: ignore[no-any-return]
        return _decompressed(file if hasattr(file, "read") else codecs.stream(file), path)

    def is_compressed(path: str) -> bool:
        return codecs.by_name(path) is not None

    @wraps(get_input_paths)
    def check_stdin(self: Any) -> list[str]:
        is_new = self._stdin_path is None
        paths: list[str] = get_input_paths(self)
        if is_new and self._stdin_path and hasattr(self._stdin, "read"):
            with open(self._stdin_path, "rb") as file:  # noqa: PTH123
                refuse_compressed("-", file.read(codecs.HEAD_BYTES))
        return paths

    MRJobRunner._get_input_paths = check_stdin
    for module in [one for name, one in sys.modules.items() if name.startswith("mrjob.")]:
        for name, function in (("decompress", decompress), ("is_compressed", is_compressed)):
            if hasattr(module, name):
                setattr(module, name, function)


def _decompressed(file: Any, path: str) -> Iterator[bytes]:
    with reading_compressed(path), codecs.reader(file, path) as opened:
        yield from iter(partial(opened.read, 1 << 20), b"")


def _make_keys_unique() -> None:
    theirs = MRJobRunner._make_unique_job_key

    @wraps(theirs)
    def ours(self: Any, *arguments: Any, **options: Any) -> str:
        # mrjob takes the time: of two that start in one microsecond one removes the other's files.
        return f"{theirs(self, *arguments, **options)}{os.getpid():07}"

    MRJobRunner._make_unique_job_key = ours


def _keep_to_the_user() -> None:
    """Make folders of temporary files private to the user."""
    theirs = MRJobRunner._get_local_tmp_dir

    @signals.deferred()  # the runner knows of every folder that was made
    @wraps(theirs)
    def ours(self: Any) -> str:
        is_new = not self._local_tmp_dir
        path: str = theirs(self)
        if is_new:
            os.chmod(path, 0o700)  # noqa: PTH101
        return path

    MRJobRunner._get_local_tmp_dir = ours


def _take_turns() -> None:
    theirs = MRJobRunner.run

    @wraps(theirs)
    def ours(self: Any) -> None:
        with turns.turn(alone=not traits.of(self.alias).runs_at_once):
            theirs(self)

    MRJobRunner.run = ours


class _Printed(io.StringIO):
    """What a task prints; mrjob's methods find the file of its records as the buffer."""

    buffer: Any = None

    def close(self) -> None:
        """Stay open: it is read when the task has ended."""


def _take_text(inline: Any) -> None:
    """mrjob's files of bytes raise a TypeError for ``print``, warnings, log records and so on."""
    theirs = inline._invoke_task_func
    if hasattr(theirs, "__wrapped__"):
        return

    @wraps(theirs)
    def ours(self: Any, task_type: str, *arguments: Any) -> Any:
        invoke = theirs(self, task_type, *arguments)

        def invoke_task(stdin: Any, stdout: Any, stderr: Any, wd: str, env: Any) -> None:
            # mrjob's methods find the file of bytes as its buffer.
            text = io.TextIOWrapper(stderr, "utf-8", "backslashreplace", write_through=True)
            streams, printed = (sys.stdin, sys.stdout, sys.stderr), _Printed()
            handlers = [*logging.root.handlers]
            printed.buffer = stdout
            try:
                invoke(stdin, printed, text, wd, env)
            finally:
                # An interruption may come while mrjob puts them back.
                sys.stdin, sys.stdout, sys.stderr = streams
                # The first task that logs has a handler made, of its own standard error.
                logging.root.handlers[:] = handlers
                with contextlib.suppress(ValueError):  # the task has done it, or has closed it
                    text.detach()
            told = vars(self).setdefault("_told_of_printing", set())
            if printed.getvalue() and task_type not in told:
                told.add(task_type)
                log.warning(PRINTED, task_type, printed.getvalue()[:_SHOWN].rstrip())

        return invoke_task

    inline._invoke_task_func = ours


def _tell_logs(runner: Any) -> None:
    """mrjob keeps what a task writes to standard error to itself, unless the task fails."""
    theirs = getattr(runner, "_parse_task_counters", None)
    if theirs is None or hasattr(theirs, "__wrapped__"):
        return

    @wraps(theirs)
    def ours(self: Any, task_type: str, step_num: int) -> None:
        theirs(self, task_type, step_num)
        for path in sorted(self.fs.ls(self._task_stderr_paths_glob(task_type, step_num))):
            with open(path, "rb") as file:  # noqa: PTH123
                text = "".join(parse_mr_job_stderr(file)["other"])
            number = int(os.path.basename(os.path.dirname(path)))  # noqa: PTH119, PTH120
            task_log.tell(self, task_log.name(self, step_num, task_type, number), text)

    runner._parse_task_counters = ours
    runner.OPT_NAMES = {*runner.OPT_NAMES, "task_log"}


def _name_inputs_in_full(runner: Any) -> None:
    """A task works in a folder of its own, where a relative path means another file."""
    theirs = runner._input_paths_for_step
    if hasattr(theirs, "__wrapped__"):
        return

    @wraps(theirs)
    def ours(self: Any, step_num: int) -> list[str]:
        return [*map(os.path.abspath, theirs(self, step_num))]

    runner._input_paths_for_step = ours


def _end_with_driver(local: Any) -> None:
    """Have the processes of mrjob's pool end with the driver, and their tasks with them."""
    from mapreduce.mrjob_patches.pool import Pool

    def check_call(arguments: list[str], **options: Any) -> int:
        return subprocess.check_call(arguments, preexec_fn=parents.ending_here(), **options)

    local.Pool, local.check_call = Pool, check_call


def _check_configurations() -> None:
    theirs = mrjob.runner.load_opts_from_mrjob_confs

    @wraps(theirs)
    def ours(runner_alias: str, conf_paths: list[str] | None = None) -> Any:
        from mapreduce.mrjob_patches import conf

        return conf.load(theirs, mrjob.runner._runner_class(runner_alias), conf_paths)

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
        if _needs_file(self, step):
            raise UsageError(
                f"the runner {self.alias} would start this step in processes that import the job's "
                f"class, which was defined in a notebook or on standard input. Put the class in a "
                f"file and import it, or use the runner inline"
            )
        # mrjob's other checks, as if there were a file.
        before, self._script_path = self._script_path, "-"
        try:
            check_step(self, step, step_num)
        finally:
            self._script_path = before

    MRJobRunner._check_step = check


def _needs_file(runner: Any, step: dict[str, Any]) -> bool:
    """Whether tasks of a step start in processes that do not have the job's class."""
    substeps = [step[mrc] for mrc in ("mapper", "combiner", "reducer") if mrc in step]
    found = traits.of(runner.alias)
    if not found.runs_at_once or all(substep["type"] != "script" for substep in substeps):
        return False
    is_forked = found.forks and (runner._opts["start_method"] or DEFAULT_START_METHOD) == "fork"
    has_filter = any("pre_filter" in substep for substep in substeps)
    return not is_forked or bool(step.get("input_manifest")) or has_filter
