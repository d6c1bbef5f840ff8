"""Every test is in one lane, and every lane has its target."""

import re
from pathlib import Path

from lanes import LANES, NAMES, lane_of

TESTS = Path(__file__).parent
FILES = [str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")]


def test_every_place_of_a_lane_has_tests_that_are_in_no_other():
    for lane, places in LANES.items():
        for place in places:
            lanes = {lane_of(f"tests/{file}", False) for file in FILES if file.startswith(place)}
            assert lane in lanes <= {lane, "cuda"}, place


def test_a_lane_has_a_target():
    makefile = (TESTS.parent / "Makefile").read_text()
    for lane in NAMES:
        (target,) = re.findall(rf"^(test[\w-]*):.*\n.*--lane {lane}$", makefile, re.M)
        assert target == ("test" if lane == "unit" else f"test-{lane}")
    contributing = (TESTS.parent / "CONTRIBUTING.md").read_text()
    for target in re.findall(r"^(test[\w-]*):", makefile, re.M):
        assert f"`make {target}`" in contributing
