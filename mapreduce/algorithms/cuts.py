"""Cuts of features at exact quantiles, by counts of the bits of their numbers.

Quantiles of all rows need their order, which nobody has. But the keys of numbers have it (see
:mod:`kernels.cpu.bins`), and counts of their first 8 bits tell in which cell of 2**24 keys a
quantile is; counts of the next 8 bits within these cells tell more. After :data:`PASSES` passes
each quantile is a number of the data.
"""

import numpy as np

from kernels.cpu import bins as binning
from mapreduce.data.batch import Array

#: Passes over the rows, of 8 bits each.
PASSES = 4
#: Quantiles of a feature, the last of which is its largest number.
TARGETS = 255


def first(features: int) -> dict[str, Array]:
    """What is known before the first pass; see :func:`narrow`."""
    return {
        "prefix": np.zeros((features, TARGETS), np.uint32),
        "rank": np.zeros((features, TARGETS), np.int64),
    }


def cells(prefix: Array) -> tuple[Array, int]:
    """The different prefixes of each feature, ascending, then none; and the most of a feature."""
    found, most = np.full(prefix.shape, binning.NONE, np.uint32), 0
    for row, target in zip(prefix, found, strict=True):
        each = np.unique(row)
        target[: len(each)] = each
        most = max(most, len(each))
    return found, most


def count(number: int, x: Array, known: tuple[Array, int], counts: Array | None) -> Array:
    """Counts (prefixes, features, 256), int64, of a pass with those of the rows x added.

    ``known``: What :func:`cells` gives of the prefixes.
    """
    prefixes, most = known
    if counts is None:
        counts = np.zeros((most, len(prefixes), 256), np.int64)
    binning.count_cells(x, 24 - 8 * number, prefixes, counts)
    return counts


def narrow(number: int, prefix: Array, rank: Array, counts: Array) -> tuple[Array, Array]:
    """The first bits of each quantile's key after a pass, and its rank among the keys with them.

    Parameters
    ----------
    number : int
        Of the pass, from 0.
    prefix : array (features, TARGETS), uint32
    rank : array (features, TARGETS), int64
    counts : array (prefixes, features, 256), int64
    """
    known, _ = cells(prefix)
    prefix, rank = prefix.copy(), rank.copy()
    for f in range(len(prefix)):
        # Numbers up to each cell, over all prefixes of the feature.
        upto = counts[:, f].ravel().cumsum()
        if number == 0:
            rows = int(upto[-1])
            rank[f] = [*(k * rows // TARGETS for k in range(1, TARGETS)), rows - 1]
            if not rows:
                continue
        places = np.searchsorted(known[f], prefix[f])
        before = np.append(0, upto)
        first = before[256 * places]
        cell = np.searchsorted(upto, first + rank[f], "right")
        rank[f] -= before[cell] - first
        prefix[f] = (prefix[f] << np.uint32(8)) + (cell - 256 * places).astype(np.uint32)
    return prefix, rank


def cuts_of(prefix: Array) -> tuple[Array, Array]:
    """The cuts (features, 255) of quantiles after the last pass, and how many count: the others are
    :data:`kernels.cpu.bins.NONE`.

    No number is above the last quantile, so it is no cut.
    """
    found = np.full(prefix.shape, binning.NONE, np.uint32)
    sizes = np.zeros(len(prefix), np.int64)
    for f, row in enumerate(prefix):
        each = np.unique(row[:-1])
        each = each[each < row[-1]]
        found[f, : len(each)], sizes[f] = each, len(each)
    return found, sizes
