"""The loop that trains a model: plan, execute, checkpoint, evaluate; again after any crash.

Everything that the driver keeps in memory is in the run's directory too. What has been done follows
from the files that are complete there, so starting and resuming are the same.
"""

import contextlib
import operator
import secrets
import time
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from hdfs_utils.errors import ConflictError
from hdfs_utils.paths import AnyPath, RemotePath, path_of
from mapreduce.data.columns import misfit
from mapreduce.data.manifest import Manifest
from mapreduce.data.manifest import load as load_manifest
from mapreduce.data.readers.opening import fitted_of
from mapreduce.data.shards import Dataset
from mapreduce.errors import (
    DataError,
    Interrupted,
    MissingInputError,
    NonFiniteError,
    UsageError,
)
from mapreduce.executors.chain import Chain, ChainJob
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.follow import Follower
from mapreduce.executors.gang.job import GangJob, run_gang
from mapreduce.executors.gang.rendezvous import Meeting, Times
from mapreduce.executors.gang.segment import Segment
from mapreduce.executors.jobs import label_of
from mapreduce.inference.evaluate import Score, evaluate
from mapreduce.models.layers.stages import stages_of
from mapreduce.plan import strategies
from mapreduce.plan.fitting import check_evaluation, digest
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings, make
from mapreduce.runners import traits
from mapreduce.runners.hadoop import submissions
from mapreduce.runs import checkpoint, lease, pushes
from mapreduce.runs.directory import Moved, RunConfig, RunDir
from mapreduce.runs.events import (
    CheckpointSaved,
    Events,
    Exchanged,
    JobSubmitted,
    JsonLines,
    PhasesTimed,
    RoundCompleted,
    RunEnded,
    RunStarted,
    Warned,
)
from mapreduce.runs.events import read as read_events
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position, block_bounds
from mapreduce.strategies.training import Training
from mapreduce.support import numeric, signals
from mapreduce.support.commands import resume
from mapreduce.support.periodic import every
from mapreduce.training import doubts
from mapreduce.training.choosing import Chooser
from mapreduce.training.recovery import Recovery

#: Seconds between two looks for new published rounds.
_LOOK_SECONDS = 0.2
#: First rounds that may all be skipped until the loss has the right scale: it is halved in each.
_USUALLY_SKIPPED = 16


def plan(settings: Settings, data: AnyPath, evaluation: AnyPath | None) -> Plan:
    """The plan of a training. See :func:`create` for parameters and errors."""
    return _planned(settings, data, evaluation)[0]


def _planned(
    settings: Settings, data: AnyPath, evaluation: AnyPath | None
) -> tuple[Plan, bytes | None]:
    """The plan, and the file of the initial parameters if they are not the model's own."""
    training, *others = [
        Dataset(path).check_sizes() for path in (data, evaluation) if path is not None
    ]
    made = make(settings, training, others[0] if others else None)
    if evaluation is not None:
        check_evaluation(others[0], evaluation, made, training, data)
    if settings.init_from is None:
        return made, None
    source, model = path_of(settings.init_from), made.create_model()
    if source.is_dir():
        before = RunDir(source.absolute())
        _check_same_meaning(before.config, training, source)
        theirs = before.config.plan.create_model()
        position = checkpoint.load(before, theirs, checkpoint.latest(before))
        found = theirs.named(position.params)
    else:
        found = checkpoint.load_file(source)
    params = checkpoint.flat(model, model.of_state(found), f"--init-from {source}")
    named = model.named(params)
    made = replace(made, initial_sha256=checkpoint.model_sha256(named))
    return made, save_tensors(named)


def _check_same_meaning(before: RunConfig, data: Manifest, source: AnyPath) -> None:
    """Refuse parameters of other classes, columns or scales than those of the data."""
    found = before.classes, data.classes or ()
    wrong = misfit(data.columns, before.columns)
    if found[0] != found[1]:
        wrong = f"classes {found[1]!r:.200}, expected {found[0]!r:.200}"
    trained_on = before.plan.data
    if (digest(data.standardised), digest(data.recipe)) != (
        trained_on.standardised,
        trained_on.recipe,
    ):
        wrong = wrong or "their features were not made as those that the run was trained on"
    if wrong:
        raise DataError(
            f"--init-from {source}: the parameters have another meaning for these data: {wrong}. "
            f"Import the data with --like, or name the file {checkpoint.MODEL} of a checkpoint"
        )


def create(
    path: AnyPath,
    settings: Settings,
    data: AnyPath,
    evaluation: AnyPath | None,
    numeric_profile: str = "native",
) -> RunDir:
    """Make the directory ``path`` of a new run, without training.

    Parameters
    ----------
    path : Path or RemotePath
    settings : Settings
    data, evaluation : Path or RemotePath
        Datasets to train and to evaluate on.
    numeric_profile : {"native", "portable"}
        The profile that the process is pinned to.

    Raises
    ------
    GradreduceError
        The settings or the data are wrong, or the folder cannot be used.
    """
    manifest = load_manifest(data)
    run = RunDir(path.absolute())
    made, initial_file = _planned(settings, data, evaluation)
    run.create(
        RunConfig(
            plan=made,
            data=str(data.absolute()),
            evaluation=str(evaluation.absolute()) if evaluation else None,
            classes=manifest.classes or (),
            shape=manifest.shape,
            columns=manifest.columns,
            numeric_profile=numeric_profile,
        ),
        fitted_of(data, manifest),
        initial_file,
    )
    return run


def train(
    run: RunDir,
    execution: Execution,
    keep: int,
    events: Events,
    *,
    take_over: bool = False,
    job_class: type[ChainJob] = ChainJob,
    moved: Moved | None = None,
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
    job_class : type
        The job whose steps are the rounds.
    moved : Moved, optional
        Where data lie now; the run keeps that.

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
    config = moved.applied(run.config) if moved else run.config
    if config.plan.asynchronous:
        execution = execution.for_arrivals(run.path)
    execution.check_places(run.path, config.data, config.evaluation)
    if execution.stages > 1:
        _check_stages(config.plan, execution.stages)
    with (
        lease.held(run.path, take_over=take_over) as previous,
        signals.interrupting(),
        contextlib.closing(JsonLines(run.path / "events.jsonl")) as lines,
    ):
        events.subscribe(lines)
        check_training_data(config)
        if config.evaluation and config.plan.eval_sha256:
            check_data(config.evaluation, config.plan.eval_sha256, "--eval")
        if moved:
            kept = {"data": config.data, "evaluation": config.evaluation}
            run.write_json("moved.json", kept, once=False)
            run = RunDir(run.path)
        before = previous.application if previous is not None else None
        # What a killed driver has left on the cluster would go on writing to the run.
        for application in traits.end_left_behind(execution.runner, str(run.path), before):
            events.emit(Warned(f"ended {application}, which the last driver had left behind"))

        def submitted(application: str) -> None:
            lease.note(run.path, application)
            events.emit(JobSubmitted(application))

        def waits(message: str) -> None:
            events.emit(Warned(message))

        with submissions.told_to(str(run.path), submitted, waits):
            return _Training(run, execution, keep, events, job_class).run()


class _Training:
    def __init__(
        self,
        run: RunDir,
        execution: Execution,
        keep: int,
        events: Events,
        job_class: type[ChainJob],
    ) -> None:
        self._run = run
        self._plan = run.config.plan
        self._model = self._plan.create_model()
        self._optimizer = self._plan.create_optimizer()
        self._strategy = strategies.find(self._plan.strategy)
        self._given = execution.for_paths(run.path, path_of(run.config.data))
        self._execution = self._given.with_blocks_for(self._model)
        self._blocks = len(block_bounds(self._model.size, self._execution.blocks))
        self._keep = keep
        self._events = events
        self._job_class = job_class
        self._name = secrets.token_hex(8)
        self._completed = 0
        self._skipped = 0
        #: Rounds whose evaluation was reported.
        self._evaluated: set[int] = set()
        self._recovery = Recovery(run, self._model, self._warn)

    @cached_property
    def _chooser(self) -> Chooser:
        """Chooses how the next rounds are run."""
        context = Training.kept(self._run, self._name).context
        context.threads = self._given.threads
        # Compile kernels once, and not in each worker.
        context.warm_up()
        # A gang does not call the methods of somebody's own job.
        can_gang = self._job_class is ChainJob
        return Chooser(self._given, context, can_gang, self._events.emit)

    def run(self) -> RunEnded:
        result = self._run.result()
        if result is not None and self._recovery.has(result.completed, result):
            # The driver may have been killed just after it had published the result.
            self._run.remove_leftovers()
            self._events.emit(result)
            return result
        self._record_surroundings()
        position = self._start(result.completed if result is not None else None)
        # A search measures the scales, and says at its end whether they were too far apart.
        if not position.completed and self._optimizer.search(position.scalars) is None:
            self._doubt(doubts.scales(self._run.config))
        with self._workers():
            try:
                while not self._checkpoint_and_evaluate(position):
                    position = self._advance(position)
            except Interrupted:
                with signals.deferred():
                    self._save_checkpoint(self._run.latest_round() or position)
                raise
            return self._end(position)

    def _record_surroundings(self) -> None:
        """Record processor, libraries and execution; warn if the former changed during the run."""
        now = numeric.describe() | self._model.libraries
        before = self._run.read_json("profile.json")
        if before is None:
            self._run.write_json("profile.json", now)
        elif changes := numeric.difference(before, now):
            self._warn(
                f"the run began on another numeric profile ({'; '.join(changes)}): the rounds from "
                f"here on may differ in their last bits from those of an undisturbed run"
            )
        content = {**vars(self._given), "keep": self._keep}
        content |= dict.fromkeys(content.pop("auto"), "auto")
        # With stages nothing is tried, and the blocks are those that suit them.
        content["blocks"] = content["blocks"] or "auto"
        self._run.write_json("execution.json", content, once=False)

    def _start(self, at_most: int | None = None) -> Position:
        """Publish the state that the first job starts from."""
        self._run.remove_leftovers()
        self._run.make_folders()
        position = self._recovery.latest(at_most)
        if position is None:
            position = checkpoint.first(self._run)
            if checkpoint.saved(self._run):
                self._warn("no checkpoint can be read: the run starts from its first round again")
        # An earlier driver may not have reported its last rounds. Subscribers skip those they know.
        unsettled = self._unsettled(position.completed)
        first = (*unsettled, position)[0]
        self._completed = first.completed - len(first.history)
        recorded = read_events(self._run.path / "events.jsonl", self._warn)
        reported = {e["completed"] for e in recorded if e["event"] == "Evaluated"}
        self._evaluated = {completed for completed in reported if completed <= position.completed}
        auto, execution = self._given.auto, self._execution
        self._events.emit(
            RunStarted(
                run=str(self._run.path),
                completed=position.completed,
                rounds=self._plan.rounds,
                batch_size=self._plan.batch_size,
                runner=execution.runner,
                workers=None if "workers" in auto else execution.workers,
                executor=None if "executor" in auto else execution.executor,
                stages=execution.stages,
                model=self._plan.model,
                optimizer=self._plan.optimizer,
            )
        )
        for earlier in unsettled:
            self._on_round_published(earlier)
        self._report(position)
        self._run.publish_round(position, self._execution.blocks)
        return position

    def _unsettled(self, before: int) -> list[Position]:
        """Rounds to be saved, which a gang had published when its driver was killed."""
        found, plan, saved = [], self._plan, checkpoint.saved(self._run)
        for completed, blocks in self._run.rounds.complete().items():
            is_due = plan.is_checkpoint(completed) or plan.is_evaluation(completed)
            if is_due and max(saved, default=0) < completed < before:
                # A damaged one is not needed.
                with contextlib.suppress(MissingInputError, DataError):
                    found.append(self._run.read_round(completed, blocks))
        return found

    def _advance(self, position: Position) -> Position:
        """Run one job of rounds."""
        plan, completed = self._plan, position.completed
        self._execution, segment = self._chooser.next(completed, plan.rounds - completed)
        logged = pushes.starts(self._run, completed) if plan.asynchronous else {}
        if completed in logged:
            # What is in the log can be repeated in as many blocks alone.
            self._execution = replace(self._execution, blocks=logged[completed])
        self._publish_in_blocks(position)
        if self._execution.executor == "gang":
            stop, ran = segment.until or plan.rounds, self._run_gang(completed, segment)
            if ran is None:
                return position
            times, workers = ran, self._execution.workers
            if times.mapped:
                phases = PhasesTimed(times.completed, workers, times.mapped, times.rest)
                self._events.emit(phases)
        else:
            stop = min(plan.next_stop(completed), completed + self._execution.rounds_per_job)
            stop = min(stop, segment.until or stop)
            started = time.monotonic()
            with self._reporting():
                self._run_chain(completed, stop)
            times = Times((time.monotonic() - started) / (stop - completed), completed=stop)
        latest = self._run.latest_round(self._warn)
        self._chooser.note(times)
        is_whole = latest is not None and (
            latest.completed == stop
            or latest.completed == times.completed
            or self._optimizer.is_done(latest.scalars)
            or self._run.is_out_of_patience(latest.completed)
        )
        if latest is None or not is_whole:
            found = "missing" if latest is None else f"round {latest.completed}"
            raise DataError(
                f"the job ended, but the last whole round is {found}: expected round {stop}. "
                f"Continue with '{resume(self._run.path)}'"
            )
        self._report(latest)
        return latest

    def _publish_in_blocks(self, position: Position) -> None:
        """Have the state of a round published in the number of blocks that the next job wants."""
        count = len(block_bounds(self._model.size, self._execution.blocks))
        if count != self._blocks:
            self._run.publish_round(position, count)
            self._run.prune_rounds(position.completed, count)
            self._blocks = count

    def _run_chain(self, start: int, stop: int) -> None:
        run, driver = self._run, self._name
        chain = Chain(
            self._execution,
            place=run.rounds.folder,
            job_class=self._job_class,
            driver=driver,
            label=label_of(run.path, "chain"),
        )
        chain.run(Training.kept(run, driver), start, stop)

    def _run_gang(self, completed: int, segment: Segment) -> Times | None:
        """Run a segment in one job; None if a chain has to run it instead."""
        lease.check(self._run.path)
        meeting = Meeting.prepare(self._run)
        workers = self._execution.workers
        callbacks = self._on_round_published, self._report, self._warn
        follower = Follower(self._run, meeting, workers, completed, *callbacks)
        try:
            with follower.at_work():
                return run_gang(self._run, meeting, self._execution, segment, self._name)
        except TooSmallError as error:
            if self._given.gang_fallback != "chain" and "executor" not in self._given.auto:
                raise
            self._warn(f"{error}. The rounds are run as a chain")
            self._chooser.without_gangs()
            return None
        except BaseException:
            # Save and report what was published before the error.
            with signals.deferred(), contextlib.suppress(Exception):
                follower.look()
            raise
        finally:
            with signals.deferred():
                lease.check(self._run.path)
                meeting.clear()

    def _checkpoint_and_evaluate(self, position: Position) -> bool:
        """Save and evaluate what is due; returns whether the training ends here.

        Doing it again changes nothing, so a driver may be killed anywhere.
        """
        plan, completed = self._plan, position.completed
        self._run.prune_rounds(completed, self._blocks)
        is_found = self._optimizer.is_done(position.scalars)
        search = self._optimizer.search(position.scalars)
        self._warn_of_skipped(position)
        if search is not None and search.has_failed:
            raise self._no_better_point(position)
        if is_found or plan.is_checkpoint(completed) or plan.is_evaluation(completed):
            self._save_checkpoint(position)
        if is_found or plan.is_evaluation(completed):
            self._evaluate(completed)
        return completed >= plan.rounds or is_found or self._run.is_out_of_patience(completed)

    def _no_better_point(self, position: Position) -> NonFiniteError:
        """The error that names the parameter with the steepest slope."""
        own = Training.kept(self._run, self._name).context
        slopes = np.abs(self._optimizer.slopes(position.state))
        steepest = int(np.nan_to_num(slopes, nan=np.inf).argmax())
        return NonFiniteError(
            f"round {position.completed - 1}: {self._optimizer.title} found no point better than "
            f"the first, and the gradient is not 0. Its largest element, {slopes[steepest]:.3g}, "
            f"is that of parameter {self._model.parameter_at(steepest)}{own.feature(steepest)}. "
            f"The values are too far apart: {self._plan.cures}"
        )

    def _on_round_published(self, position: Position) -> bool:
        """Save and report a round of a gang; False if its evaluation is still to come."""
        completed = position.completed
        self._report(position)
        self._warn_of_skipped(position)
        self._save_checkpoint(position)
        return not self._plan.is_evaluation(completed) or self._report_evaluation(completed)

    def _warn_of_skipped(self, position: Position, *, at_end: bool = False) -> None:
        """Warn of rounds that were skipped; at the end, if the result lacks half of them."""
        skipped, completed = self._optimizer.skipped(position.scalars), position.completed
        scale = self._optimizer.loss_scale(position.scalars)
        usual = _USUALLY_SKIPPED if scale > 1 else 0
        is_bad = 2 * skipped >= completed and (skipped > usual or 0 < skipped == completed)
        if is_bad if at_end else skipped > self._skipped:
            self._skipped, advice = skipped, self._plan.cures
            if usual and not (is_bad and (at_end or skipped > usual)):
                advice = f"the loss is now scaled by {scale:,.0f}; a few such rounds are usual"
            message = (
                f"{skipped:,} of {completed:,} rounds were skipped, since their gradient was not "
                f"finite: {advice}"
            )
            self._events.emit(Warned(message, lasting=at_end))

    def _evaluate(self, completed: int) -> None:
        data = self._run.config.evaluation
        if data is None or self._report_evaluation(completed):
            return
        sums = evaluate(self._run, completed, path_of(data), self._execution)
        self._run.write_json(f"evaluations/{completed:08d}.json", vars(sums))
        self._report_evaluation(completed)

    def _report_evaluation(self, completed: int) -> bool:
        """Emit an evaluation, if that was not done; False if it is not published."""
        found = self._run.evaluation(completed)
        if found is None:
            return False
        if completed not in self._evaluated:
            self._evaluated.add(completed)
            self._events.emit(Score(**found).evaluated(completed, self._model))
        return True

    def _save_checkpoint(self, position: Position) -> None:
        if position.completed in checkpoint.saved(self._run):
            if position.completed not in self._recovery.damaged:
                return
            checkpoint.remove(self._run, position.completed)
            self._recovery.damaged.remove(position.completed)
        digest = checkpoint.save(self._run, self._model, position)
        self._events.emit(CheckpointSaved(position.completed, digest))
        if self._keep:
            checkpoint.remove_old(self._run, self._keep, {self._run.best(position.completed)})

    def _end(self, position: Position) -> RunEnded:
        completed, search = position.completed, self._optimizer.search(position.scalars)
        self._chooser.tell(completed)
        result = self._run.best(completed)
        try:
            best = checkpoint.load(self._run, self._model, result)
        except DataError as error:
            raise DataError(f"{error}. '{resume(self._run.path)}' computes it again") from error
        digest = checkpoint.model_sha256(self._model.named(best.params))
        self._doubt(doubts.never_predicted(self._run, best.params))
        self._warn_of_skipped(position, at_end=True)
        self._report_traffic(completed)
        ending = (None, None) if search is None else (search.state, search.norm)
        ended = RunEnded(result, digest, completed < self._plan.rounds, *ending)
        try:
            self._run.write_json("result.json", vars(ended))
        except ConflictError as error:
            place = self._run.path / "result.json"
            raise DataError(
                f"{place} names another model than {digest}, the result of the same rounds now. "
                f"Processor or libraries may have changed. To keep the new model, remove {place}, "
                f"then run '{resume(self._run.path)}'"
            ) from error
        self._events.emit(ended)
        return ended

    def _report_traffic(self, completed: int) -> None:
        """Report the bytes of all rounds, if updates are compressed."""
        plan, kind = self._plan, strategies.find(self._plan.strategy)
        if plan.compression is None or kind.traffic(plan, 0, self._model.size) is None:
            return
        rounds = (kind.traffic(plan, at, self._model.size) for at in range(completed))
        self._events.emit(Exchanged(completed, *map(sum, zip(*rounds, strict=True))))

    def _doubt(self, message: str | None) -> None:
        if message is not None:
            self._events.emit(Warned(message, lasting=True))

    def _warn(self, message: str) -> None:
        self._events.emit(Warned(message))

    def _report(self, position: Position) -> None:
        """Emit the rounds up to a position that were not emitted yet."""
        first = position.completed - len(position.history) + 1
        for completed, (rows, weight, loss, *notes) in enumerate(position.history, first):
            if completed > self._completed:
                mean = float(loss / weight) if weight else 0.0
                self._events.emit(RoundCompleted(completed, int(rows), mean, float(weight)))
                event = self._strategy.event(self._plan, completed, np.array(notes))
                if event is not None:
                    self._events.emit(event)
                self._completed = completed

    def _report_latest(self) -> None:
        # Errors are ignored here: they are found, and all rounds reported, when the job has ended.
        with contextlib.suppress(Exception):
            history = self._run.latest_history()
            if history is not None:
                self._report(history)

    def _reporting(self) -> contextlib.AbstractContextManager[None]:
        """Report rounds as they are published while a job runs, whatever the runner.

        An exception are runs in another filesystem while tasks run in this process: mrjob changes
        the environment for each task, which the filesystem's client reads in its own threads.
        """
        if not self._execution.traits.runs_at_once and isinstance(self._run.path, RemotePath):
            return contextlib.nullcontext()
        return every(_LOOK_SECONDS, self._report_latest, "watch")

    def _workers(self) -> contextlib.AbstractContextManager[Any]:
        """Workers that outlive the jobs of the run, where the runner has any."""
        jobs: list[type] = [self._job_class, ChainJob, GangJob]
        most = self._chooser.most_workers
        return self._given.traits.kept(most, self._given.start_method, jobs)


def _check_stages(plan: Plan, count: int) -> None:
    """Refuse stages of a model, or of a strategy, that has none."""
    if not strategies.find(plan.strategy).takes_stages:
        raise UsageError(
            f"--stages {count}: expected --strategy sync, found {plan.strategy}, whose tasks need "
            f"the whole model. Take --stages 1"
        )
    stages_of(plan.create_model(), count)


def check_training_data(config: RunConfig) -> None:
    """As :func:`check_data`; refuse data that lack rows of the plan, too."""
    rows = [shard.rows for shard in check_data(config.data, config.plan.data.sha256).shards]
    wanted = config.plan.data.shard_rows
    if len(wanted) > len(rows) or any(map(operator.gt, wanted, rows)):
        raise DataError(
            f"the plan takes {sum(wanted):,} rows of {config.data}, but it has fewer "
            f"rows. The plan was made for other data. Start a new run"
        )


def check_data(path: str, expected: str, option: str = "--data") -> Manifest:
    """The manifest of a run's dataset, whose digest must be ``expected``."""
    try:
        return Dataset(path_of(path), expected).check_sizes()
    except MissingInputError as error:
        raise MissingInputError(
            f"the run's data are gone: {error}. If they have moved, name their folder by {option}"
        ) from error
    except DataError as error:
        raise DataError(
            f"{error}. If the right ones lie elsewhere, name their folder by {option}"
        ) from error
