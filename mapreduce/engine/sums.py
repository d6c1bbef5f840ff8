"""Sums over units: any result that combines along the canonical tree.

A :class:`Sum` says what one unit contributes; a :class:`Monoid` says how contributions combine and
travel. The result has the same bits for any number of map tasks.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Layout, Pair, Phase, Program
from mapreduce.reduction.message import Message
from mapreduce.reduction.tree import Node, TreeFold

Partial = TypeVar("Partial")


@dataclass(frozen=True)
class Monoid(Generic[Partial]):
    """How the contributions of units combine, and how they travel.

    ``what``: Names the sum in an error.
    ``combine``: ``combine(left, right)`` of siblings.
    ``to_message``, ``from_message``: A contribution as a message, and back without any loss.
    """

    what: str
    combine: Callable[[Partial, Partial], Partial]
    to_message: Callable[[Partial], Message]
    from_message: Callable[[Message], Partial]

    def fold(self, leaves: int) -> TreeFold[Partial]:
        """Combines the contributions of ``leaves`` units."""
        return TreeFold(leaves, self.combine, self.what)

    def nodes(
        self, leaves: int, units: Iterable[int], lift: Callable[[int], Partial]
    ) -> Iterator[tuple[Node, Partial]]:
        """The largest complete nodes over some of the units, from left to right."""
        fold = self.fold(leaves)
        for leaf in units:
            fold.add(Node(0, leaf), lift(leaf))
        return fold.nodes()


class Sum(Program):
    """What all units contribute together, in one block."""

    MONOID: ClassVar[Monoid[Any]]

    @abstractmethod
    def lift(self, completed: int, unit: int) -> Any:
        """The contribution of a unit in the round after ``completed`` ones."""

    def finish(self, completed: int, total: Any) -> Message:
        """The block that a sum becomes: by default the sum itself."""
        return self.MONOID.to_message(total)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("total", 1),)

    def map(self, part: LeafRange) -> Iterator[Pair]:
        units = range(part.start, part.stop)
        lift = partial(self.lift, part.completed)
        for node, found in self.MONOID.nodes(self.units(part.completed), units, lift):
            message = self.MONOID.to_message(found)
            yield (0,), Message({**message.meta, "node": [*node]}, message.arrays)

    def total(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """The contributions of all units, combined."""
        fold = self.MONOID.fold(self.units(completed))
        for message in messages:
            found = self.MONOID.from_message(message)
            fold.receive(Node(*message.meta["node"]), found, message.digest or 0)
        yield key, self.finish(completed, fold.result())
