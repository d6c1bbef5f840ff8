"""The metrics of an evaluation, from sums over its rows; their names are scikit-learn's."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.report.text import aligned
from mapreduce.runs.events import Evaluated
from mapreduce.support.words import count

Array = npt.NDArray[Any]

#: Most classes whose confusion matrix is printed, and which are all listed.
MOST_SHOWN = 12
#: Pairs of classes, and classes, that are listed of more.
_LISTED = 10
#: Bins of equal width of the confidence in a prediction.
BINS = 15
#: Groups, and columns, that are printed.
MOST_LINES = 20
_ERRORS = ("R²", "RMSE", "MAE")
_RATES = ("precision", "recall", "f1")


@dataclass(frozen=True, repr=False)
class Report(Evaluated):
    """The evaluation of a model; what is undefined is None.

    Rows count by their weights in everything but ``rows`` and ``accuracy``. Where a class is never
    predicted, or has no rows, its rates are 0 instead of 0 / 0, as scikit-learn's.

    Attributes
    ----------
    weight : float
        Sum of the rows' weights; ``rows`` if they have none.
    is_weighted : bool
        Whether they have weights.
    classes : tuple of int or str
        Labels of a classifier, in the order of its probabilities.
    cells : tuple of (int, int, float)
        Weight of the rows of each pair of label and prediction, by their index in ``classes``.
    log_loss : float or None
        ``loss`` where that is the cross-entropy, in nats.
    roc_auc, roc_auc_error : float or None
        Area under the ROC curve of the second of two classes, or the mean over each of more classes
        against the rest (macro), and the most by which it may be off, since different scores in one
        bin of a histogram count as equal; 0 for up to 2^19 scores that differ as float32.
    brier_score : float or None
        Mean squared error of the probabilities (Brier 1950): of that of the second of two classes,
        or summed over more classes, as ``sklearn.metrics.brier_score_loss``; 0 is best.
    bins : tuple of (int, float, float, float)
        By the bin of the confidence in a prediction, its number, the weight of its rows, and
        weighted sums of confidence and of right predictions. See :attr:`reliability`.
    r2, rmse, mae : float or None
        Of a model that predicts numbers.
    by : str
        The column whose values have reports of their own, or empty.
    groups : dict of str or None to Report
        A report on the rows of each value of the column, None where it is missing, in the order of
        their weight.
    importance : dict
        Permutation importance, if it was asked for: ``measure`` (``accuracy`` or ``r2``),
        ``n_repeats``, ``seed``, and ``columns``, the most important ones first. Each has
        ``column``, ``importances_mean`` and ``importances_std``, by how much the measure falls
        where the column is permuted, and ``loss_mean`` and ``loss_std``, by how much the loss
        rises.
    """

    weight: float
    is_weighted: bool = False
    classes: tuple[int | str, ...] = ()
    cells: tuple[tuple[int, int, float], ...] = field(default=())
    log_loss: float | None = None
    roc_auc: float | None = None
    roc_auc_error: float | None = None
    brier_score: float | None = None
    bins: tuple[tuple[int, float, float, float], ...] = field(default=())
    r2: float | None = None
    rmse: float | None = None
    mae: float | None = None
    by: str = ""
    groups: dict[str | None, "Report"] = field(default_factory=dict, hash=False)
    importance: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def confusion(self) -> Array:
        """(classes, classes), float64: row is the label, column the prediction."""
        matrix = np.zeros((len(self.classes),) * 2)
        for label, prediction, weight in self.cells:
            matrix[label, prediction] = weight
        return matrix

    @property
    def by_class(self) -> list[dict[str, Any]]:
        """``class``, ``precision``, ``recall``, ``f1``, and ``support``, the weight of its rows.

        Classes that neither occur nor are predicted are left out.
        """
        sums = np.zeros((len(self.classes), 3))
        for label, prediction, weight in self.cells:
            sums[label, 0] += weight
            sums[prediction, 1] += weight
            sums[label, 2] += weight * (label == prediction)
        return [
            {
                "class": label,
                "precision": _share(right, predicted),
                "recall": _share(right, support),
                "f1": _share(2 * right, support + predicted),
                "support": support,
            }
            for label, (support, predicted, right) in zip(self.classes, sums.tolist(), strict=True)
            if support or predicted
        ]

    @property
    def averages(self) -> dict[str, dict[str, float]]:
        """Means of the classes' rates, ``macro`` and ``weighted`` by support."""
        entries = self.by_class
        rates = np.array([[entry[rate] for rate in _RATES] for entry in entries])
        weights = {"macro": None, "weighted": [entry["support"] for entry in entries]}
        return {
            kind: dict(zip(_RATES, np.average(rates, 0, chosen).tolist(), strict=True))
            for kind, chosen in weights.items()
        }

    @property
    def weighted_accuracy(self) -> float | None:
        """The share of the rows' weight that is predicted correctly."""
        right = sum(weight for label, prediction, weight in self.cells if label == prediction)
        return _share(right, self.weight) if self.classes else None

    @property
    def reliability(self) -> list[dict[str, Any]]:
        """For a reliability diagram: ``bin``, mean ``confidence``, ``accuracy``, and ``weight``.

        The confidence in a prediction is its probability, between 0 and 1, which 15 bins of equal
        width divide: bin 0 is up to 1/15. Bins without rows are left out.
        """
        return [
            {"bin": at, "confidence": sums / weight, "accuracy": right / weight, "weight": weight}
            for at, weight, sums, right in self.bins
            if weight
        ]

    @property
    def expected_calibration_error(self) -> float | None:
        """Mean difference of confidence and accuracy over the bins of :attr:`reliability`.

        Bins count by the weight of their rows (Guo et al. 2017, On Calibration of Modern Neural
        Networks, equation 3). 0 is best; None of a model that predicts numbers.
        """
        gaps = sum(abs(right - confidence) for _, _, confidence, right in self.bins)
        return gaps / self.weight if self.classes else None

    def most_confused(self, most: int = _LISTED) -> list[dict[str, Any]]:
        """The pairs of different ``label`` and ``prediction`` with most ``weight``."""
        wrong = sorted((-w, label, other) for label, other, w in self.cells if label != other and w)
        names = self.classes
        return [
            {"label": names[label], "prediction": names[other], "weight": -w}
            for w, label, other in wrong[:most]
        ]

    def to_dict(self) -> dict[str, Any]:
        """What ``gradreduce evaluate --json`` writes; the matrix of few classes only."""
        found = {name: getattr(self, name) for name in ("accuracy", "loss", "rows", "weight")}
        if self.by:
            groups = [{"value": value, **one.to_dict()} for value, one in self.groups.items()]
            found |= {"by": {"column": self.by, "groups": groups}}
        if self.importance:
            found |= {"importance": self.importance}
        if not self.classes:
            return {**found, "r2": self.r2, "rmse": self.rmse, "mae": self.mae}
        small = len(self.classes) <= MOST_SHOWN
        return {
            **found,
            "weighted_accuracy": self.weighted_accuracy,
            "log_loss": self.log_loss,
            "roc_auc": self.roc_auc,
            "roc_auc_error": self.roc_auc_error,
            "brier_score": self.brier_score,
            "expected_calibration_error": self.expected_calibration_error,
            "reliability": self.reliability,
            **self.averages,
            "by_class": self.by_class,
            "most_confused": self.most_confused(),
            "classes": list(self.classes),
            "confusion": self.confusion.tolist() if small else None,
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield from self._own_lines()
        if self.by:
            yield from ("", *self._group_lines())
        if self.importance:
            yield from ("", *self._importance_lines())

    def _importance_lines(self) -> Iterator[str]:
        """A line for each column."""
        columns, repeats = self.importance["columns"], self.importance["n_repeats"]
        measure = {"accuracy": "accuracy", "r2": "R²"}[self.importance["measure"]]
        more = len(columns) - MOST_LINES
        rest = f"; --json has {more:,} more" if more > 0 else ""
        yield (
            f"drop in {measure} and rise of the loss where a column is permuted, mean and standard "
            f"deviation of {repeats}{rest}:"
        )
        lines = [
            [_name(name), *map(_figure, figures)]
            for name, *figures in (one.values() for one in columns[:MOST_LINES])
        ]
        yield from aligned([["", measure, "±", "loss", "±"], *lines])

    def _group_lines(self) -> Iterator[str]:
        """A line for the whole, and for each group."""
        more = len(self.groups) - MOST_LINES
        rest = f"; those of most weight, --json has {more:,} more" if more > 0 else ""
        yield f"by {self.by}, {len(self.groups):,} value{'s' * (len(self.groups) != 1)}{rest}:"
        shown = [*self.groups.items()][:MOST_LINES]
        rows = [("all", self), *((_name("(missing)" if v is None else v), r) for v, r in shown)]
        amount = "weight" if self.is_weighted else "rows"
        heads = ["accuracy", "loss", *_RATES, "ROC AUC"] if self.classes else ["loss", *_ERRORS]
        lines = [[name, _amount(one.weight), *map(_figure, one._figures())] for name, one in rows]
        yield from aligned([["", amount, *heads], *lines])

    def _figures(self) -> list[float | None]:
        """What the line of a group shows."""
        if not self.classes:
            return [self.loss, self.r2, self.rmse, self.mae]
        rates = self.averages["macro"].values()
        return [self.weighted_accuracy, self.loss, *rates, self.roc_auc]

    def _own_lines(self) -> Iterator[str]:
        accuracy = "" if self.accuracy is None else f"accuracy {self.accuracy:.4f}, "
        yield f"{accuracy}loss {self.loss:.4f} on {count(self.rows, 'row')}"
        if self.is_weighted:
            mean = f": accuracy {self.weighted_accuracy:.4f}" if self.classes else ""
            yield f"below, rows count by their weights, {self.weight:,.6g} in all{mean}"
        if not self.classes:
            r2 = "–" if self.r2 is None else f"{self.r2:.4f}"
            yield f"R² {r2}, RMSE {self.rmse:.6g}, MAE {self.mae:.6g}"
            return
        parts = [] if self.log_loss is None else [f"log loss {self.log_loss:.4f}"]
        if self.roc_auc is not None:
            how = ["macro, each class against the rest"] if len(self.classes) > 2 else []
            how += [f"off by at most {self.roc_auc_error:.1g}"] if self.roc_auc_error else []
            parts.append(f"ROC AUC {self.roc_auc:.4f}" + f" ({'; '.join(how)})" * bool(how))
        yield ", ".join(parts)
        error = self.expected_calibration_error
        yield f"Brier score {self.brier_score:.4f}, expected calibration error {error:.4f}"
        amount = "weight" if self.is_weighted else "rows"
        entries = self.by_class
        if more := len(entries) > MOST_SHOWN:
            yield f"the {_LISTED} of {len(entries):,} classes with the lowest F1:"
            entries = sorted(entries, key=lambda entry: entry["f1"])[:_LISTED]
        rows = [(_name(entry["class"]), entry, _amount(entry["support"])) for entry in entries]
        rows += [(f"{kind} average", rates, "") for kind, rates in self.averages.items()]
        lines = [[name, *(f"{rates[r]:.4f}" for r in _RATES), last] for name, rates, last in rows]
        yield from ("", *aligned([["", *_RATES, amount], *lines]), "")
        if more:
            yield f"most confused: label, prediction, {amount}"
            pairs = self.most_confused()
            yield from aligned(
                [[*map(_name, (*p.values(),)[:2]), _amount(p["weight"])] for p in pairs], 2
            )
        else:
            names = [*map(_name, self.classes)]
            matrix = [[*map(_amount, row)] for row in self.confusion.tolist()]
            yield "confusion matrix: a row for each label, a column for each prediction"
            yield from aligned(
                [["", *names], *([n, *row] for n, row in zip(names, matrix, strict=True))]
            )


def area(scores: Array, bins: Array) -> tuple[float, float] | None:
    """Area under the ROC curve of a histogram of scores, and the most by which it may be off.

    Parameters
    ----------
    scores : array (n,)
        Number of each bin, ascending.
    bins : array (n, 3), float64
        Weight of the rows of the class, and of all other rows, whose score is in the bin; and the
        score of all of them, NaN where their scores differ.

    Returns
    -------
    (float, float) or None
        The probability that a row of the class has a higher score than another one; equal scores
        count half. Different scores in one bin count so, too, which is off by half of their pairs
        at most.
        None if there are no rows of either kind.
    """
    assert (np.diff(scores) > 0).all()
    positive, negative, scores = bins.T
    pairs = float(positive.sum()) * float(negative.sum())
    if not pairs:
        return None
    below = np.cumsum(negative) - negative
    same = positive * negative / 2
    doubt = float(same[np.isnan(scores)].sum())
    return (float((positive * below).sum()) + float(same.sum())) / pairs, doubt / pairs


def regression(moments: Array) -> dict[str, float | None]:
    """``r2``, ``rmse`` and ``mae`` of the sums of :class:`mapreduce.inference.report.Tally`."""
    weight, _, squares, residuals, magnitudes = moments.tolist()
    return {
        "r2": 1 - residuals / squares if squares else None,
        "rmse": math.sqrt(residuals / weight),
        "mae": magnitudes / weight,
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _name(label: object) -> str:
    text = str(label)
    return text if len(text) <= 24 else text[:23] + "…"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _amount(weight: float) -> str:
    return f"{int(weight):,}" if weight == int(weight) else f"{weight:,.4g}"
