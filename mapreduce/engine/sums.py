"""Sums over units: any result that combines along the canonical tree, or in any order.

A :class:`Sum` says what one unit contributes; a :class:`Monoid` says how contributions combine and
travel. The result has the same bits for any number of map tasks. That of an :class:`ExactSum`,
whose contributions are whole numbers, has the same bits for any order of the rows, too.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from mapreduce.engine.program import Key, Layout, Pair, Phase, Program, Round, Stateful
from mapreduce.engine.state import Array
from mapreduce.errors import MemberError, UsageError
from mapreduce.reduction.message import Message
from mapreduce.reduction.ranges import RangeFold
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.support.suggest import did_you_mean

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
    """What all units contribute together, in one block.

    :attr:`MONOID` says how to add contributions. They are added along one tree, so the result has
    the same bits for any number of tasks. But if the rows are shuffled, a sum of floats may have
    other bits; see :class:`ExactSum`.
    """

    MONOID: ClassVar[Monoid[Any]]

    @abstractmethod
    def lift(self, now: Round, unit: int) -> Any:
        """The contribution of a unit."""

    def finish(self, now: Round, total: Any) -> Message:
        """The block that a sum becomes: by default the sum itself."""
        return self.MONOID.to_message(total)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("total", 1),)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        lift = partial(self.lift, now)
        for node, found in self.MONOID.nodes(self.units(now.completed), units, lift):
            message = self.MONOID.to_message(found)
            yield (0,), Message({**message.meta, "node": [*node]}, message.arrays)

    def total(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """The contributions of all units, combined."""
        fold = self.MONOID.fold(self.units(now.completed))
        for message in messages:
            found = self.MONOID.from_message(message)
            fold.receive(Node(*message.meta["node"]), found, message.digest or 0)
        yield key, self.finish(now, fold.result())


#: Sums of integers stay below 2**62 in magnitude.
SUM_BITS = 62

Arrays = Mapping[str, Array]


def bits_for(terms: int, most: int) -> int:
    """Bits of the whole numbers of which a sum of so many terms does not overflow, at most some.

    Raises UsageError (not even eight are left).
    """
    bits = min(most, SUM_BITS - terms.bit_length())
    if bits < 8:
        raise UsageError(f"expected fewer than 2**{SUM_BITS - 8} terms of a sum, found {terms}")
    return bits


class ExactSum(Program):
    """Named arrays of all units, combined in any order: sums of integers, maxima and the like.

    A task sends one message for all of its units to each block. A subclass says what a unit
    contributes, and what the total becomes.

    Before you add numbers, round each to a multiple of a constant, and never round the sum. No sum
    may reach 2**63: with 10 million rows, for example, sums of squares stay below 2**63 if the
    integers are within ±2**19. The function ``bits_for`` of this module chooses the size of the
    integers. If nobody knows the range of the numbers, let a first round find the largest number of
    each column. This number gives the factor that turns the column into integers:
    ``mapreduce/algorithms/gram.py`` is an example.

    Arrays whose names are in :attr:`LARGEST` are not added up. With ``LARGEST = {"most"}``, the
    result ``most`` is the maximum over all units, and may hold floats. To combine arrays in another
    way, write a method :meth:`combine`.
    """

    #: Names of the arrays of which the largest elements count, and not their sums.
    LARGEST: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def lift(self, now: Round, unit: int) -> Arrays:
        """The contribution of a unit: int64 arrays, or numbers, by name.

        Names and shapes are the same for all units of a round. Use floats only to round them.
        """

    def combine(self, now: Round, left: Arrays, right: Arrays) -> Arrays:
        """The contribution of both: by default sums, and the largest of :attr:`LARGEST`.

        The result has the same bits in any order and any grouping of the units.
        """
        found = {}
        for name in left:
            is_largest = name in self.LARGEST
            both = np.maximum if is_largest else np.add
            if not is_largest and left[name].dtype != np.int64:
                raise MemberError(
                    f"the program {self.name}: {name!r} is an array of {left[name].dtype}: "
                    f"expected int64, since sums of floats depend on their order, and smaller "
                    f"integers overflow. Name it in LARGEST, or take a mapreduce.parts.Sum"
                )
            if left[name].shape != right[name].shape:
                raise MemberError(
                    f"the program {self.name}: expected that lift returns {name!r} in one shape "
                    f"for all units, found {left[name].shape} and {right[name].shape}"
                )
            found[name] = np.asarray(both(left[name], right[name]))
        return found

    def cut(self, arrays: Arrays, number: int, blocks: int) -> Arrays:
        """The part of a contribution that goes to a block: by default some rows of each array, and
        all of a single number.
        """
        if blocks == 1:
            return arrays
        found = {}
        for name, array in arrays.items():
            edges = (len(array) * edge // blocks for edge in (number, number + 1) if array.ndim)
            found[name] = array[slice(*edges)] if array.ndim else array
        return found

    def finish(self, now: Round, number: int, total: Arrays) -> Arrays:
        """The arrays of a block: by default its part of the total itself.

        ``number``: The number of the block, 0 without :class:`mapreduce.parts.InBlocks`. The method
        may compute with floats.
        """
        return total

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("total", layout.blocks),)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        found = reduce(partial(self.combine, now), (self._lifted(now, unit) for unit in units))
        for number in range(now.layout.blocks):
            arrays = self.cut(found, number, now.layout.blocks)
            yield (number,), Message({"units": [units.start, units.stop]}, arrays)

    def total(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """The contributions of all units, combined."""
        combine, what = partial(self.combine, now), f"the program {self.name}"
        fold = RangeFold[Arrays](self.units(now.completed), combine, what)
        for message in messages:
            start, stop = message.meta["units"]
            fold.receive(start, stop, message.arrays, message.digest or 0)
        block = self._arrays("finish", self.finish(now, key[0], fold.result()))
        yield key, Message({}, block)

    def _lifted(self, now: Round, unit: int) -> Arrays:
        """The contribution of a unit; refuses names of :attr:`LARGEST` that it has not.

        Another round may have other arrays: then none of the names is there.
        """
        found = self._arrays("lift", self.lift(now, unit))
        unknown = sorted(self.LARGEST - found.keys())
        has_one_round = not isinstance(self, Stateful) or self.most_rounds() == 1
        if unknown and (has_one_round or len(unknown) < len(self.LARGEST)):
            raise MemberError(
                f"the program {self.name} names {unknown[0]!r} in LARGEST: expected names of "
                f"arrays that lift returns, {', '.join(found)}.{did_you_mean(unknown[0], found)}"
            )
        return found

    def _arrays(self, method: str, result: Any) -> Arrays:
        """The result of a method of one's own, in which a number may stand for an array."""
        if not isinstance(result, Mapping):
            raise MemberError(
                f"the program {self.name}: expected that {method} returns a dictionary of arrays, "
                f"found {result!r:.60}"
            )
        return {name: np.asarray(array) for name, array in result.items()}
