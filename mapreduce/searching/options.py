"""The options of a search. ``--help`` needs them, so it imports nothing slow."""

from dataclasses import dataclass

from mapreduce.strategies.options import MOST_FOLDS
from mapreduce.support.options import Bound, option, table, up_to

#: Names of files have five digits for trials.
MOST_TRIALS = 100_000


@dataclass(frozen=True)
class SearchOptions:
    """What is tried, and what is best."""

    trials: int | None = option(
        None, "number of trainings in all (default: 32; grid: all points)", up_to(MOST_TRIALS)
    )
    rungs: str | None = option(
        None,
        "epochs after which the best third of the trials goes on, and those of a whole training, "
        "such as 1,3,9",
        metavar="EPOCHS,...",
    )
    folds: int | None = option(
        None,
        "parts of DATA, each of which evaluates a model of each trial that is trained on the "
        "others; the mean of the scores decides",
        Bound(f"a number from 2 to {MOST_FOLDS:,}", lambda number: 2 <= number <= MOST_FOLDS),
    )
    sampler: str = option(
        "random",
        "random draws each trial alone; grid takes all alternatives, in an order drawn from the "
        "seed; tpe, or the class of another sampler of optuna, learns from earlier trials",
    )
    sampler_seed: int = option(
        0,
        "seed of the sampler",
        Bound("a number from 0 to 2**63 - 1", lambda number: 0 <= number < 2**63),
    )
    width: int = option(
        8, "trials that a sampler of optuna chooses at once, from the same results", up_to(1024)
    )
    metric: str = option(
        "loss", "score that decides which trial is best", choices=("loss", "accuracy")
    )


#: What ``gradreduce search`` takes beside the options of a plan.
SEARCH = table(SearchOptions, "Options")
