"""docs/teaching.md: a student's check, and an exercise of one's own in thirty lines."""

import re

import pytest
from following import follow
from test_readme import ROOT, blocks

from mapreduce.exercises.exercise import _SETTINGS

PAGE = ROOT / "docs" / "teaching.md"


@pytest.mark.slow
def test_the_page_in_order(tmp_path):
    assert follow(PAGE, tmp_path) == ["ranges.py", "widest.py", "exercise.py", "first.py"]


def test_an_exercise_takes_thirty_lines():
    exercise = blocks("python", PAGE.read_text())[2]
    assert len([line for line in exercise.splitlines() if line.strip()]) <= 30


def test_the_settings_are_those_of_the_program():
    rows = re.findall(r"^\| `([A-Z]+)` \|.*\| (?:`(.*)`|all .*) \|$", PAGE.read_text(), re.M)
    named = {name: default for name, default in rows if default}
    assert [name for name, _ in rows] == [name for name in _SETTINGS if name != "SHOWN"]
    assert named == {name: repr(_SETTINGS[name][0]).replace("1e-09", "1e-9") for name in named}
