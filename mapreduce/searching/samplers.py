"""What is tried: options of trials by their numbers, from a seed and, for some, earlier results."""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mapreduce.data import order
from mapreduce.errors import UsageError
from mapreduce.searching.space import Choice, Dimension, Space
from mapreduce.support.suggest import did_you_mean

#: Points of a grid, at most: all are put in an order.
MOST_POINTS = 1_000_000
#: The stream of :mod:`mapreduce.data.order` that a grid has.
_GRID = 1
#: Samplers that read no results.
BLIND = ("random", "grid")
#: Names of optuna's samplers that are shorter than their classes.
_SHORT = {"tpe": "TPESampler"}

#: What is chosen: a number of a range, or the number of an alternative, by the labels.
Chosen = Mapping[str, float | int]


class Scored(NamedTuple):
    """An earlier trial; its ``score``, lower is better, is None if it failed."""

    chosen: Chosen
    score: float | None


class Draw(NamedTuple):
    """The texts of a trial's options, and what was chosen for them."""

    options: dict[str, str]
    chosen: Chosen


def version(sampler: str) -> str:
    """The version of what draws.

    Raises UsageError (there is no such sampler, or no optuna).
    """
    if sampler in BLIND:
        return "1"
    _created(sampler, 0)
    return f"optuna {_optuna().__version__}"


def size(sampler: str, space: Space) -> int | None:
    """How many trials there are; None if there is no end.

    Raises UsageError (a grid has a range, or too many points).
    """
    if sampler != "grid":
        return None
    points = space.size()
    if points > MOST_POINTS:
        raise UsageError(
            f"--sampler grid: expected at most {MOST_POINTS:,} points, found {points:,}. Take "
            f"--sampler random, or fewer alternatives"
        )
    return points


def ask(
    sampler: str, space: Space, seed: int, numbers: range, earlier: Sequence[Scored] = ()
) -> list[Draw]:
    """Some trials, by the scores of all earlier ones, in the order of their numbers."""
    if sampler == "grid":
        points = [*space.points()]
        drawn = order.permutation(seed, _GRID, len(points))[numbers.start : numbers.stop]
        return [Draw(points[at], {}) for at in drawn]
    if sampler == "random":
        return [_draw(space, _random(space.dimensions(), seed, number)) for number in numbers]
    digest = hashlib.sha256(f"{seed}.{numbers.start}".encode()).digest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _asked(_created(sampler, int.from_bytes(digest[:4])), space, len(numbers), earlier)


def _draw(space: Space, choose: Callable[[Dimension], float | int]) -> Draw:
    """A trial, of which only what its alternatives hold is chosen."""
    chosen: dict[str, float | int] = {}

    def note(each: Dimension) -> float | int:
        chosen[each.label] = choose(each)
        return chosen[each.label]

    return Draw(space.fill(note), chosen)


def _random(dimensions: list[Dimension], seed: int, number: int) -> Callable[[Dimension], float]:
    """Draws each dimension alone, by the seed and the trial's number."""
    bits = np.random.Philox(key=[seed, number]).random_raw(len(dimensions))
    drawn = ((bits >> np.uint64(11)) * 2.0**-53).tolist()
    shares = {each.label: share for each, share in zip(dimensions, drawn, strict=True)}

    def choose(each: Dimension) -> float:
        share = shares[each.label]
        return int(share * len(each.alternatives)) if isinstance(each, Choice) else each.at(share)

    return choose


# By optuna, in memory: a new study for each generation, which is told all trials before it


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            f"--sampler: samplers other than {' and '.join(BLIND)} need optuna ({error}). Install "
            f"it: pip install 'gradreduce[search]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _created(sampler: str, seed: int) -> Any:
    known = _optuna().samplers
    classes = [name for name in known.__all__ if name.endswith("Sampler") and name[:4] != "Base"]
    names = [*BLIND, *_SHORT, *classes]
    if sampler not in names:
        raise UsageError(
            f"--sampler: expected one of {', '.join(names)}, found {sampler!r:.60}."
            f"{did_you_mean(sampler, names)}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(known, _SHORT.get(sampler, sampler))(seed=seed)
    except (TypeError, ImportError) as error:
        raise UsageError(f"--sampler {sampler}: it cannot be used: {error}") from error


def _asked(sampler: Any, space: Space, count: int, earlier: Sequence[Scored]) -> list[Draw]:
    optuna = _optuna()
    study = optuna.create_study(sampler=sampler)
    known = {each.label: _distribution(each) for each in space.dimensions()}
    states = optuna.trial.TrialState
    for each in earlier:
        trial = optuna.trial.create_trial(
            state=states.FAIL if each.score is None else states.COMPLETE,
            value=each.score,
            params=dict(each.chosen),
            distributions={label: known[label] for label in each.chosen},
        )
        study.add_trial(trial)
    return [_draw(space, partial(_suggested, study.ask())) for _ in range(count)]


def _suggested(trial: Any, each: Dimension) -> float | int:
    if isinstance(each, Choice):
        number: int = trial.suggest_categorical(each.label, [*range(len(each.alternatives))])
        return number
    if each.is_whole:
        return each.rounded(
            trial.suggest_int(each.label, int(each.low), int(each.high), log=each.is_log)
        )
    return each.rounded(trial.suggest_float(each.label, each.low, each.high, log=each.is_log))


def _distribution(each: Dimension) -> Any:
    kinds = _optuna().distributions
    if isinstance(each, Choice):
        return kinds.CategoricalDistribution([*range(len(each.alternatives))])
    if each.is_whole:
        return kinds.IntDistribution(int(each.low), int(each.high), log=each.is_log)
    return kinds.FloatDistribution(each.low, each.high, log=each.is_log)
