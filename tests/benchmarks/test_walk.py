"""The count of the modules that a parameter enters, on a house of four."""

from pathlib import Path

from benchmarks.walk import walk

ROOT = Path(__file__).parent.parent.parent

HOUSE = {
    "cli/train": """
from mapreduce import checks
from mapreduce.plan import Plan

def train(values, other):
    checks.check(values["rounds"])
    checks.check(other)
    plan = Plan(values)
    count = plan.rounds + 1
    checks.check(count)
    raise_if(other)

def raise_if(values):
    checks.check(values)
""",
    "checks": """
class WrongError(Exception):
    def __init__(self, text):
        pass

def check(number):
    if number < 1:
        raise WrongError(number)
""",
    "plan": """
from mapreduce.checks import check

class Plan:
    def __init__(self, values):
        self.rounds = self.rounded(values)

    def rounded(self, values):
        check(values)
        return values
""",
    "unused": "def use(values): pass",
}


def test_stays_and_returns(tmp_path):
    for name, text in HOUSE.items():
        path = tmp_path / "mapreduce" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = walk(tmp_path, "mapreduce.cli.train:train:values")
    inner = [name.removeprefix("mapreduce.") for name in found.stays]
    assert inner == ["cli.train", "checks", "plan", "checks"]
    assert found.returns == 1
    assert walk(tmp_path, "mapreduce.cli.train:train:other").returns == 2


def test_the_options_of_a_training_become_one_value_soon():
    found = walk(ROOT)
    assert len(found.stays) <= 50 and found.returns <= 20, found.stays
