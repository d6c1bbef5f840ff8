"""Who competes with whom in a round of a tournament, and who wins."""

import math
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from mapreduce.data import order
from mapreduce.plan.plan import Plan

#: The first of the streams of :mod:`mapreduce.data.order` that draw opponents, one for each round.
_PAIRS = 1 << 60


class Decision(NamedTuple):
    """The results of a round, as numbers of replicas; ``best`` has the lowest loss of all."""

    best: int
    winners: tuple[int, ...]
    losers: tuple[int, ...]

    def origin(self, replica: int) -> int:
        """The replica whose parameters and state a replica goes on from: its own or another's."""
        if replica in self.losers:
            return self.winners[self.losers.index(replica)]
        return replica


def pairs(plan: Plan, completed: int, replicas: int) -> list[tuple[int, int]]:
    """The opponents in the round after ``completed`` ones; of an odd number one has no match."""
    drawn = order.permutation(plan.seed, _PAIRS + completed, replicas).tolist()
    return [*zip(islice(drawn, 0, None, 2), islice(drawn, 1, None, 2), strict=False)]


def rank(loss: float, replica: int) -> tuple[float, int]:
    """What the better of two replicas has less of: losses that are not finite come last."""
    return loss if math.isfinite(loss) else math.inf, replica


def decide(plan: Plan, completed: int, losses: Mapping[int, float]) -> Decision:
    """The results of a round, by the held-out loss of each replica that took part.

    Replicas have the numbers from 0 on. If two have the same loss, the lower number wins.
    """

    def key(replica: int) -> tuple[float, int]:
        return rank(losses[replica], replica)

    drawn = pairs(plan, completed, len(losses))
    winners, losers = (tuple(how(pair, key=key) for pair in drawn) for how in (min, max))
    return Decision(min(losses, key=key), winners, losers)


def factors(plan: Plan) -> list[float] | None:
    """Multiples of the learning rate of each replica, a geometric series; None if all are 1.

    They are rounded to six digits, since powers of the platforms' libraries differ in the last.
    """
    if plan.spread == 1:
        return None
    steps = max(1, plan.replicas - 1)
    powers = (plan.spread ** (2 * replica / steps - 1) for replica in range(plan.replicas))
    return [float(f"{power:.6g}") for power in powers]
