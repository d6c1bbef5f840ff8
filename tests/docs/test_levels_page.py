"""Every command of docs/levels.md works, and its trainings have one digest."""

import pytest
from test_readme import ROOT, blocks, shell

TEXT = (ROOT / "docs" / "levels.md").read_text()


def test_the_first_is_the_benchmark():
    # A test of its own runs it: tests/benchmarks/test_levels.py.
    assert blocks("sh", TEXT)[0] == "python -m benchmarks levels --quick\n"


@pytest.mark.slow
def test_trainings_in_order(tmp_path):
    _, trainings = blocks("sh", TEXT)
    *_, listed = [shell(line, tmp_path) for line in trainings.splitlines()]
    assert len({line.split()[-1] for line in listed.splitlines()}) == 1
    assert len(listed.splitlines()) == 2
