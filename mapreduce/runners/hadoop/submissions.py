"""What YARN is asked about applications: those of a run, and for how many tasks it has room."""

import time
from collections.abc import Mapping
from typing import Any

from mapreduce.runners import applications
from mapreduce.runners.hadoop import installation, rest
from mapreduce.runners.hadoop.uber import AM_MEMORY, number
from mapreduce.support.cores import available_cores

#: Memory in MiB and cores.
Size = tuple[int, int]

#: Seconds that an application may take to end when it is killed.
_END_SECONDS = 20.0


def end_left_behind(run: str) -> list[str]:
    """End applications that a killed driver left of the run in a folder; returns their ids."""
    yarn = rest.Yarn(installation.find())
    found = yarn.live(applications.mark(run))
    for application in found:
        yarn.kill(application)
    end = time.monotonic() + _END_SECONDS
    while yarn.live(applications.mark(run)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def cores() -> int:
    """Cores of the cluster, as far as YARN gives them to tasks."""
    try:
        found = rest.Yarn(installation.find()).metrics()
    except rest.RestError as error:
        if error.status is None:
            raise
        # The interface is guarded: the number of cores is unknown.
        return 1
    return max(1, int(found.get("totalVirtualCores", 1)))


def tasks_at_once() -> int:
    """Map tasks that can run at once now, beside the application master; at most one for a core.

    Counts what the nodes have free, and what the queue still gives to one user. 0 if not even the
    application master has room; 1 if the resource manager's interface is guarded.
    """
    here = installation.find()
    yarn = rest.Yarn(here)
    try:
        nodes, total = yarn.nodes(), yarn.metrics()
        queue = yarn.queue(here.get("mapreduce.job.queuename", "default"))
    except rest.RestError as error:
        if error.status is None:
            raise
        return 1
    least = max(1, number(here.get("yarn.scheduler.minimum-allocation-mb"), 1024))

    def size(memory: str, default: int, cores: str) -> Size:
        wanted = number(here.get(memory), default)
        return -(-wanted // least) * least, max(1, number(here.get(cores), 1))

    master = size(AM_MEMORY, 1536, "yarn.app.mapreduce.am.resource.cpu-vcores")
    task = size("mapreduce.map.memory.mb", 1024, "mapreduce.map.cpu.vcores")
    free = [(node["availMemoryMB"], node["availableVirtualCores"]) for node in nodes]
    found = min(_beside(free, master, task), _beside([of_queue(queue, total)], master, task))
    # All nodes of one's own cluster share the machine's cores.
    return min(found, available_cores()) if here.is_local else found


def _beside(free: list[Size], master: Size, task: Size) -> int:
    """Tasks that fit into free space, with the master where it costs most of them."""
    alone = [fits(each, task) for each in free]
    left = [
        sum(alone) - most + fits((memory - master[0], cores - master[1]), task)
        for (memory, cores), most in zip(free, alone, strict=True)
        if memory >= master[0] and cores >= master[1]
    ]
    return min(left, default=0)


def fits(free: Size, task: Size) -> int:
    """Tasks that have room in what is free."""
    return max(0, min(free[0] // task[0], free[1] // task[1]))


def of_queue(queue: Mapping[str, Any], total: Mapping[str, Any]) -> Size:
    """Memory and cores that a queue still gives to one user; those of the cluster, if it is none.

    https://hadoop.apache.org/docs/r3.4.2/hadoop-yarn/hadoop-yarn-site/CapacityScheduler.html
    """
    share = 100.0
    if "absoluteMaxCapacity" in queue:
        of_user = queue.get("userLimitFactor", 1.0) * queue.get("absoluteCapacity", 100.0)
        # A factor of -1 is no limit.
        most = min(queue["absoluteMaxCapacity"], of_user if of_user >= 0 else 100.0)
        share = max(0.0, most - queue.get("absoluteUsedCapacity", 0.0))
    sizes = total["totalMB"], total["totalVirtualCores"]
    return int(sizes[0] * share // 100), int(sizes[1] * share // 100)
