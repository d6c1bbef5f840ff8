"""What ``-r parallel`` can do."""

from collections.abc import Sequence

from mapreduce.runners.traits import MOST_HERE, Kept, Traits


class _Parallel(Traits):
    def kept(self, workers: int, start_method: str, jobs: Sequence[type]) -> Kept:
        from mapreduce.runners.parallel import pool

        return pool.shared(workers, start_method, jobs)


PARALLEL = _Parallel(
    "mapreduce.runners.parallel.runner:ParallelMRJobRunner",
    has_local_files=True,
    forks=True,
    most_workers=MOST_HERE,
)
