"""Saving checkpoints, and finding the last state that is whole, whatever is damaged or gone."""

import contextlib
from collections.abc import Callable

from hdfs_utils.errors import ConflictError, StorageError
from mapreduce.engine.state import Array
from mapreduce.errors import DataError, MissingInputError
from mapreduce.models.base import Model
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import RunEnded
from mapreduce.runs.state import Position
from mapreduce.support.commands import resume


class Recovery:
    """Finds what is whole in a run, and calls ``warn`` about what is not."""

    def __init__(self, run: RunDir, model: Model, warn: Callable[[str], None]) -> None:
        self._run = run
        self._model = model
        self._warn = warn
        #: Rounds whose checkpoint is damaged. It is kept until another can take its place.
        self.damaged: set[int] = set()
        #: Rounds whose checkpoint this process has saved.
        self._saved: set[int] = set()

    def start(self, at_most: int | None = None) -> Position:
        """Where a training goes on: the :meth:`latest` state, or else its first one."""
        position = self.latest(at_most)
        if position is None:
            position = checkpoint.first(self._run)
            if checkpoint.saved_rounds(self._run):
                self._warn("no checkpoint can be read: the run starts from its first round again")
        return position

    def unsaved_rounds(self, before: int) -> list[Position]:
        """Rounds to be saved, which a gang had published when its driver was killed."""
        found, plan, saved = [], self._run.config.plan, checkpoint.saved_rounds(self._run)
        for completed, blocks in self._run.rounds.complete().items():
            is_due = plan.is_checkpoint(completed) or plan.is_evaluation(completed)
            if is_due and max(saved, default=0) < completed < before:
                # A damaged one is not needed.
                with contextlib.suppress(MissingInputError, DataError):
                    found.append(self._run.read_round(completed, blocks))
        return found

    def save(self, position: Position) -> str | None:
        """Save a checkpoint, and return its digest, unless there is a whole one."""
        if position.completed in checkpoint.saved_rounds(self._run):
            if position.completed not in self.damaged:
                return None
            checkpoint.remove(self._run, position.completed)
            self.damaged.remove(position.completed)
        digest = checkpoint.save(self._run, self._model, position)
        self._saved.add(position.completed)
        return digest

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

    def best(self, position: Position) -> tuple[int, Array]:
        """The rounds and the parameters that a training ends with at a position."""
        result = self._run.best(position.completed)
        if result == position.completed and result in self._saved:
            return result, position.params
        try:
            return result, checkpoint.load(self._run, self._model, result).params
        except DataError as error:
            raise DataError(f"{error}. '{resume(self._run.path)}' computes it again") from error

    def end(self, ended: RunEnded) -> None:
        """Publish how a training ended; a DataError if it is known to have ended otherwise."""
        try:
            self._run.write_json("result.json", vars(ended))
        except ConflictError as error:
            place = self._run.path / "result.json"
            raise DataError(
                f"{place} names another model than {ended.model_sha256}, the result of the same "
                f"rounds now. Processor or libraries may have changed. To keep the new model, "
                f"remove {place}, then run '{resume(self._run.path)}'"
            ) from error

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
        for completed in reversed(checkpoint.saved_rounds(self._run)):
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
