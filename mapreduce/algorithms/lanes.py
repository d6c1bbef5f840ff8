"""Columns of bins: one for each feature of numbers, and for a category one for each page of codes.

A bin has 8 bits, and a category may have more codes. So a page has :data:`.bins.PAGE` of them, and
a row whose code is on another page is in the bin :data:`.bins.ELSEWHERE` of this one.
"""

from collections.abc import Sequence

import numpy as np

from kernels.cpu import bins as binning
from kernels.cpu import trees as kernels
from mapreduce.algorithms.growing import Split
from mapreduce.data.batch import Array

#: Codes of a category, at most.
MOST_CODES = 4096


class Lanes:
    """The columns of bins of some features.

    ``features``: How many. ``categories``: Pairs of a feature and of how many codes it has, from 0
    on; what is none of these codes is missing.
    """

    def __init__(self, features: int, categories: Sequence[tuple[int, int]]) -> None:
        self.codes = np.zeros(features, np.int64)
        for feature, codes in categories:
            self.codes[feature] = codes
        pages = np.maximum(-(-self.codes // binning.PAGE), 1)
        #: The first lane of each feature, and how many there are.
        self.starts = np.append(0, pages.cumsum())
        self.count = int(self.starts[-1])
        #: Words of 32 bits that have a bit for each code of any category.
        self.words = -(-int(self.codes.max(initial=0)) // 32)
        self._feature = np.repeat(np.arange(features), pages)

    def bins(self, x: Array, cuts: Array) -> Array:
        """The bins (rows, lanes), uint8, of features (rows, features), float32."""
        found = binning.bin_rows(x, cuts)
        if not self.words:
            return found
        found = found[:, self._feature]
        for feature in np.flatnonzero(self.codes).tolist():
            start, stop = self.starts[feature : feature + 2]
            codes = codes_of(x[:, feature], int(self.codes[feature]))
            pages = np.arange(stop - start) * binning.PAGE
            places = codes[:, None] - pages
            is_here = (places >= 0) & (places < binning.PAGE)
            found[:, start:stop] = np.where(is_here, places, binning.ELSEWHERE)
            found[codes < 0, start] = binning.MISSING
        return found

    def search(
        self,
        histogram: Array,
        sizes: Array,
        start: int,
        how: tuple[int, float, float, float],
        out: Array,
    ) -> float:
        """The best split of a leaf by the features from ``start`` on; see :func:`.best_split`.

        ``histogram``: Of their lanes. ``sizes``: Cuts of each of them.
        """
        codes = self.codes[start : start + len(sizes)]
        if not codes.any():
            gain = kernels.best_split(histogram, sizes, *how, out[:9])
            out[0] += start
            return gain
        lanes = self.starts[start : start + len(sizes) + 1] - self.starts[start]
        cuts = np.full(len(histogram), -1)
        cuts[lanes[:-1]] = np.where(codes > 0, -1, sizes)
        gain = kernels.best_split(histogram, cuts, *how, out[:9])
        out[0] = self._feature[self.starts[start] + out[0]]
        for place in np.flatnonzero(codes).tolist():
            pages = histogram[lanes[place] : lanes[place + 1]]
            gain = kernels.best_subset(pages, start + place, int(codes[place]), *how, gain, out)
        return gain

    def whole_search(self, sizes: Array, how: tuple[int, float, float, float]) -> kernels.Search:
        """How splits are searched in all lanes. ``sizes``: Cuts of each feature."""
        cuts = np.where(self.codes > 0, -1, sizes)[self._feature]
        codes = self.codes if self.words else None
        return kernels.Search(cuts, self._feature, self.starts, codes, *how)

    def split(self, bins: Array, order: Array, split: Split, scratch: Array) -> int:
        """Put the rows ``order`` that go left first; see :func:`.split_rows`."""
        lane, is_left = int(self.starts[split.feature]), split.missing_left > 0
        if not self.codes[split.feature]:
            return kernels.split_rows(bins, order, lane, split.last, is_left, scratch)
        subset = np.array(split.subset)
        stop = int(self.starts[split.feature + 1])
        return kernels.split_subset(bins, order, lane, stop, subset, is_left, scratch)


def codes_of(column: Array, count: int) -> Array:
    """The codes (rows,), int64, of a column of numbers; -1 for what is none of so many."""
    is_code = (column >= 0) & (column < count) & (column == np.floor(column))
    return np.where(is_code, column, -1).astype(np.int64)
