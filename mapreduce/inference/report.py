"""The whole report on a model: sums over a dataset from which all its metrics follow.

The sums combine along the canonical tree, as those of :mod:`mapreduce.inference.evaluate`, whose
score is one of them. A ROC curve needs the order of all rows' scores, which does not fit a bounded
memory. So scores are counted as float32, and where more than 2^19 are different, by as many of
their leading bits as there is room for. Where different scores are counted together, the report
says by how much the area may be off.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mapreduce.data.batch import Array, Batch
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import total
from mapreduce.engine.program import Round
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.inference import metrics
from mapreduce.inference.base import Inference, ModelProgram
from mapreduce.inference.evaluate import Score, check_finite, score_of
from mapreduce.inference.evaluate import from_message as score_from
from mapreduce.inference.evaluate import to_message as score_to
from mapreduce.inference.metrics import BINS, Report
from mapreduce.inference.request import Request
from mapreduce.models.fitted import FittedModel
from mapreduce.reduction.message import Message
from mapreduce.reduction.moments import merge

#: Most bins of all curves together, and the bits that are dropped at a time to have no more.
MOST_BINS, STEP = 1 << 19, 2
#: Most classes that have a ROC curve each.
MOST_CURVES = 64
_HISTOGRAMS = ("pairs", "curves", "bins")


@dataclass(frozen=True)
class Histogram:
    """Sums by key.

    Attributes
    ----------
    keys : array (n,), int64
        Ascending.
    sums : array (n, sums of a key), float64
    """

    keys: Array
    sums: Array

    @classmethod
    def of(cls, keys: Array, values: Array) -> "Histogram":
        """Adds up the values (n, sums of a key) of each key, in their order."""
        found, places = np.unique(keys, return_inverse=True)
        sums = [np.bincount(places, column, len(found)) for column in values.T]
        return cls(found, np.stack(sums, axis=1))

    def __add__(self, other: "Histogram") -> "Histogram":
        keys = np.concatenate([self.keys, other.keys])
        return Histogram.of(keys, np.concatenate([self.sums, other.sums]))


@dataclass(frozen=True)
class Tally:
    """Sums over some rows.

    Attributes
    ----------
    score : Score
    pairs : Histogram
        Number and weight of the rows by ``label * classes + prediction``.
    curves : Histogram
        Weight of the rows of a class, and of all others, by ``class * 2**32 + bin``: the bin of the
        score that the class has. For two classes, the second only. Third, the score of all these
        rows, NaN where their scores differ.
    bins : Histogram
        Of a classifier, by the bin of the confidence in a prediction: the weight of the rows, and
        weighted sums of the confidence, of right predictions and of the squared errors of all
        probabilities.
    bits : int
        Leading bits of a score that are its bin; the others are 0.
    moments : array (5,), float64
        For numbers: weight of the rows, weighted mean of the labels and sum of the squared
        differences from it, weighted sums of the errors' squares and magnitudes.
    """

    score: Score
    pairs: Histogram
    curves: Histogram
    bins: Histogram
    bits: int
    moments: Array

    def __add__(self, other: "Tally") -> "Tally":
        bits, both = min(self.bits, other.bits), (self.curves, other.curves)
        keys, sums = (np.concatenate([getattr(c, n) for c in both]) for n in ("keys", "sums"))
        curves = _cells(keys, sums, bits)
        here, there = self.moments, other.moments
        merged = merge((here[0], here[1], here[2]), (there[0], there[1], there[2]))
        moments = np.array([*merged, *(here[3:] + there[3:])])
        score, pairs = self.score + other.score, self.pairs + other.pairs
        found = Tally(score, pairs, curves, self.bins + other.bins, bits, moments)
        while len(found.curves.keys) > MOST_BINS:
            found = found.coarser()
        return found

    def coarser(self) -> "Tally":
        """The same with fewer bits of the scores."""
        bits = self.bits - STEP
        return replace(self, curves=_cells(self.curves.keys, self.curves.sums, bits), bits=bits)


def _cells(keys: Array, values: Array, bits: int = 32) -> Histogram:
    """The curves of a :class:`Tally`, of values (n, 3) by the leading bits of their scores."""
    cells = keys & (-1 << (32 - bits))
    found, order = Histogram.of(cells, values[:, :2]), np.argsort(cells, kind="stable")
    scores, starts = values[order, 2], np.searchsorted(cells[order], found.keys)
    least, most = (of.reduceat(scores, starts) for of in (np.minimum, np.maximum))
    scores = np.where(least == most, least, np.nan)
    return Histogram(found.keys, np.column_stack([found.sums, scores]))


def to_message(tally: Tally) -> Message:
    """A tally as a message."""
    score = score_to(tally.score)
    parts = {name: getattr(tally, name) for name in _HISTOGRAMS}
    arrays = {name: part.keys for name, part in parts.items()}
    arrays |= {f"{name}_sums": part.sums for name, part in parts.items()}
    meta = {**score.meta, "bits": tally.bits}
    return Message(meta, {**score.arrays, **arrays, "moments": tally.moments})


def from_message(message: Message) -> Tally:
    """The tally of :func:`to_message`."""
    arrays = message.arrays
    pairs, curves, bins = (Histogram(arrays[n], arrays[f"{n}_sums"]) for n in _HISTOGRAMS)
    if curves.sums.shape[1] == 2:
        # An earlier version's, which does not say whether scores differ.
        unknown = np.full(len(curves.keys), np.nan)
        curves = replace(curves, sums=np.column_stack([curves.sums, unknown]))
    return Tally(score_from(message), pairs, curves, bins, message.meta["bits"], arrays["moments"])


TALLIES = Monoid("the report", Tally.__add__, to_message, from_message)


def tally_of(inference: Inference, batch: Batch) -> Tally:
    """The tally of some rows of the data."""
    estimator = inference.estimator
    score = score_of(inference, batch)
    with np.errstate(all="ignore"), inference.errors():
        logits = estimator.logits(batch)
        weights = np.ones(batch.rows) if batch.weights is None else batch.weights
        labels = np.asarray(batch.labels, np.float64 if estimator.regression else np.int64)
        if estimator.regression:
            errors = labels - logits[:, 0].astype(np.float64)
            nothing = Histogram(np.empty(0, np.int64), np.empty((0, 3)))
            moments = moments_of(labels, errors, weights)
            return Tally(score, nothing, nothing, nothing, 32, moments)
        classes, predictions = logits.shape[1], logits.argmax(axis=1)
        keys = labels * classes + predictions
        pairs = Histogram.of(keys, np.stack([np.ones(batch.rows), weights], axis=1))
        margins = logits[:, 1:2] - logits[:, :1]
        chances = estimator.probabilities(batch)
        bins = _bins(chances, labels, predictions, weights)
        if classes == 2:
            scores, first = margins, 1
        elif classes <= MOST_CURVES:
            # Odds, whose order is that of the probabilities, also where those are rounded to 1.
            rest = [np.delete(chances, at, axis=1).sum(axis=1) for at in range(classes)]
            scores, first = chances / np.stack(rest, axis=1), 0
        else:
            scores, first = np.empty((batch.rows, 0)), 0
        curves = _curves(scores, labels, weights, first)
    return Tally(score, pairs, curves, bins, 32, np.zeros(5))


def _bins(chances: Array, labels: Array, predictions: Array, weights: Array) -> Histogram:
    """The histogram of probabilities (rows, classes) by the confidence, the largest of a row."""
    errors = chances.astype(np.float64)
    confidence = errors.max(axis=1)
    errors[np.arange(len(labels)), labels] -= 1
    squares = (errors**2).sum(axis=1)
    # What lies between two bins is in the lower one.
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    values = np.stack([np.ones(len(labels)), confidence, predictions == labels, squares], axis=1)
    return Histogram.of(bins, values * weights[:, None])


def moments_of(labels: Array, errors: Array, weights: Array) -> Array:
    """The moments (5,) of a :class:`Tally`, of numbers (rows,)."""
    weight = weights.sum()
    mean = (weights * labels).sum() / weight if weight else 0.0
    squares = (weights * (labels - mean) ** 2).sum()
    parts = [weight, mean, squares, (weights * errors**2).sum(), (weights * abs(errors)).sum()]
    return np.array(parts, np.float64)


def _curves(scores: Array, labels: Array, weights: Array, first: int) -> Histogram:
    """The histogram of scores (rows, n) of n classes, which are numbered from ``first`` on."""
    numbers = np.arange(first, first + scores.shape[1])
    # Without -0.0. The bits of floats are ordered as the floats are, those of negative ones
    # the other way round.
    scores = scores + scores.dtype.type(0)
    found = scores.astype(np.float32).view(np.uint32)
    ordered = np.where(found >> 31, ~found, found | np.uint32(1 << 31))
    bins = ordered.astype(np.int64)
    is_class = labels[:, None] == numbers
    counts = np.stack([is_class, ~is_class], axis=2) * weights[:, None, None]
    values = np.concatenate([counts, scores[:, :, None]], axis=2)
    return _cells((bins + (numbers << 32)).ravel(), values.reshape(-1, 3))


class Tallies(ModelProgram, Sum):
    """Tallies slices and adds up the tallies along the canonical tree."""

    name = "report"
    MONOID = TALLIES

    def units(self, completed: int) -> int:
        return len(self.slices)

    def lift(self, now: Round, unit: int) -> Tally:
        return tally_of(self.inference, self.inference.leaf(unit))


def report(request: Request) -> Report:
    """Report on a model, on a dataset with labels.

    Raises
    ------
    NonFiniteError
        The sum of the losses is NaN or infinite.
    """
    tally: Tally = total(Tallies.of(request), request.executor())
    check_finite(tally.score, request.fitted.completed, request.data)
    return report_of(tally, request.fitted, Dataset(request.data).manifest.weighted)


def report_of(tally: Tally, fitted: FittedModel, is_weighted: bool) -> Report:
    """The report that follows from the sums over all rows."""
    estimator, classes = fitted.about, fitted.data.classes
    weights = {"weight": tally.score.weight, "is_weighted": is_weighted}
    common = {**vars(tally.score.evaluated(fitted.completed, estimator.regression)), **weights}
    if estimator.regression:
        found: dict[str, Any] = metrics.regression(tally.moments)
        return Report(**common, **found)
    keys = tally.pairs.keys
    labels, predictions = np.divmod(keys, len(classes))
    sums = tally.pairs.sums[:, 1].tolist()
    cells = zip(labels.tolist(), predictions.tolist(), sums, strict=True)
    owners = tally.curves.keys >> 32
    areas = []
    for number in np.unique(owners).tolist():
        own = owners == number
        areas.append(metrics.area(tally.curves.keys[own], tally.curves.sums[own]))
    known = [area for area in areas if area is not None]
    auc, error = np.mean(known, axis=0).tolist() if known else (None, None)
    if known and tally.bits == 32 and estimator.dtype == np.float32:
        error = 0.0
    bins = tally.bins.sums
    squares = float(bins[:, 3].sum()) / (2 if len(classes) == 2 else 1)
    return Report(
        **common,
        classes=classes,
        cells=tuple(cells),
        log_loss=common["loss"] if estimator.is_log_loss else None,
        roc_auc=auc,
        roc_auc_error=error,
        brier_score=squares / tally.score.weight,
        bins=tuple(zip(tally.bins.keys.tolist(), *bins[:, :3].T.tolist(), strict=True)),
    )
