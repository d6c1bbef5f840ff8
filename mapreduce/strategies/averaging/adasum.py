"""Adasum: updates of two replicas are added where they differ, and averaged where they agree.

``adasum(a, b) = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b``: the sum of orthogonal updates
and the mean of equal ones (S. Maleki et al., Scaling Distributed Training with Adaptive Summation,
2021). Updates of more replicas are combined in pairs, along the canonical tree over the replicas:
there may be any number. An update of norm 0 adds nothing.

The products are those of whole vectors. With several blocks each block adds up its own pages'
products and sends them to all blocks, which add them along the tree over all pages; that is a phase
for each level.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from mapreduce.engine.program import Key, Pair
from mapreduce.errors import ConflictingNodesError, MissingNodesError
from mapreduce.optim.contract import PAGE
from mapreduce.reduction.aggregator import VectorSum, combine
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node, TreeFold, root
from mapreduce.reduction.vectors import dense


def levels(units: int) -> int:
    """Levels of the tree over some replicas."""
    return root(units).level


def adasum(left: Array, right: Array, products: Array) -> Array:
    """Combine two updates (n,), of which ``products`` are a.b, a.a and b.b of the whole vectors."""
    both, first, second = products.tolist()
    shares = (1 - both / (2 * norm) if norm else 1.0 for norm in (first, second))
    kinds = left.dtype.type
    a, b = (kinds(share) for share in shares)
    combined: Array = a * left + b * right
    return combined


class Adasum:
    """The sums of updates of some size, for a block or for all."""

    def __init__(self, size: int, blocks: int) -> None:
        self._pages = -(-size // PAGE)
        self._blocks = blocks

    def combine(self, left: VectorSum, right: VectorSum) -> VectorSum:
        """Combine two whole updates; rows, losses and extras are added up."""
        return _combined(left, right, self._products(left, right, 0).result())

    def compare(
        self, completed: int, key: Key, messages: Iterable[Message], start: int
    ) -> Iterator[Pair]:
        """Combine a level of a block's tree, and send the next level's products to all blocks."""
        nodes = self._level(completed, key[0], messages)
        for node, partial in nodes.items():
            sent = partial.to_message()
            yield key, Message({**sent.meta, "node": [*node]}, sent.arrays)
        for node, left in nodes.items():
            right = nodes.get(Node(node.level, node.number + 1))
            if node.number % 2 or right is None:
                continue
            for page, sums in self._products(left, right, start // PAGE).nodes():
                meta = {"pair": [node.level + 1, node.number // 2], "page": [*page]}
                for block in range(self._blocks):
                    yield (block,), Message(meta, {"products": sums})

    def result(self, completed: int, key: Key, messages: Iterable[Message]) -> VectorSum:
        """The combined update of a block, from the messages of the last :meth:`compare`."""
        nodes = self._level(completed, key[0], messages)
        if len(nodes) != 1:
            raise MissingNodesError(
                f"round {completed}, block {key[0]}: updates of replicas are missing; found "
                f"nodes {sorted(nodes)}, expected one"
            )
        return nodes.popitem()[1]

    def _level(
        self, completed: int, number: int, messages: Iterable[Message]
    ) -> dict[Node, VectorSum]:
        """The nodes of a level, combined to those of the next if their products have come."""
        what = f"round {completed}, block {number}"
        found: dict[Node, tuple[Message, VectorSum]] = {}
        folds: dict[Node, TreeFold[Array]] = {}
        for message in messages:
            if "pair" in message.meta:
                pair = Node(*message.meta["pair"])
                fold = folds.setdefault(pair, TreeFold(self._pages, np.add, f"{what}, products"))
                page = Node(*message.meta["page"])
                fold.receive(page, message.arrays["products"], message.digest or 0)
            elif "node" in message.meta:
                node = Node(*message.meta["node"])
                if node in found and found[node][0].digest != message.digest:
                    raise ConflictingNodesError(
                        f"{what}: two different updates of node {[*node]} arrived; a repeated task "
                        f"must give the same bytes"
                    )
                found[node] = message, VectorSum.from_message(message)
        nodes = {node: found[node][1] for node in sorted(found)}
        if not folds:
            return nodes
        above: dict[Node, VectorSum] = {}
        for node, partial in nodes.items():
            parent = Node(node.level + 1, node.number >> 1)
            if parent not in above:
                above[parent] = partial
            else:
                above[parent] = _combined(above[parent], partial, folds[parent].result())
        return above

    def _products(self, left: VectorSum, right: VectorSum, first: int) -> TreeFold[Array]:
        """The products of two updates that begin with page ``first``, along the tree over pages."""
        fold: TreeFold[Array] = TreeFold(self._pages, np.add, "the products")
        a, b = dense(left.vector), dense(right.vector)
        for page, start in enumerate(range(0, len(a), PAGE), first):
            one, other = (each[start : start + PAGE].astype(np.float64) for each in (a, b))
            fold.add(Node(0, page), np.array([one @ other, one @ one, other @ other]))
        return fold


def _combined(left: VectorSum, right: VectorSum, products: Array) -> VectorSum:
    vector = adasum(dense(left.vector), dense(right.vector), products)
    empty = np.empty(0, vector.dtype)
    rest = (VectorSum(one.count, one.weight, one.loss, empty, one.extras) for one in (left, right))
    total = combine(*rest)
    total.vector = vector
    return total
