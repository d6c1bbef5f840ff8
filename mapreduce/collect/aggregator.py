"""The contract of everything that a reducer adds up, and its members.

An aggregator is a commutative monoid with an entrance and an exit::

    finalize(combine(combine(lift(a), lift(b)), lift(c)))

``zero`` is its neutral element. ``combine(zero, x)`` returns ``x`` itself and not a sum, since
``0.0 + -0.0`` has other bits than ``-0.0``. What travels are sums and counts and never means:
``finalize`` divides, once.
"""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from kernels import dispatch
from mapreduce.wire import Message

Array = npt.NDArray[Any]

_add_into = dispatch.get("add_into")

Item = TypeVar("Item", contravariant=True)
Partial = TypeVar("Partial")
Result = TypeVar("Result", covariant=True)


class Aggregator(Protocol[Item, Partial, Result]):
    """``zero, lift, combine, finalize``, and the partial's form on the wire."""

    def zero(self) -> Partial:
        """The neutral element."""
        ...

    def lift(self, item: Item) -> Partial:
        """The partial result of one item."""
        ...

    def combine(self, left: Partial, right: Partial) -> Partial:
        """The partial result of both; may reuse the memory of either."""
        ...

    def finalize(self, partial: Partial) -> Result:
        """The result."""
        ...

    def to_message(self, partial: Partial) -> Message:
        """The partial as it travels."""
        ...

    def from_message(self, message: Message) -> Partial:
        """The partial that arrived; it may lie in memory that cannot be written."""
        ...


@dataclass
class VectorSum:
    """A sum of vectors over some rows, with the rows' number and the sum of their losses.

    Attributes
    ----------
    count : int
        Rows; 0 for the neutral element, whose vector is empty.
    loss : float
        Sum over the rows, in float64.
    vector : array (n,), float32 or float64
        Sum over the rows.
    """

    count: int
    loss: float
    vector: Array


class MeanAggregator:
    """Adds up gradients; ends with their mean over the rows, an array (n,)."""

    def zero(self) -> VectorSum:
        return VectorSum(0, 0.0, np.empty(0, np.float32))

    def lift(self, item: VectorSum) -> VectorSum:
        return item

    def combine(self, left: VectorSum, right: VectorSum) -> VectorSum:
        if left.count == 0:
            return right
        if right.count == 0:
            return left
        if not left.vector.flags.writeable:
            # What arrived is a view of the record; the sum needs memory of its own.
            left = VectorSum(left.count, left.loss, left.vector.copy())
        vector = _add_into(left.vector, right.vector)
        return VectorSum(left.count + right.count, left.loss + right.loss, vector)

    def finalize(self, partial: VectorSum) -> Array:
        mean: Array = partial.vector / partial.count
        return mean

    def to_message(self, partial: VectorSum) -> Message:
        return Message(
            {"count": partial.count},
            {"loss": np.array(partial.loss), "vector": partial.vector},
        )

    def from_message(self, message: Message) -> VectorSum:
        vector = message.arrays["vector"]
        return VectorSum(message.meta["count"], float(message.arrays["loss"]), vector)
