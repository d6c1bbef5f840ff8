"""The canonical tree: one order of additions, however the work was divided.

The ``n`` slices of a round are the leaves of one binary tree. Node ``(level, number)`` covers
the leaves ``number * 2**level`` up to ``(number + 1) * 2**level``, cut off at ``n``; its children
are ``(level - 1, 2 * number)`` and ``(level - 1, 2 * number + 1)``. Where the right child would be
beyond ``n`` the node *is* its left child: there are no padding leaves, and nothing is added.

Only siblings are combined, the left one on the left. So the root is the same sequence of additions
whether one process adds everything or many add parts of it in any order, and floating-point sums
have the same bits.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from mapreduce.errors import ConflictingNodesError, MissingNodesError

Partial = TypeVar("Partial")

#: Elements of the flat parameter vector that are never divided between two blocks, and over which
#: scalars are added up first.
PAGE = 16_384


class Node(NamedTuple):
    """A place in the canonical tree."""

    level: int
    number: int

    @property
    def start(self) -> int:
        """The first leaf covered."""
        return self.number << self.level

    @property
    def stop(self) -> int:
        """The leaf after the last one covered in a complete tree."""
        return (self.number + 1) << self.level


def root(leaves: int) -> Node:
    """The node that covers ``leaves`` leaves."""
    return Node((leaves - 1).bit_length(), 0)


class Watcher(Protocol):
    """Observes the additions of folds, for ``explain``."""

    def received(self, fold: "TreeFold[Any]", node: Node, partial: Any) -> None:
        """Called when a fold takes in a node."""

    def combined(self, fold: "TreeFold[Any]", node: Node, partial: Any) -> None:
        """Called when a fold has added the two children of a node."""


#: The observer of the folds that are made in this context.
watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


class TreeFold(Generic[Partial]):
    """Combines partial results along the canonical tree, in any order of arrival.

    Parameters
    ----------
    leaves : int
        Number of leaves of the whole tree, at least 1.
    combine : callable
        ``combine(left, right)`` of two siblings.
    what : str
        The name of the sum in errors.

    Examples
    --------
    The sum of three leaves is the same in whatever order they come:

    >>> from operator import add
    >>> fold = TreeFold(3, add)
    >>> for leaf, value in [(2, "c"), (0, "a"), (1, "b")]:
    ...     fold.add(Node(0, leaf), value)
    >>> fold.result()
    'abc'
    """

    def __init__(
        self, leaves: int, combine: Callable[[Partial, Partial], Partial], what: str = "the sum"
    ) -> None:
        if leaves < 1:
            raise ValueError(f"a tree needs at least one leaf, not {leaves}")
        self.leaves = leaves
        self.root = root(leaves)
        self._combine = combine
        self._what = what
        self._pending: dict[Node, Partial] = {}
        self._digests: dict[Node, int] = {}
        self._ancestors: set[Node] = set()
        self._watcher = watcher.get()

    @classmethod
    def apart(
        cls, leaves: int, combine: Callable[[Partial, Partial], Partial], what: str = "the sum"
    ) -> "TreeFold[Partial]":
        """A fold that is not observed, since its sum is no part of the round's own."""
        fold = cls(leaves, combine, what)
        fold._watcher = None
        return fold

    def add(self, node: Node, partial: Partial) -> None:
        """Add the partial result of a node, which the fold may change.

        Raises
        ------
        ConflictingNodesError
            The node is outside of the tree, or has been added already.
        """
        level, number = node
        if not 0 <= level <= self.root.level or not 0 <= node.start < self.leaves:
            raise ConflictingNodesError(
                f"{self._what}: node ({level}, {number}) is outside of the tree of its "
                f"{self.leaves} slices"
            )
        if self._watcher is not None:
            self._watcher.received(self, node, partial)
        while level < self.root.level:
            is_right = number % 2
            if is_right or (number + 1) << level < self.leaves:
                other = self._pending.pop(Node(level, number ^ 1), None)
                if other is None:
                    break
                pair = (other, partial) if is_right else (partial, other)
                partial = self._combine(*pair)
                if self._watcher is not None:
                    self._watcher.combined(self, Node(level + 1, number >> 1), partial)
            # Without a right sibling, the parent is this node.
            level, number = level + 1, number >> 1
        node = Node(level, number)
        if node in self._pending:
            raise ConflictingNodesError(f"{self._what}: {self.describe(node)}, came twice")
        self._pending[node] = partial

    def receive(self, node: Node, partial: Partial, digest: int) -> None:
        """Add a partial result from a shuffle, where tasks may have been repeated.

        A node that arrives again from a retry or a speculative attempt counts once if the digest of
        its bytes is the same.

        Raises
        ------
        ConflictingNodesError
            The node has arrived with another digest, or some of its slices in other nodes.
        """
        if node in self._digests:
            if digest == self._digests[node]:
                return
            raise ConflictingNodesError(
                f"{self._what}: two different partial results arrived for {self.describe(node)}. "
                f"A repeated task must give the same bytes: does the job depend on time, on random "
                f"numbers without a seed, or on the machine's processor?"
            )
        ancestors = [
            Node(node.level + up, node.number >> up)
            for up in range(1, self.root.level - node.level + 1)
        ]
        if node in self._ancestors or any(other in self._digests for other in ancestors):
            raise ConflictingNodesError(
                f"{self._what}: {self.describe(node)}, overlaps another node that arrived"
            )
        self.add(node, partial)
        self._digests[node] = digest
        self._ancestors.update(ancestors)

    def nodes(self) -> Iterator[tuple[Node, Partial]]:
        """The largest nodes that are complete, from left to right."""
        yield from sorted(self._pending.items(), key=lambda item: item[0].start)

    def result(self) -> Partial:
        """The partial result of the root.

        Raises
        ------
        MissingNodesError
            Leaves are missing; the message names them.
        """
        if self.root not in self._pending:
            missing = ", ".join(_range(start, stop) for start, stop in self._gaps())
            raise MissingNodesError(
                f"{self._what}: {missing} of {self.leaves} slices missing. Expected every slice of "
                f"the round once; did a map task end without its output?"
            )
        return self._pending[self.root]

    def describe(self, node: Node) -> str:
        """A node's name and its slices, for messages."""
        covered = _range(node.start, min(node.stop, self.leaves))
        return f"node ({node.level}, {node.number}), {covered}"

    def _gaps(self) -> Iterator[tuple[int, int]]:
        position = 0
        for node, _ in self.nodes():
            if node.start > position:
                yield position, node.start
            position = min(node.stop, self.leaves)
        if position < self.leaves:
            yield position, self.leaves


def _range(start: int, stop: int) -> str:
    return f"slice {start}" if stop == start + 1 else f"slices {start} to {stop - 1}"
