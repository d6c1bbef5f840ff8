"""The metrics of an evaluation, from sums over its rows; their names are scikit-learn's."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.runs.events import Evaluated
from mapreduce.support.printable import printable

Array = npt.NDArray[Any]

#: Most classes whose confusion matrix is printed, and which are all listed.
MOST_SHOWN = 12
#: Pairs of classes, and classes, that are listed of more.
_LISTED = 10
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
    classes : tuple of int or str
        Labels of a classifier, in the order of its probabilities.
    cells : tuple of (int, int, float)
        Weight of the rows of each pair of label and prediction, by their index in ``classes``.
    log_loss : float or None
        ``loss`` where that is the cross-entropy, in nats.
    roc_auc, roc_auc_error : float or None
        Area under the ROC curve of the second of two classes, or the mean over each of more classes
        against the rest (macro), and the most by which it may be off, since scores in one bin of a
        histogram count as equal; 0 for parameters of float32 and up to 2^19 different scores.
    r2, rmse, mae : float or None
        Of a model that predicts numbers.
    """

    weight: float
    classes: tuple[int | str, ...] = ()
    cells: tuple[tuple[int, int, float], ...] = field(default=())
    log_loss: float | None = None
    roc_auc: float | None = None
    roc_auc_error: float | None = None
    r2: float | None = None
    rmse: float | None = None
    mae: float | None = None

    @property
    def is_weighted(self) -> bool:
        return self.weight != self.rows

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
        sums = np.zeros((3, len(self.classes)))
        for label, prediction, weight in self.cells:
            sums[0, label] += weight
            sums[1, prediction] += weight
            sums[2, label] += weight * (label == prediction)
        return [
            {
                "class": self.classes[at],
                "precision": _share(right, predicted),
                "recall": _share(right, support),
                "f1": _share(2 * right, support + predicted),
                "support": support,
            }
            for at, (support, predicted, right) in enumerate(sums.T.tolist())
            if support or predicted
        ]

    @property
    def averages(self) -> dict[str, dict[str, float]]:
        """Means of the classes' rates, ``macro`` and ``weighted`` by support."""
        entries = self.by_class
        weights = {"macro": [1.0] * len(entries), "weighted": [e["support"] for e in entries]}
        return {
            kind: {
                rate: _share(
                    sum(w * e[rate] for w, e in zip(chosen, entries, strict=True)), sum(chosen)
                )
                for rate in _RATES
            }
            for kind, chosen in weights.items()
        }

    @property
    def weighted_accuracy(self) -> float | None:
        """The share of the rows' weight that is predicted correctly."""
        right = sum(weight for label, prediction, weight in self.cells if label == prediction)
        return _share(right, self.weight) if self.classes else None

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
        if not self.classes:
            return {**found, "r2": self.r2, "rmse": self.rmse, "mae": self.mae}
        small = len(self.classes) <= MOST_SHOWN
        return {
            **found,
            "weighted_accuracy": self.weighted_accuracy,
            "log_loss": self.log_loss,
            "roc_auc": self.roc_auc,
            "roc_auc_error": self.roc_auc_error,
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
        accuracy = "" if self.accuracy is None else f"accuracy {self.accuracy:.4f}, "
        yield f"{accuracy}loss {self.loss:.4f} on {self.rows:,} rows"
        if self.is_weighted:
            mean = f": accuracy {self.weighted_accuracy:.4f}" if self.classes else ""
            yield f"below, rows count by their weights, {self.weight:,.6g} in all{mean}"
        if not self.classes:
            r2 = "–" if self.r2 is None else f"{self.r2:.4f}"
            yield f"R² {r2}, RMSE {self.rmse:.6g}, MAE {self.mae:.6g}"
            return
        parts = [] if self.log_loss is None else [f"log loss {self.log_loss:.4f}"]
        if self.roc_auc is not None:
            how = "" if len(self.classes) == 2 else "macro, each class against the rest; "
            parts.append(
                f"ROC AUC {self.roc_auc:.4f} ({how}off by at most {self.roc_auc_error:.1g})"
            )
        if parts:
            yield ", ".join(parts)
        yield from self._classes()
        few = len(self.classes) <= MOST_SHOWN
        yield from self._matrix() if few else self._pairs()

    def _classes(self) -> Iterator[str]:
        entries = self.by_class
        if more := len(entries) > MOST_SHOWN:
            entries = sorted(entries, key=lambda entry: (entry["f1"], str(entry["class"])))
        shown = entries[:_LISTED] if more else entries
        rows = [(_name(entry["class"]), entry, _amount(entry["support"])) for entry in shown]
        rows += [(f"{kind} average", rates, "") for kind, rates in self.averages.items()]
        wide = max(len(name) for name, *_ in rows)
        yield ""
        if more:
            yield f"the {_LISTED} of {len(entries):,} classes with the lowest F1"
        title = "weight" if self.is_weighted else "rows"
        yield f"{'':{wide}}  {'precision':>9}  {'recall':>9}  {'F1':>9}  {title:>9}"
        for name, rates, amount in rows:
            numbers = "".join(f"  {rates[rate]:9.4f}" for rate in _RATES)
            yield f"{name:{wide}}{numbers}  {amount:>9}".rstrip()

    def _matrix(self) -> Iterator[str]:
        names = [_name(label) for label in self.classes]
        matrix = [[_amount(value) for value in row] for row in self.confusion.tolist()]
        wide = max(map(len, names))
        columns = [max(map(len, column)) for column in zip(names, *matrix, strict=True)]
        yield ""
        yield "confusion matrix: a row for each label, a column for each prediction"
        for name, row in zip(["", *names], [names, *matrix], strict=True):
            cells = (f"  {cell:>{width}}" for cell, width in zip(row, columns, strict=True))
            yield f"{name:{wide}}{''.join(cells)}"

    def _pairs(self) -> Iterator[str]:
        yield ""
        yield "most confused: label, prediction, " + ("weight" if self.is_weighted else "rows")
        for pair in self.most_confused():
            amount = _amount(pair["weight"])
            yield f"{_name(pair['label'])}  {_name(pair['prediction'])}  {amount}"


def area(scores: Array, bins: Array) -> tuple[float, float] | None:
    """Area under the ROC curve of a histogram of scores, and the most by which it may be off.

    Parameters
    ----------
    scores : array (n,)
        Number of each bin, ascending.
    bins : array (n, 2), float64
        Weight of the rows of the class, and of all other rows, whose score is in the bin.

    Returns
    -------
    (float, float) or None
        The probability that a row of the class has a higher score than another one; equal scores
        count half. Rows in one bin count as equal, which is off by half of their pairs at most.
        None if there are no rows of either kind.
    """
    assert (np.diff(scores) > 0).all()
    positive, negative = bins.T
    pairs = float(positive.sum()) * float(negative.sum())
    if not pairs:
        return None
    below = np.cumsum(negative) - negative
    same = float((positive * negative).sum()) / 2
    return (float((positive * below).sum()) + same) / pairs, same / pairs


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
    text = printable(str(label))
    return text if len(text) <= 24 else text[:23] + "…"


def _amount(weight: float) -> str:
    return f"{int(weight):,}" if weight == int(weight) else f"{weight:,.4g}"
