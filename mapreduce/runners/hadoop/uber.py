"""Steps too small for containers of their own: Hadoop's uber mode.

The application master runs the tasks of such a step itself, so that one Java starts instead of
three or more. What fails there fails at once, so the runner then runs the step again, with tasks.
``OnlyAttemptCommitter.java`` commits the output without Hadoop's second of waiting.
"""

from collections.abc import Mapping
from typing import Any

from hdfs_utils.cluster import compiled
from mapreduce.runners.hadoop.installation import Installation

#: Bytes of the one input file up to which a step is small.
BYTES = 1 << 20

#: Who sets one of these has said how the step's tasks are to run.
_OF_TASKS = (
    "mapred.map.",
    "mapred.reduce.",
    "mapreduce.am.",
    "mapreduce.job.ubertask.",
    "mapreduce.map.",
    "mapreduce.reduce.",
    "yarn.app.mapreduce.am.",
)

AM_MEMORY = "yarn.app.mapreduce.am.resource.mb"


def leaves_tasks_to_us(jobconf: Mapping[str, Any]) -> bool:
    """Whether a job's properties say nothing about its tasks but that there is one of a kind."""
    if any(name.startswith(_OF_TASKS) for name in jobconf):
        return False
    names = ("mapreduce.job.maps", "mapreduce.job.reduces", "mapred.reduce.tasks")
    return all(str(jobconf.get(name, 1)).strip() in ("0", "1") for name in names)


def properties(installation: Installation) -> dict[str, str]:
    """Properties of a step whose tasks run within the application master.

    Hadoop does so only if the master has the memory of a task: it gets that. It has one attempt: a
    failed task sometimes takes it along.
    """
    found = {
        "mapreduce.am.max-attempts": "1",
        "mapreduce.job.maps": "1",
        "mapreduce.job.ubertask.enable": "true",
    }
    sizes = {
        kind: number(installation.get(f"mapreduce.{kind}.memory.mb"), 1024)
        for kind in ("map", "reduce")
    }
    kind = max(sizes, key=lambda kind: sizes[kind])
    if sizes[kind] > number(installation.get(AM_MEMORY), 1536):
        found[AM_MEMORY] = str(sizes[kind])
        if options := installation.get(f"mapreduce.{kind}.java.opts"):
            found["yarn.app.mapreduce.am.command-opts"] = options
    if installation.own is not None and compiled.exists(installation.own.hadoop):
        found["mapred.output.committer.class"] = compiled.COMMITTER
    return found


def number(text: str, default: int) -> int:
    """A property's value; one that leaves the choice to Hadoop, as -1, is the default."""
    return int(text) if text.strip().isdecimal() else default
