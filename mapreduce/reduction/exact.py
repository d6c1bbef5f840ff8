"""Sums of float64 without rounding: the same for any order of the terms, and any parts of them.

Terms are cut into slices of so few bits that NumPy adds a slice without rounding, as in S. Rump,
T. Ogita and S. Oishi, "Accurate floating-point summation", 2008. Python's integers add the rest.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: A sum is a whole number of the least float64, of which 1 has so many.
ONE = 1 << 1074
#: So many numbers stay in a processor's cache while all their slices are added.
_CHUNK = 1 << 13
#: Slices of larger numbers would overflow.
_LARGE = 2.0**900


def total(values: Array) -> int:
    """The sum of numbers (n,). Raises ValueError, OverflowError (one is not finite)."""
    found = 0
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        found += sum(
            [_units(float(part.sum())) for part in slices(chunk)]
            if np.abs(chunk).max() < _LARGE
            else map(_units, chunk.tolist())
        )
    return found


def rounded(found: int) -> float:
    """A sum as a float64; infinite beyond 1e308."""
    try:
        return found / ONE
    except OverflowError:
        return math.inf


def totals(places: npt.NDArray[np.integer[Any]], values: Array, count: int) -> list[int]:
    """The sums of the finite numbers (n,) that have each place below ``count``."""
    if np.abs(values).max(initial=0.0) >= _LARGE:
        return [total(values[places == place]) for place in range(count)]
    found = [0] * count
    for part in slices(values):
        sums = np.bincount(places, part, count).tolist()
        found = [so_far + _units(one) for so_far, one in zip(found, sums, strict=True)]
    return found


def slices(values: Array) -> Iterator[Array]:
    """Arrays whose sum is that of the numbers, each of which NumPy adds without rounding."""
    while most := float(np.abs(values).max(initial=0.0)):
        # What is added moves all lower bits out of the mantissa.
        grid = math.ldexp(1.5, math.frexp(most)[1] + len(values).bit_length())
        part = values + grid
        part -= grid
        yield part
        values = values - part


def square(values: Array) -> list[Array]:
    """Arrays whose sum is the numbers' squares, to 76 bits."""
    high, low = _halves(values)
    first = high * high
    return [first, low * (high + values)] if low.any() else [first]


def product(left: Array, right: Array) -> list[Array]:
    """Arrays whose sum is the product of numbers, to 76 bits."""
    return [one * other for one in _halves(left) for other in _halves(right)]


def _halves(values: Array) -> tuple[Array, Array]:
    """The first 26 bits of numbers, and the others."""
    high = (values.view(np.int64) & -(1 << 27)).view(np.float64)
    return high, values - high


def _units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (ONE // denominator)
