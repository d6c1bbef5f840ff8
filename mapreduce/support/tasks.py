"""The tasks of the jobs that a driver starts, as the driver notes them for a trace.

Each driver has a file of its own, whose name begins those of the files of its ranks
(:mod:`mapreduce.support.phases`): a :data:`DRIVER`, which is written again with each flush, and
rows.
"""

import contextlib
import errno
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from hdfs_utils.atomic import storage_errors
from mapreduce.support.tracefiles import TraceFile, clock, machine

MAGIC, VERSION, TASKS = b"GRTASKS\n", 2, ".tasks"

#: Kinds of rows of what the driver itself does: it plans tasks, they run, and the rest.
OWN = PLAN, RUN, REST = "plan", "run", "rest"

#: The head: magic, version, tasks at once, the name of the clock's machine, when the driver began
#: and last wrote, the nanoseconds since 1970 when it began, and why it could not write, if so.
DRIVER = struct.Struct("<8sII40sqqq80s")

#: A row, as :data:`mapreduce.timing.trace.TASK`.
ROW = struct.Struct("<IH32sII8q")

#: Nanoseconds between two flushes, and bytes of a file.
_FLUSH, MOST_BYTES = 1_000_000_000, 1 << 28


class Tasks:
    """Notes the tasks of jobs, whose number is ``job``; without room only the trace ends.

    ``start`` is when the driver began, ``count`` the number of tasks, ``error`` why there are no
    more in the file.

    Raises StorageError (the folder or the file cannot be made).
    """

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / os.urandom(4).hex()
        self.job, self.count, self.error = -1, 0, ""
        path = self.prefix.with_name(self.prefix.name + TASKS)
        with storage_errors("create", path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = TraceFile(path, DRIVER.size)
        self.start, self._wall, self._machine = clock(), time.time_ns(), machine().encode()
        self._workers = 0
        self._rows: list[bytes] = []
        self._flush_at = 0
        self._since, (self._cpu, self._delay) = self.start, _usage()
        self.flush()

    def note(self, task: Mapping[str, Any], worker: int, workers: int, ready: int, at: Any) -> None:
        """Note a task of the runner ``parallel``, by its description and its worker's times."""
        start, stop, cpu, written = at
        read = sum(part[2] for part in task.get("segments", ()))
        read += sum(part[2] - part[1] for part in task.get("splits", ()))
        numbers = ready, start, stop, cpu, 0, read, written, -1
        self.add(task["step"], task["kind"], task["number"], worker, workers, numbers)

    def add(
        self,
        step: int,
        kind: str,
        number: int,
        worker: int,
        workers: int,
        numbers: tuple[int, int, int, int, int, int, int, int],
    ) -> None:
        """Note a task, with its numbers from ``ready`` on as in a row, and of how many workers."""
        self._workers, self.count = max(self._workers, workers), self.count + 1
        place = self.job, step, kind.encode("utf-32-le"), number, worker
        self._rows.append(ROW.pack(*place, *numbers))
        if numbers[2] >= self._flush_at:
            self.flush()

    def mark(self, kind: str) -> int:
        """Note what the driver has used since the last mark, for work of a kind; returns when."""
        (cpu, delay), now = _usage(), clock()
        used, waited = max(cpu - self._cpu, 0), max(delay - self._delay, 0)
        place = max(self.job, 0), 0, kind.encode("utf-32-le"), 0, 0
        numbers = self._since, self._since, now, used, waited, -1, -1, -1
        self._rows.append(ROW.pack(*place, *numbers))
        self._since, self._cpu, self._delay = now, cpu, delay
        return now

    def flush(self) -> None:
        """Write what has been noted."""
        now, rows = clock(), b"".join(self._rows)
        self._rows, self._flush_at = [], now + _FLUSH
        if not self._file.is_open:
            return
        head = MAGIC, VERSION, self._workers, self._machine, self.start, now, self._wall, b""
        try:
            if self._file.end + len(rows) > MOST_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            self._file.append(rows)
            self._file.write(DRIVER.pack(*head))
        except OSError as error:
            self.error = self._file.give_up(error)

    def problem(self) -> str:
        """Why not all tasks, or not all phases of ranks, could be written, if so."""
        # Jobs are started without NumPy.
        from mapreduce.support.phases import problem

        return self.error or problem(self.prefix)

    def close(self) -> None:
        """Write what is left, and close the file."""
        self.mark(REST)
        self.flush()
        self._file.close()


def _usage() -> tuple[int, int]:
    """Nanoseconds that this process has used, and that this thread waited for a processor."""
    delay = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        delay = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.process_time_ns(), delay


_current: ContextVar[Tasks | None] = ContextVar("tasks", default=None)

#: What notes the tasks of the jobs that this thread starts, if anything does.
current = _current.get
# What a process forks would write into the same file.
os.register_at_fork(after_in_child=lambda: _current.set(None))


@contextlib.contextmanager
def tracing(folder: Path) -> Iterator[Tasks]:
    """Have a folder note the tasks of this thread's jobs."""
    tasks = Tasks(folder)
    token = _current.set(tasks)
    try:
        yield tasks
    finally:
        _current.reset(token)
        tasks.close()
