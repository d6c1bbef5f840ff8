"""Finding the last state of a run that is whole, whatever is damaged or gone."""

from collections.abc import Callable

from hdfs_utils.errors import StorageError
from mapreduce.errors import DataError
from mapreduce.models.base import Model
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import RunEnded
from mapreduce.runs.state import Position


class Recovery:
    """Finds what is whole in a run, and calls ``warn`` about what is not."""

    def __init__(self, run: RunDir, model: Model, warn: Callable[[str], None]) -> None:
        self._run = run
        self._model = model
        self._warn = warn
        #: Rounds whose checkpoint is damaged. It is kept until another can take its place.
        self.damaged: set[int] = set()

    def has(self, completed: int, result: RunEnded | None = None) -> bool:
        """Whether a checkpoint is whole, and has the model of the run's result if there is one."""
        try:
            position = checkpoint.load(self._run, self._model, completed)
            if result is not None:
                checkpoint.check_result(self._model, position, result)
        except DataError as error:
            self.damaged.add(completed)
            self._warn(f"{error}. It is made again")
            return False
        return True

    def latest(self, at_most: int | None = None) -> Position | None:
        """The last state that is whole, a published round's or a checkpoint's, or None.

        The training can make everything else that it needs from there: with patience, all
        evaluations and the best evaluated model. It is not after more than ``at_most`` rounds.
        """
        position = self._whole(at_most)
        if position is not None and (missing := self._missing(position.completed)) is not None:
            self._warn(f"evaluation or model after {missing:,} rounds are made again")
            return self.latest(missing)
        return position

    def _whole(self, at_most: int | None) -> Position | None:
        position = self._run.latest_round(self._warn, at_most=at_most)
        for completed in reversed(checkpoint.saved(self._run)):
            if position is not None and position.completed > completed:
                break
            if completed in self.damaged or (at_most is not None and completed > at_most):
                continue
            try:
                saved = checkpoint.load(self._run, self._model, completed)
            except (DataError, StorageError, OSError) as error:
                self.damaged.add(completed)
                self._warn(f"{error}. Going on from what is whole")
            else:
                return position or saved
        return position

    def _missing(self, completed: int) -> int | None:
        """The first round whose evaluation or model patience needs and the run lacks, or None."""
        plan = self._run.config.plan
        if not plan.patience:
            return None
        losses = self._run.evaluation_losses(completed)
        for at in filter(plan.is_evaluation, range(1, completed)):
            if at not in losses:
                return at
        best = self._run.best(completed)
        return best if best < completed and not self.has(best) else None
