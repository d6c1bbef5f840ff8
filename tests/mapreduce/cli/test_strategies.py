"""``gradreduce strategies`` says of each strategy what it means."""

import json

import pytest

from mapreduce.cli.main import main
from mapreduce.plan.strategies import OPTIMIZING, OPTIONAL, STRATEGIES


def test_every_strategy_is_described(capsys):
    assert main(["strategies", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [*found] == [*STRATEGIES]
    assert all(each["travels"] and each["waits"] and each["use"] for each in found.values())
    options = {flag for each in found.values() for flag in each["options"]}
    assert options == {f"--{name.replace('_', '-')}" for name in {*OPTIONAL} - {*OPTIMIZING}}


@pytest.mark.parametrize("name", [*STRATEGIES])
def test_the_list_in_words(name, capsys):
    assert main(["strategies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(name)
    assert lines[at + 1].startswith("  travels  ")
    assert max(map(len, lines)) <= 100
