"""What runs in a Python worker of Spark: tasks of ``-r parallel``, in forks of that process.

A Python worker has a pool of one worker, so that all is as on ``-r parallel``: a folder, an
environment and streams of its own for each task, and the description of an error. What a task
raises is returned, as Java would print it otherwise.
"""

import json
import platform
import socket
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mapreduce import compat

compat.install()

from mapreduce.runners.parallel.pool import Reply, Task, TaskError, WorkerPool  # noqa: E402
from mapreduce.support import numeric, own  # noqa: E402
from mapreduce.support.traits import DEFAULT_START_METHOD  # noqa: E402

#: Between the name of a file and what makes it one attempt's.
ATTEMPT = ".attempt-"
_BOOT = Path("/proc/sys/kernel/random/boot_id")

_pools: dict[str, WorkerPool] = {}


class Place(NamedTuple):
    """Where a task runs. ``pins``: Variables of a numeric profile, with which a Python starts."""

    python: str
    package: str
    pins: str
    host: str
    machine: str

    @classmethod
    def here(cls) -> "Place":
        """Where this process runs."""
        host = socket.gethostname()
        boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        package = f"gradreduce in {own.HOME}"
        given = {**numeric.pinned(), **numeric.environment("native")}
        pins = " ".join(f"{name}={value}" for name, value in sorted(given.items()))
        return cls(f"Python {platform.python_version()}", package, pins, host, boot or host)


def place(_: int) -> Place:
    """Where a task runs that does nothing else."""
    return Place.here()


class Work:
    """Runs tasks of a job, and adds a reply of each to an accumulator, by the task's number.

    ``definition``, ``early``: As :meth:`WorkerPool.load` takes them. ``limits``: As
    :meth:`WorkerPool.run` takes them after the tasks.
    """

    def __init__(self, definition: str, early: Any, limits: Any, replies: Any) -> None:
        self._definition, self._early, self._limits = definition, early, limits
        self._replies = replies

    def __call__(self, tasks: Iterable[str]) -> Iterator[Any]:
        for text in tasks:
            task = json.loads(text)
            self._replies.add({task["number"]: self._run(task)})
        return iter(())

    def _run(self, task: Task) -> Reply:
        pool = self._pool()
        # Another attempt may still write, on an executor that is lost and has not ended.
        mark = f"{ATTEMPT}{uuid.uuid4().hex}"
        path, quota, overflow = task["target"]
        part, is_part = Path(path), quota is None
        hidden = part.with_name(f"{'.' * is_part}{part.name}{mark}")
        target = [str(hidden), quota, overflow and overflow + mark]
        try:
            (reply,) = pool.run([{**task, "target": target}], *self._limits)
        except TaskError as error:
            hidden.unlink(missing_ok=True)
            return {"error": [str(error), error.traceback, error.log, error.code]}
        if is_part:
            hidden.replace(part)
            reply["result"]["files"] = [[path, size] for _, size in reply["result"]["files"]]
        return reply

    def _pool(self) -> WorkerPool:
        """The pool of this process; that of a job whose workers run one task each is its own."""
        definition = json.loads(self._definition)
        key = "" if definition["warm"] else self._definition
        pool = _pools.get(key)
        if pool is None:
            for other in [*_pools] if key else ():
                _pools.pop(other).close()
            pool = _pools[key] = WorkerPool(1, DEFAULT_START_METHOD, [])
            pool.load(definition, self._early)
        elif pool.definition != self._definition:
            pool.load(definition)
        return pool
