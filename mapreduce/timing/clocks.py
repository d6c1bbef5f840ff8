"""One clock for all ranks of a segment, from the messages of its rounds.

Nothing arrives before it was sent. So a message bounds the difference of two clocks from one side,
and one the other way from the other side. Between messages the difference changes by no more than
clocks drift. Messages that every round has, and no other, cost nothing.
"""

from collections.abc import Callable

import numpy as np

from mapreduce.runs.state import Array
from mapreduce.support.phases import EXCHANGE, MAP, SPREAD

#: How fast two clocks drift apart, in seconds by second: as far as NTP corrects one, and more where
#: bounds contradict each other.
_DRIFT = 5e-4


def differences(zero: Array, other: Array, at: Array) -> tuple[Array, Array]:
    """What is to be added to the clock of a rank for that of rank 0, and its error.

    Parameters
    ----------
    zero, other : array of EVENT
        Of rank 0 and of the other rank, by start.
    at : array of int
        Nanoseconds of the other rank's clock.

    Returns
    -------
    difference, error : array of float
        Nanoseconds. Without a message each way the error is infinite.
    """
    most, least = _bounds(zero, other)
    if not len(most) or not len(least):
        return np.zeros(len(at)), np.full(len(at), np.inf)
    # Small numbers, so that no digits are lost.
    first, middle = int(other["start"][0]), int(most[0, 1])
    most, least = (np.array(each - (first, middle), float) for each in (most, least))
    drift, times = _DRIFT, np.concatenate([most[:, 0], least[:, 0]])
    while True:
        upper = _cone(most[:, 0], most[:, 1], drift)
        lower = _cone(least[:, 0], -least[:, 1], drift)
        if drift > 1 or (upper(times) + lower(times) >= 0).all():
            break
        drift *= 2
    above, below = upper(at - first), -lower(at - first)
    # A microsecond is for rounding.
    return middle + (above + below) / 2, np.abs(above - below) / 2 + 1e3


def _bounds(zero: Array, other: Array) -> tuple[Array, Array]:
    """Upper and lower bounds of the difference: times of the other rank, and nanoseconds."""
    # A rank without units sends nothing.
    mapped = other["round"][(other["code"] == MAP) & (other["depth"] == 1)]
    most, least = [], []
    for code, depth in ((EXCHANGE, 1), (SPREAD, 1), (EXCHANGE, 2), (EXCHANGE, 0)):
        here, there = (_first(events, code, depth) for events in (zero, other))
        _, a, b = np.intersect1d(here["round"], there["round"], return_indices=True)
        here, there = here[a], there[b]
        if depth != 1 or code == EXCHANGE:
            sends = np.isin(there["round"], mapped) | (depth != 1)
            most.append(np.stack([there["start"], here["stop"] - there["start"]], 1)[sends])
        if depth != 1 or code == SPREAD:
            least.append(np.stack([there["stop"], here["start"] - there["stop"]], 1))
    return np.concatenate(most), np.concatenate(least)


def _first(events: Array, code: int, depth: int) -> Array:
    """The first exchange of each round; in front of the rounds all ranks meet once."""
    some = events[(events["code"] == code) & (events["depth"] == depth)]
    if depth == 2:
        some = some[some["round"] == 0]
    first: Array = some[np.unique(some["round"], return_index=True)[1]]
    return first


def _cone(times: Array, values: Array, drift: float) -> Callable[[Array], Array]:
    """The least that some bounds allow at other times, if they change by no more than a drift."""
    order = np.argsort(times)
    times, values = times[order], values[order]
    before = np.minimum.accumulate([np.inf, *(values - drift * times)])
    after = np.minimum.accumulate([np.inf, *(values + drift * times)[::-1]])[::-1]

    def at(now: Array) -> Array:
        place = np.searchsorted(times, now)
        least: Array = np.minimum(before[place] + drift * now, after[place] - drift * now)
        return least

    return at
