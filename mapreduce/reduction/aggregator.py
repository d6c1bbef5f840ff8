"""The partial results that reducers add up. Sums and counts travel, never means."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.moments import merge
from mapreduce.reduction.vectors import SparseVector, Vector, add, dense

#: The extra sum that has an element for each parameter; it is cut into blocks as they are.
CURVATURE = "curvature"
#: Begins the names of other such extras: sums of the state that replicas have.
STATE = "state."
#: Begins the names of extras that are moments: arrays (1 + 2 n,) of float64, the number of values,
#: n means, and n sums of squared differences from them. They are merged and never divided.
MOMENTS = "moments."
#: Begins the name of an extra sum on the wire.
_EXTRA = "extra."


@dataclass
class VectorSum:
    """A sum of vectors over some rows, with the rows' number, weight and losses.

    Attributes
    ----------
    count : int
        Rows.
    weight : float
        Sum of the rows' weights, in float64: the count, if they have none.
    loss : float
        Sum over the rows, in float64.
    vector : array (n,), float32 or float64, or SparseVector
        Sum over the rows.
    extras : dict of str to array
        Other sums over the rows, and :data:`MOMENTS`, by name; the same names in all sums of a
        round.
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

    def mean(self) -> Array:
        """The weighted mean of the vectors. Rows that all have the weight 0 have a mean of 0."""
        mean: Array = dense(self.vector) / (self.weight or 1.0)
        return mean

    def to_message(self) -> Message:
        """The sum as it travels."""
        arrays = {"sums": np.array([self.weight, self.loss])}
        meta = {"count": self.count}
        vector = self.vector
        if isinstance(vector, SparseVector):
            meta["size"] = vector.size
            arrays |= {"indices": vector.indices, "values": vector.values}
        else:
            arrays["vector"] = vector
        arrays |= {_EXTRA + name: array for name, array in self.extras.items()}
        return Message(meta, arrays)

    @classmethod
    def from_message(cls, message: Message) -> "VectorSum":
        """The sum of :meth:`to_message`; its arrays may be read-only."""
        arrays = message.arrays
        weight, loss = arrays["sums"].tolist()
        vector: Vector
        if "vector" in arrays:
            vector = arrays["vector"]
        else:
            vector = SparseVector(arrays["indices"], arrays["values"], message.meta["size"])
        extras = {name[len(_EXTRA) :]: arrays[name] for name in arrays if name.startswith(_EXTRA)}
        return cls(message.meta["count"], weight, loss, vector, extras)


def is_elementwise(name: str) -> bool:
    """Whether an extra has an element for each parameter, and is cut into blocks as they are."""
    return name == CURVATURE or name.startswith(STATE)


def combine(left: VectorSum, right: VectorSum) -> VectorSum:
    """The sum of two sums; it may reuse the memory of either."""
    return VectorSum(
        left.count + right.count,
        left.weight + right.weight,
        left.loss + right.loss,
        add(left.vector, right.vector),
        {
            name: (merge_moments if name.startswith(MOMENTS) else np.add)(array, right.extras[name])
            for name, array in left.extras.items()
        },
    )


def join_parts(parts: Sequence[VectorSum]) -> VectorSum:
    """The sum over the same rows whose vector and extras lie in parts, in their order."""
    vectors = [dense(part.vector) for part in parts if len(part.vector)]
    whole = vectors[0] if len(vectors) == 1 else np.concatenate([part.vector for part in parts])
    extras = {name: array for part in parts for name, array in part.extras.items()}
    return VectorSum(*parts[0].totals, whole, extras)


def moments(count: float, mean: Array, squares: Array) -> Array:
    """Moments, as :data:`MOMENTS` has them, of n kinds of values."""
    return np.concatenate([[float(count)], mean, squares])


def merge_moments(left: Array, right: Array) -> Array:
    """The moments of the values of both. A layer that is not used has no values."""
    n = len(left) // 2
    parts = [(float(part[0]), part[1 : 1 + n], part[1 + n :]) for part in (left, right)]
    count, mean, squares = merge(*parts)
    return moments(count, mean, squares)
