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
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mapreduce import compat

compat.install()

from mapreduce.errors import UsageError  # noqa: E402
from mapreduce.runners.parallel.pool import Reply, Task, TaskError, WorkerPool  # noqa: E402
from mapreduce.support import numeric, own  # noqa: E402
from mapreduce.support.traits import DEFAULT_START_METHOD  # noqa: E402

#: Between the name of a file and what makes it one attempt's.
ATTEMPT = ".attempt-"
ADVICE = "Leave out --spark-master, or name local[N], yarn, or the spark:// of a master"
_BOOT = Path("/proc/sys/kernel/random/boot_id")

_pools: dict[str, WorkerPool] = {}


class Place(NamedTuple):
    """Where a task runs.

    ``pins``: Variables of a numeric profile, with which a Python starts. ``files``: Folders that
    tasks share with their driver, each with what tells it from another one of its path.
    """

    python: str
    package: str
    pins: str
    host: str
    machine: str
    files: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls, folders: Iterable[str]) -> "Place":
        """Where this process runs."""
        host = socket.gethostname()
        boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        package = f"gradreduce in {own.HOME}"
        given = {**numeric.pinned(), **numeric.environment("native")}
        pins = " ".join(f"{name}={value}" for name, value in sorted(given.items()))
        files = tuple((folder, _identity(Path(folder))) for folder in folders)
        version = f"Python {platform.python_version()}"
        return cls(version, package, pins, host, boot or host, files)

    def differs(self, driver: "Place") -> str:
        """Why an executor cannot run tasks here for a driver, in words; "" if it can."""
        others = [path for path, _ in {*driver.files} - {*self.files}]
        if self.machine != driver.machine or others:
            what = "a folder of its own" if self.machine == driver.machine else "another machine"
            return (
                f"-r spark: an executor runs on {self.host}, and tasks open files of the driver's "
                f"machine, {driver.host}: expected its {min(others, default='files')}, found "
                f"{what}. {ADVICE} whose executors are there; on a cluster, take -r hadoop"
            )
        if self.pins != driver.pins:
            return (
                f"-r spark: an executor has the variables {self.pins}, expected {driver.pins}, on "
                f"which the bits of a result depend. Start the context with them: "
                f"spark.executorEnv.NAME=VALUE"
            )
        if self[:2] != driver[:2]:
            return (
                f"-r spark: an executor on {self.host} has {self.python} and {self.package}, "
                f"expected {driver.python} and {driver.package}, which the driver has. Name the "
                f"interpreter by the variable PYSPARK_PYTHON"
            )
        return ""


def _identity(path: Path) -> str:
    """The file system and the number of a folder; a container may have another one there."""
    try:
        status = path.stat()
    except OSError as error:
        return type(error).__name__
    return f"{status.st_dev}-{status.st_ino}"


@cache
def _differs(driver: Place) -> str:
    return Place.here(folder for folder, _ in driver.files).differs(driver)


class Work:
    """Runs tasks of a job, and adds a reply of each to an accumulator, by the task's number.

    ``definition``, ``early``: As :meth:`WorkerPool.load` takes them. ``limits``: As
    :meth:`WorkerPool.run` takes them after the tasks. ``driver``: Where that runs.
    """

    def __init__(
        self, definition: str, early: Any, limits: Any, driver: Place, replies: Any
    ) -> None:
        self._definition, self._early, self._limits = definition, early, limits
        self._driver, self._replies = driver, replies

    def __call__(self, tasks: Iterable[str]) -> Iterator[Any]:
        for text in tasks:
            task = json.loads(text)
            self._replies.add({task["number"]: self._run(task)})
        return iter(())

    def _run(self, task: Task) -> Reply:
        if why := _differs(self._driver):
            # Of an executor that came after the others were looked at.
            return {"error": [why, None, "", UsageError.exit_code]}
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
