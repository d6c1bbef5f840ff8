"""What the driver of a training tells: rounds, evaluations, traffic and doubts, once each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mapreduce.errors import NonFiniteError
from mapreduce.inference.evaluate import Score
from mapreduce.models.base import Model
from mapreduce.plan import strategies
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, Exchanged, RoundCompleted, RunStarted, Warned
from mapreduce.runs.events import read as read_events
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support import numeric, signals

#: First rounds that may all be skipped until the loss has the right scale: it is halved in each.
_USUALLY_SKIPPED = 16


class Teller:
    """Emits the events of a run's rounds, once for each round and each evaluation."""

    def __init__(self, run: RunDir, model: Model, events: Events) -> None:
        self._run = run
        self._plan = run.config.plan
        self._model = model
        self._optimizer = self._plan.transformation
        self._strategy = strategies.find(self._plan.strategy)
        self._events = events
        self.completed = 0
        self.evaluated: set[int] = set()
        self._skipped = 0

    def warn(self, message: str) -> None:
        """Warn of something that is over."""
        self._events.emit(Warned(message))

    def doubt(self, message: str | None) -> None:
        """Warn of something that the result has, too, if there is a message."""
        if message is not None:
            self._events.emit(Warned(message, lasting=True))

    def start(
        self,
        position: Position,
        unsettled: Sequence[Position],
        execution: Execution,
        auto: Sequence[str],
    ) -> None:
        """Tell that the training starts from a state, or goes on from it.

        ``unsettled`` are rounds before it that will be told of. Subscribers skip those they know.
        ``auto`` is what of the execution is to be chosen.
        """
        first = (*unsettled, position)[0]
        self.completed = first.completed - len(first.history)
        recorded = read_events(self._run.path / "events.jsonl", self.warn)
        reported = {e["completed"] for e in recorded if e["event"] == "Evaluated"}
        self.evaluated = {at for at in reported if at <= position.completed}
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
                l2=self._plan.l2,
            )
        )

    def rounds(self, position: Position) -> None:
        """Tell of the rounds up to a position, whose parameters may be missing."""
        first = position.completed - len(position.history) + 1
        new = max(self.completed + 1 - first, 0)
        try:
            for completed, told in enumerate(position.history[new:].tolist(), first + new):
                # Each is told once, also if a signal comes now.
                with signals.deferred():
                    self._tell_round(completed, *told)
                    self.completed = completed
        finally:
            self._events.flush()

    def _tell_round(
        self, completed: int, rows: float, weight: float, loss: float, *notes: float
    ) -> None:
        mean = loss / weight if weight else 0.0
        self._events.emit(RoundCompleted(completed, int(rows), mean, weight))
        event = self._strategy.event(self._plan, completed, np.array(notes))
        if event is not None:
            self._events.emit(event)

    def news(self, completed: int, blocks: int) -> None:
        """Tell of the rounds up to one that was published, unless it is gone."""
        seen = self._run.history(completed, blocks)
        if seen is not None:
            self.rounds(seen)

    def skipped(self, position: Position, *, at_end: bool = False) -> None:
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

    def evaluation(self, completed: int) -> bool:
        """Tell of an evaluation, if that was not done; False if it is not published."""
        found = self._run.evaluation(completed)
        if found is None:
            return False
        if completed not in self.evaluated:
            self.evaluated.add(completed)
            self._events.emit(Score(**found).evaluated(completed, self._model.regression))
        return True

    def traffic(self, completed: int) -> None:
        """Tell the bytes of all rounds, if updates are compressed."""
        plan, kind = self._plan, self._strategy
        if plan.compression is None or kind.traffic(plan, 0, self._model.size) is None:
            return
        rounds = (kind.traffic(plan, at, self._model.size) for at in range(completed))
        self._events.emit(Exchanged(completed, *map(sum, zip(*rounds, strict=True))))

    def profiles(self, profiles: list[dict[str, Any]]) -> None:
        """Warn if tasks have different processors or libraries."""
        changes = numeric.mixed(profiles, self._run.config.numeric_profile == "portable")
        if changes:
            self._run.write_json("mixed_profiles.json", {"changes": changes}, once=False)
            self.warn(
                f"the tasks have different numeric profiles ({'; '.join(changes)}): in another "
                f"placement the last bits may differ. For one hash, train with "
                f"--numeric-profile portable, or on equal machines"
            )

    def no_better_point(self, position: Position, own: TaskContext) -> NonFiniteError:
        """The error that names the parameter with the steepest slope."""
        slopes = np.abs(self._optimizer.slopes(position.state))
        steepest = int(np.nan_to_num(slopes, nan=np.inf).argmax())
        return NonFiniteError(
            f"round {position.completed - 1}: {self._optimizer.title} found no point better than "
            f"the first, and the gradient is not 0. Its largest element, {slopes[steepest]:.3g}, "
            f"is that of parameter {self._model.parameter_at(steepest)}{own.feature(steepest)}. "
            f"The values are too far apart: {self._plan.cures}"
        )
