"""The canonical tree and sums of vectors: the same bits, however the work was divided."""

import operator
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

import naive
from mapreduce.errors import ConflictingNodesError, MissingNodesError
from mapreduce.reduction.aggregator import VectorSum, combine
from mapreduce.reduction.tree import Node, TreeFold, root
from quick import cases


def pair(left, right):
    """A combination that shows its whole history."""
    return (left, right)


def vectors(leaves, dtype="float32", seed=0):
    """Summands of very different sizes, whose sum depends on the order of the additions."""
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.integers(-6, 7, (leaves, 1))
    return (generator.standard_normal((leaves, 5)) * scale).astype(dtype)


def sums(rows, losses):
    """A fresh partial result for each leaf: combining may reuse its memory."""
    return [
        VectorSum(i + 1, i + 0.5, float(loss), row.copy())
        for i, (row, loss) in enumerate(zip(rows, losses, strict=True))
    ]


@st.composite
def divisions(draw, most=70):
    """A number of leaves, and their division into contiguous ranges in any order."""
    leaves = draw(st.integers(1, most))
    cuts = draw(st.sets(st.integers(1, leaves - 1), max_size=8)) if leaves > 1 else set()
    edges = [0, *sorted(cuts), leaves]
    return leaves, draw(st.permutations(list(pairwise(edges))))


def fold_ranges(leaves, ranges, items, combine):
    """What map tasks do: fold each range, and give away the complete nodes."""
    nodes = []
    for start, stop in ranges:
        fold = TreeFold(leaves, combine)
        for leaf in range(start, stop):
            fold.add(Node(0, leaf), items[leaf])
        nodes.extend(fold.nodes())
    return nodes


class TestTree:
    @pytest.mark.parametrize("leaves", range(1, 70))
    def test_the_sequence_of_additions(self, leaves):
        fold = TreeFold(leaves, pair)
        for leaf in range(leaves):
            fold.add(Node(0, leaf), leaf)
        assert fold.result() == naive.tree_sum(list(range(leaves)), pair)

    @given(divisions(), st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64"]))
    def test_the_same_bits(self, division, seed, dtype):
        leaves, ranges = division
        rows = vectors(leaves, dtype, seed)
        losses = vectors(leaves, "float64", seed + 1)[:, 0]
        nodes = fold_ranges(leaves, ranges, sums(rows, losses), combine)
        fold = TreeFold(leaves, combine)
        for digest, (node, part) in enumerate(nodes):
            fold.receive(node, part, digest)
        total = fold.result()
        assert total.vector.dtype == dtype
        assert total.vector.tobytes() == naive.tree_sum(list(rows), np.add).tobytes()
        assert total.loss == naive.tree_sum(losses.tolist(), operator.add)
        assert total.count == leaves * (leaves + 1) // 2
        assert total.weight == leaves * leaves / 2

    def test_the_order_of_additions_matters_to_these_vectors(self):
        """Else the test above would hold for any order."""
        rows = vectors(33)
        in_turn = sum(rows, np.zeros_like(rows[0]))
        assert in_turn.tobytes() != naive.tree_sum(list(rows), np.add).tobytes()

    @given(divisions())
    def test_nodes_are_complete_and_in_order(self, division):
        leaves, ranges = division
        for start, stop in ranges:
            nodes = [node for node, _ in fold_ranges(leaves, [(start, stop)], range(leaves), pair)]
            covered = [leaf for node in nodes for leaf in range(node.start, min(node.stop, leaves))]
            assert covered == list(range(start, stop))
            # A range has two edges, and at each at most one node of a level.
            assert len(nodes) <= 2 * max(1, root(leaves).level)

    def test_no_leaves(self):
        with pytest.raises(ValueError, match="at least one leaf, not 0"):
            TreeFold(0, pair)


class TestMissing:
    @given(st.data())
    def test_names_the_missing_slices(self, data):
        leaves = data.draw(st.integers(1, 40))
        there = data.draw(st.sets(st.integers(0, leaves - 1), max_size=leaves - 1))
        fold = TreeFold(leaves, pair, "round 3, block 1")
        for leaf in data.draw(st.permutations(sorted(there))):
            fold.receive(Node(0, leaf), leaf, leaf)
        with pytest.raises(MissingNodesError) as error:
            fold.result()
        missing = [leaf for leaf in range(leaves) if leaf not in there]
        firsts = [leaf for leaf in missing if leaf - 1 not in missing]
        lasts = [leaf for leaf in missing if leaf + 1 not in missing]
        runs = [
            f"slice {first}" if first == last else f"slices {first} to {last}"
            for first, last in zip(firsts, lasts, strict=True)
        ]
        expected = f"round 3, block 1: {', '.join(runs)} of {leaves} slices missing."
        assert str(error.value).startswith(expected)


class TestConflicts:
    @given(divisions(), st.data())
    def test_repeated_nodes_count_once(self, division, data):
        leaves, ranges = division
        nodes = list(enumerate(fold_ranges(leaves, ranges, range(leaves), pair)))
        again = data.draw(st.lists(st.sampled_from(nodes), max_size=10))
        fold = TreeFold(leaves, pair)
        for digest, (node, part) in data.draw(st.permutations(nodes + again)):
            fold.receive(node, part, digest)
        assert fold.result() == naive.tree_sum(list(range(leaves)), pair)

    @given(divisions(), st.data())
    def test_other_bytes_for_the_same_node(self, division, data):
        leaves, ranges = division
        nodes = list(enumerate(fold_ranges(leaves, ranges, range(leaves), pair)))
        fold = TreeFold(leaves, pair, "round 3, block 1")
        for digest, (node, part) in nodes:
            fold.receive(node, part, digest)
        digest, (node, part) = data.draw(st.sampled_from(nodes))
        with pytest.raises(ConflictingNodesError) as error:
            fold.receive(node, part, digest + 1)
        first, last = node.number << node.level, min((node.number + 1) << node.level, leaves) - 1
        slices = f"slice {first}" if first == last else f"slices {first} to {last}"
        assert str(error.value).startswith(
            f"round 3, block 1: two different partial results arrived for node ({node.level}, "
            f"{node.number}), {slices}. A repeated task must give the same bytes: "
        )

    @given(st.integers(2, 40), st.data())
    def test_overlapping_nodes(self, leaves, data):
        """Of a node and one of its ancestors only the one that comes first is taken."""
        number = data.draw(st.integers(0, leaves - 1))
        line = [Node(level, number >> level) for level in range(root(leaves).level + 1)]
        first, second = data.draw(st.permutations(line))[:2]
        fold = TreeFold(leaves, pair)
        fold.receive(first, "first", 1)
        for leaf in data.draw(st.permutations(range(leaves))):
            if not any(node.start <= leaf < node.stop for node in (first, second)):
                fold.receive(Node(0, leaf), leaf, 1)
        with pytest.raises(ConflictingNodesError, match=r"slices? \d.*, overlaps another"):
            fold.receive(second, "second", 1)

    @pytest.mark.parametrize("receives", [False, True])
    @cases("node", (0, 5), (0, -1), (1, 3), (2, 2), (3, 1), (4, 0), (-1, 0), (-1, 9), (2, -1))
    def test_outside_of_the_tree(self, receives, node):
        fold = TreeFold(5, pair, "round 3, block 1")
        add = partial(fold.receive, digest=1) if receives else fold.add
        place = rf"round 3, block 1: node \({node[0]}, {node[1]}\) is outside of the tree"
        with pytest.raises(ConflictingNodesError, match=place):
            add(Node(*node), "x")
        assert list(fold.nodes()) == []

    def test_a_node_twice_in_a_plain_fold(self):
        fold = TreeFold(5, pair, "the gradient")
        fold.add(Node(0, 2), "x")
        with pytest.raises(ConflictingNodesError, match=r"node \(0, 2\), slice 2, came twice"):
            fold.add(Node(0, 2), "x")
