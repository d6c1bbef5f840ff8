"""Permutation importance: how much worse a model is where a column's fields are other rows'.

After Breiman 2001, Random Forests, section 10, as ``sklearn.inspection.permutation_importance``.
Rows exchange a column's features within their slice. A dataset's rows were shuffled when it was
imported, so that this is a permutation like any other, and needs no rows but those of the slice.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mapreduce.data import csr, order
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.data.readers.opening import fitted_of
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import total
from mapreduce.engine.program import Round
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import DataError, UsageError
from mapreduce.inference.base import ModelProgram
from mapreduce.inference.evaluate import Score, check_finite, score_of
from mapreduce.inference.flags import MOST_REPEATS
from mapreduce.inference.metrics import Report
from mapreduce.inference.report import moments_of
from mapreduce.inference.request import Request
from mapreduce.reduction.message import Message
from mapreduce.reduction.moments import merge


@dataclass(frozen=True)
class Permuted:
    """Sums over some rows.

    ``labels``: Of numbers: weight, mean, and sum of the squared differences from it.
    ``sums``: array (columns, repeats, 3). With a column permuted: rows that are classified
      correctly, weighted losses, and weighted squares of the errors of numbers.
    """

    labels: tuple[float, float, float]
    sums: Array

    def __add__(self, other: "Permuted") -> "Permuted":
        return Permuted(merge(self.labels, other.labels), self.sums + other.sums)


@dataclass(frozen=True)
class Permute(ModelProgram, Sum):
    """Scores the data with each column permuted, several times.

    ``ranges``: The features of each column, start and stop.
    """

    ranges: tuple[tuple[int, int], ...]
    repeats: int
    seed: int

    name = "importance"
    MONOID = Monoid(
        "the importance",
        Permuted.__add__,
        lambda found: Message({}, {"labels": np.array(found.labels), "sums": found.sums}),
        lambda message: Permuted(tuple(message.arrays["labels"].tolist()), message.arrays["sums"]),
    )

    def units(self, completed: int) -> int:
        return len(self.slices)

    def lift(self, now: Round, unit: int) -> Permuted:
        rows, labels = self.inference.leaf(unit), (0.0, 0.0, 0.0)
        sums = np.zeros((len(self.ranges), self.repeats, 3))
        if self.inference.estimator.regression:
            labels = tuple(self._moments(rows)[:3].tolist())
        for column, (start, stop) in enumerate(self.ranges):
            for repeat in range(self.repeats):
                # The partner of a row does not depend on how the slices are divided among tasks.
                stream = (unit * len(self.ranges) + column) * MOST_REPEATS + repeat
                partners = order.permutation(self.seed, stream, rows.rows)
                features = exchanged(rows.features, partners, start, stop)
                sums[column, repeat] = self._sums(replace(rows, features=features))
        return Permuted(labels, sums)

    def _sums(self, rows: Batch) -> tuple[float, float, float]:
        score = score_of(self.inference, rows)
        squares = self._moments(rows)[3] if self.inference.estimator.regression else 0.0
        return score.correct, score.loss, squares

    def _moments(self, rows: Batch) -> Array:
        labels = np.asarray(rows.labels, np.float64)
        weights = np.ones(rows.rows) if rows.weights is None else rows.weights
        with np.errstate(all="ignore"), self.inference.errors():
            errors = labels - self.inference.estimator.logits(rows)[:, 0].astype(np.float64)
        return moments_of(labels, errors, weights)


def exchanged(features: Array | Csr, partners: Array, start: int, stop: int) -> Array | Csr:
    """Rows with the features ``start`` to ``stop - 1`` of their partners (rows,), copied."""
    if isinstance(features, Csr):
        return csr.exchanged(features, partners, start, stop)
    found = features.copy()
    found[:, start:stop] = features[partners, start:stop]
    return found


def add_importance(found: Report, request: Request, repeats: int, seed: int) -> Report:
    """A report on a dataset, with the importance of the columns of the table that it was.

    Raises
    ------
    UsageError
        The dataset was not made of a table, or its columns share features, or its rows are not
        shuffled.
    DataError
        Labels are equal numbers, which have no R².
    """
    data, manifest = request.data, Dataset(request.data).manifest
    recipe = fitted_of(data, manifest)
    if recipe is None or recipe.ranges is None:
        what = "have no columns" if recipe is None else "are hashed together (--hash-bits)"
        raise UsageError(
            f"--importance: expected data that were imported from a table, each of whose columns "
            f"has features of its own; the features of these {what}"
        )
    if "split_by" in manifest.source:
        raise UsageError(
            "--importance: expected rows in an order by chance; those of a dataset that was "
            "imported with --split-by have labels in order. Import it without"
        )
    ranges, how = recipe.ranges, {"repeats": repeats, "seed": seed}
    program = Permute.of(request, ranges=tuple(ranges.values()), **how)
    permuted: Permuted = total(program, request.executor())
    correct, losses, squares = np.moveaxis(permuted.sums, 2, 0)
    check_finite(Score(0, 0, 0.0, float(losses.sum())), found.completed, data)
    if found.accuracy is not None:
        measure, drops = "accuracy", found.accuracy - correct / found.rows
    elif found.r2 is not None:
        measure, drops = "r2", found.r2 - (1 - squares / permuted.labels[2])
    else:
        raise DataError("--importance: expected labels that differ, which have an R²")
    rises = losses / found.weight - found.loss
    columns: list[dict[str, Any]] = [
        {
            "column": name,
            "importances_mean": float(drop.mean()),
            "importances_std": float(drop.std()),
            "loss_mean": float(rise.mean()),
            "loss_std": float(rise.std()),
        }
        for name, drop, rise in zip(ranges, drops, rises, strict=True)
    ]
    columns.sort(key=lambda one: (-one["importances_mean"], -one["loss_mean"]))
    about = {"measure": measure, "n_repeats": repeats, "seed": seed, "columns": columns}
    return replace(found, importance=about)
