"""What runs in a Python worker of Spark: tasks of ``-r parallel``, in forks of that process.

A Python worker has a pool of one worker, so that all is as on ``-r parallel``: a folder, an
environment and streams of its own for each task, and the description of an error. What a task
raises is returned, as Java would print it otherwise.
"""

import hashlib
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
SHARED = (
    "Tasks on several machines need a disk that all of them mount at the same place, with input, "
    "output, code and the folder for temporary files, which the variable TMPDIR names. Without "
    "such a disk, take -r hadoop, or leave out --spark-master"
)
ADVICE = "Leave out --spark-master, or name local[N], yarn, or the spark:// of a master"

_pools: dict[str, WorkerPool] = {}


class Place(NamedTuple):
    """Where a task runs.

    ``code``: A digest of the toolkit's. ``pins``: Variables of a numeric profile, with which a
    Python starts. ``folders``: Folders that the driver has made, each with whether it is seen here.
    """

    python: str
    package: str
    code: str
    pins: str
    host: str
    folders: tuple[tuple[str, bool], ...]

    @classmethod
    def here(cls, folders: Iterable[str]) -> "Place":
        """Where this process runs."""
        package = f"gradreduce in {own.HOME}"
        given = {**numeric.pinned(), **numeric.environment("native")}
        pins = " ".join(f"{name}={value}" for name, value in sorted(given.items()))
        seen = tuple((folder, Path(folder).is_dir()) for folder in folders)
        version = f"Python {platform.python_version()}"
        return cls(version, package, code(), pins, socket.gethostname(), seen)

    def differs(self, driver: "Place") -> str:
        """Why an executor cannot run tasks here for a driver, in words; "" if it can."""
        if hidden := [folder for folder, is_seen in self.folders if not is_seen]:
            return (
                f"-r spark: an executor on {self.host} does not see {hidden[0]}, a folder that the "
                f"driver on {driver.host} has made. {SHARED}"
            )
        if self.pins != driver.pins:
            return (
                f"-r spark: an executor has the variables {self.pins}, expected {driver.pins}, on "
                f"which the bits of a result depend. Start the context with them: "
                f"spark.executorEnv.NAME=VALUE"
            )
        if (self.python, self.code) != (driver.python, driver.code):
            is_other = self.code != driver.code
            return (
                f"-r spark: an executor on {self.host} has {self.python} and {self.package}"
                f"{' of other content' * is_other}, expected {driver.python} and {driver.package}, "
                f"which the driver has. Name the interpreter by the variable PYSPARK_PYTHON, and "
                f"install the same gradreduce there"
            )
        return ""


@cache
def code() -> str:
    """SHA-256 of the toolkit's modules, by name and content."""
    found = hashlib.sha256()
    for path in sorted(path for name in own.NAMES for path in Path(own.HOME, name).rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(own.HOME)}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def look(path: str) -> list[int] | None:
    """Bytes and time of a file, which all machines see that share it; None if there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _other_file(seen: dict[str, list[int] | None], driver: Place) -> str:
    """Why a task cannot open the files that its driver has seen; "" if it can."""
    for path, expected in seen.items():
        if look(path) != expected:
            return (
                f"-r spark: an executor on {socket.gethostname()} finds another file, or none, at "
                f"{path} than the driver on {driver.host}. {SHARED}"
            )
    return ""


@cache
def _differs(driver: Place) -> str:
    return Place.here(folder for folder, _ in driver.folders).differs(driver)


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
        # Of an executor that came after the others were looked at; and of some folder of its own.
        if why := _differs(self._driver) or _other_file(task.get("seen") or {}, self._driver):
            return {"error": [why, None, "", UsageError.exit_code]}
        pool = self._pool()
        # Another attempt may still write, on an executor that is lost and has not ended.
        mark = f"{ATTEMPT}{uuid.uuid4().hex}"
        path, quota, overflow = task["target"]
        part, is_part = Path(path), quota is None
        if is_part and not part.parent.is_dir():
            where = socket.gethostname()
            why = f"-r spark: an executor on {where} does not see {part.parent}. {SHARED}"
            return {"error": [why, None, "", UsageError.exit_code]}
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
