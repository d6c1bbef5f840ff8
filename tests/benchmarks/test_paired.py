"""The order of paired measurements, and their ratios."""

from itertools import pairwise

import pytest

from benchmarks.paired import Result, in_turn


class Clock:
    """Programs whose times are the moments at which they run."""

    def __init__(self):
        self.order = []

    def program(self, name):
        def timed():
            self.order.append(name)
            return float(len(self.order))

        return timed

    def measure(self, peers, repeats, few=None):
        named = {name: self.program(name) for name in peers}
        return in_turn(self.program("ours"), named, repeats, few)


@pytest.mark.parametrize("peers", ["", "a", "ab", "abc", "abcde"])
@pytest.mark.parametrize("repeats", [1, 2, 3, 7])
def test_each_round_has_every_program_once_and_starts_with_another(peers, repeats):
    clock = Clock()
    ours, theirs = clock.measure(peers, repeats)
    size = len(peers) + 1
    rounds = [clock.order[at : at + size] for at in range(0, len(clock.order), size)]
    assert [sorted(one) for one in rounds] == [sorted(["ours", *peers])] * repeats
    if size > 2:
        assert all(before[0] != after[0] for before, after in pairwise(rounds))
    for number in range(repeats):
        for name, times in [("ours", ours), *theirs.items()]:
            assert times[number] == number * size + rounds[number].index(name) + 1


@pytest.mark.parametrize("peers", ["ab", "abcde"])
def test_none_always_follows_the_same_one(peers):
    clock = Clock()
    clock.measure(peers, 3)
    before = {}
    for first, second in pairwise(clock.order):
        before.setdefault(second, set()).add(first)
    assert min(len(found - {name}) for name, found in before.items()) >= 2


def test_few_repetitions_are_the_first_ones():
    clock = Clock()
    ours, theirs = clock.measure("abc", 7, {"b": 3, "c": 1, "not there": 2})
    assert [len(times) for times in (ours, *theirs.values())] == [7, 7, 3, 1]
    assert max(theirs["c"]) <= 4
    assert max(theirs["b"]) <= 4 + 3 + 3
    assert len(clock.order) == 4 + 3 + 3 + 4 * 2


def test_ratios_are_of_the_same_repetitions():
    result = Result("", "s", "", [2.0, 4.0, 8.0], {"all": [1.0, 4.0, 2.0], "few": [4.0, 2.0]})
    assert result.ratios("all") == [2, 1, 4]
    assert result.ratios("few") == [0.5, 2]
    with pytest.raises(ValueError, match="zip"):
        Result("", "s", "", [2.0], {"more": [4.0, 2.0]}).ratios("more")
