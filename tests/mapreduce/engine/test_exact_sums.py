"""Sums of integers: the same bits for any order of the units, tasks and blocks."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import InBlocks, Layout
from mapreduce.engine.state import InMemory
from mapreduce.engine.sums import ExactSum, bits_for
from mapreduce.errors import ConflictingNodesError, MemberError, MissingNodesError, UsageError
from mapreduce.executors.here import Here
from mapreduce.reduction.message import Message
from mapreduce.reduction.ranges import RangeFold
from mapreduce.testing import check_program


@dataclass(frozen=True)
class Powers(ExactSum, InBlocks):
    """Over two rounds: sums of the powers of the units, and the largest one."""

    count: int
    floats: bool = False

    LARGEST = frozenset({"largest"})

    def most_rounds(self):
        return 2

    def units(self, completed):
        return self.count

    def blocks_for(self, wanted):
        return min(wanted, 3)

    def first(self, blocks):
        return [{"sums": np.ones(1, np.int64)}] * blocks

    def lift(self, now, unit):
        powers = np.array([unit, unit**2, unit**3])
        before = now.vector("sums").sum()
        return {
            "sums": powers * int(before % 7) if not self.floats else powers * 0.1,
            "largest": powers[:2] * 0.1,
            "units": np.array(1),
        }


def test_a_program_of_any_cut():
    check_program(Powers(13))
    (block,) = Here().advance(Powers(13)).blocks
    assert block.arrays["units"] == 13
    np.testing.assert_array_equal(block.arrays["largest"], [12 * 0.1, 144 * 0.1])
    first = sum(units**power for units in range(13) for power in (1, 2, 3))
    assert block.arrays["sums"].tolist() == [
        sum(unit**power for unit in range(13)) * (first % 7) for power in (1, 2, 3)
    ]


@dataclass(frozen=True)
class Mistyped(Powers):
    LARGEST = frozenset({"largest", "unit"})


@dataclass(frozen=True)
class MistypedAlone(Powers):
    LARGEST = frozenset({"larges"})

    def most_rounds(self):
        return 1


@pytest.mark.parametrize(("kind", "name"), [(Mistyped, "unit"), (MistypedAlone, "larges")])
def test_names_of_no_array(kind, name):
    right = {"unit": "units", "larges": "largest"}[name]
    message = f"names '{name}' in LARGEST: .*sums, largest, units. Did you mean '?{right}"
    with pytest.raises(MemberError, match=message):
        Here().advance(kind(5))


def test_floats_are_no_exact_sums():
    with pytest.raises(MemberError, match="array of float64: expected int64"):
        Here().advance(Powers(2, floats=True))


@dataclass(frozen=True)
class Returns(ExactSum):
    """What three units return, which is a shape, a text or a number."""

    what: str

    def units(self, completed):
        return 3

    def lift(self, now, unit):
        return {
            "shapes": {"sums": np.arange(unit + 1)},
            "array": np.arange(2),
            "number": {"sums": unit, "more": [unit, 2]},
        }.get(self.what, {"sums": np.array(1)})

    def finish(self, now, number, total):
        return {"mean": total["sums"].item() / 3} if self.what != "total" else total["sums"]


def test_numbers_stand_for_arrays():
    check_program(Returns("number"))
    (block,) = Here().advance(Returns("number")).blocks
    assert block.arrays["mean"] == np.array(1.0)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("shapes", r"Returns: expected that lift returns 'sums' in one shape .* \(1,\) and \(2,\)"),
        ("array", r"Returns: expected that lift returns a dictionary of arrays, found array\("),
        ("total", r"Returns: expected that finish returns a dictionary of arrays, found array\("),
    ],
)
def test_results_of_other_types(what, message):
    with pytest.raises(MemberError, match=message):
        Here().advance(Returns(what))


def test_a_task_sends_one_message_a_block():
    program = Powers(13)
    state = InMemory(3)
    for number, block in enumerate(program.first(3)):
        state.publish(0, number, Message({}, block))
    pairs = [*program.task(state, Layout(2, 3)).map(LeafRange(0, 4, 13))]
    assert [key for key, _ in pairs] == [(0,), (1,), (2,)]
    assert [len(message.arrays["sums"]) for _, message in pairs] == [1, 1, 1]
    assert [len(message.arrays["largest"]) for _, message in pairs] == [0, 1, 1]


@given(st.sets(st.integers(1, 29)), st.randoms())
def test_ranges_in_any_order_and_some_twice(edges, random):
    ranges = [*pairwise(sorted({0, 30, *edges}))]
    fold = RangeFold(30, lambda left, right: left + right, "the test")
    sent = ranges + random.sample(ranges, random.randint(0, len(ranges)))
    random.shuffle(sent)
    for start, stop in sent:
        fold.receive(start, stop, sum(range(start, stop)), digest=start)
    assert fold.result() == sum(range(30))


@pytest.mark.parametrize(
    ("ranges", "error", "message"),
    [
        ([(0, 3), (4, 9)], MissingNodesError, "the test: unit 3 of 9 missing"),
        ([(2, 9)], MissingNodesError, "the test: units 0 to 1 of 9 missing"),
        ([(0, 5)], MissingNodesError, "the test: units 5 to 8 of 9 missing. Expected every unit"),
        ([], MissingNodesError, "units 0 to 8 of 9 missing"),
        ([(0, 5), (3, 9)], ConflictingNodesError, "units 3 to 4 of 9 came twice"),
        ([(0, 5), (0, 9)], ConflictingNodesError, "units 0 to 4 of 9 came twice"),
    ],
)
def test_ranges_that_do_not_join_up(ranges, error, message):
    fold = RangeFold(9, lambda left, right: left + right, "the test")
    for start, stop in ranges:
        fold.receive(start, stop, 1)
    with pytest.raises(error, match=message):
        fold.result()


def test_a_repeated_task_with_other_bytes():
    fold = RangeFold(9, lambda left, right: left + right, "the test")
    fold.receive(2, 4, 1, digest=5)
    with pytest.raises(ConflictingNodesError, match="two different partial results"):
        fold.receive(2, 4, 1, digest=6)


@given(st.integers(1, 2**53))
def test_sums_do_not_overflow(terms):
    bits = bits_for(terms, 40)
    assert bits <= 40
    assert terms * 2**bits < 2**62


def test_more_terms_than_a_sum_can_have():
    with pytest.raises(UsageError, match="fewer than 2"):
        bits_for(2**60, 40)
