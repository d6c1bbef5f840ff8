"""How long a unit takes a rank, and how a gang divides units among ranks by that."""

from typing import Any

import numpy as np

from mapreduce.engine.leaf_ranges import EVEN, Split, shares
from mapreduce.timing.figures import Array, Rounds

#: How much longer than those of others the units of a slow rank take.
SLOW = 1.15

#: Ranks whose speeds differ by a larger part get different numbers of units.
_UNLIKE = 0.4

#: Seconds that a thread without a processor waits for one: of maps that are shorter, the median one
#: has not waited.
_TURN = 3e-3


def per_unit(rounds: Rounds) -> Any:
    """Seconds of a unit, by rank and round; nan without units."""
    return rounds.load / np.where(rounds.units > 0, rounds.units, np.nan)


def ratio_of(rounds: Rounds, free: Array) -> Any:
    """How many times as long as with others a unit takes a rank, while it has a processor."""
    return _ratio(speed_of(rounds) * np.where(is_short(rounds), 1.0, free))


def is_short(rounds: Rounds) -> Any:
    """Whether the maps of a rank are so short that most of them did not wait for a processor."""
    return np.array([median(each[each > 0], 0.0) for each in rounds.load]) < _TURN


def speed_of(rounds: Rounds) -> Any:
    """The median seconds of a unit, by rank; nan for ranks without units."""
    return np.array([median(one, np.nan) for one in per_unit(rounds)])


def median(values: Array, default: float = 1e-9) -> float:
    """Of values that are finite."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else default


def with_maps(rounds: Rounds, per_unit: Array, units: Array) -> tuple[Any, Any, Any]:
    """What :meth:`Rounds.with_all` returns, had each rank so many units, and had a unit taken so
    long; nan: the median."""
    typical = median(per_unit)
    work, transfer, senders = rounds.with_all()
    work = work.sum(1) - rounds.of("map", "read").sum(1)
    work[0] += units * np.where(np.isfinite(per_unit), per_unit, typical)
    return work, transfer, senders


def units_by_speed(rounds: Rounds, speed: Any) -> Any:
    """The units of each rank and round, as a gang divides them among ranks of some speeds."""
    known = np.where(np.isfinite(speed), speed, median(speed))
    split = EVEN if np.ptp(known) <= _UNLIKE * known.min() else Split(tuple(1 / known))
    parts = [shares(int(units), len(known), split) for units in rounds.units.sum(0)]
    return np.array([[stop - start for start, stop in one] for one in parts], float).T


def _ratio(speed: Array) -> Any:
    """How many times as long as with the faster half of the ranks a unit takes; 1 if unknown."""
    known = np.isfinite(speed)
    base = np.median(speed[known & (speed <= np.median(speed[known]))]) if known.any() else 1.0
    return np.where(known, speed, base) / base


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
