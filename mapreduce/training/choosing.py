"""How the next rounds of a training are run, where the user has left that to the driver."""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hdfs_utils.paths import path_of
from mapreduce.data.manifest import load
from mapreduce.engine.executor import WHOLE, Limit, Times
from mapreduce.engine.registry import EXECUTORS
from mapreduce.job import Job
from mapreduce.models.context import Context
from mapreduce.plan import strategies
from mapreduce.runs.events import Event, ExecutionChosen, ExecutionTried
from mapreduce.runs.execution import Execution
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training.tuning import Tuner, Way, Work, seconds_text, ways

#: Of runners whose jobs take longer to start, in seconds, the first choice is told at once.
_SOON = 1.0

#: How often, and for how many seconds at most, a gradient is computed to see how long it takes.
_REPEATS, _SECONDS = 3, 0.2

#: An evaluation has no backward pass: what a row takes there, as a share of what its gradient does.
_FORWARD = 1 / 3


def work_of(context: TaskContext) -> Work:
    """About what a round takes in one thread, from the gradients of one slice."""
    plan, model = context.plan, context.model
    unknown = Work(0.0, 0.0, plan.leaves(0), model.size * model.dtype.itemsize)
    seconds, end = math.inf, time.monotonic() + _SECONDS
    # Whatever is wrong with the rows or the model is said by the task that meets it.
    with contextlib.suppress(Exception):
        if model.device != "cpu":
            return unknown
        batch, params = context.batch(plan.slices(0)[0]), model.init(plan.seed)
        for _ in range(_REPEATS):
            started, share = time.monotonic(), 1.0
            if model.forks_after_gradient:
                context.gradient(params, batch)
            else:
                share = _FORWARD
                model.score(params, batch, Context(context.workspace))
            seconds = min(seconds, (time.monotonic() - started) / share)
            if time.monotonic() > end:
                break
    if not math.isfinite(seconds):
        return unknown
    place, evaluated = context.config.evaluation, 0.0
    if place is not None and plan.eval_sha256:
        rows = load(path_of(place)).rows
        evaluated = rows / plan.slice_rows * _FORWARD * seconds / plan.eval_every
    return unknown._replace(gradients=plan.leaves(0) * seconds, evaluation=evaluated)


class Chooser:
    """Chooses the execution of the next rounds.

    ``given``: What the user has chosen; ``given.auto`` names what not. ``context``: The driver's
    own, with compiled kernels. ``can_gang``: Whether the rounds are the toolkit's own: a gang does
    not call the methods of somebody's own job. ``emit``: Receives the events of what was tried and
    chosen.
    """

    def __init__(
        self,
        given: Execution,
        context: TaskContext,
        can_gang: bool,
        emit: Callable[[Event], None],
    ) -> None:
        self._given, self._context, self._emit = given, context, emit
        self._traits = given.traits
        self._way: Way | None = None
        self._told: Way | None = None
        self._ways: list[Way] = []
        if given.auto and self._traits.costs is not None:
            self._at_once = min(self._traits.tasks_at_once(), self._traits.most_workers)
            is_free = not given.fan_in and not self._traits.why_no_gangs and self._at_once > 0
            self._choose_from(can_gang and is_free)
            is_own = bool(context.plan.sources) or not can_gang
            if given.stays and is_free and not is_own and context.model.forks_after_gradient:
                self._stay()

    def _stay(self) -> None:
        """Run all rounds in this process, if that is known to end sooner."""
        rounds = self._context.plan.rounds
        if (seconds := self._tuner.alone(rounds)) is not None:
            self._given = replace(self._given, runner="inline", executor="here", auto=())
            self._ways = []
            why = f"about {seconds_text(seconds)} in all; no job would end sooner"
            self._emit(ExecutionChosen(0, "this process", why))

    def _choose_from(self, can_gang: bool) -> None:
        given, plan = self._given, self._context.plan
        pinned = Way(given.executor, given.workers, given.threads, given.blocks)
        units = strategies.find(plan.strategy).units(plan, 0)
        most = min(self._at_once, units)
        # Threads that share a GPU would only wait for each other.
        is_here = self._traits.is_here and self._context.model.device == "cpu"
        if "executor" in given.auto:
            kinds = {name: EXECUTORS.find(name) for name in EXECUTORS}
            able = [n for n, kind in kinds.items() if kind.can_be_tried and kind.meets == can_gang]
            pinned = pinned._replace(executor=able[0])
        found = ways(pinned, given.auto, most, is_here)
        # The number of blocks that suits a way may be the one that another has.
        self._ways = list({self._execution(way): way for way in reversed(found)}.values())[::-1]
        assert self._traits.costs is not None
        work = work_of(self._context)
        self._tuner = Tuner(self._ways, self._traits.costs, max(self._at_once, 1), work)

    def workers(self, job_class: type[Job] | None) -> contextlib.AbstractContextManager[Any]:
        """Workers that outlive jobs, as many as may be chosen, where the runner has any."""
        if EXECUTORS.load(self._given.executor).JOB is None:
            return contextlib.nullcontext()
        jobs = {EXECUTORS.load(name).JOB for name in (*EXECUTORS, self._given.executor)}
        jobs = {*jobs, job_class} - {None}
        most = max([way.workers for way in self._ways], default=self._given.workers)
        return self._traits.kept(most, self._given.start_method, [*jobs])

    def next(self, completed: int, left: int) -> tuple[Execution, Limit]:
        """How to run the rounds after ``completed`` ones, of which ``left`` are left."""
        self._from = completed
        if not self._ways:
            return self._given.with_blocks_for(self._context.model), WHOLE
        self._way, limit = self._tuner.choose(left)
        assert self._traits.costs is not None
        if not limit.seconds or (self._told is None and self._traits.costs.job > _SOON):
            self._tell(completed, left)
        if not EXECUTORS.load(self._way.executor).looks_at_clock:
            expected, until = self._tuner.seconds(self._way), 0
            if limit.seconds and left * expected >= limit.worth:
                until = completed + max(math.ceil(limit.seconds / expected), 1)
            limit = Limit(until=until)
        return self._execution(self._way), limit

    def _execution(self, way: Way) -> Execution:
        return replace(self._given, **way._asdict()).with_blocks_for(self._context.model)

    def note(self, times: Times) -> None:
        """Note what the rounds took in the way that was chosen last."""
        if self._way is not None and times.round is not None:
            self._tuner.add(self._way, times.round, times.completed - self._from)
            way = str(self._way)
            self._emit(ExecutionTried(times.completed, way, times.round, times.evaluation))

    def fall_back(self, executor: str) -> None:
        """Choose among the ways of another executor from now on, since this one cannot run."""
        self._given = replace(self._given, executor=executor)
        if self._ways:
            self._choose_from(False)

    def tell(self, completed: int) -> None:
        """Emit what was chosen, if nothing was emitted yet."""
        if self._told is None:
            self._tell(completed, 0)

    def _tell(self, completed: int, left: int) -> None:
        if self._way is not None and self._way != self._told:
            self._told = self._way
            why = self._tuner.why(self._way, left)
            self._emit(ExecutionChosen(completed, str(self._way), why))
