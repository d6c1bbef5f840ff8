"""The contract of everything that a reducer adds up, and its members.

An aggregator is a commutative monoid with an entrance and an exit::

    finalize(combine(combine(lift(a), lift(b)), lift(c)))

``zero`` is its neutral element. ``combine(zero, x)`` returns ``x`` itself and not a sum, since
``0.0 + -0.0`` has other bits than ``-0.0``. Sums and counts travel, and never means:
``finalize`` divides, once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from mapreduce.reduction.message import Message
from mapreduce.reduction.vectors import SparseVector, Vector, add, dense

Array = npt.NDArray[Any]

#: The extra sum that has an element for each parameter; it is cut into blocks as they are.
CURVATURE = "curvature"
#: Begins the name of an extra sum on the wire.
_EXTRA = "extra."

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
        """The partial as the message that travels."""
        ...

    def from_message(self, message: Message) -> Partial:
        """The partial of a message; it may lie in read-only memory."""
        ...


@dataclass
class VectorSum:
    """A sum of vectors over some rows, with the rows' number, weight and losses.

    Attributes
    ----------
    count : int
        Rows; 0 for the neutral element, whose vector is empty.
    weight : float
        Sum of the rows' weights, in float64: the count, if they have none.
    loss : float
        Sum over the rows, in float64.
    vector : array (n,), float32 or float64, or SparseVector
        Sum over the rows.
    extras : dict of str to array
        Other sums over the rows, by name; the same names in all sums of a round.
    """

    count: int
    weight: float
    loss: float
    vector: Vector
    extras: dict[str, Array] = field(default_factory=dict)

    @property
    def totals(self) -> tuple[int, float, float]:
        """Count, weight and loss."""
        return self.count, self.weight, self.loss


def pack_extras(extras: Mapping[str, Array]) -> dict[str, Array]:
    """Name extra sums or means as arrays of a message."""
    return {_EXTRA + name: array for name, array in extras.items()}


def unpack_extras(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Extract the extras of :func:`pack_extras` from a message's arrays."""
    return {name[len(_EXTRA) :]: arrays[name] for name in arrays if name.startswith(_EXTRA)}


class MeanAggregator:
    """Adds up gradients; ends with their weighted mean over the rows, an array (n,)."""

    def zero(self) -> VectorSum:
        return VectorSum(0, 0.0, 0.0, np.empty(0, np.float32))

    def lift(self, item: VectorSum) -> VectorSum:
        return item

    def combine(self, left: VectorSum, right: VectorSum) -> VectorSum:
        if left.count == 0:
            return right
        if right.count == 0:
            return left
        return VectorSum(
            left.count + right.count,
            left.weight + right.weight,
            left.loss + right.loss,
            add(left.vector, right.vector),
            {name: array + right.extras[name] for name, array in left.extras.items()},
        )

    def finalize(self, partial: VectorSum) -> Array:
        """The mean. Rows that all have the weight 0 have a gradient of 0."""
        mean: Array = dense(partial.vector) / (partial.weight or 1.0)
        return mean

    def to_message(self, partial: VectorSum) -> Message:
        arrays = {"sums": np.array([partial.weight, partial.loss])}
        meta = {"count": partial.count}
        vector = partial.vector
        if isinstance(vector, SparseVector):
            meta["size"] = vector.size
            arrays |= {"indices": vector.indices, "values": vector.values}
        else:
            arrays["vector"] = vector
        return Message(meta, arrays | pack_extras(partial.extras))

    def from_message(self, message: Message) -> VectorSum:
        arrays = message.arrays
        weight, loss = arrays["sums"].tolist()
        vector: Vector
        if "vector" in arrays:
            vector = arrays["vector"]
        else:
            vector = SparseVector(arrays["indices"], arrays["values"], message.meta["size"])
        return VectorSum(message.meta["count"], weight, loss, vector, unpack_extras(arrays))
