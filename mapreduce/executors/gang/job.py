"""The gang's job: map tasks, one for each rank, that stay until the training ends.

Runners that start processes of their own run ``python -m mapreduce.executors.gang.job`` as their
tasks; the driver calls :func:`run_gang`.
"""

from collections.abc import Iterator
from dataclasses import asdict, fields

from mrjob.protocol import RawValueProtocol
from mrjob.step import StepFailedException

from hdfs_utils.filesystem import name_nodes
from hdfs_utils.paths import path_of
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.rank import Rank, Role
from mapreduce.executors.gang.rendezvous import DRIVER, Meeting, Times
from mapreduce.executors.gang.segment import Segment
from mapreduce.executors.jobs import label_of, run_lines
from mapreduce.job import Job, MRStep
from mapreduce.runners import traits
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import slow_worker
from mapreduce.strategies.training import Training

#: The rest of the training.
_WHOLE = Segment()


class GangJob(Job):
    """One step without reducer; its input is a line for each rank, with the rank's number."""

    WARM = True
    INPUT_PROTOCOL = RawValueProtocol
    OUTPUT_PROTOCOL = RawValueProtocol

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--run-dir", help="directory of the run")
        self.add_passthru_arg("--token", help="part of the names of the job's files")
        self.add_passthru_arg("--driver", default="", help="name that tasks share data under")
        self.add_passthru_arg("--reach", default="", help="host:port that all ranks can reach")
        self.add_passthru_arg("--slow-worker", default="", help="RANK:FACTOR, for experiments")
        self.add_passthru_arg("--wait", type=float, default=60.0, help="seconds for other ranks")
        for option, text in (
            ("--ranks", "tasks of the gang"),
            ("--threads", "slices that a rank computes at once"),
            ("--blocks", "blocks of the parameters"),
            ("--stages", "ranks that hold the model together"),
        ):
            self.add_passthru_arg(option, type=int, default=1, help=text)
        for part in fields(Segment):
            option = f"--segment-{part.name}"
            self.add_passthru_arg(option, type=type(part.default), default=part.default)

    def steps(self) -> list[MRStep]:
        jobconf = {
            "mapreduce.job.maps": self.options.ranks,
            # A second attempt beside the first one would be a second rank of the same number.
            "mapreduce.map.speculative": "false",
        }
        return [MRStep(mapper=self.take_part, jobconf=jobconf)]

    def hadoop_input_format(self) -> str | None:
        """One line for each task, as runners without Hadoop divide the input anyway."""
        if traits.of(self.options.runner).has_local_files:
            return None
        return "org.apache.hadoop.mapred.lib.NLineInputFormat"

    def take_part(self, _: None, line: str) -> Iterator[tuple[None, str]]:
        """Be the rank that the line names, to the end of the training."""
        options = self.options
        rank = int(line.rpartition("\t")[2])
        slow, factor = slow_worker(options.slow_worker) or (rank, 1.0)
        role = Role(
            options.token,
            rank,
            options.ranks,
            options.blocks,
            options.wait,
            options.reach,
            Segment(
                **{one.name: getattr(options, f"segment_{one.name}") for one in fields(Segment)}
            ),
            stages=options.stages,
            slowness=factor if rank == slow else 1.0,
        )
        driver = options.driver or options.token
        run = RunDir(path_of(options.run_dir))
        training = Training.kept(run, driver)
        training.context.threads = options.threads
        Rank(training, run, role, self.set_status).run()
        yield from ()


def run_gang(
    run: RunDir,
    meeting: Meeting,
    execution: Execution,
    segment: Segment = _WHOLE,
    driver: str = "",
) -> Times:
    """Run the rounds after the last published one, until the segment ends, in one job.

    The meeting must be prepared for this job, and the state published in as many blocks as
    ``execution`` asks for. Returns what the rounds took. For ``driver`` see
    :func:`mapreduce.engine.program.kept`.

    Raises TooSmallError (not all tasks ran at once within the time that ``execution`` gives them),
    StepFailedException, GradreduceError (as the runner does).
    """
    ranks = execution.workers
    options: dict[str, object] = {
        "--run-dir": run.path,
        "--token": meeting.token,
        "--ranks": ranks,
        "--threads": execution.threads,
        "--blocks": execution.blocks,
        "--stages": execution.stages,
        "--wait": execution.gang_wait,
        "--driver": driver,
        **{f"--segment-{name}": value for name, value in asdict(segment).items()},
    }
    # Hadoop's streaming loses an empty argument.
    if execution.slow_worker is not None:
        options["--slow-worker"] = execution.slow_worker
    if not execution.traits.has_local_files and (reach := _reach(run)):
        options["--reach"] = reach
    at_once = execution.traits.gang_option
    arguments = label_of(run.path, "gang") + ([at_once, str(ranks)] if at_once else [])
    lines = b"".join(b"%08d\n" % rank for rank in range(ranks))
    try:
        run_lines(GangJob, options, lines, execution, arguments)
    except StepFailedException as error:
        raise _explained(error, meeting) from error
    return meeting.times()


def _reach(run: RunDir) -> str:
    """A name node, which all ranks can reach since it serves the run's directory.

    Empty for a directory of this machine, on which all ranks run then.

    Raises UsageError (the URI names no host).
    """
    scheme, remote, place = str(run.path).partition("://")
    found = [place.partition("/")[0]] if remote else [""]
    if scheme == "hdfs":
        found = name_nodes(found[0])
    if not found or scheme == "s3" or (remote and ":" not in found[0]):
        raise UsageError(
            f"{run.path}: the ranks of a gang choose their addresses by the name node that serves "
            f"the run's directory. Name one as hdfs://HOST:PORT/PATH, or train with --executor "
            f"chain"
        )
    return found[0]


def _explained(error: Exception, meeting: Meeting) -> Exception:
    """The error that the failed rank has published, or else the job's own."""
    found = meeting.error()
    if found is None or found["rank"] == DRIVER:
        return error
    if found["type"] == TooSmallError.__name__:
        return TooSmallError(found["message"])
    if isinstance(error, TaskFailedException):
        # The error of the runner parallel has the traceback.
        return error
    explained = GradreduceError(f"rank {found['rank']} raised {found['type']}: {found['message']}")
    explained.exit_code = found["exit_code"] or 1
    return explained


if __name__ == "__main__":
    GangJob.run()
