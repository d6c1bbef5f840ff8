"""What executors have in common whose rounds lie in a folder, with which they go on."""

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from hdfs_utils.errors import ConflictError
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import put_if_absent
from mapreduce.engine.executor import (
    QUIET,
    WHOLE,
    Hooks,
    Limit,
    Progress,
    Times,
    blocks_of,
    conclude_beside,
    over,
    publish_first,
)
from mapreduce.engine.program import Pair, Program, Stateful, blocks_for, next_due, owners, to_json
from mapreduce.engine.registry import EXECUTORS
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import InFolder, State
from mapreduce.errors import GradreduceError, MemberError, UsageError
from mapreduce.executors.jobs import label_of
from mapreduce.job import Job
from mapreduce.models.base import Model
from mapreduce.reduction.message import Message
from mapreduce.runs import lease
from mapreduce.runs.execution import Execution
from mapreduce.support import blas, options, traits, trust
from mapreduce.support.jsonfiles import build

#: The description of a program, beside its rounds.
_DESCRIPTION = "program"


def times_of(executor: object, found: object) -> Times:
    """The result of an executor's ``go_on``; a MemberError if it is something else."""
    if isinstance(found, Times):
        return found
    advice = "Return a mapreduce.parts.Times(completed=N) after N rounds"
    raise _refusal(executor, "go_on", found, advice)


def _refusal(executor: object, method: str, found: object, advice: str) -> MemberError:
    name = f"{type(executor).__module__}:{type(executor).__name__}"
    return MemberError(f"the executor {name}: {method} returned {found!r:.60}. {advice}")


class Resumable(ABC):
    """An executor of rounds whose state is in a folder: it continues after a kill.

    See :class:`mapreduce.engine.executor.Executor`. The executors ``here``, ``chain`` and ``gang``
    of :meth:`of` compute in the calling process, by one step of an mrjob job for each round, and by
    tasks that stay for all rounds and exchange messages. If the process is killed, any of the three
    with the same place continues the program. If the code has changed since, name another place.

    A subclass has the methods :meth:`once` and :meth:`go_on`. It sets ``is_alone = True`` if it
    computes in the calling process and takes no options of workers or jobs, and ``meets = True`` if
    all its tasks run at once and exchange messages by themselves.

    ``place``: Folder of the rounds of a program with a state.
    ``home``: Folder of the caller, who holds the lease of this folder; by default the place, whose
      lease :meth:`advance` takes.
    ``driver``: See :func:`mapreduce.engine.program.cache_program`.
    ``job_class``: The job to run, if it extends :attr:`JOB`.

    The attribute ``options`` has the executor's own options, if the class declares any.
    """

    #: What its jobs are called by.
    name: ClassVar[str]
    #: A frozen dataclass of :func:`mapreduce.support.options.option`, if it has options of its own.
    Options: ClassVar[type[Any] | None] = None
    #: The job that its tasks run; None if they need none.
    JOB: ClassVar[type[Job] | None] = None
    #: Who is told, where it advances a program by itself.
    hooks: Hooks = QUIET
    #: Whether it ends by the seconds of a limit, and not by its rounds alone.
    looks_at_clock: ClassVar[bool] = False
    #: Whether it computes in the calling process, and takes no option of jobs and workers.
    is_alone: ClassVar[bool] = False
    #: Whether all tasks run at once, and exchange messages by themselves.
    meets: ClassVar[bool] = False
    #: Whether the driver knows what its rounds cost, and so may try other ways to run it.
    can_be_tried: ClassVar[bool] = False
    #: The runner, and the number of blocks, 0 for those that suit a model, if nobody has said.
    usual_runner: ClassVar[str] = "parallel"
    usual_blocks: ClassVar[int] = 1

    def __init__(
        self,
        execution: Execution,
        *,
        place: AnyPath | None = None,
        home: AnyPath | None = None,
        driver: str = "",
        job_class: type[Job] | None = None,
    ) -> None:
        self._execution = execution
        self.options: Any = self.Options and execution.options(self.Options)
        # A script calls the class of its own executor, whose options follow the name.
        own = trust.OWN.fullmatch(execution.executor)
        if own is not None and own[2] and own[1].endswith(f":{type(self).__name__}"):
            self.options = options.parse(self.Options, own[2], f"--executor {own[1]}")
        # Tasks work in folders of their own.
        self._place = None if place is None else path_of(str(place)).absolute()
        self._home = self._place if home is None else home
        self._driver = driver
        is_kind = job_class is not None and self.JOB is not None and issubclass(job_class, self.JOB)
        self._job_class = job_class if is_kind else self.JOB
        self._is_led = home is not None

    @staticmethod
    def of(execution: Execution, **more: Any) -> "Resumable":
        """The executor that an execution names; see the class for the other parameters.

        Names of the form ``MODULE:NAME`` are refused: call the class itself.
        """
        kind, own = EXECUTORS.configured(execution.executor)
        if not isinstance(kind, type):
            raise UsageError(
                f"--executor {execution.executor}: expected a class, found {kind!r:.60}"
            )
        if own is not None and kind not in map(EXECUTORS.find, EXECUTORS):
            execution = replace(execution, own=(*execution.own, own))
        found: Resumable = kind(execution, **more)
        return found

    @classmethod
    def usual_workers(cls, runner: traits.Traits) -> int:
        """Tasks at once, if nobody has said."""
        return runner.default_workers()

    @classmethod
    def settle(cls, how: Execution, runner: traits.Traits) -> Execution:
        """An execution by this executor, for a runner with these traits.

        Raises UsageError (some options do not fit together).
        """
        is_open = "executor" in how.auto
        return how if cls.can_be_tried or is_open else replace(how, auto=())

    @classmethod
    def with_blocks_for(cls, how: Execution, model: Model) -> Execution:
        """The same for a model, with a number of blocks if none is given."""
        return how if how.blocks else replace(how, blocks=1)

    @classmethod
    def for_arrivals(cls, how: Execution, run: AnyPath) -> Execution:
        """The same for asynchronous rounds of a run.

        Raises UsageError (the executor has none, or something else was chosen).
        """
        able = next(name for name in EXECUTORS if EXECUTORS.find(name).meets)
        if "executor" in how.auto:
            found: Execution = EXECUTORS.find(able).for_arrivals(how, run)
            return found
        raise UsageError(
            f"--asynchronous: expected --executor {able}, found --executor {how.executor}"
        )

    @classmethod
    def words(cls, workers: int | None, stages: int) -> str:
        """How rounds are run, for a line of text; "" if nobody has chosen that."""
        return "" if workers is None else f"{workers} worker{'s' if workers > 1 else ''}"

    @staticmethod
    def round_seconds(costs: traits.Costs, peers: int, nbytes: int) -> float:
        """Seconds that a round of some bytes costs beside its gradients, with so many more tasks
        than one.
        """
        return costs.step + costs.task * peers

    @property
    def fallback(self) -> str | None:
        """The executor to go on with after an UnfitError; None if there is none."""
        return None

    @abstractmethod
    def once(self, program: Program) -> Iterable[Pair]:
        """The blocks of a program without a state."""

    @abstractmethod
    def go_on(
        self,
        program: Stateful,
        state: State,
        completed: int,
        limit: Limit = WHOLE,
        hooks: Hooks = QUIET,
    ) -> Times:
        """Run some of the rounds after the first ``completed`` ones; returns what they took.

        The method may return after any round, with the number of completed rounds in
        ``Times.completed``. It publishes the blocks in the state, at least after each round that is
        due: the last one, and each after which the program wants its state saved.

        ``state``: The state after them has been published there.
        ``limit``: When to hand back. It may be before, after a round that is due.
        ``hooks``: Functions that tell the caller about rounds. An executor may ignore them.

        Raises UnfitError (another executor could), StepFailedException, GradreduceError (as the
        runner does).
        """

    def stop(self, program: Stateful, completed: int, limit: Limit, *more: int) -> int:
        """The round to hand back after: the next one that is due, the limit's, or one of more.

        Raises GradreduceError (the program names no later round).
        """
        due = next_due(program, completed)
        if due <= completed:
            raise GradreduceError(
                f"the program {program.name}: expected a later round than {completed} from "
                f"next_due({completed}), found {due}"
            )
        return min(due, limit.until or due, *more)

    def over(self, state: State, completed: int, program: Program) -> Message:
        """The block of a program over the state after some rounds; by default, in this process."""
        with blas.in_one_thread():
            return over(state, completed, program)

    def advance(self, program: Program) -> Progress:
        """Raises StepFailedException, too (as the runner does), and UsageError (the place has the
        rounds of another program).
        """
        if not isinstance(program, Stateful):
            pairs: object = self.once(program)
            if not isinstance(pairs, Iterable):
                advice = "Return the pairs of the last phase: a key (block,) and a Message each"
                raise _refusal(self, "once", pairs, advice)
            return Progress(1, blocks_of(program, pairs, 1))
        if self._place is None:
            raise UsageError(f"the program {program.name} needs a folder for its rounds")
        self._place.mkdir(parents=True, exist_ok=True)
        # Workers trust what is trusted when they start.
        program.describe()
        with lease.hold(self._place), self.workers():
            self._claim(program)
            # What tasks keep of a folder that was emptied and begun anew is of another driver.
            self._driver = secrets.token_hex(8)
            files = RoundFiles(self._place)
            wanted = self._execution.blocks or self._execution.workers
            # Those that have begun go on in as many blocks as before.
            variants = files.variants() or [(0, blocks_for(program, wanted))]
            state = InFolder(files, variants[-1][1], owners(program))
            completed = files.latest_whole(state.count, owners(program))
            if completed is None:
                publish_first(program, state)
                completed = 0
            files.prune(completed, state.count)
            while True:
                arrays, run = state.block(completed, 0).arrays, partial(self.over, state, completed)
                if conclude_beside(program, completed, arrays, run):
                    break
                times = times_of(self, self.go_on(program, state, completed, hooks=self.hooks))
                found = files.latest_whole(state.count, owners(program))
                if found is None or found <= completed:
                    raise GradreduceError(
                        f"the job ended, but the last whole round in {self._place} is {found}: "
                        f"expected one up to {times.completed}"
                    )
                completed = found
            return Progress(completed, [state.block(completed, at) for at in range(state.count)])

    def _claim(self, program: Program) -> None:
        """Note whose rounds the place has."""
        assert self._place is not None
        try:
            put_if_absent(self._place / _DESCRIPTION, to_json(program).encode(), sync=True)
        except ConflictError as error:
            if _is_of(program, (self._place / _DESCRIPTION).read_bytes()):
                return
            raise UsageError(
                f"{self._place} has the rounds of another program than this {program.name}, or of "
                f"other data. Name another folder"
            ) from error

    def workers(self, most: int = 0) -> AbstractContextManager[Any]:
        """Workers that outlive the jobs, where the runner has any.

        ``most``: How many; by default those of the execution.
        """
        how = self._execution
        if self._job_class is None:
            return nullcontext()
        return how.traits.kept(most or how.workers, how.start_method, [self._job_class])

    def _label(self, program: Program) -> list[str]:
        """mrjob's option by which jobs are called: by the run, or by the program."""
        if self._is_led and isinstance(program, Stateful):
            return label_of(self._home, self.name)
        return ["--label", program.name.rpartition(":")[2]]

    def _check(self, program: Program) -> None:
        """Refuse a program that tasks could not import."""
        if program.name.startswith("__main__:") and not self._execution.forks_here:
            raise UsageError(
                f"the program {program.name} is defined in the script that was started, which "
                f"tasks of -r {self._execution.runner} do not import: define it in a module of its "
                f"own"
            )


def _is_of(program: Program, description: bytes) -> bool:
    """Whether rounds are those of a program, of which an earlier version had fewer fields: the
    defaults of the others do what it did.
    """
    with suppress(ValueError, TypeError):
        name, content = json.loads(description)
        return bool(name == program.name and build(type(program), content) == program)
    return False
