"""The options of a model in use. ``--help`` needs them, so it imports nothing slow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.support.options import Bound, checked, option, table, up_to

#: Most permutations of a column.
MOST_REPEATS = 100


@dataclass(frozen=True)
class Extras:
    """What stands beside predictions."""

    probability_of: tuple[str, ...] = option(
        (),
        "class whose probability has a column of its own; may be repeated",
        joint="",
        metavar="CLASS",
    )
    layer: str | None = option(
        None,
        "layer whose outputs stand beside the predictions, as lists: a number that gradreduce "
        "models show prints, layers.0 of mlp, the name of a PyTorch module, or -1 for the last",
    )
    id: str | None = option(
        None,
        "column of the file DATA that identifies its rows; '' for none (default: the id column of "
        "the training data, if there is one)",
    )
    keep: tuple[str, ...] = option(
        (),
        "columns of the file DATA to copy beside the predictions; all copies all columns",
        joint=",",
        metavar="NAME[,NAME...]",
    )


@dataclass(frozen=True)
class ReportOptions:
    """What a report on a model has beside its metrics."""

    by: str | None = option(
        None,
        "column of the file DATA: report on the rows of each value of the column, too",
        metavar="NAME",
    )
    importance: bool = option(
        False,
        "print for each column of the table how much worse the model is if the fields of the "
        "column are permuted",
    )
    repeats: int = option(
        5,
        "permutations of each column (default: 5)",
        up_to(MOST_REPEATS, "a number from 1 to {}"),
    )
    seed: int = option(
        0,
        "seed of the permutations (default: 0)",
        Bound("a number from 0 to 2**63 - 1", lambda number: 0 <= number < 2**63),
    )


EXTRAS, REPORT = table(Extras, "Options"), table(ReportOptions, "Options")


def report_options(values: Mapping[str, Any]) -> ReportOptions:
    """The values of :data:`REPORT`, which are None where nothing is said.

    Raises UsageError (one is out of range, or has no effect).
    """
    options = ReportOptions(**checked({n: v for n, v in values.items() if v is not None}, REPORT))
    if not options.importance and (values.get("repeats"), values.get("seed")) != (None, None):
        raise UsageError("--repeats and --seed have no effect without --importance")
    return options
