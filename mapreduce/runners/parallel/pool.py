"""The driver's side of ``-r parallel``: hands tasks to workers and survives their death.

A worker that dies takes its task's attempt with it; the task is tried again elsewhere, in a new
worker, up to a limit. A task that raises is not tried again, since it would raise again.
"""

import contextlib
import json
import logging
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hdfs_utils.folders import has_ended
from mapreduce import compat
from mapreduce.errors import GradreduceError
from mapreduce.runners.parallel import spawn, worker
from mapreduce.support import signals
from mapreduce.support import tasks as traces

log = logging.getLogger("mrjob.parallel")

#: Tasks that a warm worker has at once: one runs, one waits, so that it never idles.
_QUEUE = 2

#: Seconds between two looks for tasks that give no sign of life.
_LOOK = 1.0

_MEMORY = Path("/dev/shm")  # noqa: S108  (only private folders are made in it)

Task = dict[str, Any]
Reply = dict[str, Any]


class TaskError(GradreduceError):
    """A task raised an exception, or its workers died too often.

    ``traceback``: Traceback of the exception, as far as it lies in the user's code.
    ``log``: The end of what the task wrote to standard error.
    ``code``: The exit code of an exception whose message says everything, which is ``expected``.
    """

    def __init__(
        self, message: str, task: Task, traceback: str | None, log: str, exit_code: int | None
    ) -> None:
        super().__init__(message)
        self.task = task
        self.traceback = traceback
        self.log = log
        self.code, self.expected = exit_code, exit_code is not None
        self.exit_code = exit_code or 1


@dataclass
class _Worker:
    process: spawn.Process
    connection: Connection
    stderr: Path
    #: Becomes readable when the process ends, where the system has that.
    end: int | None = None
    job: int = -1
    queue: deque[Task] = field(default_factory=deque)
    #: When it last gave a sign of life: that it was seen, by this process's clock, and its file's.
    since: float = 0.0
    sign: int = 0
    #: Seconds without a sign of life after which it was killed.
    silent: float = 0.0
    #: The least number that no other worker has.
    slot: int = 0


def definition_of(
    job_class: type,
    arguments: Sequence[str],
    env: dict[str, str],
    warm: bool,
    paths: Sequence[str] = (),
) -> dict[str, Any]:
    """What workers are told of a job.

    ``arguments``: The job's arguments, for each task. ``env``: Environment variables of the tasks.
    ``warm``: Whether a worker runs more than one task. ``paths``: Where tasks look for modules
    first.
    """
    return {
        "name": worker.job_name(job_class),
        "task": compat.task_name(job_class),
        "script": getattr(job_class, "mr_job_script", lambda: None)(),
        "arguments": list(arguments),
        "env": env,
        "warm": warm,
        "paths": list(paths),
    }


class WorkerPool:
    """Worker processes; forked ones have the classes of ``jobs`` from the start."""

    def __init__(self, workers: int, start_method: str, jobs: Sequence[type]) -> None:
        self.size = workers
        self.start_method = start_method
        self.thread = threading.get_ident()
        #: A folder that is removed when the pool is closed. On the disk: tasks may write much.
        self.scratch = private_folder(Path(tempfile.gettempdir()))
        self._started = 0
        self._workers: list[_Worker] = []
        self._job = 0
        #: The job that the next tasks belong to, as JSON.
        self.definition = ""
        self._warm = True
        worker.known_jobs.update({worker.job_name(job): job for job in jobs})
        self._starter = spawn.Nursery(start_method)

    def load(self, definition: dict[str, Any], early: dict[str, Any] | None = None) -> None:
        """Say which job the next tasks belong to: see :func:`definition_of`.

        ``early``: What :func:`worker.with_loaded` loads beside the class before workers are forked.
        """
        self._job += 1
        self._warm = definition["warm"]
        self.definition = json.dumps(definition)
        if early:
            self._starter.load({**definition, **early})

    def run(
        self,
        tasks: Sequence[Task],
        attempts: int,
        timeout: float = 0.0,
        before: Callable[[Task], None] = lambda task: None,
        after: Callable[[Task], None] = lambda task: None,
        replied: Callable[[Task, Reply], None] = lambda task, reply: None,
    ) -> list[Reply]:
        """Run tasks, each of a number of its own; returns their replies in the same order.

        A task is started ``attempts`` times at most. A worker without a sign of life for
        ``timeout`` seconds is killed; 0 for never. ``before`` is called with each task that is
        about to start, ``replied`` with its reply, and ``after`` once its worker has ended, if that
        ran no other.

        Raises TaskError (the first task that failed. The other tasks' workers are killed).
        """
        waiting = deque({**task, "attempt": 0} for task in tasks)
        trace = traces.current()
        begun = time.monotonic_ns() if trace is None else trace.mark(traces.PLAN)
        replies = dict[int, Reply]()
        left = len(tasks)
        try:
            while left:
                self._hand_out(waiting, before)
                busy = [w for w in self._workers if w.queue]
                awaited = [w.connection for w in busy] + [w.end for w in busy if w.end is not None]
                ready = connections.wait(awaited, min(timeout, _LOOK) if timeout else None)
                if timeout:
                    self._kill_silent(timeout)
                for one in [w for w in busy if w.connection in ready or w.end in ready]:
                    reply = self._receive(one)
                    if reply is None:
                        self._retry(one, waiting, attempts)
                        continue
                    task = one.queue.popleft()
                    if "error" in reply:
                        raise task_error(task, reply)
                    replied(task, reply)
                    if trace is not None:
                        written = sum(size for _, size in reply["result"]["files"])
                        trace.note(task, one.slot, self.size, begun, (*reply["at"], written))
                    one.since = time.monotonic()
                    replies[task["number"]] = reply
                    left -= 1
                    if not self._warm:
                        self._stop(one)
                        after(task)
        except BaseException:
            self.kill()
            raise
        finally:
            if trace is not None:
                trace.mark(traces.RUN)
        return [replies[task["number"]] for task in tasks]

    def _hand_out(self, waiting: deque[Task], before: Callable[[Task], None]) -> None:
        depth = _QUEUE if self._warm else 1
        for level in range(1, depth + 1):
            while waiting:
                one = min(self._workers, key=lambda w: len(w.queue), default=None)
                if len(self._workers) < self.size and (one is None or one.queue):
                    one = self._start()
                if one is None or len(one.queue) >= level:
                    break
                before(waiting[0])
                self._send(one, waiting.popleft())

    @signals.deferred()
    def _start(self) -> _Worker:
        ours, theirs = connections.Pipe()
        stderr = self.scratch / f"worker-{self._started}.log"
        self._started += 1
        process = self._starter.start(theirs, str(stderr))
        theirs.close()
        one = _Worker(process, ours, stderr, _end_of(process.pid))
        one.slot = min({*range(self.size)} - {other.slot for other in self._workers})
        self._workers.append(one)
        return one

    def _kill_silent(self, timeout: float) -> None:
        """Kill workers whose log has not changed for too long; the next look finds them dead."""
        for one in self._workers:
            if one.queue and not one.silent:
                with contextlib.suppress(FileNotFoundError):
                    sign = one.stderr.stat().st_mtime_ns
                    if sign != one.sign:
                        one.sign, one.since = sign, time.monotonic()
                    if time.monotonic() - one.since > timeout:
                        one.silent = timeout
                        one.process.kill()

    def _send(self, one: _Worker, task: Task) -> None:
        if not one.queue:
            one.since = time.monotonic()
        one.queue.append(task)
        try:
            message = f'"task": {json.dumps(task)}'
            if one.job != self._job:
                message = f'"job": {self.definition}, {message}'
                one.job = self._job
            one.connection.send_bytes(f"{{{message}}}".encode())
        except OSError:
            # It died; the end of its connection will be seen next.
            pass

    def _receive(self, one: _Worker) -> Reply | None:
        try:
            if not one.connection.poll():
                # It ended, but what its task has forked holds the connection open.
                return None
            reply: Reply = json.loads(one.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        return reply

    def _retry(self, one: _Worker, waiting: deque[Task], attempts: int) -> None:
        """Put a dead worker's tasks back; the one it was running has lost an attempt."""
        # What the task started is still there.
        one.process.kill()
        status = one.process.wait()
        running, *queued = one.queue
        written = _tail(one.stderr)
        self._forget(one)
        waiting.extendleft(reversed(queued))
        attempt = running["attempt"] + 1
        reason = _status(status)
        if one.silent:
            reason = f"this program: it gave no sign of life for {one.silent:g} s"
        if attempt >= attempts:
            advice = ". Is there enough memory?" if status < 0 else ". Does it call os._exit?"
            advice = "" if one.silent else advice
            raise TaskError(
                f"{describe(running)} failed: its worker was killed {attempt} times, last by "
                f"{reason}{advice}",
                running,
                None,
                written,
                None,
            )
        log.warning(
            "%s: its worker was killed by %s; attempt %d of %d begins",
            describe(running),
            reason,
            attempt + 1,
            attempts,
        )
        waiting.appendleft({**running, "attempt": attempt})

    def _stop(self, one: _Worker) -> None:
        # It has replied, and its files are closed; what the task started ends with it.
        one.process.kill()
        one.process.wait()
        self._forget(one)

    @signals.deferred()
    def _forget(self, one: _Worker) -> None:
        one.connection.close()
        if one.end is not None:
            os.close(one.end)
        for path in (str(one.stderr), worker.printed_path(str(one.stderr))):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
        self._workers.remove(one)

    @signals.deferred()
    def kill(self) -> None:
        """Kill all workers; new ones are started when there are tasks."""
        for one in self._workers:
            one.process.kill()
        for one in list(self._workers):
            one.process.wait(is_ending=True)
            self._forget(one)

    @signals.deferred()
    def close(self) -> None:
        """Kill all workers and remove the scratch folder."""
        self.kill()
        self._starter.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _end_of(pid: int) -> int | None:
    """A descriptor that becomes readable when a process ends; None where the system has none."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            return os.pidfd_open(pid)
    return None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - worker.LOG_BYTES))
            return log.read(worker.LOG_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        # The worker did not live long enough to open it.
        return ""


def describe(task: Task) -> str:
    """A task's name, for messages."""
    return f"step {task['step'] + 1} of {task['steps']}, {task['kind']} task {task['number']}"


def task_error(task: Task, reply: Reply) -> TaskError:
    """The error of a reply."""
    error = reply["error"]
    if error["exit_code"] is not None:
        message = error["message"]
    else:
        message = f"{describe(task)} raised {error['type']}: {error['message']}"
    if error["where"]:
        message += f"\n  at {error['where']}"
    return TaskError(message, task, error["traceback"], reply["log"], error["exit_code"])


def _status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {-status} ({signal.Signals(-status).name})"


def memory_place() -> Path:
    """Where private folders are in memory, if the system has such a place."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def private_folder(parent: Path) -> Path:
    """A new folder, whose name holds the process: so what killed ones left is known and removed."""
    common = owner("")
    # There may be thousands of others.
    for name in os.listdir(parent):  # noqa: PTH208
        if name.startswith(common) and has_ended(name.removeprefix(common).partition("-")[0]):
            shutil.rmtree(parent / name, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{owner(os.getpid())}-", dir=parent))


def owner(process: int | str) -> str:
    """A name that holds a process, its namespace and its machine."""
    # Machines may share a disk, and containers memory.
    space = Path("/proc/self/ns/pid")
    machine = zlib.crc32(platform.node().encode())
    return f"gradreduce-{machine:08x}-{space.stat().st_ino if space.exists() else 0}-{process}"


_shared: list[WorkerPool] = []


@contextmanager
def shared(workers: int, start_method: str, jobs: Sequence[type]) -> Iterator[WorkerPool]:
    """Have the runners within use one pool, which outlives them. See :class:`WorkerPool`."""
    pool = None
    try:
        with signals.deferred():
            pool = WorkerPool(workers, start_method, jobs)
            _shared.append(pool)
        yield pool
    finally:
        if pool is not None:
            with signals.deferred():
                _shared.remove(pool)
                pool.close()


def current(workers: int, start_method: str) -> WorkerPool | None:
    """This thread's shared pool, if it has enough workers, which are started in this way."""
    for pool in reversed(_shared):
        is_mine = pool.thread == threading.get_ident()
        if is_mine and pool.size >= workers and pool.start_method == start_method:
            return pool
    return None
