"""The options of a model in use. ``--help`` needs them, so it imports nothing slow."""

from dataclasses import dataclass

from mapreduce.support.options import option, table


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
        "column of the file DATA that identifies its rows; '' for none (default: that of the "
        "training data, if there is one)",
    )
    keep: tuple[str, ...] = option(
        (),
        "columns of the file DATA that stand beside its predictions; all for all",
        joint=",",
        metavar="NAME[,NAME...]",
    )


@dataclass(frozen=True)
class Report:
    """What a report on a model has beside its metrics."""

    by: str | None = option(
        None,
        "column of the file DATA: report on the rows of each of its values, too",
        metavar="NAME",
    )
    importance: bool = option(
        False, "say of each column of the table how much worse the model is where it is permuted"
    )
    repeats: int = option(5, "permutations of each column (default: 5)")
    seed: int = option(0, "of the permutations (default: 0)")


EXTRAS, REPORT = table(Extras, "Options"), table(Report, "Options")
