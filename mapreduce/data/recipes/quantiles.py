"""A mergeable sketch of a column's distribution: how many numbers fall into each cell.

A cell is the numbers whose float64 have the same sign, exponent and first ten bits of the mantissa.
Merging adds the counts of cells, so that the sketch of all rows does not depend on how they were
split, and a quantile is off by less than 2**-10 of its value, 0.1 %: it is the cell's number that
is nearest to 0. Integers up to 2,047 have a cell of their own, and are exact.
"""

from typing import NamedTuple

import numpy as np

from mapreduce.data.batch import Array

_BITS = 52 - 10
#: A share of all rows, or of their weight, that is rounding beside a half.
_HALF = 1e-12
#: The largest error of a quantile, relative to its value.
RELATIVE_ERROR = 2.0**-10


class Sketch(NamedTuple):
    """Counts of cells.

    ``cells``: array (n,), int32, ascending. In the order of the numbers in them.
    ``counts``: array (n,), int64. The sums of their weights, float64, if they have any.
    """

    cells: Array
    counts: Array

    def quantile(self, share: float) -> float:
        """The number below which a share of all lie; the mean of two if it lies between them."""
        total = int(self.counts.sum())
        if not total:
            raise ValueError("an empty column has no quantiles")
        ends = np.cumsum(self.counts)
        place = share * (total - 1)
        low, high = (
            _number(int(self.cells[np.searchsorted(ends, rank, "right")]))
            for rank in (int(np.floor(place)), int(np.ceil(place)))
        )
        part = float(place - np.floor(place))
        return low if low == high else low * (1 - part) + high * part

    def median(self) -> float:
        """The number that half of all, or of their weight, lies below: as if rows were repeated."""
        if not self.counts.sum():
            raise ValueError("an empty column has no median")
        ends = np.cumsum(self.counts)
        half = ends[-1] / 2
        # Sums of weights are rounded: half is half.
        low, high = (
            _number(int(self.cells[np.searchsorted(ends, half + some, "left")]))
            for some in (-_HALF * half, _HALF * half)
        )
        return low if low == high else low / 2 + high / 2


def sketch(values: Array, weights: Array | None = None) -> Sketch:
    """The sketch of finite numbers (rows,), float64."""
    # Zeros have one sign.
    bits = (values + 0.0).view(np.int64) >> _BITS
    negative = bits < 0
    if negative.any():
        # Larger magnitudes come first among the negative.
        bits[negative] = -1 - (bits[negative] & 0x7FFFFFFFFFFFFFFF >> _BITS)
    cells = bits.astype(np.int32)
    least, most = (int(cells.min()), int(cells.max())) if len(cells) else (0, 0)
    found: Array
    places: Array
    if most - least < 4 * len(cells) + 1024:
        found, places = np.arange(least, most + 1, dtype=np.int32), cells - least
    else:
        found, places = np.unique(cells, return_inverse=True)
    counts = np.bincount(places, weights)
    used = np.flatnonzero(counts)
    return Sketch(found[used], counts[used])


def merge(left: Sketch, right: Sketch) -> Sketch:
    """The sketch of the numbers of both."""
    cells = np.concatenate([left.cells, right.cells])
    counts = np.concatenate([left.counts, right.counts])
    # Two ascending runs, which a stable sort merges.
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    first = np.flatnonzero(np.diff(cells, prepend=np.iinfo(cells.dtype).min))
    if not len(first):
        return left
    return Sketch(cells[first], np.add.reduceat(counts[order], first))


def _number(cell: int) -> float:
    """The number of a cell that is nearest to 0."""
    magnitude = float(np.int64((cell if cell >= 0 else -1 - cell) << _BITS).view(np.float64))
    return magnitude if cell >= 0 else -magnitude
