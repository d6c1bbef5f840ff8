"""The gang: one job for many rounds of a program, whose map tasks, the ranks, stay to its end.

Runners that start processes of their own run ``python -m mapreduce.executors.gang.job`` as their
tasks.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict

from hdfs_utils.filesystem import name_nodes
from hdfs_utils.paths import AnyPath, path_of
from mapreduce.engine.executor import QUIET, WHOLE, Hooks, Limit, Times
from mapreduce.engine.program import Pair, Program, kept, packed, unpacked
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import State
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.executors.chain import Chain
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.follow import Follower
from mapreduce.executors.gang.rank import Rank, Role
from mapreduce.executors.gang.rendezvous import DRIVER, Meeting
from mapreduce.executors.jobs import run_lines
from mapreduce.executors.resumable import Resumable
from mapreduce.job import Job, MRStep
from mapreduce.reduction.message import Message
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runs import lease
from mapreduce.support import signals, traits
from mapreduce.support.jsonfiles import build

# After what makes mrjob import on Python 3.12 and later.
from mrjob.protocol import RawValueProtocol  # isort: skip
from mrjob.step import StepFailedException  # isort: skip


class GangJob(Job):
    """One step without reducer; its input is a line for each rank, with the rank's number."""

    WARM = True
    INPUT_PROTOCOL = RawValueProtocol
    OUTPUT_PROTOCOL = RawValueProtocol

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--program", help="description of the program")
        self.add_passthru_arg("--driver", default="", help="name that tasks share data under")
        self.add_passthru_arg("--role", help="description of the gang")

    @property
    def _role(self) -> Role:
        return build(Role, unpacked(self.options.role))

    def steps(self) -> list[MRStep]:
        jobconf = {
            "mapreduce.job.maps": self._role.ranks,
            # A second attempt beside the first one would be a second rank of the same number.
            "mapreduce.map.speculative": "false",
        }
        return [MRStep(mapper=self.take_part, jobconf=jobconf)]

    def hadoop_input_format(self) -> str | None:
        """One line for each task, as runners without Hadoop divide the input anyway."""
        if traits.of(self.options.runner).is_here:
            return None
        return "org.apache.hadoop.mapred.lib.NLineInputFormat"

    def take_part(self, _: None, line: str) -> Iterator[tuple[None, str]]:
        """Be the rank that the line names, to the end of the job."""
        role, rank = self._role, int(line.rpartition("\t")[2])
        program = kept(self.options.program, self.options.driver or role.token)
        Rank(program, role, rank, self.set_status).run()
        yield from ()


class Gang(Resumable):
    """Runs rounds by tasks that stay, meet in ``home``, and exchange messages by themselves."""

    name = "gang"
    JOB = GangJob
    looks_at_clock = True

    def once(self, program: Program) -> list[Pair]:
        if self._home is None:
            raise UsageError(f"the program {program.name} needs a folder, where its tasks meet")
        self._home.mkdir(parents=True, exist_ok=True)
        meeting = Meeting.prepare(self._home)
        try:
            self._run(program, meeting, 1)
            return meeting.blocks()
        finally:
            meeting.clear()

    def over(self, state: State, completed: int, program: Program) -> Message:
        """As a chain does: the ranks do it between their rounds, unless they were killed."""
        chain = Chain(self._execution, place=self._place, home=self._home, driver=self._driver)
        return chain.over(state, completed, program)

    def go_on(
        self,
        program: Program,
        state: State,
        completed: int,
        limit: Limit = WHOLE,
        hooks: Hooks = QUIET,
    ) -> Times:
        """Run rounds until the program ends, or the limit.

        Raises TooSmallError (not all tasks ran at once within the time that the execution gives
        them).
        """
        home, files = self._home, RoundFiles(path_of(state.place))
        assert home is not None
        lease.check(home)
        meeting, how = Meeting.prepare(home), self._execution
        watched = program, files, meeting, how.workers, completed, hooks, home, how.gang_wait
        follower = Follower(*watched)
        try:
            with follower.at_work():
                self._run(program, meeting, state.count, state.place, limit)
            return meeting.times()
        except BaseException:
            # Settle what was published before the error.
            with signals.deferred(), contextlib.suppress(Exception):
                follower.look(is_last=True)
            raise
        finally:
            with signals.deferred():
                lease.check(home)
                meeting.clear()

    def _run(
        self, program: Program, meeting: Meeting, blocks: int, place: str = "", limit: Limit = WHOLE
    ) -> None:
        self._check(program)
        execution, home = self._execution, self._home
        assert home is not None
        role = Role(
            home=str(home),
            token=meeting.token,
            ranks=execution.workers,
            blocks=blocks,
            place=place,
            wait=execution.gang_wait,
            reach="" if execution.traits.is_here else _reach(home),
            limit=limit,
            stages=execution.stages,
            threads=execution.threads,
            slow_worker=execution.slow_worker or "",
        )
        options = {"--program": program.describe(), "--role": packed(json.dumps(asdict(role)))}
        if self._driver:
            options["--driver"] = self._driver
        at_once = execution.traits.gang_option
        arguments = [*self._label(program), *([at_once, str(role.ranks)] if at_once else [])]
        lines = b"".join(b"%08d\n" % rank for rank in range(role.ranks))
        assert self._job_class is not None
        try:
            run_lines(self._job_class, options, lines, execution, arguments)
        except StepFailedException as error:
            raise _explained(error, meeting) from error


def _reach(home: AnyPath) -> str:
    """A name node, which all ranks can reach since it serves the folder where they meet.

    Empty for a directory of this machine, on which all ranks run then.
    """
    scheme, remote, place = str(home).partition("://")
    found = [place.partition("/")[0]] if remote else [""]
    if scheme == "hdfs":
        found = name_nodes(found[0])
    if not found or scheme == "s3" or (remote and ":" not in found[0]):
        raise UsageError(
            f"{home}: the ranks of a gang choose their addresses by the name node that serves "
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
