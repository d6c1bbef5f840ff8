"""The worker process of ``-r parallel``: runs map and reduce tasks, one after the other.

Driver and worker exchange JSON over a connection. A message has a ``task``, and is answered by a
reply with the same number; if it has a ``job``, too, the task and those that follow are of that
job's class. End of file on the connection ends the worker, and so does the end of its parent.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from copy import copy
from itertools import islice
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

from mrjob.job import MRJob
from mrjob.parse import parse_mr_job_stderr

from hdfs_utils import filesystem
from hdfs_utils.errors import StorageError
from mapreduce import compat
from mapreduce.batches import pairs, snapshots
from mapreduce.errors import DataError, GradreduceError, Interrupted
from mapreduce.job import Job, calls
from mapreduce.job.tracebacks import exception_text, text_of
from mapreduce.runners.parallel import tasks
from mapreduce.support import forked, parents

#: Job classes that the process had before it was forked, by :func:`job_name`.
known_jobs: dict[str, type] = {}

#: Instances of jobs that the process had before it was forked, by class and arguments.
made_jobs: dict[tuple[Any, ...], Any] = {}

#: Standard output and error of this process, whatever a task does with those of Python.
files: list[Any] = [None, None]

#: Objects that are made between two looks for circles of them: a list for each key is many.
_COLLECTED = 20_000

LOG_BYTES = 1 << 16
SHOWN_BYTES = 1 << 10

# Number of lines of standard error, or of pieces of them, that are read at once.
_LINES, _LINE_BYTES = 256, 1 << 12


def job_name(job_class: type) -> str:
    """How a message names a class."""
    return f"{job_class.__module__}:{job_class.__qualname__}"


def _arguments(step_num: int, mrc: str, arguments: list[str]) -> list[str]:
    return [f"--step-num={step_num}", f"--{mrc}", *arguments]


def make_jobs(job_class: Any, parts: Iterable[tuple[int, str]], arguments: list[str]) -> None:
    """Make the instances that many tasks need, before these are forked, if nobody can tell.

    ``parts``: Numbers of steps, and ``mapper``, ``combiner`` or ``reducer``.

    Each task has a copy of its own. To read the arguments takes half of the time of a small task.
    """
    theirs = [name for name in vars(MRJob) if name.endswith(("__init__", "_arg", "_args"))]
    if not all(
        getattr(job_class, name) in (getattr(MRJob, name), getattr(Job, name)) for name in theirs
    ):
        return
    first = None
    for number, mrc in parts:
        given = _arguments(number, mrc, arguments)
        if first is None:
            try:
                first = made = job_class(given)
            except (Exception, SystemExit):
                # The task's own error then.
                return
        else:
            made = copy(first)
            made._cl_args, made.options = given, copy(first.options)
            made.options.step_num = number
            for one in ("mapper", "combiner", "reducer"):
                setattr(made.options, f"run_{one}", one == mrc)
        made_jobs[job_class, *given] = made


def main(connection: Connection, parent: int, stderr_path: str) -> None:
    """Serve tasks until the connection ends."""
    parents.end_with(parent)
    # What a task starts ends with its worker: the driver kills the whole group.
    os.setpgid(0, 0)
    # Nor does that hold the connection open, whose end may be all that the driver sees.
    os.set_inheritable(connection.fileno(), False)
    os.register_at_fork(after_in_child=connection.close)
    _redirect(stderr_path)
    forked.begin()
    gc.set_threshold(_COLLECTED, 10, 10)
    worker = _Worker()
    while True:
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        if "job" in message:
            worker.load(message["job"])
        reply = worker.run(message["task"])
        connection.send_bytes(json.dumps(reply).encode())


def with_loaded(definition: dict[str, Any], serve: Callable[[], None]) -> None:
    """Load a job's class for the processes that ``serve`` forks, which does not return.

    Returns if the class cannot be loaded: each task will say why.
    """
    with contextlib.ExitStack() as silent, Path(os.devnull).open("wb") as null:
        # The driver has loaded it, too, and shown what it prints.
        for number in (1, 2):
            kept = os.dup(number)
            silent.callback(os.close, kept)
            silent.callback(os.dup2, kept, number)
            os.dup2(null.fileno(), number)

        def begin() -> None:
            silent.close()
            parts = [(number, mrc) for number, mrc in definition["parts"]]
            make_jobs(known_jobs[definition["name"]], parts, definition["arguments"])
            forked.prepare()
            gc.freeze()
            serve()

        _Worker().load(definition)
        filesystem.expect(*definition["used"])
        with contextlib.suppress(BaseException):
            _with_class(definition, "map", begin)


def printed_path(stderr_path: str) -> str:
    """The path of a worker's standard output, beside its standard error."""
    return stderr_path + ".stdout"


def _redirect(stderr_path: str) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    redirect(*(os.open(path, flags, 0o600) for path in (printed_path(stderr_path), stderr_path)))


def redirect(out: int, err: int) -> None:
    """Standard input is the task's; what it prints goes to files, given by their descriptors."""
    for target, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(descriptor, target)
        os.close(descriptor)
    files[:] = (os.fdopen(os.dup(number), "wb", 0) for number in (1, 2))
    # The driver may have put something else in their place, as test programs do. The second names
    # keep the first from being closed where a task wraps their buffers.
    sys.stdin = io.TextIOWrapper(io.BufferedReader(tasks.STDIN))
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)  # type: ignore[misc]
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    sys.__stderr__ = sys.stderr  # type: ignore[misc]


def flush() -> None:
    """Write what streams hold back, also those that a task has put in the place of others."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        with contextlib.suppress(Exception):  # None, closed, or without the method
            getattr(sys, name).flush()


class _Worker:
    def __init__(self) -> None:
        self._definition: dict[str, Any] = {}
        self._job: Any = None
        self._process = os.getpid()
        #: When the task began, by the clock of a trace.
        self._since = 0

    def load(self, definition: dict[str, Any]) -> None:
        """Take note of the job that the next tasks belong to."""
        self._definition = definition
        self._job = None
        os.environ.update(definition["env"])
        sys.path[:0] = [path for path in definition["paths"] if path not in sys.path]

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Run a task; returns the reply."""
        reply: dict[str, Any] = {"task": spec["number"], "attempt": spec["attempt"]}
        self._since, cpu = time.monotonic_ns(), time.process_time_ns()
        reply |= self._attempt(spec)
        reply["at"] = self._since, time.monotonic_ns(), time.process_time_ns() - cpu
        if os.getpid() != self._process:
            # A copy of this process, which a task made and let return: it is nobody's worker.
            os._exit(1)
        if not self._definition["warm"]:
            self._job = None
            try:
                forked.end()
            except BaseException as error:
                reply = {"error": _describe(error)} | reply
        return reply | _take_log()

    def _attempt(self, spec: dict[str, Any]) -> dict[str, Any]:
        task = tasks.Task(spec, lambda mrc: self._instance(spec, mrc), _sign_of_life)
        try:
            os.environ.update(spec["env"])
            if spec["directory"]:
                os.chdir(spec["directory"])
                sys.path.insert(0, spec["directory"])
            return {"result": _with_class(self._definition, spec["kind"], task.run)}
        except BaseException as error:  # also SystemExit: the task ends, not the worker
            calls.explain(error)
            return {"error": _describe(error, task)}

    def _instance(self, spec: dict[str, Any], mrc: str) -> Any:
        if self._definition["warm"] and self._job is not None:
            return self._job
        job_class: Any = known_jobs[self._definition["name"]]
        arguments = _arguments(spec["step"], mrc, self._definition["arguments"])
        made = made_jobs.pop((job_class, *arguments), None)
        self._job = made or job_class(arguments)
        if made is not None:
            # As mrjob does when it makes one.
            time.tzset()
        self._job._stdout, self._job._stderr = tasks.Output(), files[1]
        # What came before is not the task's, but what a new job costs.
        self._since = time.monotonic_ns()
        return self._job


def _sign_of_life() -> None:
    """Change the time of the log, which the driver looks at."""
    os.utime(files[1].fileno())


def _with_class(definition: dict[str, Any], kind: str, work: Callable[[], Any]) -> Any:
    """What some work returns, for which a job's class is known: of a module, or within a script."""
    name, made = definition["name"], []
    if name in known_jobs:
        return work()

    def known(job_class: type) -> None:
        known_jobs[name] = job_class
        made.append(work())

    module_name, _, qualname = name.partition(":")
    if module_name == "__main__" or module_name.startswith(compat.SCRIPT_PREFIX):
        option = "--mapper" if kind == "map" else "--reducer"
        sys.argv = [definition["script"], option, *definition["arguments"]]
        compat.run_task(definition["task"], Path(definition["script"]), known)
    else:
        known(attrgetter(qualname)(importlib.import_module(module_name)))
    return made[0]


def _describe(error: BaseException, task: tasks.Task | None = None) -> dict[str, Any]:
    """The description of an exception for the driver."""
    where = None
    if task and not isinstance(error, StorageError | DataError):
        # No record is to blame for a full disk, and what is wrong with data says where it is.
        with contextlib.suppress(Exception):  # the input may have gone meanwhile
            where = task.where()
    return {
        "type": type(error).__name__,
        "message": text_of(error),
        # Exceptions of other people's may have one too, which says nothing about this program.
        "exit_code": error.exit_code if isinstance(error, _OWN_ERRORS) else None,
        "traceback": exception_text(error, _foreign, told=True),
        "where": where,
    }


def _foreign(frames: Iterable[Any]) -> list[Any]:
    return [frame for frame in frames if not frame.filename.startswith(_OWN_FILES)]


_OWN_ERRORS = (GradreduceError, StorageError, Interrupted)
_OWN_FILES = (
    *(f"{Path(one).parent}{os.sep}" for one in (__file__, compat.__file__)),
    *(one.__file__ for one in (calls, pairs, snapshots)),
)


def _take_log() -> dict[str, Any]:
    """What a task wrote to standard error: counters, status, the rest; and whether it printed."""
    flush()
    out, err = (file.fileno() for file in files)
    reply: dict[str, Any] = {"counters": {}, "log": "", "status": [], "printed": ""}
    size = os.fstat(out).st_size
    if size:
        reply["printed"] = os.pread(out, min(size, SHOWN_BYTES), 0).decode("utf-8", "replace")
        os.ftruncate(out, 0)
    if os.fstat(err).st_size:
        with open(os.dup(err), "rb") as log:  # noqa: PTH123
            log.seek(0)
            reply |= log_summary(log)
        os.ftruncate(err, 0)
    return reply


def log_summary(log: BinaryIO) -> dict[str, Any]:
    """The counters, the status and the end of a standard error of any length."""
    counters: dict[str, dict[str, int]] = {}
    status: list[str] = []
    text, length = "", 0
    lines = iter(lambda: log.readline(_LINE_BYTES), b"")
    while some := list(islice(lines, _LINES)):
        found = parse_mr_job_stderr(some, counters)
        status = found["statuses"][-1:] or status
        more = "".join(found["other"])
        text, length = (text + more)[-LOG_BYTES:], length + len(more)
    if length > len(text):
        text = f"({length - len(text):,} characters before this were left out)\n{text}"
    return {"counters": counters, "log": text, "status": status}
