"""When pushes are applied, and which version of the model each was computed at.

With real servers both depend on who is fast. Here they are drawn by the plan's seed, so that every
execution of a plan has the same ones.
"""

from typing import NamedTuple

from mapreduce.data import order
from mapreduce.plan.plan import Plan
from mapreduce.strategies import replicas

#: Streams of random keys for each round; those of the epochs are small numbers.
_ORDERS, _BASES = 1 << 62, 1 << 63


class Push(NamedTuple):
    """A replica's gradient, which makes a version of the model from the one before.

    That is ``position``, the number of applications before; ``base`` is where it was computed.
    """

    replica: int
    position: int
    base: int


def begin(plan: Plan, completed: int) -> int:
    """The version after some rounds: each counts one application for every replica.

    A round with too few slices for all replicas has fewer pushes. The others change nothing.
    """
    return completed * plan.replicas


def pushes(plan: Plan, completed: int) -> list[Push]:
    """The pushes of the round after ``completed`` ones, in the order in which they are applied.

    The order is a permutation of the replicas. The base is drawn from the versions that exist when
    the round begins and are at most ``plan.staleness`` applications old when the push is applied.
    """
    assert plan.staleness is not None
    newest, count = begin(plan, completed), replicas.count(plan, completed)
    turns = order.permutation(plan.seed, _ORDERS + completed, count).tolist()
    draws = order.keys(plan.seed, _BASES + completed, 0, count).tolist()
    found = []
    for position, (replica, draw) in enumerate(zip(turns, draws, strict=True), newest):
        oldest = max(0, position - plan.staleness)
        found.append(Push(replica, position, oldest + draw % (newest - oldest + 1)))
    return found
