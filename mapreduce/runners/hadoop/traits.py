"""What ``-r hadoop`` can do."""

from hdfs_utils.filesystem import is_remote
from mapreduce.errors import UsageError
from mapreduce.support.traits import Costs, Traits


class _Hadoop(Traits):
    def default_workers(self) -> int:
        from mapreduce.runners.hadoop import submissions

        return submissions.cores()

    def tasks_at_once(self) -> int:
        from mapreduce.runners.hadoop import submissions

        return submissions.tasks_at_once()

    def check_place(self, place: str) -> None:
        from mapreduce.runners.hadoop import installation

        if not installation.find().is_local and not is_remote(place):
            raise UsageError(
                f"{place} is a folder of this machine, which the nodes of the cluster cannot "
                f"open. Name one that they can: hdfs:///..., and copy data there with "
                f"'gradreduce data copy'"
            )

    def reach(self, home: str) -> str:
        # Only a cluster of this machine opens folders of it: see check_place.
        return super().reach(home) if is_remote(home) else ""

    def end_left_behind(self, run: str, before: str | None) -> list[str]:
        from mapreduce.runners.hadoop import submissions

        return submissions.end_left_behind(run)


HADOOP = _Hadoop(
    "mapreduce.runners.hadoop.runner:HadoopMRJobRunner",
    names_applications="application_",
    can_adopt=True,
    joins_rounds=True,
    notes_tasks=True,
    costs=Costs(job=6.0, worker=1.0, step=3.5, task=3.0),
)
