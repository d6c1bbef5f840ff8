"""The levels of parallelism: one sum, the same bits on every level."""

import re
import subprocess
import sys

import pytest

from benchmarks import levels
from test_readme import ROOT


def test_every_level_gives_the_same_bits():
    command = [sys.executable, "-m", "benchmarks", "--quick", "levels"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "holds: 1 digest(s), 1 wanted" in done.stdout
    rows = re.findall(r"^\| (.*?) \| (\d[\d.e-]*) ", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["level", *levels.LEVELS]


@pytest.mark.parametrize("serial", [0.0, 0.25, 1.0])
def test_the_fraction_that_amdahls_law_was_given(serial):
    times = {n: 3.0 * (serial + (1 - serial) / n) for n in (1, 2, 4, 8)}
    assert levels.serial_fraction(times) == pytest.approx(serial)
