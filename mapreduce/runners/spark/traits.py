"""What ``-r spark`` can do."""

from mapreduce.support.traits import BY_RUNNER, MOST_HERE, NO_GANGS_HERE, Costs, Traits


class _Spark(Traits):
    def reach(self, home: str) -> str:
        # The master is known after its application has started.
        return BY_RUNNER


SPARK = _Spark(
    "mapreduce.runners.spark.runner:SparkRunner",
    is_here=True,
    shares_files=True,
    reads_far_files=True,
    why_no_gangs=NO_GANGS_HERE,
    gang_option="--workers",
    most_workers=MOST_HERE,
    costs=Costs(job=4.0, worker=0.3, step=0.2, task=0.01),
)
