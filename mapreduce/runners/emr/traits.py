"""What ``-r emr`` can do."""

from collections.abc import Sequence

from mapreduce.errors import UsageError
from mapreduce.support.traits import Costs, Kept, Traits


class _Emr(Traits):
    def default_workers(self) -> int:
        # Nobody knows yet what cluster it will be; the smallest has as many cores.
        return 4

    def check_place(self, place: str) -> None:
        if not place.startswith("s3://"):
            raise UsageError(
                f"{place} is not on S3, where the nodes of EMR could open it. Name one "
                f"that is: s3://BUCKET/..., and copy data there with 'gradreduce data copy'"
            )

    def kept(self, workers: int, start_method: str, jobs: Sequence[type]) -> Kept:
        from mapreduce.runners.emr import clusters

        return clusters.shared()

    def end_left_behind(self, run: str, before: str | None) -> list[str]:
        from mapreduce.runners.emr import clusters

        return clusters.end_left_behind(run, before) if before else []


EMR = _Emr(
    "mapreduce.runners.emr.runner:EmrMRJobRunner",
    why_no_gangs=(
        "--executor gang does not run on EMR: its tasks meet in the run's directory, and S3 is no "
        "place for that. Leave it out, or use -r hadoop on the cluster itself"
    ),
    names_applications="j-",
    joins_rounds=True,
    costs=Costs(job=30.0, worker=1.0, step=20.0, task=3.0),
)
