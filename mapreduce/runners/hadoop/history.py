"""The tasks of a step that has ended, by Hadoop's history, for a trace."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

from mapreduce.runners.hadoop.rest import RestError, Yarn
from mapreduce.support.tasks import Tasks
from mapreduce.support.tracefiles import clock

log = logging.getLogger("mrjob.hadoop")

#: Seconds until a job that has ended is in the history, and requests at once.
_HISTORY_SECONDS, _REQUESTS = 10.0, 8

#: By kind of task: counters of what a task reads, writes, and of its records, of which one counts.
_COUNTERS = {
    "map": (("HDFS_BYTES_READ",), ("MAP_OUTPUT_BYTES", "HDFS_BYTES_WRITTEN"), "MAP_INPUT_RECORDS"),
    "reduce": (("REDUCE_SHUFFLE_BYTES",), ("HDFS_BYTES_WRITTEN",), "REDUCE_INPUT_RECORDS"),
}


def note_tasks(trace: Tasks, yarn: Yarn, application: str, step: int) -> None:
    """Note the tasks of a step; where the history does not tell of them, the trace has none."""
    try:
        tasks = sorted(_ended(yarn, application), key=itemgetter("startTime"))
        with ThreadPoolExecutor(_REQUESTS) as pool:
            rows = list(pool.map(lambda task: _row(yarn, application, task), tasks))
    except (RestError, KeyError, TypeError, ValueError) as error:
        log.warning("the trace has no tasks of step %d: %s", step + 1, error)
        return
    # The times of the cluster, by the clock of the trace; nothing was before the job began.
    shift = clock() - time.time_ns()
    free: list[int] = []
    lanes = []
    for row in rows:
        lane = next((at for at, end in enumerate(free) if end <= row["start"]), len(free))
        free[lane : lane + 1] = [row["stop"]]
        lanes.append(lane)
    begun = min((row["start"] for row in rows), default=0)
    mapped = max((row["stop"] for row in rows if row["kind"] == "map"), default=begun)
    for row, lane in zip(rows, lanes, strict=True):
        # Reduce tasks begin before the last map has ended, and wait for it.
        ready = min(mapped, row["start"]) if row["kind"] == "reduce" else begun
        times = (
            max(at * 1_000_000 + shift, trace.start) for at in (ready, row["start"], row["stop"])
        )
        numbers = *times, *(row[name] for name in ("cpu", "waited", "read", "written", "records"))
        trace.add(step, row["kind"], row["number"], lane, len(free), numbers)


def _ended(yarn: Yarn, application: str) -> list[dict[str, Any]]:
    """The tasks of a job that has ended, once the history has it."""
    end = time.monotonic() + _HISTORY_SECONDS
    while True:
        with contextlib.suppress(RestError) if time.monotonic() < end else contextlib.nullcontext():
            tasks = [task for task in yarn.tasks(application) if task.get("successfulAttempt")]
            if tasks and all(task["state"] == "SUCCEEDED" for task in tasks):
                return tasks
        if time.monotonic() > end:
            raise RestError(f"the history does not tell of {application}")
        time.sleep(0.2)


def _row(yarn: Yarn, application: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a task: times in milliseconds since 1970, ``cpu`` and ``waited`` in
    nanoseconds. The merge of what was shuffled is the task's own time."""
    kind = str(task["type"]).lower()
    attempt = yarn.attempt(application, task["successfulAttempt"])
    counters = dict(_counters(yarn.counters(application, task["id"])))
    read, written, records = _COUNTERS[kind]
    start, stop = int(attempt["startTime"]), int(attempt["finishTime"])
    shuffle = min(int(attempt.get("elapsedShuffleTime", 0)), stop - start)
    return {
        "kind": kind,
        "number": int(task["id"].rpartition("_")[2]),
        "start": start,
        "stop": stop,
        "cpu": counters.get("CPU_MILLISECONDS", 0) * 1_000_000,
        "waited": max(shuffle, 0) * 1_000_000,
        "read": sum(counters.get(name, 0) for name in read),
        "written": next((counters[name] for name in written if counters.get(name)), 0),
        "records": counters.get(records, -1),
    }


def _counters(groups: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for group in groups.get("taskCounterGroup") or ():
        for counter in group["counter"]:
            yield str(counter["name"]), int(counter["value"])
