"""Calls by several threads: order, bounds, and how they end."""

import threading
import time

import pytest

from mapreduce.support import threads
from mapreduce.support.threads import ordered_map


@pytest.fixture(autouse=True)
def _four(monkeypatch):
    monkeypatch.setattr(threads, "available_cores", lambda: 4)


def test_results_come_in_the_order_of_the_items():
    def late(item):
        time.sleep((7 - item % 8) / 1000)
        return item * item

    assert list(ordered_map(late, range(40))) == [item * item for item in range(40)]
    assert list(ordered_map(late, [])) == []


@pytest.mark.parametrize("ahead", [1, 3])
def test_few_results_wait_to_be_taken(ahead):
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    for number, _ in enumerate(ordered_map(str, items(), ahead=ahead)):
        assert len(taken) <= number + 4 * ahead + 1
    assert len(taken) == 100


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["items", "function", "consumer"])
def test_an_error_ends_the_threads(error, where):
    before, calls = {*threading.enumerate()}, []

    def items():
        for item in range(1000):
            if where == "items" and item == 50:
                raise error
            yield item

    def function(item):
        calls.append(item)
        if where == "function" and item == 50:
            raise error
        return item

    def consume():
        for item in ordered_map(function, items()):
            if where == "consumer" and item == 50:
                raise error

    with pytest.raises(type(error)) as caught:
        consume()
    assert caught.value is error
    # Those of other tests may end meanwhile.
    assert {*threading.enumerate()} <= before
    assert len(calls) < 100
