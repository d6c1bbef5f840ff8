"""How a tree grows: the splits of a round, and the nodes of a tree that is whole."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from kernels.cpu import bins as binning
from kernels.cpu import trees as kernels
from mapreduce.data.batch import Array

#: The gain that a child is expected to have, as a share of its parent's.
DECAY = 0.5


class Split(NamedTuple):
    """A leaf's split; see :func:`kernels.cpu.trees.best_split`.

    ``new``: The number of the leaf that its right child is; the left child keeps the leaf's.
    ``is_new_smaller``: Whether that one has fewer rows. ``subset``: Of a category, words of 32
    bits: a code goes left if its bit is 1. ``last`` is -1 then.
    """

    leaf: int
    feature: int
    last: int
    missing_left: int
    new: int
    is_new_smaller: int
    subset: tuple[int, ...]

    @property
    def smaller(self) -> int:
        """The child with fewer rows."""
        return self.new if self.is_new_smaller else self.leaf

    @property
    def larger(self) -> int:
        """The other child."""
        return self.leaf if self.is_new_smaller else self.new


class Leaf(NamedTuple):
    """A leaf that may be split: its best split, sums of its left child, and its own.

    ``subset``: See :class:`Split`.
    """

    leaf: int
    feature: int
    last: int
    missing_left: int
    left_gradient: int
    left_hessian: int
    left_rows: int
    gradient: int
    hessian: int
    rows: int
    subset: tuple[int, ...]


#: Numbers of a split, and of a leaf, before the words of a subset.
SPLIT, LEAF = len(Split._fields) - 1, len(Leaf._fields) - 1


def splits_of(rows: Array) -> list[Split]:
    """The splits of an array (n, 6 + words), int64."""
    return [Split._make([*row[:SPLIT], tuple(row[SPLIT:])]) for row in rows.tolist()]


def leaves_of(rows: Array) -> list[Leaf]:
    """The leaves of an array (n, 10 + words), int64."""
    return [Leaf._make([*row[:LEAF], tuple(row[LEAF:])]) for row in rows.tolist()]


class Growth:
    """A tree that grows best first: of all leaves that with the largest gain is split next.

    A round does not wait for one split. It also splits the leaves that are expected to be next, by
    :data:`DECAY`. The tree has those of the splits that are reached in the order of their gains. So
    it is the same tree, whatever was split beside them.

    A split ``s`` makes the nodes ``2 * s + 1``, its left child, and ``2 * s + 2``; the root is 0.

    Parameters
    ----------
    splits : array (n, 6 + words), int64
        See :class:`Split`.
    split_gains : array (n,), float64
    leaves : array (n + 1, 10 + words), int64
        See :class:`Leaf`, in the order of their numbers.
    gains : array (n + 1,), float64
    most : int
        Leaves that the tree may have.
    """

    def __init__(
        self, splits: Array, split_gains: Array, leaves: Array, gains: Array, most: int
    ) -> None:
        self.splits, self.split_gains, self.leaves, self.gains = splits, split_gains, leaves, gains
        self._most = most
        known = splits, split_gains, gains, most, DECAY
        found = (array.tolist() for array in kernels.next_splits(*known))
        #: The node that a leaf is now, the splits that the tree has, in their order, as far as they
        #: are known, and the leaves that are expected to be split next.
        self._node, split_of, self.taken, self._next = found
        self._split = {node: number for node, number in enumerate(split_of) if number >= 0}
        self._free = most - 1 - len(self.taken)

    @property
    def is_whole(self) -> bool:
        """Whether no other split belongs to the tree."""
        return not self._next

    def next(self) -> Array:
        """The splits (n, 6 + words) of the next round, of which the tree has the first."""
        found = np.zeros((len(self._next), self.splits.shape[1]), np.int64)
        for place, leaf in enumerate(leaves_of(self.leaves[self._next])):
            is_smaller = 2 * leaf.left_rows > leaf.rows
            found[place] = *leaf[:4], len(self.leaves) + place, is_smaller, *leaf.subset
        return found

    def finished(self) -> "Growth":
        """The tree with its last split, if that is known: what its children gain does not count."""
        if self.is_whole or self._free > 1:
            return self
        new = self.next()
        (split,) = splits_of(new)
        left, whole = self.leaves[split.leaf, 4:LEAF].reshape(2, 3)
        leaves, gains = np.concatenate([self.leaves, self.leaves[:1]]), np.append(self.gains, 0.0)
        for leaf, sums in ((split.leaf, left), (split.new, whole - left)):
            leaves[leaf], gains[leaf] = 0, 0.0
            leaves[leaf, 0], leaves[leaf, LEAF - 3 : LEAF] = leaf, sums
        split_gains = np.append(self.split_gains, self.gains[split.leaf])
        return Growth(np.concatenate([self.splits, new]), split_gains, leaves, gains, self._most)

    def tree(
        self, cuts: Array, sizes: Array, value: Callable[[int, int], float]
    ) -> tuple[Array, Array]:
        """The tree that is whole, and for each leaf the value of its rows.

        ``value``: That of a leaf with some sums of gradients and hessians.

        The tree is an array (2 * most - 1, 5 + words), float64: a row for each node, the root
        first. Its columns are the feature, the threshold, whether missing numbers go left, the left
        child's number (0 for a leaf; the right child follows it) and the value of a leaf. If a
        category is split, 2 is added to the third, and the subset follows; see :class:`Split`.
        """
        splits, sums = splits_of(self.splits), self._sums()
        parents = {number: node for node, number in self._split.items()}
        found = np.zeros((2 * self._most - 1, 5 + self.splits.shape[1] - SPLIT))
        place, used = {0: 0}, 1
        for number in self.taken:
            split, at = splits[number], place.pop(parents[number])
            threshold = np.inf
            if 0 <= split.last < sizes[split.feature]:
                threshold = float(
                    binning.numbers_of(cuts[split.feature, split.last : split.last + 1])[0]
                )
            found[at, :4] = split.feature, threshold, split.missing_left, used
            if split.last < 0:
                found[at, 1:3] = 0.0, split.missing_left + 2
                found[at, 5:] = split.subset
            place[2 * number + 1], place[2 * number + 2] = used, used + 1
            used += 2
        values = np.zeros(len(self.leaves))
        leaf_of = {node: leaf for leaf, node in enumerate(self._node)}
        for node, at in place.items():
            found[at, 4] = value(*sums[node])
            below = [node]
            while below:
                one = below.pop()
                if one in self._split:
                    below += [2 * self._split[one] + 1, 2 * self._split[one] + 2]
                else:
                    values[leaf_of[one]] = found[at, 4]
        return found, values

    def _sums(self) -> dict[int, tuple[int, int]]:
        """Gradients and hessians of each node."""
        found = {
            self._node[leaf.leaf]: (leaf.gradient, leaf.hessian) for leaf in leaves_of(self.leaves)
        }
        # A child is split after its parent.
        for node, number in reversed(self._split.items()):
            left, right = found[2 * number + 1], found[2 * number + 2]
            found[node] = left[0] + right[0], left[1] + right[1]
        return found


def with_tree(packs: Mapping[str, Array], tree: Array, number: int) -> dict[str, Array]:
    """The trees before a new one, which has this number, and that one: in packs by name.

    Their sizes are the powers of two that make up the number of trees: so a round that is written
    anew has few files, and a tree is written again but for the logarithm of their number.
    """
    found, start, pack = dict(packs), number, tree[None]
    while name := next((n for n in found if start and _stop(n, found[n]) == start), None):
        if len(found[name]) != len(pack):
            break
        pack = np.concatenate([found.pop(name), pack])
        start -= len(pack) // 2
    found[f"trees.{start:06d}"] = pack
    return found


def _stop(name: str, pack: Array) -> int:
    return int(name.rpartition(".")[2]) + len(pack)
