"""Evaluation of a training: accuracy and loss on a dataset, as sums over all of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hdfs_utils.paths import AnyPath, path_of
from mapreduce.data.batch import Batch
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Layout, Line, Pair, Round, StagedTask
from mapreduce.engine.state import State
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import NonFiniteError
from mapreduce.inference.base import Inference
from mapreduce.models.fitted import FittedModel
from mapreduce.models.gradient import GradientModel
from mapreduce.models.layers.stages import Stage
from mapreduce.plan.plan import Plan
from mapreduce.reduction.message import Message
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Evaluated


@dataclass(frozen=True)
class Score:
    """Sums over some rows: of their weights, 1 without any, and of the weighted losses."""

    rows: int
    correct: int
    weight: float
    loss: float

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.rows + other.rows,
            self.correct + other.correct,
            self.weight + other.weight,
            self.loss + other.loss,
        )

    def evaluated(self, completed: int, regression: bool) -> Evaluated:
        """The sums, divided once, of a model after some rounds; ``regression`` has no accuracy."""
        accuracy = None if regression else self.correct / self.rows
        return Evaluated(completed, self.rows, accuracy, self.loss / self.weight)


def to_message(score: Score, **meta: Any) -> Message:
    sums = {"rows": score.rows, "correct": score.correct}
    return Message({**sums, **meta}, {"sums": np.array([score.weight, score.loss])})


def from_message(message: Message) -> Score:
    weight, loss = message.arrays["sums"].tolist()
    return Score(message.meta["rows"], message.meta["correct"], weight, loss)


SCORES = Monoid("the score", Score.__add__, to_message, from_message)


def score_of(inference: Inference, batch: Batch) -> Score:
    """The score of some rows of the data."""
    with np.errstate(all="ignore"), inference.errors():
        loss, correct = inference.estimator.score(batch)
    return Score(batch.rows, correct, batch.weight, loss)


class _HeldOut(Inference):
    """A model, and the rows of the training data that its plan holds out."""

    def __init__(self, fitted: FittedModel, data: AnyPath, plan: Plan) -> None:
        super().__init__(fitted, data)
        self._held_out = plan.held_out_for(0, plan.held_out_slices)

    @property
    def leaves(self) -> int:
        return len(self._held_out)

    def leaf(self, number: int) -> Batch:
        return self.batch(*self._held_out[number])


@dataclass(frozen=True)
class Evaluate(Sum):
    """Scores the parameters of a training's state, to the bits of its checkpoint's score."""

    run: str
    content: str

    name = "evaluate"
    MONOID = SCORES

    @cached_property
    def inference(self) -> Inference:
        """The data, and the model or what this task has of it."""
        run = RunDir(path_of(self.run))
        config, fitted = run.config, checkpoint.untrained(run)
        if config.plan.evaluates_held_out:
            return _HeldOut(fitted, path_of(config.data), config.plan)
        assert config.evaluation is not None
        return Inference(fitted, path_of(config.evaluation))

    @property
    def network(self) -> GradientModel:
        """What computes with the model."""
        estimator = self.inference.estimator
        assert isinstance(estimator, GradientModel), "a training has no others"
        return estimator

    def units(self, completed: int) -> int:
        return self.inference.leaves

    def task(self, state: State, layout: Layout) -> "EvaluateTask":
        return EvaluateTask(self, state, layout)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        self.network.params = now.vector("params")
        return super().map(now, units)

    def lift(self, now: Round, unit: int) -> Score:
        return score_of(self.inference, self.inference.leaf(unit))


class EvaluateTask(StagedTask):
    """A task that scores rows, or does a stage of that."""

    program: Evaluate

    def __init__(self, program: Evaluate, state: State, layout: Layout) -> None:
        super().__init__(program, state, layout)
        self._stage: Stage | None = None
        self._line: Line | None = None

    def most_bytes(self) -> int:
        # Scores of nodes alone; between stages the training's own limit is larger.
        return 1 << 20

    def split(self, stage: Stage, line: Line) -> None:
        self._stage, self._line = stage, line
        self.program.network.model = stage.network

    def map(self, part: LeafRange) -> Iterator[Pair]:
        stage, estimator = self._stage, self.program.network
        line: Any = self._line
        if stage is None:
            return super().map(part)
        network: Any = estimator.model
        if stage.number:
            network.source = lambda: line.swap(-1, None, True).arrays["outputs"]
        if stage.number == stage.count - 1:
            return super().map(part)
        # Only the last one scores what becomes of the rows.
        estimator.params = self.state.vector(part.completed, "params")
        for unit in range(part.start, part.stop):
            rows = self.program.inference.leaf(unit)
            for _, going in network.passes(estimator.params, rows, estimator.context):
                line.swap(1, Message({}, {"outputs": going.outputs}), False)
        return iter(())


def check_finite(score: Score, completed: int, data: AnyPath) -> None:
    """Raise :class:`NonFiniteError` if the sum of the losses is NaN or infinite."""
    if not np.isfinite(score.loss):
        raise NonFiniteError(
            f"the loss of the model after {completed} rounds on {data} is {score.loss}: its logits "
            f"overflow. The training diverged: standardise the features, or try a smaller "
            f"--learning-rate"
        )
