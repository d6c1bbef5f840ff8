"""The options of the toolkit's executors. ``--help`` needs them, so it imports nothing slow."""

import math
import re
from dataclasses import dataclass

from mapreduce.support.options import Bound, option, up_to


@dataclass(frozen=True)
class ChainOptions:
    """Options of :class:`mapreduce.executors.chain.Chain`."""

    fan_in: int = option(
        0,
        "largest number of partial sums that one reducer merges, a power of 2; 0 merges all",
        Bound(
            "0 or a power of two from 2 on",
            lambda number: number == 0 or (number >= 2 and not number & (number - 1)),
        ),
        group="Clusters",
    )
    rounds_per_job: int = option(
        50, "largest number of rounds in one mrjob job of a chain", up_to(10_000), group="Clusters"
    )


@dataclass(frozen=True)
class GangOptions:
    """Options of :class:`mapreduce.executors.gang.job.Gang`."""

    stages: int = option(
        1,
        "number of tasks of a gang that hold a network together, each some of its layers; the "
        "number of workers is a multiple of it",
        up_to(1024),
        group="Execution",
        needs_owner=True,
    )
    wait: float = option(
        60.0,
        "how many seconds the tasks of a gang wait for each other",
        Bound("a positive number of seconds", lambda number: 0 < number < math.inf),
        flag="--gang-wait",
        group="Clusters",
    )
    fallback: str = option(
        "error",
        "what to do when the tasks of a gang cannot all run at once: end with an error, or "
        "continue as a chain",
        choices=("error", "chain"),
        flag="--gang-fallback",
        group="Clusters",
    )
    interface: str | None = option(
        None,
        "network by which the tasks of a gang reach each other, by the interface's name or its "
        "addresses, as eth0 or 10.0.0.0/8 (default: the way to the name node; in a folder that "
        "machines share, the default route)",
        group="Clusters",
        needs_owner=True,
    )
    slow_worker: str | None = option(
        None,
        "for experiments: make a worker of a gang slower by a factor, as 1:4; workers are numbered "
        "from 0",
        Bound(
            "RANK:FACTOR, a worker's number and a factor from 1 on, such as 1:4",
            lambda text: slow_worker(text) is not None,
        ),
        group="Clusters",
        needs_owner=True,
    )


def slow_worker(text: str) -> tuple[int, float] | None:
    """The number and the factor of ``--slow-worker``; None if a text is not of that form."""
    found = re.fullmatch(r"(\d{1,9}):(\d+(?:\.\d*)?)", text, re.ASCII)
    if found is None or not 1 <= float(found[2]) < math.inf:
        return None
    return int(found[1]), float(found[2])
