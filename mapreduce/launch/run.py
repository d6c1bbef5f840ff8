"""Runs jobs: any MRJob of a file or a module, from the command line or from a notebook.

:func:`load_job`, of :mod:`mapreduce.launch.load`, finds the class, :func:`execute` runs it with
mrjob's own arguments, and :func:`run` is for programs and notebooks, which want pairs instead of
lines.
"""

import contextlib
import inspect
import logging
import os
import re
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Any

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

from mrjob.job import MRJob  # isort: skip
from mrjob.parse import is_uri  # isort: skip
from mrjob.step import StepFailedException  # isort: skip

from hdfs_utils import codecs
from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import StorageError, UnmarkedOutputError
from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import local_matching
from hdfs_utils.publish import SUCCESS, check_parts
from kernels import QUIET
from mapreduce import compat
from mapreduce.errors import Interrupted, MissingInputError, OutputError, UsageError
from mapreduce.job import calls
from mapreduce.job.mistyped import warn_of_names
from mapreduce.job.tracebacks import is_users, user_error, user_errors
from mapreduce.launch import orphans, properties, report
from mapreduce.launch.load import TOLD, start_script
from mapreduce.launch.load import load_job as load_job
from mapreduce.mrjob_patches import registry
from mapreduce.runners.parallel import partition
from mapreduce.support import jsonlog, signals, task_log, tasks, traits, turns
from mapreduce.support.commands import command, is_read, or_remove
from mapreduce.support.printable import drop_output, echo
from mapreduce.support.reading import refuse_compressed
from mapreduce.support.spelling import in_words_of_python
from mapreduce.support.suggest import did_you_mean, missing, names_in

log = logging.getLogger(__name__)

DEFAULT_RUNNER = "parallel"

#: What scripts have put in the place of standard streams: its end would close these.
_replaced: list[Any] = []


@dataclass(frozen=True)
class Result:
    """The output and the counters of a job.

    Attributes
    ----------
    pairs : list of (key, value)
        The output, read by the job's output protocol. Parts come in their order.
    counters : list of dict
        For each step: group, counter, amount.
    """

    pairs: list[tuple[Any, Any]]
    counters: list[dict[str, dict[str, int]]]


@in_words_of_python({"runner"})
def run(
    job_class: type | str | os.PathLike[str],
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    *,
    lines: Iterable[str | bytes] | None = None,
    runner: str = DEFAULT_RUNNER,
    arguments: Iterable[object] = (),
) -> Result:
    """Run a job, and read its output.

    The class may be defined anywhere, in a notebook too. Several threads may call this function at
    once; a job on ``inline``, and the loading of a file, wait for the jobs of other threads.

    Parameters
    ----------
    job_class : type or path
        A subclass of ``MRJob``, or its file.
    inputs : path or iterable of paths, optional
        Files, folders or globs.
    lines : iterable of str or bytes, optional
        The input itself, instead of ``inputs``.
    runner : str
        ``parallel``, ``inline`` or another runner of mrjob.
    arguments : iterable
        Options as on the command line, such as ``["--workers", 2]``.

    Returns
    -------
    Result

    Raises
    ------
    UsageError
        Options or parameters are invalid, or the runner needs the class in a file.
    MissingInputError
        An input does not exist or cannot be read.
    StepFailedException
        A task failed; the runner ``inline`` lets the task's own exception through.

    Examples
    --------
    >>> from jobs.word_count import WordCount
    >>> result = run(WordCount, lines=["to be", "or not", "to be"], runner="inline")
    >>> sorted(result.pairs)
    [('be', 2), ('not', 1), ('or', 1), ('to', 2)]
    """
    if (inputs is None) == (lines is None):
        raise UsageError("run: give either inputs, which are paths, or lines=[...]")
    given = [str(argument) for argument in arguments]
    some = [inputs] if isinstance(inputs, str | os.PathLike) else inputs or ()
    paths = [os.fspath(path) for path in some]
    place = sys.argv[0] if isinstance(job_class, type) else os.fspath(job_class)
    if not isinstance(job_class, type):
        # Meanwhile mrjob's methods are others, which no other thread's job must call.
        with turns.turn(alone=True), argv([place, *given, *paths]):
            job_class = load_job(place)
    with turns.turn(not traits.of(runner).runs_at_once), argv([place, *given, *paths]):
        job = _instance(job_class, given)
        if job.options.runner or job.options.args:
            raise UsageError(
                "run: arguments are options only; runner and inputs are parameters of their own"
            )
        if inputs is not None:
            job.options.args = paths
            if not paths:
                raise UsageError("run: inputs: expected one path or more, found none")
        if isinstance(lines, str | bytes):
            raise UsageError(
                f"run: lines: expected a list of lines, found {type(lines).__name__}; "
                f"text.splitlines() makes one"
            )
        job.options.runner = runner
        job.sandbox(stdin=_encoded(lines or ()))
        with _quiet(), _runner(job) as made:
            _run(made)
            return Result(list(job.parse_output(made.cat_output())), made.counters())


def _encoded(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        content = line.encode() if isinstance(line, str) else line
        content = content.removesuffix(b"\n")
        if b"\n" in content:
            raise UsageError(f"run: lines[{number}] holds a line feed: it is more than one line")
        yield content + b"\n"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep mrjob's log to warnings, unless the program has asked for more."""
    log = logging.getLogger("mrjob")
    is_changed = log.level == logging.NOTSET
    if is_changed:
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        # Another thread may have come meanwhile.
        if is_changed:
            log.setLevel(logging.NOTSET)


@contextlib.contextmanager
def keeping_stderr() -> Iterator[None]:
    """Have messages go where they went, whatever a script puts there, as was usual in Python 2."""
    with contextlib.redirect_stderr(sys.stderr):
        try:
            yield
        finally:
            _replaced.append((sys.stdout, sys.stderr))


def start(target: str, arguments: Sequence[str]) -> None:
    """Run what the command line names: a script as the main program, else a class as its script.

    A script's call of ``run()`` runs the job there and then. One that calls ``make_runner()`` is a
    program, whose jobs have the runner of the command line if they name none. Raises as
    :func:`mapreduce.launch.load.start_script` and :func:`execute`.
    """
    called: list[Any] = []

    def run_here(job_class: type[MRJob]) -> None:
        called.append(job_class)
        # What was printed comes before the output.
        sys.stdout.flush()
        with contextlib.redirect_stderr(stderr):
            try:
                execute(job_class, sys.argv[1:], target)
            except (*TOLD, OSError) as error:
                echo(f"error: {error}", err=True)
                # As mrjob does: "except Exception" around run() does not hide that the job failed.
                code = getattr(error, "exit_code", 74 if isinstance(error, OSError) else 1)
                raise SystemExit(code) from error

    def make_runner(job: Any) -> Any:
        called.append(job)
        stack.enter_context(signals.interrupting())
        named = [job.options.runner, *registry.NAMED.findall(" ".join(arguments)), DEFAULT_RUNNER]
        job.options.runner = next(filter(None, named))
        stack.enter_context(report.begin(job))
        with _output_folder(job):
            return _checked(_make_runner(partial(MRJob.make_runner, job), job, target), job)

    stderr = sys.stderr
    with argv([target, *arguments]), keeping_stderr(), contextlib.ExitStack() as stack:
        job_class = start_script(target, (run_here, make_runner), called)
    if job_class is not None:
        execute(job_class, arguments, target)


def execute(job_class: type[MRJob], arguments: Sequence[str], place: str = "") -> None:
    """Run a job as its script would, with ``-r parallel`` if no runner is named.

    Parameters
    ----------
    job_class : type
    arguments : sequence of str
        mrjob's and the job's own.
    place : str
        How the user named the job, for messages.

    Raises
    ------
    UsageError
        Options are invalid, or the runner does not run such jobs.
    MissingInputError, OutputError
        An input does not exist or cannot be read, or the output folder is not empty.
    GradreduceError, StepFailedException
        A task failed.
    Interrupted
        SIGINT or SIGTERM, or the reader of the output has gone.
    """
    place = place or job_class.__name__
    if sys.stdin is None:
        # It was closed; nothing is read from it then.
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    with signals.interrupting(), argv([job_class.mr_job_script() or place, *arguments]):
        job = _instance(job_class, list(arguments), place)
        if job.is_task():
            with user_errors(place, "the task failed"):
                job.execute()
            return
        warn_of_names(job_class)
        if not job.options.runner:
            job.options.runner = DEFAULT_RUNNER
            sys.argv += ["-r", DEFAULT_RUNNER]
        if job.options.quiet:
            os.environ[QUIET] = "1"
        job.set_up_logging(quiet=job.options.quiet, verbose=job.options.verbose, stream=sys.stderr)
        jsonlog.take("mrjob")
        if job_class.run_job is not MRJob.run_job:
            with report.begin(job):
                _drive(job, place)
            return
        told = report.begin(job, prints=job._should_cat_output())
        kept = orphans.record_job(job, [place, *arguments])
        with told, _output_folder(job) as whole, kept as note, _runner(job, place) as runner:
            with user_errors(place, "the job failed"):
                if note is not None:
                    note.start(runner)
                _run(runner)
            whole.append(job)
            if job._should_cat_output():
                _write(runner.cat_output())


def _run(runner: Any) -> None:
    """Run a job; an error of mrjob's that has only a task's exit code says what the task wrote."""
    try:
        runner.run()
    except StepFailedException as error:
        if kind := getattr(error, "task_type", ""):
            with contextlib.suppress(OSError):
                path = runner._task_stderr_path(kind, error.step_num, error.task_num)
                said = Path(path).read_text(errors="replace")
                _, found, rest = said.rpartition("Traceback (most recent call last):\n")
                lines = dropwhile(lambda line: line[:1] == " ", rest.splitlines())
                if found:
                    error.reason = "\n".join([f"{kind} task {error.task_num}", *lines])
        raise
    finally:
        report.count(runner)


def _drive(job: Any, place: str) -> None:
    """Call the user's own ``run_job``, a driver; its runners are set up as for other jobs."""
    job_class = type(job)
    own = job_class.__dict__.get("make_runner")
    make = job_class.make_runner
    job_class.make_runner = lambda self: _checked(make(self), self)
    try:
        with _output_folder(job):
            job.run_job()
            with _output_errors():
                job.stdout.flush()
    except Exception as error:
        if isinstance(error, StepFailedException) or hasattr(error, "exit_code"):
            raise
        raise user_error(f"{place}: the job failed", error) from error
    finally:
        if own is None:
            del job_class.make_runner
        else:
            job_class.make_runner = own


@contextlib.contextmanager
def prepared(
    job_class: type[MRJob], arguments: Sequence[str], place: str, runner: type
) -> Iterator[Any]:
    """A runner of a class for a job, after its inputs were checked; raises as :func:`execute`.

    The class is a subclass of that for ``parallel``, whose options it takes.
    """
    with turns.turn(alone=True), argv([place, *arguments]):
        job = _instance(job_class, list(arguments), place)
        if job.options.runner or job.options.output_dir or job.options.step_output_dir:
            raise UsageError(
                f"{place}: leave out -r, -o and --step-output-dir, which are for gradreduce run"
            )
        warn_of_names(job_class)
        job.options.runner = "parallel"
        job._runner_class = lambda: runner
        with _quiet(), _runner(job, place) as made:
            yield made


@contextlib.contextmanager
def argv(given: list[str]) -> Iterator[None]:
    """The ``sys.argv`` of a script; in the main thread, since other threads have the same."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.argv
    sys.argv = given
    try:
        yield
    finally:
        sys.argv = before


def _instance(job_class: Any, arguments: list[str], place: str = "") -> Any:
    """An instance of the job; wrong arguments are reported in one line."""
    place = place or job_class.__name__
    try:
        return job_class(arguments)
    except Exception as error:
        frames = list(traceback.walk_tb(error.__traceback__))
        last = frames[-1][0].f_code
        if not (last.co_name == "error" and last.co_filename == inspect.getfile(MRJob)):
            raise user_error(f"{place} cannot be started", error) from error
        jobs = [frame.f_locals.get("self") for frame, _ in frames]
        parser = next((job.arg_parser for job in jobs if isinstance(job, MRJob)), None)
        unknown = re.match(r"unrecognized arguments: ([^\s=]+)", str(error))
        known = parser._option_string_actions if parser is not None else ()
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", str(error)):
            unknown, known = choice, re.findall(r"[\w-]+", choice[2])
        hint = did_you_mean(unknown[1], known) if unknown else ""
        raise UsageError(
            f"{place}: {error}.{hint} {command('gradreduce', 'run', place)} --help shows the "
            f"job's options, with -r RUNNER the runner's"
        ) from error


@contextlib.contextmanager
def _runner(job: Any, place: str = "") -> Iterator[Any]:
    """The job's runner, made from its options after its inputs were checked; cleans up."""
    with signals.closing(partial(_make_runner, job.make_runner, job, place), job) as made:
        yield _checked(made, job)


def _make_runner(make: Callable[[], Any], job: Any, place: str) -> Any:
    try:
        return make()
    except TOLD:
        raise
    except Exception as error:
        if is_users(error):
            # Raised by the job's steps(), jobconf() and the like. Notebooks show tracebacks.
            raise (user_error(f"{place} cannot be started", error) if place else error) from None
        if isinstance(error, FileNotFoundError):
            raise MissingInputError(f"{error.filename} does not exist") from error
        if isinstance(error, OSError) and error.errno is None:
            # An error of mrjob's own about a folder for --dir.
            raise MissingInputError(f"--dir {error}") from error
        if isinstance(error, ValueError | TypeError | NotImplementedError):
            raise UsageError(
                f"the runner {job.options.runner} does not accept this: {error}"
            ) from error
        raise


def _checked(runner: Any, job: Any) -> Any:
    """The runner, after its inputs were checked."""
    found = traits.of(job.options.runner)
    # It takes its time for many inputs, as to plan their tasks does.
    if (trace := tasks.current()) is not None:
        trace.mark(tasks.REST)
    task_log.append(runner, "")
    for name in runner._opts["jobconf"]:
        properties.warn_of(name)
    if found.shares_files and runner._opts["check_input_paths"]:
        for path in runner._input_paths:
            # The runner itself looks at those.
            if not (found.reads_far_files and is_remote(path)):
                _check_input(path, job.options.runner)
    if runner._opts["check_input_paths"] and _reads_lines(runner):
        _refuse_compressed(runner._input_paths, "runner" if found.shares_files else "cluster")
    if found.is_here and not found.runner:
        for number in range(runner._num_steps()):
            for setting in partition.ignored(runner._jobconf_for_step(number)):
                log.warning("ignoring %s: the runners parallel and hadoop do not", setting)
    if found.is_here and found.runs_at_once:
        _set_interpreter(runner, type(job))
    return runner


def _set_interpreter(runner: Any, job_class: type) -> None:
    """Make tasks in other processes run this class, with the modules that mrjob misses."""
    options = runner._opts
    if not options["task_python_bin"]:
        options["task_python_bin"] = [
            *([*options["python_bin"]] if options["python_bin"] else [sys.executable]),
            # What is beside the task, or on its path, may be called as a package of the toolkit.
            *("-P", str(Path(calls.__file__).with_name("__main__.py"))),
            compat.task_name(job_class),
        ]
    if options["bootstrap_mrjob"] is None:
        # That interpreter has mrjob; packing it for each job takes a while.
        options["bootstrap_mrjob"] = False


def _check_input(given: str, runner: str) -> None:
    """Raise an error if an input, or a file in it, cannot be read.

    Parts without ``_SUCCESS`` are as mrjob's own runners leave them on this machine.
    """
    if given == "-":
        return
    if is_uri(given) and not given.startswith("file:///"):
        raise UsageError(
            f"{given}: the runner {runner} reads files of this machine. Copy the input here, or "
            f"name a runner that reads it with -r"
        )
    found = local_matching(given.removeprefix("file://"))
    if not found:
        raise MissingInputError(f"the input {given} {missing(given, names_in)}")
    files = [path for top in found for path in _files(top)]
    if not files:
        log.warning("the input %s holds no files", given)
    for path in files:
        if not path.exists():
            raise MissingInputError(f"the input {path} is a link whose target does not exist")
        if not os.access(path, os.R_OK):
            raise MissingInputError(f"cannot read the input {path}: Permission denied")
        if not path.is_file() and traits.of(runner).runs_at_once:
            raise UsageError(
                f"the input {path} is not a regular file, so its size is unknown. "
                f"Pass it on standard input, as -"
            )
    hidden = (path for path in files if path.name[:1] in "._" and str(path) not in found)
    if first := next((path for path in hidden if path.stat().st_size), None):
        log.warning(
            "the input %s holds hidden files, such as %s. The runner %s reads them, as mrjob does, "
            "and Hadoop leaves them out",
            *(given, first.name, runner or "inline"),
        )
    for top in found:
        check_parts(Path(top))


def _reads_lines(runner: Any) -> bool:
    """Whether a method takes the lines of the input; a program may take any bytes."""
    step: dict[str, Any] = next(iter(runner._get_steps()), {})
    mapper = step.get("mapper", {"type": "script"})
    is_method = mapper["type"] == "script" and "pre_filter" not in mapper
    is_text = not step.get("input_manifest") and not runner._hadoop_input_format
    return is_method and is_text and step.get("type") == "streaming"


def _refuse_compressed(paths: Iterable[str], reader: str) -> None:
    """Refuse files of this machine that are compressed, and would be read as text."""
    here = [path.removeprefix("file://") for path in paths if path.startswith("file:///")]
    here += [path for path in paths if path != "-" and not is_uri(path)]
    for path in (path for given in here for top in local_matching(given) for path in _files(top)):
        if path.is_file():
            with storage_errors("read", path), path.open("rb", buffering=0) as file:
                refuse_compressed(str(path), file.read(codecs.HEAD_BYTES), reader)


def _files(top: str) -> Iterator[Path]:
    """All files in a folder, or the file itself."""

    def raise_error(error: OSError) -> None:
        raise MissingInputError(f"cannot read the input {error.filename}: {error.strerror}")

    if not Path(top).is_dir():
        yield Path(top)
        return
    for folder, _, names in os.walk(top, followlinks=True, onerror=raise_error):
        yield from (Path(folder, name) for name in names)


@contextlib.contextmanager
def _output_folder(job: Any) -> Iterator[list[Any]]:
    """Refuse an output folder that holds something; remove what a failed job left in a new one.

    mrjob's runners of this machine would write over what is there and leave the rest. The list that
    this yields is for jobs that have ended, whose output is whole and stays, whatever comes after.
    """
    whole: list[Any] = []
    given = (job.options.output_dir or "").removeprefix("file://")
    if not given or is_uri(given) or not traits.of(job.options.runner).shares_files:
        yield whole
        return
    folder = Path(given)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"the output {folder} exists and is not a folder. Name another with -o")
    if folder.is_dir() and any(folder.iterdir()):
        reads = [*_texts(vars(job.options) | {"output_dir": None})]
        state = "is also the input" if is_read(folder, reads) else "exists and is not empty"
        raise OutputError(
            f"the output folder {folder} {state}. Name another with -o"
            f"{or_remove(folder, reads, 'rm', '-r')}"
        )
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot create the output folder {folder}: {error.strerror or error}"
        ) from error
    try:
        yield whole
    except BaseException as error:
        # A complete output stays: at most tidying up was interrupted.
        is_whole = whole or isinstance(error, UnmarkedOutputError) or (folder / SUCCESS).exists()
        if is_new and not is_whole:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    """The texts of options, any of which may be a path that a job reads."""
    for value in options.values():
        values = value if isinstance(value, list) else [value]
        yield from (text for text in values if isinstance(text, str))


def _write(chunks: Iterable[bytes]) -> None:
    """Write the output to standard output."""
    out = sys.stdout.buffer
    for chunk in chunks:
        with _output_errors():
            out.write(chunk)
    with _output_errors():
        out.flush()


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        drop_output()
        if isinstance(error, BrokenPipeError):
            raise Interrupted(signal.SIGPIPE) from None
        raise StorageError(f"cannot write the output: {error.strerror or error}") from error
