"""``gradreduce strategies`` and ``optimizers`` say what there is."""

import json

import pytest

from mapreduce.optim import OPTIMIZERS
from mapreduce.plan.strategies import OPTIMIZING, OPTIONAL, STRATEGIES


def test_every_strategy_is_described(answer):
    found = json.loads(answer(0, "strategies", "--json").out)
    assert [*found] == [*STRATEGIES]
    assert all(each["travels"] and each["waits"] and each["use"] for each in found.values())
    options = {flag for each in found.values() for flag in each["options"]}
    assert options == {f"--{name.replace('_', '-')}" for name in {*OPTIONAL} - {*OPTIMIZING}}


@pytest.mark.parametrize("name", [*STRATEGIES])
def test_the_list_in_words(name, answer):
    lines = answer(0, "strategies").out.splitlines()
    at = lines.index(name)
    assert lines[at + 1].startswith("  travels  ")
    assert max(map(len, lines)) <= 100


def test_the_options_of_an_optimizer(answer):
    found = json.loads(answer(0, "optimizers", "--json").out)
    assert [*found] == [*OPTIMIZERS]
    assert [*found["adam"]["own"]] == ["beta1=0.9", "beta2=0.999", "epsilon=1e-08"]
    assert found["sgd"]["own"] == {}
    lines = answer(0, "optimizers").out.splitlines()
    assert any(line.startswith("  :beta1=0.9 ") for line in lines)
    assert max(map(len, lines)) <= 100
