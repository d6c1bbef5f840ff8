"""The options of the toolkit's strategies. ``--help`` needs them, so it imports nothing slow."""

import math
import re
from dataclasses import dataclass

from mapreduce.support.options import Bound, is_count, option, up_to

#: Most replicas: each may keep a state of its own.
MOST_REPLICAS = 4096
#: Most applications that a gradient may be late: a version of the model is kept for each.
MOST_STALENESS = 10_000
#: Most local steps of a round.
MOST_LOCAL_STEPS = 100_000
#: Most folds: each has a training of its own.
MOST_FOLDS = 1000
_FOLD = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})")


def _is_fold(text: str) -> bool:
    match = _FOLD.fullmatch(text)
    number, count = map(int, match.groups()) if match else (1, 0)
    return number <= count and 2 <= count <= MOST_FOLDS


@dataclass(frozen=True)
class ReplicaOptions:
    """Options of all strategies with replicas."""

    replicas: int = option(
        1,
        "copies of the model that learn side by side, each from its own part of a round's rows",
        up_to(MOST_REPLICAS, "a number from 1 to {:,}"),
    )


@dataclass(frozen=True)
class LocalOptions(ReplicaOptions):
    """Options of strategies whose replicas take local steps."""

    local_steps: int = option(
        1,
        "steps that a replica takes in a round, of its part of --batch-size rows each",
        up_to(MOST_LOCAL_STEPS, "a number from 1 to {:,}"),
    )


@dataclass(frozen=True)
class AveragingOptions(LocalOptions):
    """Options of :class:`mapreduce.strategies.averaging.averaging.Averaging`."""

    replica_state: str = option(
        "average",
        "what becomes of the optimizer's state of the replicas after a round",
        choices=("average", "keep"),
    )
    elastic: float | None = option(
        None,
        "share of the way that each replica and the model move towards each other after a round, "
        "instead of becoming equal (elastic averaging)",
        Bound("a number above 0, and at most 1 / --replicas", lambda number: 0 < number <= 1),
    )
    combine: str = option(
        "mean",
        "how the updates of the replicas become one: their mean, or adasum, which adds the parts "
        "in which they differ",
        choices=("mean", "adasum"),
    )
    compress: str | None = option(
        None,
        "how replicas send their updates in fewer bytes: fp16, onebit, or topk:RATIO such as "
        "topk:0.001; what a round leaves out is sent later",
    )


@dataclass(frozen=True)
class TournamentOptions(LocalOptions):
    """Options of :class:`mapreduce.strategies.tournament.tournament.Tournament`."""

    held_out: int | None = option(
        None,
        "number of rows that are never trained on, on which the model is evaluated, or the "
        "replicas of a tournament compete (default for tournament: 5 % of the rows)",
        Bound("a number of rows", is_count),
    )
    fold: str | None = option(
        None,
        "K/N, such as 1/5: instead of --held-out, hold out part K of N parts of the data",
        Bound(f"K/N with N from 2 to {MOST_FOLDS:,}, and K from 1 to N", _is_fold),
        metavar="K/N",
    )
    spread: float = option(
        1.0,
        "the learning rates of the replicas of a tournament lie between --learning-rate / SPREAD "
        "and --learning-rate * SPREAD",
        Bound("a finite number from 1 on", lambda number: 1 <= number < math.inf),
    )


@dataclass(frozen=True)
class DownpourOptions(ReplicaOptions):
    """Options of :class:`mapreduce.strategies.downpour.downpour.Downpour`."""

    staleness: int | None = option(
        None,
        "with --strategy downpour, most gradients that are applied after a replica has read the "
        "model and before its own gradient is (default: --replicas - 1, which is the least; with "
        "--asynchronous no limit, and the least is 0)",
        Bound(
            f"a number from 0 to {MOST_STALENESS:,}", lambda number: 0 <= number <= MOST_STALENESS
        ),
    )
    asynchronous: bool = option(
        False,
        "with --strategy downpour, apply gradients in the order in which they arrive, so that no "
        "worker waits; gradreduce replay repeats such a run from its log",
    )
