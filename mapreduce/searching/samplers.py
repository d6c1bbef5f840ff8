"""What is tried: options of trials by their numbers, from a seed and, for some, earlier results."""

import numpy as np

from mapreduce.data import order
from mapreduce.errors import UsageError
from mapreduce.searching.space import Choice, Chosen, Dimension, Space

SAMPLERS = ("random", "grid")
#: Points of a grid, at most: all are put in an order.
MOST_POINTS = 1_000_000
#: The stream of :mod:`mapreduce.data.order` that a grid has.
_GRID = 1


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


def ask(sampler: str, space: Space, seed: int, numbers: range) -> list[dict[str, str]]:
    """The texts of the options of some trials."""
    if sampler == "grid":
        points = [*space.points()]
        drawn = order.permutation(seed, _GRID, len(points))[numbers.start : numbers.stop]
        return [points[at] for at in drawn]
    return [space.of(_random(space.dimensions(), seed, number)) for number in numbers]


def _random(dimensions: list[Dimension], seed: int, number: int) -> Chosen:
    """A point of which each dimension is drawn alone, by the seed and the trial's number."""
    bits = np.random.Philox(key=[seed, number]).random_raw(len(dimensions))
    shares = ((bits >> np.uint64(11)) * 2.0**-53).tolist()
    return {
        each.label: int(share * len(each.alternatives))
        if isinstance(each, Choice)
        else each.at(share)
        for each, share in zip(dimensions, shares, strict=True)
    }
