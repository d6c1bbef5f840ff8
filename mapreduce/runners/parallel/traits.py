"""What ``-r parallel`` can do."""

from collections.abc import Sequence
from dataclasses import dataclass

from mapreduce.support.options import option
from mapreduce.support.traits import (
    DEFAULT_START_METHOD,
    MOST_HERE,
    NO_GANGS_HERE,
    START_METHODS,
    Costs,
    Kept,
    Traits,
)


@dataclass(frozen=True)
class ParallelOptions:
    """Options of ``-r parallel``; mrjob's own table has them for jobs, too."""

    start_method: str = option(
        DEFAULT_START_METHOD,
        "how -r parallel starts its workers",
        choices=START_METHODS,
        group="Execution",
    )


class _Parallel(Traits):
    def kept(self, workers: int, start_method: str, jobs: Sequence[type]) -> Kept:
        from mapreduce.runners.parallel import pool

        return pool.shared(workers, start_method, jobs)


PARALLEL = _Parallel(
    "mapreduce.runners.parallel.runner:ParallelMRJobRunner",
    is_here=True,
    shares_files=True,
    reads_far_files=True,
    forks=True,
    why_no_gangs=NO_GANGS_HERE,
    most_workers=MOST_HERE,
    notes_tasks=True,
    costs=Costs(job=0.05, worker=0.03, step=0.004, task=0.001),
)
