"""The loop that trains a model: plan, execute, checkpoint, evaluate; again after any crash.

Everything that the driver keeps in memory is in the run's directory too. What has been done follows
from the files that are complete there, so starting and resuming are the same.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, path_of
from mapreduce.engine.executor import Hooks, UnfitError, conclude_beside
from mapreduce.engine.program import Program
from mapreduce.engine.state import Array, InFolder
from mapreduce.errors import DataError, Interrupted
from mapreduce.executors.resumable import Resumable, times_of
from mapreduce.job import Job
from mapreduce.reduction.message import Message
from mapreduce.runners import applications
from mapreduce.runs import checkpoint, lease, pushes
from mapreduce.runs.directory import Moved, RunDir
from mapreduce.runs.events import (
    CheckpointSaved,
    Events,
    JobSubmitted,
    JsonLines,
    PhasesTimed,
    RunEnded,
    Warned,
)
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position, block_bounds
from mapreduce.strategies.program import Training
from mapreduce.support import phases, signals, tasks, traits
from mapreduce.support.commands import resume
from mapreduce.support.tracefiles import FOLDER
from mapreduce.training import doubts
from mapreduce.training.choosing import Chooser
from mapreduce.training.creating import check_data_of, record, with_places
from mapreduce.training.recovery import Recovery
from mapreduce.training.telling import Teller


def train(
    run: RunDir,
    execution: Execution,
    keep: int,
    events: Events,
    *,
    take_over: bool = False,
    job_class: type[Job] | None = None,
    moved: Moved | None = None,
    until: int = 0,
) -> RunEnded:
    """Train until the plan's last round, from wherever the run stands.

    Parameters
    ----------
    run : RunDir
    execution : Execution
    keep : int
        Checkpoints to keep; 0 for all.
    events : Events
    take_over : bool
        Take the run from a driver on another host that has ended.
    job_class : type, optional
        The job whose steps are the rounds; by default the executor's own.
    moved : Moved, optional
        Where data lie now; the run keeps that.
    until : int
        Rounds after which an evaluation is due, to stop there with a checkpoint; what is returned
        is then no result of the run, which can be resumed. 0 for the end.

    Raises
    ------
    Interrupted
        SIGINT or SIGTERM; the last round is saved as a checkpoint.
    LeaseError
        Another driver is working on the run.
    GradreduceError, StepFailedException
        As tasks and runner do. The run can be resumed.
    """
    # The caller's object may know an earlier run at this path.
    run = RunDir(run.path)
    config = moved.apply_to(run.config) if moved else run.config
    if config.plan.asynchronous:
        execution = execution.for_arrivals(run.path)
    # One that cannot be imported is an error before anything is told.
    Resumable.of(execution)
    execution.check_places(run.path, config.data, config.evaluation)
    execution.check_trace(run.path)
    if execution.stages > 1:
        Training.of(run).stages(execution.stages)
    with (
        lease.hold(run.path, take_over=take_over) as previous,
        signals.interrupting(),
        contextlib.closing(JsonLines(run.path / "events.jsonl")) as lines,
    ):
        events.subscribe(lines)
        check_data_of(config)
        if moved:
            run = with_places(run, config)
        before = previous.application if previous is not None else None
        # What a killed driver has left on the cluster would go on writing to the run.
        for application in traits.end_left_behind(execution.runner, str(run.path), before):
            events.emit(Warned(f"ended {application}, which the last driver had left behind"))

        def submitted(application: str) -> None:
            lease.note(run.path, application)
            events.emit(JobSubmitted(application))

        driver = Driver(run, execution, keep, events, job_class, until)
        warn = driver.teller.warn
        with (
            applications.report_to(str(run.path), submitted, warn),
            tracing(execution, run.path, warn),
        ):
            return driver.run()


@contextlib.contextmanager
def tracing(execution: Execution, run: AnyPath, warn: Callable[[str], None]) -> Iterator[None]:
    """Have the folder of a training or a fit note where its time goes, if there is to be a trace.

    What cannot be noted is a warning: the work goes on.
    """
    folder = Path(str(run), FOLDER)
    with contextlib.ExitStack() as stack:
        trace: phases.Recorder | tasks.Tasks | None = None
        if execution.trace:
            try:
                if execution.kind.is_alone:
                    trace = stack.enter_context(phases.tracing(folder))
                else:
                    trace = stack.enter_context(tasks.tracing(folder))
            except StorageError as error:
                warn(f"there will be no trace: {error}")
        yield
        if trace is not None:
            trace.flush()
            if problem := trace.problem():
                warn(f"the trace is not whole: {problem}")


class Driver:
    """Trains a run, whose lease the caller holds: see :func:`train`. ``teller`` tells of it."""

    def __init__(
        self,
        run: RunDir,
        execution: Execution,
        keep: int,
        events: Events,
        job_class: type[Job] | None = None,
        until: int = 0,
    ) -> None:
        self._run = run
        self._plan = run.config.plan
        self._model = self._plan.about
        self._optimizer = self._plan.transformation
        places = filter(None, (run.config.data, run.config.evaluation))
        self._given = execution.for_paths(run.path, *map(path_of, places))
        self._execution = self._given.with_blocks_for(self._model)
        self._blocks = len(block_bounds(self._model.size, self._execution.blocks))
        self._keep, self._until = keep, until
        self._events = events
        self._job_class = job_class
        self._name = secrets.token_hex(8)
        self._program = Training.from_cache(run, self._name)
        self.teller = Teller(run, self._model, events)
        self._recovery = Recovery(run, self._model, self.teller.warn)

    @cached_property
    def _chooser(self) -> Chooser:
        """Chooses how the next rounds are run."""
        context = self._program.context
        context.threads = self._given.threads
        if self._executor.JOB is not None:
            # Compile kernels once, and not in each worker.
            context.warm_up()
        self.teller.doubt(doubts.contract(context))
        doubts.step(context)
        is_own = self._job_class is not None
        return Chooser(self._given, context, not is_own, self._events.emit)

    def run(self) -> RunEnded:
        """Train to the end."""
        result = self._run.result()
        if result is not None and self._recovery.has(result.completed, result):
            # The driver may have been killed just after it had published the result.
            self._run.remove_leftovers()
            self._events.emit(result)
            return result
        record(self._run, self._model, self._given, self._keep, self.teller.warn)
        position = self._start(result.completed if result is not None else None)
        # A search measures the scales, and says at its end whether they were too far apart.
        if not position.completed:
            self.teller.doubt(doubts.width(self._run))
        if not position.completed and self._optimizer.search(position.scalars) is None:
            self.teller.doubt(doubts.scales(self._program.context))
            self.teller.doubt(doubts.labels(self._program.context))
        with self._chooser.workers(self._job_class):
            try:
                while not self._checkpoint_and_evaluate(position):
                    if 0 < self._until <= position.completed:
                        return RunEnded(position.completed, self._digest(position.params), False)
                    position = self.advance(position)
            except Interrupted:
                with signals.deferred():
                    position = self._run.latest_round() or position
                    self._save_checkpoint(position)
                    self.teller.rounds(position)
                raise
            return self._end(position)

    def _start(self, at_most: int | None = None) -> Position:
        """Publish the state that the first job starts from."""
        self._run.remove_leftovers()
        self._run.make_folders()
        position = self._recovery.start(at_most)
        # An earlier driver may not have told of its last rounds.
        unsaved = self._recovery.unsaved_rounds(position.completed)
        self.teller.start(position, unsaved, self._execution, self._given.auto)
        for earlier in unsaved:
            self._settle(earlier)
        self.teller.rounds(position)
        self._run.publish_round(position, self._execution.blocks)
        return position

    def advance(self, position: Position) -> Position:
        """Run some of the rounds after one, in one job; returns where they have led."""
        run, plan, completed = self._run, self._plan, position.completed
        self._execution, limit = self._chooser.next(completed, plan.rounds - completed)
        logged = pushes.starts(run, completed) if plan.asynchronous else {}
        if completed in logged:
            # What is in the log can be repeated in as many blocks alone.
            self._execution = replace(self._execution, blocks=logged[completed])
        self._publish_in_blocks(position)
        hooks = Hooks(
            lambda at, blocks: self._settle(run.read_round(at, blocks)),
            self.teller.news,
            self.teller.profiles,
            self.teller.warn,
        )
        executor = self._executor
        try:
            ended = executor.go_on(self._program, self._state, completed, limit, hooks)
            times = times_of(executor, ended)
        except UnfitError as error:
            if (fallback := executor.fallback) is None:
                raise
            self.teller.warn(f"{error}. The rounds are run as a {fallback}")
            self._chooser.fall_back(fallback)
            return position
        if times.mapped:
            workers = self._execution.workers
            self._events.emit(PhasesTimed(times.completed, workers, times.mapped, times.rest))
        self._chooser.note(times)
        latest = run.latest_round(self.teller.warn)
        stop = limit.until or plan.rounds
        is_whole = latest is not None and (
            (latest.completed > completed and latest.completed in (stop, times.completed))
            or self._optimizer.is_done(latest.scalars)
            or run.is_out_of_patience(latest.completed)
        )
        if latest is None or not is_whole:
            found = "missing" if latest is None else f"round {latest.completed}"
            raise DataError(
                f"the job ended, but the last whole round is {found}: expected round "
                f"{times.completed or stop}. Continue with '{resume(run.path)}'"
            )
        self.teller.rounds(latest)
        return latest

    @property
    def _executor(self) -> Resumable:
        """Who runs rounds by the execution that was chosen last."""
        return Resumable.of(
            self._execution,
            place=self._run.rounds.folder,
            home=self._run.path,
            driver=self._name,
            job_class=self._job_class,
        )

    @property
    def _state(self) -> InFolder:
        return InFolder(self._run.rounds, self._blocks, self._plan.owners)

    def _publish_in_blocks(self, position: Position) -> None:
        """Have the state of a round published in the number of blocks that the next job wants."""
        count = len(block_bounds(self._model.size, self._execution.blocks))
        if count != self._blocks:
            self._run.publish_round(position, count)
            self._run.prune_rounds(position.completed, count)
            self._blocks = count

    def _checkpoint_and_evaluate(self, position: Position) -> bool:
        """Save and evaluate what is due; returns whether the training ends here.

        Doing it again changes nothing, so a driver may be killed anywhere.
        """
        plan, completed = self._plan, position.completed
        self._run.prune_rounds(completed, self._blocks)
        is_found = self._optimizer.is_done(position.scalars)
        search = self._optimizer.search(position.scalars)
        self.teller.skipped(position)
        if search is not None and search.has_failed:
            raise self.teller.no_better_point(position, self._program.context)
        if is_found or plan.is_checkpoint(completed) or plan.is_evaluation(completed):
            self._save_checkpoint(position)

        phases.mark_between()

        def evaluate(program: Program) -> Message:
            return self._executor.over(self._state, completed, program)

        ends = conclude_beside(self._program, completed, {"memory": position.scalars}, evaluate)
        self.teller.evaluation(completed)
        return ends

    def _settle(self, position: Position) -> bool:
        """Save and tell of a round that is due; False if its evaluation is still to come."""
        completed = position.completed
        self.teller.rounds(position)
        self.teller.skipped(position)
        self._save_checkpoint(position)
        return not self._plan.is_evaluation(completed) or self.teller.evaluation(completed)

    def _save_checkpoint(self, position: Position) -> None:
        if (digest := self._recovery.save(position)) is None:
            return
        self._events.emit(CheckpointSaved(position.completed, digest))
        if self._keep:
            checkpoint.remove_old(self._run, self._keep, {self._run.best(position.completed)})

    def _digest(self, params: Array) -> str:
        return checkpoint.model_sha256(self._model.named(params))

    def _end(self, position: Position) -> RunEnded:
        completed, search = position.completed, self._optimizer.search(position.scalars)
        self._chooser.tell(completed)
        result, params = self._recovery.best(position)
        self.teller.doubt(doubts.never_predicted(self._run, params))
        self.teller.skipped(position, at_end=True)
        self.teller.traffic(completed)
        digest = self._digest(params)
        ending = (None, None) if search is None else (search.state, search.norm)
        ended = RunEnded(result, digest, completed < self._plan.rounds, *ending)
        self._recovery.end(ended)
        self._events.emit(ended)
        return ended
