"""Evaluation: accuracy and loss on a dataset, as sums over all of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.collect.tree import Node, ShuffledFold
from mapreduce.data.shards import Dataset
from mapreduce.errors import NonFiniteError
from mapreduce.executors.chain import Execution
from mapreduce.executors.inference import Inference, InferenceJob, described, first_slices, run_job
from mapreduce.models.base import device_errors
from mapreduce.rundir import RunDir
from mapreduce.strategies.references import ranges
from mapreduce.wire import Message

Pairs = Iterator[tuple[str, Message]]


@dataclass(frozen=True)
class Score:
    """Sums over some rows.

    Attributes
    ----------
    rows, correct : int
    weight : float
        Of the rows: their number, if they have none.
    loss : float
        Times the weights; in nats, for a classifier.
    """

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


class EvaluateJob(InferenceJob):
    """Scores slices and adds up the scores along the canonical tree."""

    def mapper(self, key: str, _: Message) -> Pairs:
        start, stop = map(int, key.split("-"))
        leaves = self.inference.leaves
        for node, score in scores(self.inference, start, stop):
            yield "score", to_message(score, leaves=leaves, node=[*node])

    def reducer(self, key: str, messages: Iterable[Message]) -> Pairs:
        fold: ShuffledFold[Score] | None = None
        for message in messages:
            fold = fold or fold_of(message.meta["leaves"])
            fold.receive(Node(*message.meta["node"]), from_message(message), message.digest or 0)
        assert fold is not None, "a reducer gets at least one value"
        yield key, to_message(fold.result())


def fold_of(leaves: int) -> ShuffledFold[Score]:
    """Adds up the scores of so many slices."""
    return ShuffledFold(leaves, Score.__add__, "the score")


def scores(inference: Inference, start: int, stop: int) -> Iterator[tuple[Node, Score]]:
    """The largest complete nodes over some slices of the data, from left to right."""
    fold = fold_of(inference.leaves)
    for leaf in range(start, stop):
        batch = inference.leaf(leaf)
        with np.errstate(all="ignore"), device_errors(inference.model.device):
            loss, correct = inference.model.score(inference.params, batch, inference.workspace)
        fold.add(Node(0, leaf), Score(batch.rows, correct, batch.weight, loss))
    yield from fold.nodes()


def to_message(score: Score, **meta: Any) -> Message:
    """A score as it travels."""
    sums = {"rows": score.rows, "correct": score.correct}
    return Message({**sums, **meta}, {"sums": np.array([score.weight, score.loss])})


def from_message(message: Message) -> Score:
    """The score of :func:`to_message`."""
    weight, loss = message.arrays["sums"].tolist()
    return Score(message.meta["rows"], message.meta["correct"], weight, loss)


def evaluate(run: RunDir, completed: int, data: AnyPath, execution: Execution) -> Score:
    """Score a checkpoint on a dataset, which must have labels.

    Parameters
    ----------
    run : RunDir
    completed : int
        Rounds completed at the checkpoint.
    data : Path or RemotePath
    execution : Execution

    Raises
    ------
    NonFiniteError
        The sum of the losses is NaN or infinite.
    """
    leaves = first_slices(Dataset(data).manifest)[-1]
    keys = [f"{a:08d}-{b:08d}" for a, b in ranges(leaves, execution.workers)]
    options = described(run, completed, data)
    ((_, message),) = run_job(EvaluateJob, options, keys, execution.on(run.path, data))
    score = from_message(message)
    check_finite(score, completed, data)
    return score


def check_finite(score: Score, completed: int, data: AnyPath) -> None:
    """Raise :class:`NonFiniteError` if the sum of the losses is NaN or infinite."""
    if not np.isfinite(score.loss):
        raise NonFiniteError(
            f"the loss of the model after {completed} rounds on {data} is {score.loss}: its logits "
            f"overflow. The training diverged: standardise the features, or try a smaller "
            f"--learning-rate"
        )


if __name__ == "__main__":
    EvaluateJob.run()
