"""The driver's side: tasks are the partitions of a job of Spark, and replies come as they end."""

import json
import logging
import queue
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import InheritableThread, accumulators
from pyspark.accumulators import AccumulatorParam

from hdfs_utils.errors import StorageError
from hdfs_utils.filesystem import is_remote
from mapreduce.runners.parallel.pool import Reply, Task, TaskError, describe
from mapreduce.runners.spark.contexts import Context, here
from mapreduce.runners.spark.tasks import SHARED, Work, look

log = logging.getLogger("mrjob.spark")

#: Seconds in which Spark ends what is cancelled.
_PATIENCE = 10.0


class _Replies(AccumulatorParam[dict[int, Reply]]):
    """Replies by the numbers of tasks; whatever Spark repeats counts once."""

    def __init__(self, events: Any = None) -> None:
        self._events = events

    def __reduce__(self) -> Any:
        # Executors add to dictionaries of their own.
        return _Replies, ()

    def zero(self, value: dict[int, Reply]) -> dict[int, Reply]:
        return {}

    def addInPlace(self, value1: dict[int, Reply], value2: dict[int, Reply]) -> dict[int, Reply]:
        if self._events is None:
            return {**value1, **value2}
        for pair in value2.items():
            self._events.put(pair)
        return value1


class SparkPool:
    """Takes the place of :class:`mapreduce.runners.parallel.pool.WorkerPool`."""

    def __init__(self, context: Context) -> None:
        self._context, self._definition, self._early = context, "", None
        #: Paths of the job's own code.
        self._code: list[str] = []

    def load(self, definition: dict[str, Any], early: Any = None) -> None:
        """See :meth:`mapreduce.runners.parallel.pool.WorkerPool.load`."""
        self._definition, self._early = json.dumps(definition), early
        self._code = [path for path in (definition["script"], *definition["paths"]) if path]

    def close(self) -> None:
        """Executors end with the context."""

    def run(
        self,
        tasks: Sequence[Task],
        attempts: int,
        timeout: float = 0.0,
        before: Callable[[Task], None] = lambda task: None,
        after: Callable[[Task], None] = lambda task: None,
        replied: Callable[[Task, Reply], None] = lambda task, reply: None,
    ) -> list[Reply]:
        """See :meth:`mapreduce.runners.parallel.pool.WorkerPool.run`.

        Spark starts again what it has lost; what it gives up is submitted again.
        """
        left = {task["number"]: {**task, "attempt": 0} for task in tasks}
        for task in left.values():
            before(task)
            if not self._context.is_near:
                task["seen"] = self._seen(task)
        found: dict[int, Reply] = {}
        limits = attempts, timeout
        for attempt in range(1, attempts + 1):
            with _Job(self._context, self._work(limits), [*left.values()]) as job:
                for number, reply in job.replies():
                    if number not in left:
                        continue
                    task = left.pop(number)
                    if "error" in reply:
                        message, traceback, written, code = reply["error"]
                        raise TaskError(message, task, traceback, written, code)
                    if not self._context.is_near:
                        _check_files(task, reply)
                    replied(task, reply)
                    after(task)
                    found[number] = reply
            if not left:
                return [found[task["number"]] for task in tasks]
            first, reason = next(iter(left.values())), f"Spark gave it up: {job.reason}"
            if attempt < attempts:
                name = describe(first)
                log.warning("%s: %s; attempt %d of %d begins", name, reason, attempt + 1, attempts)
        message = f"{describe(first)} failed {attempts} times. {reason}"
        raise TaskError(message, first, None, "", None)

    def _work(self, limits: Any) -> Callable[[Any], Work]:
        driver = here(self._context.is_near)
        return lambda replies: Work(self._definition, self._early, limits, driver, replies)

    def _seen(self, task: Task) -> dict[str, list[int] | None]:
        """What files that a task opens look like here."""
        inputs = [path for path, _, _ in task.get("splits") or () if not is_remote(path)]
        return {path: look(path) for path in [*self._code, *inputs]}


class _Job:
    """A job of Spark, in a thread of its own, so that this one can be interrupted."""

    def __init__(self, context: Context, work: Callable[[Any], Work], tasks: list[Task]) -> None:
        self._spark, self._events = context.spark, queue.SimpleQueue[Any]()
        self._group, self.reason = f"gradreduce-{uuid.uuid4().hex}", ""
        self._replies = replies = self._spark.accumulator({}, _Replies(self._events))
        function, texts = work(replies), [json.dumps(task) for task in tasks]

        def run() -> None:
            try:
                self._spark.setJobGroup(self._group, "tasks of gradreduce", True)
                rdd = self._spark.parallelize(texts, len(texts))
                rdd.foreachPartition(function)
            except BaseException as error:
                self.reason = _reason(error)
            finally:
                self._events.put(None)

        # It has a thread of Java's of its own, to which the group belongs.
        self._thread = InheritableThread(target=run, daemon=True)

    def __enter__(self) -> "_Job":
        self._thread.start()
        return self

    def replies(self) -> Any:
        """Numbers of tasks and their replies, until the job ends."""
        return iter(self._events.get, None)

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None and self._thread.is_alive():
            self._spark.cancelJobGroup(self._group)
        self._thread.join(_PATIENCE)
        # PySpark would keep it for the life of the process.
        accumulators._accumulatorRegistry.pop(self._replies.aid, None)


def _check_files(task: Task, reply: Reply) -> None:
    """Raise StorageError if what a task has written on its machine is not here."""
    for path, size in reply["result"]["files"]:
        found = look(path)
        if found is None or found[0] != size:
            raise StorageError(
                f"-r spark: {describe(task)} has written {size} bytes to {path} on its machine, "
                f"found {f'{found[0]} bytes' if found else 'no such file'} on this one. {SHARED}"
            )


def _reason(error: BaseException) -> str:
    """What Spark says, without the lines of Java."""
    text = str(error)
    at = text.find("Job aborted")
    return " ".join(text[max(0, at) :].split("\n\t")[0].split())[:400]
