"""Exponents of growth, and the picture of it."""

import pytest

from benchmarks.growth import Curve, Growth, exponent
from quick import cases

SIZES = [10**power for power in range(2, 8)]


def curve(power, start=0.0, mib=(20.0,) * 6):
    seconds = [start + 1e-6 * size**power for size in SIZES]
    return Curve("Training", "rows", "Made.", SIZES, seconds, [*mib], {"ideal": [1e-3] * 6})


@pytest.mark.parametrize("power", [0.5, 1.0, 1.2])
def test_the_exponent_of_a_power(power):
    found, first = exponent(SIZES, curve(power).seconds)
    assert found == pytest.approx(power)
    assert first == SIZES[1]


def test_the_cost_of_starting_is_not_fitted():
    found, first = exponent(SIZES, curve(1.0, start=0.1).seconds)
    assert first == 10**6
    assert 0.9 < found < 1
    assert exponent(SIZES, [1.0, 1.1, 0.9, 1.0, 1.2, 5.0]) is None


@cases("power, last, verdict", (1.0, 20.0, "holds"), (1.1, 20.0, "MISSED"), (1.0, 23.0, "MISSED"))
def test_growth_beyond_the_rows_is_missed(power, last, verdict):
    growth = Growth([curve(power, mib=[20.0] * 5 + [last])])
    assert growth.verdict().startswith(verdict)
