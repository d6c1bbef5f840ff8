"""Bins, gradients, histograms and splits of boosted trees, beside plain loops."""

import heapq

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kernels import dispatch
from kernels.cpu import bins as binning, trees
from quick import cases

NUMBERS = st.floats(width=32, allow_nan=False)
ROWS, FEATURES = 400, 3


@pytest.fixture(name="x")
def numbers():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    x[:, 1] = random.integers(0, 9, ROWS)
    x[random.random(x.shape) < 0.1] = np.nan
    return x


@pytest.fixture(name="bins")
def rows_in_bins():
    random = np.random.default_rng(1)
    bins = random.integers(0, 12, (ROWS, FEATURES)).astype(np.uint8)
    bins[random.random(bins.shape) < 0.2] = binning.MISSING
    bins[:, 2] %= 12
    return bins


def gradients_of(rows):
    random = np.random.default_rng(2)
    g = random.integers(-(1 << 30), 1 << 30, rows)
    h = random.integers(1, 1 << 26, rows)
    return g, h, np.stack([g, h], axis=1).astype(np.int32)


def histogram_of(bins, rows, gradients):
    packed = np.zeros((bins.shape[1], 256, 2), np.int64)
    found = np.zeros((bins.shape[1], 256, 3), np.int64)
    dispatch.get("pack_histogram")(bins, rows, gradients, packed)
    dispatch.get("unpack_histogram")(packed, found)
    assert not packed.any()
    return found


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_keys_have_the_order_of_the_numbers(numbers):
    ordered = np.sort(np.array(numbers, np.float32))
    keys = binning.keys_of(ordered)
    np.testing.assert_array_equal(ordered[1:] > ordered[:-1], keys[1:] > keys[:-1])
    np.testing.assert_array_equal(binning.numbers_of(keys), ordered)
    assert (keys < binning.NONE).all()


def test_bins_are_how_many_cuts_are_below(x):
    cuts = np.full((FEATURES, 255), binning.NONE, np.uint32)
    edges = [np.array([-1.5, -0.0, 0.3, 2.0]), np.arange(254.0), np.array([])]
    for row, each in zip(cuts, edges, strict=True):
        row[: len(each)] = binning.keys_of(each)
    x[:4, 0] = -0.0, 0.0, np.inf, -np.inf
    found = dispatch.get("bin_rows")(x, cuts)
    for f, each in enumerate(edges):
        expected = np.where(np.isnan(x[:, f]), binning.MISSING, np.searchsorted(each, x[:, f]))
        np.testing.assert_array_equal(found[:, f], expected)


def test_counts_of_the_next_bits_of_some_prefixes(x):
    keys = binning.keys_of(np.where(np.isnan(x), 0, x)).astype(np.int64)
    prefixes = np.full((FEATURES, 255), binning.NONE, np.uint32)
    for f in range(FEATURES):
        some = np.unique(keys[:, f] >> 16)[::2]
        prefixes[f, : len(some)] = some
    counts = np.zeros((255, FEATURES, 256), np.int64)
    dispatch.get("count_cells")(x, 8, prefixes, counts)
    expected = np.zeros_like(counts)
    for row in range(ROWS):
        for f in range(FEATURES):
            (places,) = np.nonzero(prefixes[f] == keys[row, f] >> 16)
            if not np.isnan(x[row, f]) and len(places):
                expected[places[0], f, keys[row, f] >> 8 & 255] += 1
    np.testing.assert_array_equal(counts, expected)
    assert 0 < counts.sum() < ROWS * FEATURES


@cases("classes", 1, 2, 4)
@cases("is_weighted", False, True)
def test_gradients_of_the_log_loss(classes, is_weighted):
    random = np.random.default_rng(3)
    raw = random.normal(size=(classes, ROWS)) * 4
    raw[:, 0], raw[0, 1] = 900.0, -900.0
    labels = random.integers(0, max(classes, 2), ROWS).astype(np.int32)
    weights = random.random(ROWS) if is_weighted else np.zeros(0)
    whole = np.concatenate([np.zeros_like(raw), raw]) if classes == 1 else raw
    shares = np.exp(whole - whole.max(axis=0))
    shares /= shares.sum(axis=0)
    for label in range(classes):
        out = np.empty((ROWS, 2), np.int32)
        dispatch.get("log_loss_gradients")(raw, label, labels, weights, out)
        p, scale = shares[label if classes > 1 else 1], weights if is_weighted else 1.0
        is_label = labels == (label if classes > 1 else 1)
        assert abs(out[:, 0] / 2**30 - (p - is_label) * scale).max() < 2**-30
        assert abs(out[:, 1] / 2**28 - p * (1 - p) * scale).max() < 2**-28


@cases("classes", 1, 2, 4)
def test_log_losses(classes):
    random = np.random.default_rng(3)
    raw = random.normal(size=(classes, ROWS)) * 4
    labels = random.integers(0, max(classes, 2), ROWS).astype(np.int32)
    whole = np.concatenate([np.zeros_like(raw), raw]) if classes == 1 else raw
    shares = np.exp(whole) / np.exp(whole).sum(axis=0)
    found = dispatch.get("log_losses")(raw, labels)
    np.testing.assert_allclose(found, -np.log(shares[labels, np.arange(ROWS)]), 1e-11, 1e-14)
    with pytest.raises(ValueError, match="labels up to 7"):
        dispatch.get("log_losses")(raw, labels + 7 - labels.max())


def test_gradients_of_the_squared_error():
    random = np.random.default_rng(4)
    raw, labels, weights = random.normal(size=(3, ROWS)) * 3
    weights = np.abs(weights) / 16
    out = np.empty((ROWS, 2), np.int32)
    largest = dispatch.get("squared_gradients")(raw, 32.0, labels, weights, out)
    assert largest == abs(raw - labels).max()
    assert abs(out[:, 0] / 2**30 - (raw - labels) / 32 * weights).max() < 2**-30
    assert abs(out[:, 1] / 2**28 - weights).max() < 2**-28


def test_histograms_are_sums(bins):
    g, h, gradients = gradients_of(ROWS)
    rows = np.arange(5, ROWS, 3, dtype=np.int32)
    expected = np.zeros((FEATURES, 256, 3), np.int64)
    for f in range(FEATURES):
        for place, values in enumerate((g, h, np.ones_like(g))):
            np.add.at(expected[f, :, place], bins[rows, f], values[rows])
    np.testing.assert_array_equal(histogram_of(bins, rows, gradients), expected)


def test_the_largest_histogram_does_not_overflow():
    """Of rows with the largest gradients, weights and hessians, all of them in one bin."""
    rows = trees.MOST_ROWS
    each = np.full((rows, 2), 1 << 28, np.int32)
    each[:, 0] = -(1 << 30)
    order = np.arange(rows, dtype=np.int32)
    found = histogram_of(np.zeros((rows, 1), np.uint8), order, each)
    assert found[0, 0].tolist() == [-(rows << 30), rows << 28, rows]


@cases("missing_left", False, True)
def test_rows_that_go_left_are_first(bins, missing_left):
    rows = np.arange(3, ROWS, 2, dtype=np.int32)
    at = bins[rows, 1]
    goes = np.where(at == binning.MISSING, missing_left, at <= 4)
    order = rows.copy()
    left = dispatch.get("split_rows")(bins, order, 1, 4, missing_left, np.empty(ROWS, np.int32))
    assert order[:left].tolist() == rows[goes].tolist()
    assert order[left:].tolist() == rows[~goes].tolist()


def plain_best(histogram, sizes, least_rows, l2):
    """Every split, one after another."""
    total = histogram[0].sum(axis=0)

    def score(sums):
        return (sums[0] / 2**30) ** 2 / (sums[1] / 2**28 + l2)

    best = 0.0, None
    for f, size in enumerate(sizes):
        missing = histogram[f, 255]
        for missing_left in (False, True) if missing[2] else (False,):
            for last in range(size + 1):
                left = histogram[f, : last + 1].sum(axis=0) + missing * missing_left
                right = total - left
                if min(left[2], right[2]) < least_rows:
                    continue
                gain = score(left) + score(right) - score(total)
                if gain > best[0] * (1 + 1e-12):
                    best = gain, (f, last, missing_left, *left)
    return best


@cases("least_rows, l2", (1, 0.0), (60, 0.0), (20, 5.0), (250, 0.0))
def test_the_best_split_of_all(bins, least_rows, l2):
    _, _, gradients = gradients_of(ROWS)
    histogram = histogram_of(bins, np.arange(ROWS, dtype=np.int32), gradients)
    sizes, found = np.array([11, 11, 11]), np.zeros(9, np.int64)
    expected, split = plain_best(histogram, sizes, least_rows, l2)
    scale = 2.0**-30, 2.0**-28
    gain = dispatch.get("best_split")(histogram, sizes, least_rows, l2, *scale, found)
    assert gain == pytest.approx(expected, rel=1e-12)
    assert found[6:].tolist() == histogram[0].sum(axis=0).tolist()
    if split is None:
        assert gain == 0.0 and least_rows == 250
        return
    if not histogram[split[0], 255, 2]:
        split = (*split[:2], 2 * split[5] > ROWS, *split[3:])
    assert found[:6].tolist() == [*split]


def subset_of(bits):
    words = np.zeros(19, np.int64)
    for code in np.flatnonzero(bits).tolist():
        words[code // 32] |= 1 << code % 32
    return words


@pytest.fixture(name="codes")
def pages_of_codes():
    """Codes below 600, -1 where one is missing, and their bins on three pages."""
    codes = np.random.default_rng(4).integers(-1, 600, ROWS)
    pages = codes[:, None] - 254 * np.arange(3)
    bins = np.where((pages >= 0) & (pages < 254), pages, binning.ELSEWHERE).astype(np.uint8)
    bins[codes < 0, 0] = binning.MISSING
    return codes, np.concatenate([np.zeros((ROWS, 1), np.uint8), bins], axis=1)


@cases("missing_left", False, True)
def test_codes_of_a_subset_are_first(codes, missing_left):
    codes, bins = codes
    bits = np.random.default_rng(5).random(600) < 0.4
    goes = np.where(codes < 0, missing_left, bits[codes])
    order, scratch = np.arange(ROWS, dtype=np.int32), np.empty(ROWS, np.int32)
    how = 1, 4, subset_of(bits), missing_left, scratch
    left = dispatch.get("split_subset")(bins, order, *how)
    assert order[:left].tolist() == np.flatnonzero(goes).tolist()
    assert order[left:].tolist() == np.flatnonzero(~goes).tolist()
    with pytest.raises(ValueError, match="columns 2 to 5 of 4"):
        dispatch.get("split_subset")(bins, order, 2, 5, *how[2:])


def test_of_equal_gains_the_first_feature_has_it(codes):
    _, bins = codes
    _, _, gradients = gradients_of(ROWS)
    pages = histogram_of(bins, np.arange(ROWS, dtype=np.int32), gradients)[1:]
    how, gains = (1, 0.0, 2.0**-30, 2.0**-28), []
    for other in (3, 5, 7):
        found = np.zeros(9 + 19, np.int64)
        found[6:9], found[0] = pages[0].sum(axis=0), other
        best = gains[0] if gains else 0.0
        gains.append(dispatch.get("best_subset")(pages, 5, 600, *how, best, found))
        assert found[0] == (min(other, 5) if best else 5)
    assert gains[0] > 0 and len({*gains}) == 1


def plain_next(splits, split_gains, gains, most, decay):
    """Which splits a tree has, and which leaves come next, by a heap of all nodes."""
    node, split = {0: 0}, {}
    for number, (leaf, *_, new) in enumerate(splits.tolist()):
        split[node[leaf]] = number
        node[leaf], node[new] = 2 * number + 1, 2 * number + 2
    gain = {node[leaf]: each for leaf, each in enumerate(gains.tolist())}
    gain |= {at: float(split_gains[number]) for at, number in split.items()}
    leaf_of, taken, after = {at: leaf for leaf, at in node.items()}, [], []
    reached = [(-gain[0], 0)]
    for _ in range(most - 1):
        value, at = heapq.heappop(reached)
        if -value < 1e-10:
            break
        if at in split:
            children = (2 * split[at] + 1, 2 * split[at] + 2)
            taken += [] if after else [split[at]]
        else:
            after += [leaf_of[at]] if at in leaf_of else []
            children = ()
        for child in children:
            heapq.heappush(reached, (-gain[child], child))
        for _ in range(2 - len(children)):
            heapq.heappush(reached, (value * decay, 10**9))
    return [node[leaf] for leaf in range(len(node))], taken, after


@given(
    st.lists(st.integers(0, 99), max_size=12),
    st.lists(st.integers(0, 5), min_size=25, max_size=25),
    st.integers(2, 15),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_trees_grow_in_the_order_of_their_gains(parents, gains, most, decay):
    """With many equal gains, of which the node with the lower number is first."""
    count = len(parents)
    splits = np.zeros((count, 5), np.int64)
    for number, parent in enumerate(parents):
        splits[number, [0, 4]] = parent % (number + 1), number + 1
    numbers = np.array(gains, float)
    known = splits, numbers[:count], numbers[count : 2 * count + 1], most, decay
    nodes, of_nodes, taken, after = trees.next_splits(*known)
    assert (nodes.tolist(), taken.tolist(), after.tolist()) == plain_next(*known)
    assert (of_nodes[nodes] == -1).all() and sorted(of_nodes[of_nodes >= 0]) == [*range(count)]


def how_of(lanes, least_rows=5, **changes):
    features = np.arange(lanes)
    how = trees.Search(
        np.full(lanes, 11), features, np.arange(lanes + 1), None, least_rows, 0.0, 2**-30, 2**-28
    )
    return how._replace(**changes)


def test_a_tree_needs_memory_for_all_leaves_that_it_tries(bins):
    _, _, gradients = gradients_of(ROWS)
    found = {}
    for room in (3, 8, 40):
        memory = np.zeros((room, FEATURES, 256, 3), np.int64)
        found[room] = trees.grow_tree(bins, gradients, how_of(FEATURES), 9, 1.0, memory)
    assert found[3] is None and found[8] is None
    splits, leaves = found[40].splits, found[40].leaves
    assert len(leaves) == len(splits) + 1 >= 9
    whole = gradients.sum(axis=0, dtype=np.int64)
    assert leaves[:, 7:10].sum(axis=0).tolist() == [*whole.tolist(), ROWS]
    for row, start, stop in zip(leaves, found[40].starts, found[40].stops, strict=True):
        rows = found[40].order[start:stop]
        assert row[7:10].tolist() == [*gradients[rows].sum(axis=0, dtype=np.int64), len(rows)]


@cases(
    "changes, message",
    ({"starts": np.arange(3)}, "grow_tree: .* 2 lanes: expected .* and 3"),
    ({"cuts": np.full(3, 255)}, "grow_tree: .* 255 cuts .* expected at most .* 254"),
    ({"cuts": np.full(2, 9)}, "grow_tree: cuts has shape"),
    ({"codes": np.zeros(2, int)}, "grow_tree: starts has shape"),
)
def test_lanes_that_do_not_belong_together(bins, changes, message):
    _, _, gradients = gradients_of(ROWS)
    memory = np.zeros((9, FEATURES, 256, 3), np.int64)
    with pytest.raises(ValueError, match=message):
        trees.grow_tree(bins, gradients, how_of(FEATURES, **changes), 9, 0.5, memory)


def test_splits_of_leaves_that_are_not_there():
    with pytest.raises(ValueError, match="leaves up to 1"):
        trees.next_splits(np.array([[0, 0, 0, 0, 2]]), np.ones(1), np.ones(2), 4, 0.5)


TREE = {
    "roots": np.array([0, 3], np.int32),
    "feature": np.array([1, 0, 0, 2, 0, 0, 0, 0], np.int32),
    "threshold": np.array([0.5, 0, 0, -1, 0, 0.25, 0, 0], np.float32),
    "missing_left": np.array([1, 0, 0, 0, 0, 1, 0, 0], np.uint8),
    "left": np.array([1, 0, 0, 4, 0, 6, 0, 0], np.int32),
    "value": np.array([0, 1.5, -2, 0, 10, 0, 20, 40]),
}


def test_rows_reach_their_leaves(x):
    x[:2, 1] = 0.5, np.nextafter(np.float32(0.5), np.float32(1))
    raw = np.ones((ROWS, 2))
    dispatch.get("add_trees")(x, *TREE.values(), raw)
    for row, found in zip(x, raw, strict=True):
        first = 1.5 if np.isnan(row[1]) or row[1] <= 0.5 else -2.0
        second = 20.0 if np.isnan(row[0]) or row[0] <= 0.25 else 40.0
        second = 10.0 if row[2] <= -1 else second
        assert found.tolist() == [1 + first, 1 + second]


def test_codes_reach_their_leaves(x):
    bits = np.array([1, 0, 0, 1, 0, 0, 1, 0, 0])
    tree = {**TREE, "missing_left": np.array([3, 0, 0, 2, 0, 1, 0, 0], np.uint8)}
    tree["threshold"] = np.array([1, 0, 0, 0, 0, 0.25, 0, 0], np.float32)
    subsets = np.stack([subset_of(1 - bits), subset_of(bits)])[:, :1].astype(np.uint32)
    x[:, 2] = x[::-1, 1]
    x[:5, 1] = -1, 32, 2.5, 1e30, 8
    raw, none = np.zeros((ROWS, 2)), np.zeros((ROWS, 2))
    dispatch.get("add_trees")(x, *tree.values(), raw, subsets)
    for row, (first, second) in zip(x, raw, strict=True):
        known = {code: code in (0, 3, 6) for code in range(32)}
        assert first == (1.5 if known.get(row[1], True) else -2.0)
        assert (second == 10.0) == (row[2] in (1, 2, 4, 5, 7, 8))
    with pytest.raises(ValueError, match="subsets below 1"):
        dispatch.get("add_trees")(x, *tree.values(), none, subsets[:1])


@cases(
    "name, at, value, message",
    ("left", 0, 7, "children below 8"),
    ("left", 3, 3, "children after their parent"),
    ("left", 3, 1, "children after their parent"),
    ("feature", 5, 3, "features below 3"),
    ("feature", 5, -1, "features below 3"),
    ("roots", 1, 8, "roots below 8"),
)
def test_trees_that_lead_nowhere(x, name, at, value, message):
    wrong = {key: array.copy() for key, array in TREE.items()}
    wrong[name][at] = value
    with pytest.raises(ValueError, match=message):
        dispatch.get("add_trees")(x, *wrong.values(), np.ones((ROWS, 1)))
