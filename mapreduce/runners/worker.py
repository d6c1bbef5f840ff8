"""The worker process of ``-r parallel``: runs map and reduce tasks, one after the other.

Driver and worker exchange JSON over a connection. A ``job`` message says which class the following
tasks belong to; a ``task`` message is answered by a reply with the same number. End of file on the
connection ends the worker, and so does the end of its parent.
"""

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from mrjob.parse import parse_mr_job_stderr

from mapreduce.runners.shuffle import (
    FrameWriter,
    LineWriter,
    Segment,
    Split,
    grouped,
    grouped_frames,
    read_lines,
    segment_lines,
)

#: Job classes that the process had before it was forked, by :func:`job_name`.
known_jobs: dict[str, type] = {}

_PR_SET_PDEATHSIG = 1
LOG_BYTES = 1 << 16


def job_name(job_class: type) -> str:
    """How a message names a class."""
    return f"{job_class.__module__}:{job_class.__qualname__}"


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent ended before it could be asked for.
            os._exit(1)


def leave_signals_to_driver() -> None:
    """Do nothing on SIGINT and SIGTERM.

    They reach every process of a terminal's group; the driver decides what they mean and kills its
    workers. Handlers, unlike SIG_IGN, are not passed on to programs that a task starts.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)


def main(connection: Connection, parent: int, stderr_path: str) -> None:
    """Serve tasks until the connection ends."""
    end_with_parent(parent)
    leave_signals_to_driver()
    _redirect(stderr_path)
    gc.freeze()
    worker = _Worker()
    while True:
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        if "job" in message:
            worker.load(message["job"])
            continue
        reply = worker.run(message["task"])
        connection.send_bytes(json.dumps(reply).encode())


def _redirect(stderr_path: str) -> None:
    """Standard input is empty; whatever a task prints goes to the worker's log."""
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(stderr_path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(log)
    # The driver may have put something else in their place, as test programs do.
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)


class _Worker:
    def __init__(self) -> None:
        self._definition: dict[str, Any] = {}
        self._job: Any = None

    def load(self, definition: dict[str, Any]) -> None:
        """Take note of the job that the next tasks belong to."""
        self._definition = definition
        self._job = None
        os.environ.update(definition["env"])
        sys.path[:0] = [path for path in definition["paths"] if path not in sys.path]

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Run a task; returns the reply."""
        reply: dict[str, Any] = {"task": task["number"], "attempt": task["attempt"]}
        try:
            job = None if task["mrc"] == "identity" else self._instance(task)
            os.environ.update(task["env"])
            if task["directory"]:
                os.chdir(task["directory"])
                sys.path.insert(0, task["directory"])
            run = _run_map if task["kind"] == "map" else _run_reduce
            reply["result"] = run(job, task)
        except BaseException as error:  # also SystemExit: the task ends, not the worker
            reply["error"] = _describe(error)
        reply["counters"], reply["log"] = _take_log()
        return reply

    def _instance(self, task: dict[str, Any]) -> Any:
        if self._job is None or not self._definition["warm"]:
            job_class = _find(self._definition)
            arguments = [f"--step-num={task['step']}", f"--{task['mrc']}"]
            self._job = job_class(arguments + self._definition["arguments"])
        return self._job


def _find(definition: dict[str, Any]) -> Any:
    name = definition["name"]
    if name not in known_jobs:
        known_jobs[name] = _import(definition)
    return known_jobs[name]


def _import(definition: dict[str, Any]) -> type:
    """Import a job class by its module, or from its script if it is the driver's main program."""
    module_name, _, qualname = definition["name"].partition(":")
    if module_name == "__main__":
        found: Any = _import_script(Path(definition["script"]))
    else:
        found = importlib.import_module(module_name)
    for part in qualname.split("."):
        found = getattr(found, part)
    assert isinstance(found, type)
    return found


def _import_script(script: Path) -> ModuleType:
    name = f"__job__{script.stem}"
    sys.path.insert(0, str(script.parent))
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run_map(job: Any, task: dict[str, Any]) -> dict[str, Any]:
    lines = (line for split in task["splits"] for line in read_lines(Split(*split)))
    if task["mrc"] != "mapper":
        # No mapper: the lines go on to the reducer as they are.
        return _write_lines(
            (line if line.endswith(b"\n") else line + b"\n" for line in lines), task
        )
    if task["frames"]:
        return _write_frames(job, lines, task)
    combine = None
    if task["combiner"]:

        def combine(records: Iterable[bytes]) -> Iterator[bytes]:
            ordered = grouped(records, task["sort_values"])
            return _apply(job, "combiner", job.combine_pairs, ordered, task["step"])

    return _write_lines(_apply(job, "mapper", job.map_pairs, lines, task["step"]), task, combine)


def _run_reduce(job: Any, task: dict[str, Any]) -> dict[str, Any]:
    segments = [Segment(*segment) for segment in task["segments"]]
    if task["frames"]:
        reader, writer = _protocols(job, task["step"], "reducer")
        pairs = (reader.read_frame(key, frame) for key, frame in grouped_frames(segments))
        results = job.reduce_pairs(pairs, task["step"])
        return _write_lines((writer.write(key, value) + b"\n" for key, value in results), task)
    ordered = grouped(segment_lines(segments), task["sort_values"])
    return _write_lines(_apply(job, "reducer", job.reduce_pairs, ordered, task["step"]), task)


def _apply(job: Any, mrc: str, function: Any, lines: Iterable[bytes], step: int) -> Iterator[bytes]:
    """Records that a mapper, combiner or reducer makes of records."""
    read, write = job.pick_protocols(step, mrc)
    pairs = (read(line.rstrip(b"\r\n")) for line in lines)
    for key, value in function(pairs, step):
        yield write(key, value) + b"\n"


def _protocols(job: Any, step: int, mrc: str) -> tuple[Any, Any]:
    """The protocols that a task reads and writes with, as objects."""
    read, write = job.pick_protocols(step, mrc)
    return read.__self__, write.__self__


def _write_frames(job: Any, lines: Iterable[bytes], task: dict[str, Any]) -> dict[str, Any]:
    reader, writer = _protocols(job, task["step"], "mapper")
    output = FrameWriter(Path(task["output"]), task["partitions"])
    pairs = (reader.read(line.rstrip(b"\r\n")) for line in lines)
    for key, value in job.map_pairs(pairs, task["step"]):
        output.write(*writer.write_frame(key, value))
    output.close()
    return {"segments": output.segments, "bytes": output.written}


def _write_lines(
    records: Iterable[bytes], task: dict[str, Any], combine: Any = None
) -> dict[str, Any]:
    output = LineWriter(Path(task["output"]), task["partitions"] or 1, combine)
    for record in records:
        output.write(record)
    output.close()
    return {"segments": output.segments, "bytes": output.written}


def _describe(error: BaseException) -> dict[str, Any]:
    """What the driver needs to know of an exception."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in _OWN_FILES
    ]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    lines += traceback.format_exception_only(error)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "exit_code": getattr(error, "exit_code", None),
        "traceback": "".join(lines),
    }


_OWN_FILES = {__file__, sys.modules[LineWriter.__module__].__file__}


def _take_log() -> tuple[dict[str, dict[str, int]], str]:
    """Counters that were written to standard error, and the end of what else was."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    size = os.fstat(2).st_size
    if not size:
        return {}, ""
    content = os.pread(2, size, 0)
    os.ftruncate(2, 0)
    found = parse_mr_job_stderr(BytesIO(content))
    rest = "".join(found["other"])[-LOG_BYTES:]
    return found["counters"], rest
