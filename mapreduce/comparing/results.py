"""The result of a comparison: a table of scores, with a row for each model."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import pyarrow as pa

from hdfs_utils.paths import AnyPath
from mapreduce.report.text import aligned

#: By the task, the scores in the order of the table. The first decides which model is best: of the
#: accuracy the highest, of errors the lowest.
METRICS = {
    "classification": ("accuracy", "roc_auc", "loss"),
    "regression": ("rmse", "mae", "r2"),
}


@dataclass(frozen=True)
class Score:
    """What a model scored in a fold: numbers of a report, None where one is undefined.

    ``seconds``: Processor time of the training. ``bytes``: Of the model's arrays. ``error``: Why
    there is no score.
    """

    model: str
    fold: int
    run: str
    rows: int = 0
    accuracy: float | None = None
    roc_auc: float | None = None
    loss: float | None = None
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    bytes: int = 0
    model_sha256: str = ""
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Scores of several models on one table, which is printed as one.

    Attributes
    ----------
    path : path
        The folder of the comparison.
    task : {"classification", "regression"}
    scores : tuple of Score
        Fold by fold, of each model.
    """

    path: AnyPath
    task: str
    scores: tuple[Score, ...]

    @property
    def table(self) -> Any:
        """A ``pyarrow.Table`` with a row for each model, the best first.

        Columns: ``model``; of each score its mean over the folds, and its ``_std``, the standard
        deviation of the folds; ``seconds``, processor time of all trainings; ``bytes``, of the
        largest model; ``run``, the folder of the runs, one for each fold; ``error``, why a model
        failed, or null.
        """
        names = METRICS[self.task]
        numbers = [(each, pa.float64()) for name in names for each in (name, f"{name}_std")]
        schema = pa.schema(
            [
                ("model", pa.string()),
                *numbers,
                ("seconds", pa.float64()),
                ("bytes", pa.int64()),
                ("run", pa.string()),
                ("error", pa.string()),
            ]
        )
        return pa.Table.from_pylist(self._rows, schema)

    @property
    def best(self) -> str | None:
        """The model of the best mean score, as ``gradreduce train --model`` takes it."""
        first = self._rows[0]
        return None if first["error"] else first["model"]

    @property
    def folds(self) -> Any:
        """A ``pyarrow.Table`` of :class:`Score`, with a row for each model and fold."""
        return pa.Table.from_pylist([*map(vars, self.scores)])

    @property
    def _rows(self) -> list[dict[str, Any]]:
        names = METRICS[self.task]
        rows = []
        for model in dict.fromkeys(score.model for score in self.scores):
            own = [score for score in self.scores if score.model == model]
            error = next((f"fold {s.fold}: {s.error}" for s in own if s.error), None)
            row: dict[str, Any] = {"model": model, "error": error}
            for name in names:
                values = [getattr(score, name) for score in own]
                is_known = error is None and None not in values
                row[name] = fmean(values) if is_known else None
                row[f"{name}_std"] = pstdev(values) if is_known else None
            row["seconds"] = sum(score.seconds for score in own)
            row["bytes"] = max(score.bytes for score in own)
            row["run"] = str(self.path / own[0].run.rpartition("/")[0])
            rows.append(row)
        sign = -1 if names[0] == "accuracy" else 1
        return sorted(rows, key=lambda row: (row["error"] is not None, sign * (row[names[0]] or 0)))

    def __repr__(self) -> str:
        names = METRICS[self.task]
        lines = [["model", *names, "seconds", "bytes", "runs"]]
        failed = []
        for row in self._rows:
            if row["error"]:
                failed.append(f"{row['model']} failed, {row['error']}")
            lines.append(
                [
                    row["model"],
                    *(_cell(row, name) for name in names),
                    f"{row['seconds']:.1f}",
                    f"{row['bytes']:,}",
                    row["run"],
                ]
            )
        return "\n".join([*aligned(lines), *failed])


def _cell(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "failed" if row["error"] else "–"
    return f"{row[name]:.4g} ± {row[f'{name}_std']:.2g}"
