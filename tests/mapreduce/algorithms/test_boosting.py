"""Boosted trees: the same for any cut and any order of the rows, and those of a plain loop."""

import heapq
from functools import partial

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from kernels.cpu import bins as binning
from mapreduce.algorithms import boosting, cuts, growing
from mapreduce.algorithms.boosting import Boosting, trees_of
from mapreduce.algorithms.trees import arrays_of
from mapreduce.data.batch import Batch
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.engine.state import InMemory
from mapreduce.errors import DataError
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.models.fitted import FittedModel, TrainedOn
from mapreduce.runs.execution import Execution
from mapreduce.testing import check_program
from quick import cases

FEATURES = 5


def table(rows, classes, seed=0):
    """Rows with missing numbers, few values in a column, one value and none."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    x[:, 1] = random.integers(0, 6, rows)
    score = np.sin(2 * x[:, 0]) + 0.4 * x[:, 1] + 0.2 * random.normal(size=rows)
    x[random.random(x.shape) < 0.08] = np.nan
    x[:, 3], x[:, 4] = 7.0, np.nan
    if not classes:
        return x, score * 30 + 5
    edges = np.quantile(score, np.arange(1, classes) / classes)
    return x, np.searchsorted(edges, score).astype(np.int32)


def with_categories(rows, classes, seed=0):
    """The rows of :func:`table` with a category of 60 codes and one of 600, and these."""
    x, _ = table(rows, classes, seed)
    random, effects = np.random.default_rng(seed + 1), np.random.default_rng(9)
    x[:, 0], x[:, 2] = random.integers(0, 60, rows), (600 * random.random(rows) ** 4).astype(int)
    score = sum(effects.normal(size=600)[x[:, f].astype(int)] for f in (0, 2))
    score += np.nan_to_num(x[:, 1]) / 4 + 0.3 * random.normal(size=rows)
    x[random.random(rows) < 0.06, 2] = np.nan
    if not classes:
        return x, score, ((0, 60), (2, 600))
    edges = np.quantile(score, np.arange(1, classes) / classes)
    return x, np.searchsorted(edges, score).astype(np.int32), ((0, 60), (2, 600))


def program(x, y, classes, weights=None, unit_rows=97, **options):
    kind = type("Cut", (Boosting,), {"unit_rows": unit_rows, "name": "boosting"})
    return kind.over(Batch(x, y, 1.0, weights), features=FEATURES, classes=classes, **options)


def grown(boosting):
    """The trees and the base of a program that runs here."""
    (block,) = Here().advance(boosting).blocks
    return trees_of(block.arrays), boosting.base(block.arrays)


def fitted(boosting):
    trees, base = grown(boosting)
    return of_trees(trees, base, boosting.classes)


def of_trees(trees, base, classes):
    data = TrainedOn("of the test", None, FEATURES, (FEATURES,), (*range(classes),))
    return FittedModel("trees", {}, arrays_of(trees, base), data)


# Cuts


def quantiles(column):
    """The cuts of a column of numbers, some of which may be missing."""
    ordered = np.sort(column[~np.isnan(column)])
    if not len(ordered):
        return ordered
    found = np.unique(ordered[np.arange(1, 255) * len(ordered) // 255])
    return found[found < ordered[-1]]


@cases("rows", 1, 2, 100, 1000)
def test_cuts_are_quantiles(rows):
    x, _ = table(rows, 0)
    known = cuts.first(FEATURES)
    prefix, rank = known["prefix"], known["rank"]
    for number in range(cuts.PASSES):
        counts = None
        for start in range(0, rows, 33):
            counts = cuts.count(number, x[start : start + 33], cuts.cells(prefix), counts)
        prefix, rank = cuts.narrow(number, prefix, rank, counts)
    found, sizes = cuts.cuts_of(prefix)
    for f in range(FEATURES):
        np.testing.assert_array_equal(binning.numbers_of(found[f, : sizes[f]]), quantiles(x[:, f]))
        assert (found[f, sizes[f] :] == binning.NONE).all()


# A tree


def subsets(column, g, h, least_rows):
    """The rows that go left by each subset of codes: the first ones by gradient over hessian."""
    groups = {}
    for row, code in enumerate(column.tolist()):
        groups.setdefault("missing" if np.isnan(code) else code, []).append(row)
    few = [code for code, rows in groups.items() if len(rows) < min(10, least_rows)]
    if few:
        groups["few"] = [row for code in few for row in groups.pop(code)]
    order = sorted(groups, key=lambda code: g[groups[code]].sum() / (h[groups[code]].sum() + 10))
    for count in range(1, len(order)):
        if min(count, len(order) - count) > 32:
            continue
        left = np.zeros(len(column), bool)
        for code in order[:count]:
            left[groups[code]] = True
        yield left


def plain_tree(x, y, raw, bounds, leaves, least_rows, categories=()):
    """A tree of the log loss, best first, as the leaf of each row and what leaves are worth."""
    p = 1 / (1 + np.exp(-raw))
    g, h = p - y, p * (1 - p)

    def best(rows):
        def score(some, penalty=0):
            return g[some].sum() ** 2 / (h[some].sum() + penalty)

        def splits(f):
            if f in categories:
                yield from subsets(x[rows, f], g[rows], h[rows], least_rows)
                return
            missing = np.isnan(x[rows, f])
            for missing_left in (False, True) if missing.any() else (False,):
                for edge in [*bounds[f], np.inf]:
                    yield np.where(missing, missing_left, x[rows, f] <= edge)

        found = 0.0, 0, None
        for f in range(len(bounds)):
            for left in splits(f):
                if min(left.sum(), (~left).sum()) < least_rows:
                    continue
                penalty = 10 * (f in categories)
                gain = score(rows[left], penalty) + score(rows[~left], penalty) - score(rows)
                if gain > found[0] * (1 + 1e-9):
                    found = gain, 0, left
        return found

    everything = np.arange(len(x))
    ends, count = [], 0
    heap = [(-best(everything)[0], count, everything)]
    while heap:
        gain, _, rows = heapq.heappop(heap)
        if not gain or len(heap) + len(ends) + 1 == leaves:
            ends.append(rows)
            continue
        left = best(rows)[2]
        for part in (rows[left], rows[~left]):
            count += 1
            heapq.heappush(heap, (-best(part)[0], count, part))
    found = np.zeros(len(x))
    for rows in ends:
        found[rows] = -0.1 * g[rows].sum() / h[rows].sum()
    return found


@cases("decay, unit_rows", (0.0, 97), (0.5, 97), (0.5, 300), (1.0, 97), (1.0, 300))
def test_trees_grow_best_first_whatever_is_split_beside(monkeypatch, decay, unit_rows):
    monkeypatch.setattr(growing, "DECAY", decay)
    x, y = table(300, 2)
    boosting = program(x, y, 2, trees=3, leaves=9, least_rows=10, unit_rows=unit_rows)
    trees, base = grown(boosting)
    raw = np.repeat(base, len(x))
    np.testing.assert_allclose(base, np.log(y.mean() / (1 - y.mean())), rtol=1e-9)
    bounds = [quantiles(column) for column in x.T]
    for count in range(1, 4):
        raw = raw + plain_tree(x, y, raw, bounds, 9, 10)
        model = of_trees(trees[:count], base, 2)
        found = model.estimator().raw(Batch(x, None))[:, 0]
        np.testing.assert_allclose(found, raw, atol=1e-6)


def test_categories_are_split_as_by_a_plain_loop():
    x, y, categories = with_categories(400, 2)
    boosting = program(x, y, 2, trees=3, leaves=9, least_rows=10, categories=categories)
    trees, base = grown(boosting)
    raw, bounds = np.repeat(base, len(x)), [quantiles(column) for column in x.T]
    for count in range(1, 4):
        raw = raw + plain_tree(x, y, raw, bounds, 9, 10, [0, 2])
        found = of_trees(trees[:count], base, 2).estimator().raw(Batch(x, None))[:, 0]
        np.testing.assert_allclose(found, raw, atol=1e-6)
    flags = trees[..., 2][trees[..., 3] > 0]
    assert {*flags.tolist()} >= {0.0, 2.0}


def test_a_category_that_nobody_has_seen_goes_where_missing_ones_go():
    x, y, categories = with_categories(400, 2)
    x[x[:, 0] == 5, 0] = 6.0
    model = fitted(program(x, y, 2, trees=9, categories=categories)).estimator()
    rows = np.repeat(x[:50], 6, axis=0)
    rows[:, 0] = np.tile([np.nan, 5, 60, -1, 1e9, 2.5], 50)
    found = model.raw(Batch(rows, None)).reshape(50, 6)
    assert (found == found[:, :1]).all() and len(np.unique(found)) > 5


def test_more_columns_than_memory_holds():
    wide = Boosting("wide", "", features=100_000, classes=2)
    with pytest.raises(DataError, match=r"wide: expected at most 16,384 columns.* found 100,000"):
        wide.first(1)


def test_more_rounds_where_less_is_split_in_vain(monkeypatch):
    x, y = table(600, 2)
    rounds = {}
    for decay in (0.0, 0.5, 1.0):
        monkeypatch.setattr(growing, "DECAY", decay)
        boosting = program(x, y, 2, trees=4)
        rounds[decay] = Here().advance(boosting).completed
    assert rounds[0.0] <= rounds[0.5] < rounds[1.0]


def test_a_round_grows_a_tree_where_one_unit_has_all_rows(monkeypatch):
    x, y = table(600, 2)
    options = {"trees": 4, "least_rows": 2}
    monkeypatch.setattr(growing, "DECAY", 1.0)
    many, alone = program(x, y, 2, **options), program(x, y, 2, unit_rows=600, **options)
    # More leaves are tried than there is memory for at first.
    vars(alone)["_histograms"] = np.empty((3, alone.lanes.count, 256, 3), np.int64)
    done = Here().advance(alone)
    assert done.completed == cuts.PASSES + 4
    assert trees_of(done.blocks[0].arrays).tobytes() == grown(many)[0].tobytes()


def test_memory_is_for_no_more_leaves_than_rows():
    """Else many leaves of a wide table take more than a machine has, however few its rows are."""
    x, y = table(60, 2)
    alone = program(x, y, 2, trees=1, leaves=30_000, least_rows=2, unit_rows=32_768)
    grown(alone)
    assert len(vars(alone)["_histograms"]) <= 31


def test_a_tree_that_was_begun_in_rounds_is_finished():
    """As a run of an earlier version has left it."""
    x, y = table(600, 2)
    whole = grown(program(x, y, 2, trees=3))[0]
    state = InMemory(1)
    Here(state).advance(program(x, y, 2, trees=3), until=cuts.PASSES + 2)
    assert state.scalar(cuts.PASSES + 2, "progress")[2] > 0
    state._owned[cuts.PASSES + 2, 0] = {
        name: np.concatenate([state.own(cuts.PASSES + 2, unit)[name] for unit in range(7)], axis=1)
        for name in ("raw", "held")
    }
    state._own.clear()
    alone = program(x, y, 2, trees=3, unit_rows=600)
    done = Here(state).advance(alone, start=cuts.PASSES + 2)
    assert trees_of(done.blocks[0].arrays).tobytes() == whole.tobytes()


# The same for any cut and order

KINDS = {
    "two classes": (2, {}),
    "four classes": (4, {"trees": 2}),
    "numbers": (0, {"l2": 1.5}),
    "weights": (2, {}),
    "categories": (2, {}),
}


def rows_of(kind, rows=500):
    classes, options = KINDS[kind]
    options = {**options}
    x, y = table(rows, classes)
    if kind == "categories":
        x, y, options["categories"] = with_categories(rows, classes)
    weights = np.random.default_rng(5).random(rows) * 3 if kind == "weights" else None
    return x, y, classes, weights, {"trees": 4, "leaves": 7, **options}


@cases("kind", *KINDS)
def test_one_model_for_any_order_and_units(kind):
    x, y, classes, weights, options = rows_of(kind)
    trees, base = grown(program(x, y, classes, weights, **options))
    assert len(trees) == options["trees"] * len(base)
    order = np.random.default_rng(1).permutation(len(x))
    mixed = None if weights is None else weights[order]
    for unit_rows in (31, 500):
        again = program(x[order], y[order], classes, mixed, unit_rows, **options)
        for one, other in zip((trees, base), grown(again), strict=True):
            assert one.tobytes() == other.tobytes()


def imported(folder, kind, rows=500):
    """A program over a dataset of the rows."""
    x, y, classes, weights, options = rows_of(kind, rows)
    each = (slice(start, start + 50) for start in range(0, rows, 50))
    chunks = [Rows(x[at], y[at], None if weights is None else weights[at]) for at in each]
    import_rows(Source(chunks, (FEATURES,), 1.0, x.nbytes, {}), folder, 1)
    options |= {"least_rows": 5, "features": FEATURES, "classes": classes}
    return partial(Boosting.over, Dataset(folder), **options)


EXECUTIONS = {
    "here": Execution("inline", executor="here"),
    "chain": Execution("parallel", 2, start_method="fork", rounds_per_job=50),
    "blocks": Execution("parallel", 3, blocks=3, start_method="fork", rounds_per_job=50),
    "gang": Execution("parallel", 2, blocks=2, start_method="fork", executor="gang"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_of_programs(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(Boosting, "unit_rows", 40)
    check_program(imported(tmp_path / "data", kind, 130)(trees=1))


@cases(
    "kind, unit_rows", ("four classes", 90), ("numbers", 90), ("categories", 90), ("weights", 600)
)
def test_one_model_on_any_executor(monkeypatch, tmp_path, kind, unit_rows):
    # Workers are forked.
    monkeypatch.setattr(Boosting, "unit_rows", unit_rows)
    make, found = imported(tmp_path / "data", kind), {}
    for name, execution in EXECUTIONS.items():
        done = Resumable.of(execution, place=tmp_path / name).advance(make())
        found[name] = trees_of(done.blocks[0].arrays).tobytes()
    assert len({*found.values()}) == 1


@pytest.mark.parametrize("kind", ["weights", "numbers"])
def test_bins_in_a_file_are_those_in_memory(monkeypatch, tmp_path, kind):
    """With rows that are held out, too, and units of other lengths."""
    monkeypatch.setattr(Boosting, "unit_rows", 90)
    make = imported(tmp_path / "data", kind, 130)
    make, found, placed = partial(make, patience=9, held_out=0.3), {}, []
    plain = boosting.Scratch.put
    monkeypatch.setattr(boosting.Scratch, "put", lambda *own: placed.append(own) or plain(*own))
    for most in (boosting._MEMORY, 0):
        monkeypatch.setattr(boosting, "_MEMORY", most)
        program = make()
        found[most] = grown(program)[0].tobytes()
        units = [rows for both in program._units.values() for rows in both]
        assert len({rows.bins.flags.writeable for rows in units if rows.bins.size}) == 1
        assert sum(len(rows.bins) for rows in units) == 130
    assert len({*found.values()}) == 1
    assert [len(bins) > 0 for _, _, bins in placed] == [True] * len(placed)
    assert sum(bins.size for _, _, bins in placed) == 130 * FEATURES


def test_rows_in_memory_are_in_no_file(monkeypatch):
    monkeypatch.setattr(boosting, "_MEMORY", 0)
    monkeypatch.setattr(boosting, "Scratch", None)
    x, y = table(100, 2)
    assert len(grown(program(x, y, 2, trees=1))[0]) == 1


# Rows that are held out


@cases("classes", 2, 3, 0)
def test_trees_that_help_no_more_are_the_last(classes):
    x, y = table(800, classes)
    y = np.random.default_rng(3).permutation(y)
    patient = program(x, y, classes, trees=60, leaves=5, patience=3, held_out=0.3)
    trees, base = grown(patient)
    count = len(trees) // len(base)
    assert 3 <= count < 40
    back = x[::-1].copy(), y[::-1].copy()
    again = program(*back, classes, None, 61, trees=60, leaves=5, patience=3, held_out=0.3)
    assert grown(again)[0].tobytes() == trees.tobytes()


# Beside scikit-learn


@cases("classes", 2, 3, 0)
def test_as_good_as_scikit_learn(classes):
    x, y = table(2000, classes)
    later, labels = table(2000, classes, seed=1)
    model = fitted(program(x, y, classes, trees=20, unit_rows=700)).estimator()
    # It cannot take a column in which all numbers are missing.
    twin = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    twin = twin(early_stopping=False, max_iter=20).fit(x[:, :4], y)
    found = model.logits(Batch(later, None))
    if classes:
        score = (found.argmax(axis=1) == labels).mean()
        assert score > 0.75
        assert score == pytest.approx(twin.score(later[:, :4], labels), abs=0.01)
    else:
        errors = [
            ((one - labels) ** 2).mean() ** 0.5 for one in (found[:, 0], twin.predict(later[:, :4]))
        ]
        assert errors[0] < 15
        assert errors[0] == pytest.approx(errors[1], rel=0.02)


@cases("classes", 2, 0)
def test_categories_as_good_as_scikit_learn(classes):
    """Were codes in another order than that of the gradients, both scores would be far lower."""
    (x, y, _), (later, labels, _) = (with_categories(3000, classes, seed) for seed in (0, 4))
    each = (array[:, [0, 1]] for array in (x, later))
    boosting, twin = HistGradientBoostingRegressor, HistGradientBoostingClassifier
    (x, later), kind = each, twin if classes else boosting
    twin = kind(early_stopping=False, max_iter=10, categorical_features=[0]).fit(x, y)
    wide = np.full((2, 3000, FEATURES), np.nan, np.float32)
    wide[0, :, :2], wide[1, :, :2] = x, later
    found = program(wide[0], y, classes, None, 700, trees=10, leaves=31, categories=((0, 60),))
    found = fitted(found).estimator().logits(Batch(wide[1], None))
    if classes:
        score = (found.argmax(axis=1) == labels).mean()
        assert score == pytest.approx(twin.score(later, labels), abs=0.01) and score > 0.6
    else:
        one, other = (((each - labels) ** 2).mean() for each in (found[:, 0], twin.predict(later)))
        assert one == pytest.approx(other, rel=0.02) and one < 0.8 * labels.var()


def test_weights_count_rows_more_than_once():
    x, y = table(400, 2)
    times = np.random.default_rng(2).integers(1, 4, len(x))
    one = fitted(program(x, y, 2, times.astype(float), trees=3, leaves=4, least_rows=1))
    twice = np.repeat(np.arange(len(x)), times)
    other = fitted(program(x[twice], y[twice], 2, trees=3, leaves=4, least_rows=1))
    np.testing.assert_allclose(one.arrays["value"], other.arrays["value"], atol=0.05)
    np.testing.assert_array_equal(one.arrays["feature"], other.arrays["feature"])


# The fitted model


def test_a_scale_is_one_in_training_and_prediction():
    """Thresholds are numbers of the data, so that a rounding of another kind moves rows."""
    _, y = table(400, 2)
    stored = np.random.default_rng(1).integers(0, 256, (400, FEATURES)).astype(np.uint8)
    stored[:, 0] = y * 40 + stored[:, 0] % 80
    scaled = stored.astype(np.float32) * np.float32(1 / 255)
    found = []
    for batch in (Batch(stored, y, 1 / 255), Batch(scaled, y)):
        boosting = Boosting.over(batch, features=FEATURES, classes=2, trees=5)
        found.append(fitted(boosting).estimator().raw(batch))
    np.testing.assert_array_equal(*found)


@cases("classes, has_categories", (2, False), (3, False), (0, False), (3, True))
def test_a_model_is_a_file(tmp_path, classes, has_categories):
    x, y = table(200, classes)
    categories = ()
    if has_categories:
        x, y, categories = with_categories(200, classes)
    model = fitted(program(x, y, classes, trees=2, categories=categories))
    assert ("subsets" in model.arrays) == has_categories
    model.save(tmp_path / "model.safetensors")
    again = FittedModel.load(tmp_path / "model.safetensors")
    assert again.model_sha256 == model.model_sha256
    batch = Batch(x, y)
    for method in ("logits", "probabilities"):
        one, other = (getattr(each.estimator(), method)(batch) for each in (model, again))
        np.testing.assert_array_equal(one, other)
        alone = getattr(again.estimator(), method)(batch[7:8])
        np.testing.assert_array_equal(alone, one[7:8])


@cases(
    "name, change",
    ("base", lambda array: np.ones(3)),
    ("roots", lambda array: array.astype(np.int64)),
    ("left", None),
)
def test_arrays_of_another_model(name, change):
    x, y = table(100, 2)
    model = fitted(program(x, y, 2, trees=1))
    arrays = {key: array for key, array in model.arrays.items() if key != name}
    if change is not None:
        arrays[name] = change(model.arrays[name])
    wrong = FittedModel("trees", {}, arrays, model.data)
    with pytest.raises(DataError, match="is damaged: expected 1 columns of trees"):
        wrong.estimator()


def test_trees_are_packed_by_powers_of_two():
    packs, sizes = {}, []
    for number in range(21):
        packs = growing.with_tree(packs, np.full((3, 5), number), number)
        sizes.append([len(packs[name]) for name in sorted(packs)])
        found = np.concatenate([packs[name] for name in sorted(packs)])
        assert found[:, 0, 0].tolist() == [*range(number + 1)]
    assert sizes[:8] == [[1], [2], [2, 1], [4], [4, 1], [4, 2], [4, 2, 1], [8]]
    assert sizes[-1] == [16, 4, 1]
