"""Evaluation: accuracy and loss on a dataset, as sums over all of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mapreduce.collect.tree import Node, ShuffledFold, TreeFold
from mapreduce.data.shards import Dataset
from mapreduce.errors import NonFiniteError
from mapreduce.executors.chain import Execution
from mapreduce.executors.inference import SLICE_ROWS, InferenceJob, run_job
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
        inference = self.inference
        slices = inference.slices()
        fold: TreeFold[Score] = TreeFold(len(slices), Score.__add__, "the score")
        for leaf in range(start, stop):
            batch = inference.batch(*slices[leaf])
            with np.errstate(all="ignore"):
                loss, correct = inference.model.score(inference.params, batch, inference.workspace)
            fold.add(Node(0, leaf), Score(batch.rows, correct, batch.weight, loss))
        for node, score in fold.nodes():
            yield "score", _to_message(score, leaves=len(slices), node=[*node])

    def reducer(self, key: str, scores: Iterable[Message]) -> Pairs:
        fold: ShuffledFold[Score] | None = None
        for message in scores:
            fold = fold or ShuffledFold(message.meta["leaves"], Score.__add__, "the score")
            fold.receive(Node(*message.meta["node"]), _from_message(message), message.digest or 0)
        assert fold is not None, "a reducer gets at least one value"
        yield key, _to_message(fold.result())


def _to_message(score: Score, **meta: Any) -> Message:
    sums = {"rows": score.rows, "correct": score.correct}
    return Message({**sums, **meta}, {"sums": np.array([score.weight, score.loss])})


def _from_message(message: Message) -> Score:
    weight, loss = message.arrays["sums"].tolist()
    return Score(message.meta["rows"], message.meta["correct"], weight, loss)


def evaluate(run: RunDir, completed: int, data: Path, execution: Execution) -> Score:
    """Score a checkpoint on a dataset, which must have labels.

    Parameters
    ----------
    run : RunDir
    completed : int
        Rounds completed at the checkpoint.
    data : Path
    execution : Execution

    Raises
    ------
    NonFiniteError
        The sum of the losses is NaN or infinite.
    """
    rows = [entry.rows for entry in Dataset(data).manifest.shards]
    leaves = sum(-(-count // SLICE_ROWS) for count in rows)
    keys = [f"{a:08d}-{b:08d}" for a, b in ranges(leaves, execution.workers)]
    options = {"--run-dir": run.path, "--completed": completed, "--data": data}
    ((_, message),) = run_job(EvaluateJob, options, keys, execution)
    score = _from_message(message)
    if not np.isfinite(score.loss):
        raise NonFiniteError(
            f"the loss of the model after {completed} rounds on {data} is {score.loss}: its logits "
            f"overflow. The training diverged: try a smaller --learning-rate"
        )
    return score


if __name__ == "__main__":
    EvaluateJob.run()
