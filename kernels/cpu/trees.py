"""Gradient boosting by histograms: splits and trees of the rows of :mod:`kernels.cpu.bins`.

A *subset* of a category's codes has a bit for each, in words of 32 bits.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.bins import MISSING, PAGE
from kernels.cpu.shapes import expect, expect_all

Array = npt.NDArray[Any]

#: Nodes that split a category have this added to their ``missing_left``.
SUBSET = 2
#: Rows of which one histogram may be: the sum of their hessians is below ``2**_COUNT_BITS``.
MOST_ROWS = (1 << 16) - 1

#: A packed hessian has a 1 from this bit on, so that one sum has both the hessians and the rows.
_COUNT_BITS = 44
_ROW = 1 << _COUNT_BITS
_HESSIANS = _ROW - 1
#: Rows that go through all trees together.
_BLOCK = 256
#: Two children have at least this sum of hessians each, as those of scikit-learn's and LightGBM's.
_LEAST_HESSIAN = 1e-3
#: A gain below this is none.
_LEAST_GAIN = 1e-10
#: The number of all nodes that are not known yet, above all others.
_EXPECTED = 1 << 62
#: So that nothing is divided by zero.
_TINY = 1e-15
#: Codes of fewer rows in a leaf are one group, and the hessian that is added to that of a code when
#: codes are put in order: so few rows do not come first or last by chance. As scikit-learn's.
_CATEGORY_ROWS, _SMOOTH = 10, 10.0
#: The penalty of a category's split, which may follow chance since it is the best of many, and the
#: groups that one of its sides has at most. As LightGBM's.
_CATEGORY_L2, _CATEGORY_GROUPS = 10.0, 32


@jit
def _pack_histogram(bins, order, gradients, packed):
    features, pairs = bins.shape[1], len(order) // 2
    for k in range(pairs):
        # Two at a time: the sums of one row do not wait for those of another.
        i, j = order[2 * k], order[2 * k + 1]
        gradient, hessian = np.int64(gradients[i, 0]), _ROW + gradients[i, 1]
        other_gradient, other_hessian = np.int64(gradients[j, 0]), _ROW + gradients[j, 1]
        for f in range(features):
            at, other = bins[i, f], bins[j, f]
            packed[f, at, 0] += gradient
            packed[f, at, 1] += hessian
            packed[f, other, 0] += other_gradient
            packed[f, other, 1] += other_hessian
    for i in order[2 * pairs :]:
        for f in range(features):
            packed[f, bins[i, f], 0] += gradients[i, 0]
            packed[f, bins[i, f], 1] += _ROW + gradients[i, 1]


def pack_histogram(bins: Array, order: Array, gradients: Array, packed: Array) -> None:
    """Add the rows whose numbers are ``order`` to a packed histogram (features, 256, 2), int64."""
    expect("pack_histogram", "gradients", gradients, (len(bins), 2))
    expect("pack_histogram", "packed", packed, (bins.shape[1], 256, 2))
    _pack_histogram(bins, order, gradients, packed)


@jit
def _unpack_histogram(packed, histogram):
    for f in range(packed.shape[0]):
        for at in range(256):
            both = packed[f, at, 1]
            if both:
                histogram[f, at, 0] += packed[f, at, 0]
                histogram[f, at, 1] += both & _HESSIANS
                histogram[f, at, 2] += both >> _COUNT_BITS
                packed[f, at, 0] = 0
                packed[f, at, 1] = 0


def unpack_histogram(packed: Array, histogram: Array) -> None:
    """Add a packed histogram, of at most :data:`MOST_ROWS` rows, to a histogram, and empty it."""
    expect("unpack_histogram", "packed", packed, (len(packed), 256, 2))
    expect("unpack_histogram", "histogram", histogram, (len(packed), 256, 3))
    _unpack_histogram(packed, histogram)


@jit
def _split_rows(bins, order, feature, last, missing_left, scratch):
    left, right = 0, 0
    for k in range(len(order)):
        i = order[k]
        at = bins[i, feature]
        if missing_left if at == 255 else at <= last:
            order[left] = i
            left += 1
        else:
            scratch[right] = i
            right += 1
    for k in range(right):
        order[left + k] = scratch[k]
    return left


def split_rows(
    bins: Array, order: Array, feature: int, last: int, missing_left: bool, scratch: Array
) -> int:
    """Put the rows ``order`` that go left first, both in their order; returns how many these are.

    Those go left whose bin is at most ``last``, and missing ones if ``missing_left``. ``scratch``
    is memory for as many rows.
    """
    if not 0 <= feature < bins.shape[1] or not len(order) <= min(len(scratch), len(bins)):
        raise ValueError(
            f"split_rows: feature {feature} of {bins.shape[1]}, and {len(order)} of {len(bins)} "
            f"rows with scratch for {len(scratch)}: expected at most as many"
        )
    return int(_split_rows(bins, order, feature, last, missing_left, scratch))


@jit
def _split_subset(bins, order, lane, stop, subset, missing_left, scratch):
    left, right = 0, 0
    for k in range(len(order)):
        i = order[k]
        goes = missing_left
        for page in range(stop - lane):
            at = np.int64(bins[i, lane + page])
            if at == MISSING:
                break
            if at < PAGE:
                code = page * PAGE + at
                if code < 32 * len(subset):
                    goes = (subset[code >> 5] >> (code & 31)) & 1 == 1
                break
        if goes:
            order[left] = i
            left += 1
        else:
            scratch[right] = i
            right += 1
    for k in range(right):
        order[left + k] = scratch[k]
    return left


def split_subset(
    bins: Array,
    order: Array,
    lane: int,
    stop: int,
    subset: Array,
    missing_left: bool,
    scratch: Array,
) -> int:
    """Put the rows ``order`` first whose code is in a subset; see :func:`split_rows`.

    The bins' columns from ``lane`` to ``stop`` have the category. ``subset``: Words, int64; a code
    beyond them counts as missing.
    """
    if not 0 <= lane < stop <= bins.shape[1] or not len(order) <= min(len(scratch), len(bins)):
        raise ValueError(f"split_subset: columns {lane} to {stop} of {bins.shape[1]}")
    return int(_split_subset(bins, order, lane, stop, subset, missing_left, scratch))


@jit
def _best_split(histogram, sizes, least_rows, l2, gradient, hessian, found):
    total_g, total_h, total_n = 0, 0, 0
    for at in range(256):
        total_g += histogram[0, at, 0]
        total_h += histogram[0, at, 1]
        total_n += histogram[0, at, 2]
    found[6], found[7], found[8] = total_g, total_h, total_n
    g, h = total_g * gradient, total_h * hessian
    whole = g * g / (h + l2 + _TINY)
    best = 0.0
    for f in range(histogram.shape[0]):
        missing = histogram[f, 255, 2]
        for side in range(2 if missing else 1):
            left_g, left_h, left_n = 0, 0, 0
            if side:
                left_g, left_h, left_n = histogram[f, 255, 0], histogram[f, 255, 1], missing
            # A split after the last bin has the missing ones alone on its right.
            for at in range(sizes[f] + 1 if missing and not side else sizes[f]):
                left_g += histogram[f, at, 0]
                left_h += histogram[f, at, 1]
                left_n += histogram[f, at, 2]
                if left_n < least_rows:
                    continue
                if total_n - left_n < least_rows:
                    break
                lg, lh = left_g * gradient, left_h * hessian
                rg, rh = (total_g - left_g) * gradient, (total_h - left_h) * hessian
                if lh < _LEAST_HESSIAN or rh < _LEAST_HESSIAN:
                    continue
                gain = lg * lg / (lh + l2 + _TINY) + rg * rg / (rh + l2 + _TINY) - whole
                if gain > best:
                    best = gain
                    found[0], found[1] = f, at
                    # Where none is missing here, one goes with the more rows.
                    found[2] = side if missing else 2 * left_n > total_n
                    found[3], found[4], found[5] = left_g, left_h, left_n
    return best


def best_split(
    histogram: Array,
    sizes: Array,
    least_rows: int,
    l2: float,
    gradient: float,
    hessian: float,
    found: npt.NDArray[np.int64],
) -> float:
    """The split of a leaf that lowers the loss most, of the features of a histogram.

    The gain is that of T. Chen and C. Guestrin (XGBoost, 2016), equation 7, without its factor of a
    half and its cost of a leaf. Of equal gains the first feature has it, then the first bin, then
    the split whose missing rows go right.

    Parameters
    ----------
    histogram : array (features, 256, 3), int64
    sizes : array (features,), int64
        Cuts of each feature.
    least_rows : int
        Rows of a child.
    l2 : float
    gradient, hessian : float
        What a gradient, and a hessian, of 1 stands for.
    found : array (9,), int64
        Takes the feature, the last bin that goes left, whether missing ones go left, sums of the
        left child (gradients, hessians, rows), and those of the leaf.

    Returns
    -------
    float
        The gain; 0.0 if there is no split.
    """
    expect("best_split", "histogram", histogram, (len(sizes), 256, 3))
    expect("best_split", "found", found, (9,))
    if sizes.max(initial=0) > 254:
        raise ValueError(f"best_split: {sizes.max()} cuts, expected at most 254")
    return float(_best_split(histogram, sizes, least_rows, l2, gradient, hessian, found))


@jit
def _best_subset(pages, feature, codes, least_rows, l2, gradient, hessian, best, found):
    total_g, total_h, total_n = found[6], found[7], found[8]
    g, h = total_g * gradient, total_h * hessian
    whole = g * g / (h + l2 + _TINY)
    # Groups of rows: one for each code, one for missing ones, and one for all with few rows.
    sums = np.zeros((codes + 2, 3), np.int64)
    least = min(_CATEGORY_ROWS, least_rows)
    for code in range(codes + 1):
        page, at = (code // PAGE, code % PAGE) if code < codes else (0, MISSING)
        group = code if pages[page, at, 2] >= least else codes + 1
        for each in range(3):
            sums[group, each] += pages[page, at, each]
    score = np.full(codes + 2, np.inf)
    for group in range(codes + 2):
        if sums[group, 2]:
            score[group] = sums[group, 0] * gradient / (sums[group, 1] * hessian + _SMOOTH)
    order = np.argsort(score, kind="mergesort")
    used = int(np.count_nonzero(sums[:, 2]))
    last, l2 = -1, l2 + _CATEGORY_L2
    left_g, left_h, left_n = 0, 0, 0
    for k in range(used):
        left_g += sums[order[k], 0]
        left_h += sums[order[k], 1]
        left_n += sums[order[k], 2]
        if left_n < least_rows or min(k + 1, used - k - 1) > _CATEGORY_GROUPS:
            continue
        if total_n - left_n < least_rows:
            break
        lg, lh = left_g * gradient, left_h * hessian
        rg, rh = (total_g - left_g) * gradient, (total_h - left_h) * hessian
        if lh < _LEAST_HESSIAN or rh < _LEAST_HESSIAN:
            continue
        gain = lg * lg / (lh + l2) + rg * rg / (rh + l2) - whole
        if gain > best or (gain == best and gain > 0.0 and feature < found[0]):
            best, last = gain, k
            found[0], found[3], found[4], found[5] = feature, left_g, left_h, left_n
    if last < 0:
        return best
    goes = np.zeros(codes + 2, np.bool_)
    goes[order[: last + 1]] = True
    missing_left = 2 * found[5] > total_n
    if pages[0, MISSING, 2]:
        missing_left = goes[codes if sums[codes, 2] else codes + 1]
    found[1], found[2], found[9:] = -1, missing_left, 0
    for code in range(32 * (len(found) - 9)):
        rows = pages[code // PAGE, code % PAGE, 2] if code < codes else 0
        is_left = goes[code if rows >= least else codes + 1] if rows else missing_left
        found[9 + (code >> 5)] |= np.int64(is_left) << (code & 31)
    return best


def best_subset(
    pages: Array,
    feature: int,
    codes: int,
    least_rows: int,
    l2: float,
    gradient: float,
    hessian: float,
    best: float,
    found: npt.NDArray[np.int64],
) -> float:
    """The split of a leaf by a category, if it lowers the loss by more than ``best``.

    The codes are put in order by gradient over hessian, and a subset is the first of them: of all
    subsets the best is such a one (W. Fisher, "On grouping for maximum homogeneity", 1958). Since a
    code with few rows comes first or last by chance, there are :data:`_CATEGORY_L2` and the like.
    Of equal gains the first feature has it, then the smallest subset. A code without rows goes
    where missing ones go.

    Parameters
    ----------
    pages : array (pages, 256, 3), int64
        The histogram of the category's columns of bins.
    feature, codes : int
        The number of the category, and how many codes it has.
    least_rows, l2, gradient, hessian : int, float
        See :func:`best_split`.
    best : float
        The gain of ``found``.
    found : array (9 + words,), int64
        Has the sums of the leaf, and takes the rest as of :func:`best_split`, with -1 as the last
        bin, and the subset that goes left.

    Returns
    -------
    float
        The larger of the two gains.
    """
    expect("best_subset", "pages", pages, (-(-codes // PAGE), 256, 3))
    expect("best_subset", "found", found, (max(len(found), 9 - -codes // 32),))
    how = least_rows, l2, gradient, hessian
    return float(_best_subset(pages, feature, codes, *how, best, found))


@jit
def _next_splits(splits, split_gains, gains, most, decay):
    count = len(splits)
    node_of, leaf_of = np.zeros(count + 1, np.int64), np.zeros(2 * count + 1, np.int64)
    split_of, gain_of = np.full(2 * count + 1, -1), np.zeros(2 * count + 1)
    for number in range(count):
        leaf, new = splits[number, 0], splits[number, 4]
        split_of[node_of[leaf]], gain_of[node_of[leaf]] = number, split_gains[number]
        node_of[leaf], node_of[new] = 2 * number + 1, 2 * number + 2
    for leaf in range(count + 1):
        gain_of[node_of[leaf]], leaf_of[node_of[leaf]] = gains[leaf], leaf
    taken, upcoming = np.zeros(most, np.int64), np.zeros(most, np.int64)
    steps, waiting = 0, 0
    # Of equal gains the node with the lower number is first.
    reached = [(-gain_of[0], 0)]
    for _ in range(most - 1):
        gain, node = heapq.heappop(reached)
        if -gain < _LEAST_GAIN:
            break
        if node < _EXPECTED and split_of[node] >= 0:
            number = split_of[node]
            for child in (2 * number + 1, 2 * number + 2):
                heapq.heappush(reached, (-gain_of[child], child))
            if not waiting:
                taken[steps] = number
                steps += 1
            continue
        if node < _EXPECTED:
            upcoming[waiting] = leaf_of[node]
            waiting += 1
        for _ in range(2):
            heapq.heappush(reached, (gain * decay, _EXPECTED))
    return node_of, split_of, taken[:steps], upcoming[:waiting]


def next_splits(
    splits: Array, split_gains: Array, gains: Array, most: int, decay: float
) -> tuple[Array, Array, Array, Array]:
    """Which splits belong to a tree that grows best first, and which leaves to split next.

    Parameters
    ----------
    splits : array (n, 5 or more), int64
        Of which the first number is a leaf, and the fifth the leaf that its right child is.
    split_gains : array (n,), float64
    gains : array (n + 1,), float64
        Of the leaves.
    most : int
        Leaves that the tree may have.
    decay : float
        The gain that a child is expected to have, as a share of its parent's.

    Returns
    -------
    tuple of array
        The node of each leaf; the split of each node, or -1; the splits that the tree has, in their
        order, as far as they are known; and the leaves that are expected to be split next, of which
        the first one will be.
    """
    expect("next_splits", "split_gains", split_gains, (len(splits),))
    expect("next_splits", "gains", gains, (len(splits) + 1,))
    if ((splits[:, [0, 4]] < 0) | (splits[:, [0, 4]] > len(splits))).any():
        raise ValueError(f"next_splits: expected leaves up to {len(splits)}")
    found: tuple[Array, Array, Array, Array] = _next_splits(splits, split_gains, gains, most, decay)
    return found


class Search(NamedTuple):
    """How splits are searched in all lanes, the columns of bins.

    ``cuts`` (lanes,): How many the number in a lane has; -1 for a category. ``features`` (lanes,):
    Of each lane. ``starts`` (features + 1,): The first lane of each. ``codes`` (features,): How
    many a category has, else 0; None if none is one. For the rest see :func:`best_split`.
    """

    cuts: Array
    features: Array
    starts: Array
    codes: Array | None
    least_rows: int
    l2: float
    gradient: float
    hessian: float


@jit
def _search(histogram, how, codes, row):
    row[:] = 0
    worth = how.least_rows, how.l2, how.gradient, how.hessian
    gain = _best_split(histogram, how.cuts, *worth, row[:9])
    row[0] = how.features[row[0]]
    # Numba does not compile what follows for None.
    if codes is not None:
        for feature in range(len(codes)):
            if codes[feature]:
                pages = histogram[how.starts[feature] : how.starts[feature + 1]]
                gain = _best_subset(pages, feature, codes[feature], *worth, gain, row)
    return gain


@jit
def _add_rows(bins, order, gradients, packed, histogram):
    histogram[:] = 0
    _pack_histogram(bins, order, gradients, packed)
    _unpack_histogram(packed, histogram)


@jit
def _grow_tree(bins, gradients, how, most, decay, words, packed, histograms):
    room, count, waiting = len(histograms) - 1, 0, 1
    splits, split_gains = np.zeros((room, 6 + words), np.int64), np.zeros(room)
    leaves, gains = np.zeros((room + 1, 10 + words), np.int64), np.zeros(room + 1)
    starts, stops = np.zeros(room + 1, np.int64), np.zeros(room + 1, np.int64)
    order, scratch = np.arange(len(bins)).astype(np.int32), np.empty(len(bins), np.int32)
    stops[0], place_of = len(bins), np.arange(room + 1)
    _add_rows(bins, order, gradients, packed, histograms[0])
    gains[0] = _search(histograms[0], how, how.codes, leaves[0, 1:])
    while True:
        known = splits[:count], split_gains[:count], gains[: count + 1]
        _, _, taken, upcoming = _next_splits(*known, most, decay)
        if not len(upcoming) or count + len(upcoming) > room:
            waiting = len(upcoming)
            break
        is_last, before = len(taken) == most - 2, count
        for leaf in upcoming:
            new, one = count + 1, splits[count]
            one[4], one[5] = new, 2 * leaves[leaf, 6] > leaves[leaf, 9]
            for at in range(4):
                one[at] = leaves[leaf, at]
            for at in range(words):
                one[6 + at] = leaves[leaf, 10 + at]
            split_gains[count] = gains[leaf]
            rows, lane = order[starts[leaf] : stops[leaf]], how.starts[one[1]]
            if one[2] < 0:
                stop = how.starts[one[1] + 1]
                left = _split_subset(bins, rows, lane, stop, one[6:], one[3] > 0, scratch)
            else:
                left = _split_rows(bins, rows, lane, one[2], one[3] > 0, scratch)
            starts[new], stops[new] = starts[leaf] + left, stops[leaf]
            stops[leaf] = starts[new]
            count += 1
            if is_last:
                # What its children gain does not count.
                leaves[new, 0], gains[leaf] = new, 0.0
                for at in range(7, 10):
                    leaves[new, at] = leaves[leaf, at] - leaves[leaf, at - 3]
                    leaves[leaf, at] = leaves[leaf, at - 3]
                leaves[leaf, 1:7] = 0
                leaves[leaf, 10:] = 0
        if is_last:
            waiting = 0
            break
        for one in splits[before:count]:
            leaf, new = one[0], one[4]
            smaller = new if one[5] else leaf
            rows = order[starts[smaller] : stops[smaller]]
            whole, part = histograms[place_of[leaf]], histograms[new]
            _add_rows(bins, rows, gradients, packed, part)
            for f in range(len(whole)):
                for at in range(256):
                    for each in range(3):
                        whole[f, at, each] -= part[f, at, each]
            if smaller == leaf:
                place_of[leaf], place_of[new] = new, place_of[leaf]
            for child in (leaf, new):
                leaves[child, 0] = child
                at = place_of[child]
                gains[child] = _search(histograms[at], how, how.codes, leaves[child, 1:])
    return count, waiting, splits, split_gains, leaves, gains, order, starts, stops


class Grown(NamedTuple):
    """A tree: see :class:`mapreduce.algorithms.growing.Growth`, and where the rows are.

    The numbers of the rows of a leaf are ``order[start:stop]`` of ``starts`` and ``stops``.
    """

    splits: Array
    split_gains: Array
    leaves: Array
    gains: Array
    order: Array
    starts: Array
    stops: Array


def grow_tree(
    bins: Array, gradients: Array, how: Search, most: int, decay: float, histograms: Array
) -> Grown | None:
    """Grow a tree on rows that are all here.

    Parameters
    ----------
    bins : array (rows, lanes), uint8
        At most :data:`MOST_ROWS` rows.
    gradients : array (rows, 2), int32
    how : Search
    most, decay : int, float
        See :func:`next_splits`.
    histograms : array (n, lanes, 256, 3), int64
        Memory for those of n leaves. There may be more of them than ``most``, since leaves are
        split that the tree then does not reach.

    Returns
    -------
    Grown or None
        None if the memory was not enough.
    """
    rows, lanes = bins.shape
    expect("grow_tree", "gradients", gradients, (rows, 2))
    expect("grow_tree", "histograms", histograms, (len(histograms), lanes, 256, 3))
    expect_all("grow_tree", (lanes,), cuts=how.cuts, features=how.features)
    codes = np.zeros(len(how.starts) - 1, np.int64) if how.codes is None else how.codes
    expect("grow_tree", "starts", how.starts, (len(codes) + 1,))
    if rows > MOST_ROWS or how.cuts.max() > 254 or how.starts[-1] != lanes:
        raise ValueError(
            f"grow_tree: {rows} rows, {how.cuts.max()} cuts and {how.starts[-1]} lanes: expected "
            f"at most {MOST_ROWS} and 254, and {lanes}"
        )
    words, packed = -(-int(codes.max()) // 32), np.zeros((lanes, 256, 2), np.int64)
    found = _grow_tree(bins, gradients, how, most, decay, words, packed, histograms)
    count, waiting, *arrays = found
    if waiting:
        return None
    sizes = count, count, count + 1, count + 1, rows, count + 1, count + 1
    return Grown(*(array[:size] for array, size in zip(arrays, sizes, strict=True)))


@jit
def _add_leaves(order, starts, stops, values, raw):
    for leaf in range(len(values)):
        for k in range(starts[leaf], stops[leaf]):
            raw[order[k]] += values[leaf]


def add_leaves(order: Array, starts: Array, stops: Array, values: Array, raw: Array) -> None:
    """Add the value of each leaf to the raw scores (rows,), float64, of its rows.

    These are ``order[start:stop]`` of its ``starts`` and ``stops``.
    """
    expect_all("add_leaves", values.shape, starts=starts, stops=stops)
    expect("add_leaves", "order", order, raw.shape)
    if max(starts.max(initial=0), stops.max(initial=0)) > len(order):
        raise ValueError(f"add_leaves: leaves beyond the {len(order)} rows")
    _add_leaves(order, starts, stops, values, raw)


@jit
def _add_trees(x, roots, feature, threshold, missing_left, left, value, raw, subsets):
    rows, columns = raw.shape
    codes = 32 * subsets.shape[1]
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        for t in range(len(roots)):
            for i in range(start, stop):
                node = roots[t]
                while left[node] > 0:
                    number, flags = x[i, feature[node]], missing_left[node]
                    if number != number:
                        goes = flags & 1 != 0
                    elif flags < SUBSET:
                        goes = number <= threshold[node]
                    elif 0 <= number < codes and number == np.floor(number):
                        code = np.int64(number)
                        word = subsets[np.int64(threshold[node]), code >> 5]
                        goes = (np.int64(word) >> (code & 31)) & 1 != 0
                    else:
                        goes = flags & 1 != 0
                    node = left[node] if goes else left[node] + 1
                raw[i, t % columns] += value[node]


def add_trees(
    x: Array,
    roots: Array,
    feature: Array,
    threshold: Array,
    missing_left: Array,
    left: Array,
    value: Array,
    raw: Array,
    subsets: Array | None = None,
) -> None:
    """Add the trees' values to the raw scores (rows, columns), float64, of x (rows, features).

    Tree ``t`` adds to column ``t % columns``, and begins at node ``roots[t]``. A node ``i`` with
    ``left[i] > 0`` has the children ``left[i]`` and ``left[i] + 1``: a row goes to the first if its
    number is at most ``threshold[i]``, or missing and ``missing_left[i]`` is odd.

    If ``missing_left[i]`` has :data:`SUBSET` in it, the number is a code: the row goes to the first
    if the code is in the subset (words,), uint32, whose number is ``threshold[i]``. A number that
    is no code counts as missing.
    """

    nodes = {"feature": feature, "threshold": threshold, "missing_left": missing_left}
    expect_all("add_trees", value.shape, left=left, **nodes)
    expect("add_trees", "raw", raw, (len(x), raw.shape[1]))
    subsets = np.zeros((0, 1), np.uint32) if subsets is None else subsets
    size, places = len(value), threshold[missing_left >= SUBSET]
    # Each node leads to later ones, so that no loop goes on for ever.
    for wrong, what in (
        (((roots < 0) | (roots >= size)).any(), f"roots below {size}"),
        (((feature < 0) | (feature >= x.shape[1])).any(), f"features below {x.shape[1]}"),
        (((left != 0) & (left <= np.arange(size))).any(), "children after their parent"),
        ((left >= size - 1).any() and size > 0, f"children below {size}"),
        (not ((places >= 0) & (places < len(subsets))).all(), f"subsets below {len(subsets)}"),
    ):
        if wrong:
            raise ValueError(f"add_trees: expected {what}")
    _add_trees(x, roots, feature, threshold, missing_left, left, value, raw, subsets)
