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

from mapreduce.collect.vectors import SparseVector, Vector, add
from mapreduce.wire import Message

Array = npt.NDArray[Any]

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
    curvature : array (n,), or None
        Sum over the rows of second derivatives, where they are asked for.
    """

    count: int
    weight: float
    loss: float
    vector: Vector
    curvature: Array | None = None


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
            self._add_curvatures(left.curvature, right.curvature),
        )

    def _add_curvatures(self, left: Array | None, right: Array | None) -> Array | None:
        # Once in a training: no memory is used again.
        return None if left is None or right is None else left + right

    def finalize(self, partial: VectorSum) -> Array:
        """The mean. Rows that all have the weight 0 have a gradient of 0."""
        vector = partial.vector
        dense = vector.to_dense() if isinstance(vector, SparseVector) else vector
        mean: Array = dense / (partial.weight or 1.0)
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
        if partial.curvature is not None:
            arrays["curvature"] = partial.curvature
        return Message(meta, arrays)

    def from_message(self, message: Message) -> VectorSum:
        arrays = message.arrays
        weight, loss = arrays["sums"].tolist()
        vector: Vector
        if "vector" in arrays:
            vector = arrays["vector"]
        else:
            vector = SparseVector(arrays["indices"], arrays["values"], message.meta["size"])
        return VectorSum(message.meta["count"], weight, loss, vector, arrays.get("curvature"))
