"""The gang: one job for many rounds of a program, whose map tasks, the ranks, stay to its end.

Runners that start processes of their own run ``python -m mapreduce.executors.gang.job`` as their
tasks.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, replace

from hdfs_utils.paths import AnyPath, RemotePath, path_of
from mapreduce.engine.executor import QUIET, WHOLE, Hooks, Limit, Times
from mapreduce.engine.program import Pair, Program, Stateful, cache_program, packed, unpacked
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import State
from mapreduce.errors import GradreduceError, SlotsError, UsageError
from mapreduce.executors.chain import Chain
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.follow import Follower
from mapreduce.executors.gang.rank import Rank, Role
from mapreduce.executors.gang.rendezvous import DRIVER, Meeting
from mapreduce.executors.jobs import run_lines
from mapreduce.executors.options import GangOptions, slow_worker
from mapreduce.executors.resumable import Resumable
from mapreduce.job import Job, MRStep
from mapreduce.models.base import Model
from mapreduce.reduction.message import Message
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runs import lease
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import block_bounds
from mapreduce.support import cores, signals, tasks, traits
from mapreduce.support.jsonfiles import build
from mapreduce.support.options import expect

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
        program = cache_program(self.options.program, self.options.driver or role.token).program
        Rank(program, role, rank, self.set_status).run()
        yield from ()


#: Bytes that one task receives for its block in a round, above which there are more: if tasks share
#: memory and each has a core, and otherwise.
_OWNER_BYTES = {True: 128 << 10, False: 4 << 20}

#: Blocks of each task, if tasks have stages of the model.
_STAGED_BLOCKS = 4

#: Seconds that a round costs beside its gradients: of one worker, and more for each other one and
#: for each byte that they exchange.
_ROUND, _PEER, _BYTE = 1e-4, 5e-5, 2e-10


class Gang(Resumable):
    """Runs rounds by tasks that stay, meet in ``home``, and exchange messages by themselves."""

    name = "gang"
    Options = GangOptions
    JOB = GangJob
    looks_at_clock = True
    meets = True
    can_be_tried = True
    usual_blocks = 0

    @classmethod
    def settle(cls, how: Execution, runner: traits.Traits) -> Execution:
        """Find workers for stages of the model, of which nothing is tried."""
        options = how.options(GangOptions)
        asked, slow = f"--executor {cls.name}", options.slow_worker
        if slow is not None and {"executor", "workers"} & {*how.auto}:
            raise UsageError(
                f"--slow-worker {slow}: expected {asked} and a number of --workers, since only the "
                f"workers of a gang have numbers"
            )
        if (stages := options.stages) > 1:
            asked, is_free = f"--stages {stages}", "workers" in how.auto
            expect(how.threads == 1, asked, "--threads 1", f"--threads {how.threads}")
            workers = max(how.workers // stages, 1) * stages if is_free else how.workers
            multiple = f"--workers that are a multiple of {stages}"
            expect(workers % stages == 0, asked, multiple, f"--workers {workers}")
            how = replace(how, workers=workers, auto=())
        traits.require_gangs(runner, how.runner, asked)
        if runner.is_here and (network := options.interface) is not None:
            others = f"a runner whose tasks run on several machines, found -r {how.runner}"
            raise UsageError(f"--interface {network}: expected {others}")
        rank, _ = slow_worker(slow or "") or (0, 1)
        wanted = f"a number from 0 to {how.workers - 1}"
        expect(rank < how.workers, "--slow-worker", wanted, rank)
        return how

    @classmethod
    def with_blocks_for(cls, how: Execution, model: Model) -> Execution:
        """Choose a number of blocks.

        Each block costs a message from and to every task, so blocks are few unless an owner would
        receive much. Messages cost little where no task waits for another's core.
        """
        if how.blocks:
            return how
        if how.options(GangOptions).stages > 1:
            # A block belongs to one stage, as far as that is possible, and a rank to each of some.
            wanted = _STAGED_BLOCKS * how.workers
        else:
            received = how.workers * model.size * model.dtype.itemsize
            is_near = how.traits.is_here and how.workers <= cores.available_cores()
            wanted = min(how.workers, -(-received // _OWNER_BYTES[is_near]))
        return replace(how, blocks=len(block_bounds(model.size, wanted)))

    @classmethod
    def for_arrivals(cls, how: Execution, run: AnyPath) -> Execution:
        """Try nothing else."""
        option, fallback = "--asynchronous", how.options(GangOptions).fallback
        expect(fallback == "error", option, "a gang alone", f"--gang-fallback {fallback}")
        traits.require_gangs(how.traits, how.runner, option)
        if isinstance(run, RemotePath):
            raise UsageError(
                f"{option}: {run} is not on a disk of this machine or one that is mounted here, "
                f"and servers sync their log before they apply a gradient. Name such a folder by "
                f"--run, with -r parallel, or leave out {option}"
            )
        blocks = 0 if "blocks" in how.auto else how.blocks
        return replace(how, executor=cls.name, blocks=blocks, auto=())

    @classmethod
    def words(cls, workers: int | None, stages: int) -> str:
        several = super().words(workers, stages)
        return ("gang" + f" of {several}" * bool(several)) + f" in {stages} stages" * (stages > 1)

    @staticmethod
    def round_seconds(costs: traits.Costs, peers: int, nbytes: int) -> float:
        return _ROUND + (_PEER + _BYTE * nbytes) * peers

    @property
    def fallback(self) -> str | None:
        """The executor that the user allows, or the driver's other choice."""
        is_free = "executor" in self._execution.auto
        return Chain.name if is_free or self.options.fallback == Chain.name else None

    def once(self, program: Program) -> list[Pair]:
        if self._home is None:
            raise UsageError(f"the program {program.name} needs a folder, where its tasks meet")
        self._home.mkdir(parents=True, exist_ok=True)
        meeting = Meeting.prepare(self._home, self._reach)
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
        program: Stateful,
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
        meeting, how = Meeting.prepare(home, self._reach), self._execution
        watched = program, files, meeting, how.workers, completed, hooks, home, self.options.wait
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

    @property
    def _reach(self) -> str:
        """See :meth:`mapreduce.support.traits.Traits.reach`."""
        known = self._execution.traits
        is_named = self.options.interface is not None and not known.is_here
        return traits.BY_INTERFACE if is_named else known.reach(str(self._home))

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
            wait=self.options.wait,
            reach=self._reach,
            interface=self.options.interface or "",
            limit=limit,
            stages=self.options.stages,
            threads=execution.threads,
            slow_worker=self.options.slow_worker or "",
            trace=str(trace.prefix) if (trace := tasks.current()) else "",
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
        except SlotsError as error:
            raise TooSmallError(str(error)) from error
        except StepFailedException as error:
            raise _explained(error, meeting) from error


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
