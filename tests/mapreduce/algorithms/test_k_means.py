"""k-means beside scikit-learn's, and rows that it refuses."""

import numpy as np
import pytest
from sklearn.cluster import KMeans as Twin

from mapreduce.algorithms.k_means import _FILL, KMeans, _least
from mapreduce.data.batch import Batch
from mapreduce.errors import DataError
from mapreduce.executors.here import Here
from quick import cases


def fit(x, weights=None, executor=None, **fields):
    rows = Batch(np.asarray(x), None, weights=weights)
    return (executor or Here()).advance(KMeans.over(rows, **fields)).blocks[0].arrays


def sample(rows, columns, clusters, seed=0):
    random = np.random.default_rng(seed)
    centres = 4 * random.normal(size=(clusters, columns))
    return centres[random.integers(0, clusters, rows)] + random.normal(size=(rows, columns)), random


def own_inertia(x, centres, weights=None):
    squares = ((x[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
    return (squares * (1 if weights is None else weights)).sum()


@cases("rows, columns, clusters", (40, 1, 2), (3000, 4, 6), (9000, 20, 12))
def test_centres_are_those_of_scikit_learn_from_the_same_beginning(rows, columns, clusters):
    x, random = sample(rows, columns, clusters)
    for weights in (None, random.random(rows) + 0.2):
        found = fit(x, weights, clusters=clusters, tolerance=0.0)
        assert found["inertia"] == pytest.approx(own_inertia(x, found["centres"], weights))
        # Where it ends, nothing moves there either.
        twin = Twin(clusters, init=found["centres"], n_init=1, tol=0).fit(x, None, weights)
        np.testing.assert_allclose(twin.cluster_centers_, found["centres"], rtol=1e-5, atol=1e-5)
        assert twin.inertia_ == pytest.approx(float(found["inertia"]), rel=1e-7)


def test_it_ends_as_near_as_scikit_learn():
    """In the median over seeds."""
    for blobs in (True, False):
        x, random = sample(3000, 5, 10)
        x = x if blobs else random.random(size=(3000, 5))
        own = [float(fit(x, clusters=10, seed=seed)["inertia"]) for seed in range(7)]
        twins = [Twin(10, random_state=seed, n_init=1).fit(x).inertia_ for seed in range(7)]
        assert np.median(own) <= 1.01 * np.median(twins)


def test_weights_are_as_many_rows():
    random = np.random.default_rng(0)
    x = 20 * np.eye(3)[random.integers(0, 3, 500)] + random.normal(size=(500, 3))
    times = random.integers(1, 4, 500)
    found = fit(x, times.astype(float), clusters=3)
    expected = fit(np.repeat(x, times, axis=0), clusters=3)
    by = np.argsort(found["centres"][:, 0]), np.argsort(expected["centres"][:, 0])
    np.testing.assert_allclose(
        found["centres"][by[0]], expected["centres"][by[1]], rtol=1e-9, atol=1e-9
    )


def test_rows_of_weight_0_count_for_nothing():
    x, _ = sample(600, 3, 3)
    weights = np.ones(600)
    x[::50], weights[::50] = 1e3, 0
    found = fit(x, weights, clusters=3)
    assert np.abs(found["centres"]).max() < 100


def test_ties_go_to_the_first_centre():
    x = np.array([[0.0], [2.0], [1.0], [1.0]])
    found = fit(x, clusters=3, limit=5)
    assert sorted(found["centres"].ravel()) == [0, 1, 2]
    assert found["inertia"] == 0


def test_an_empty_cluster_gets_the_farthest_row(monkeypatch):
    """Two centres begin at one place, where one of them gets no row."""
    x, _ = sample(400, 2, 3)
    plain, stages = KMeans._chosen, []

    def chosen(self, *arguments):
        found = plain(self, *arguments)
        return np.stack([found[0], found[0], found[1]])

    def outcome(self, now, *arguments):
        stages.append(self._stage(now))
        return original(self, now, *arguments)

    original = KMeans.outcome
    monkeypatch.setattr(KMeans, "_chosen", chosen)
    monkeypatch.setattr(KMeans, "outcome", outcome)
    found = fit(x, clusters=3)
    assert _FILL in stages
    assert len(np.unique(found["centres"], axis=0)) == 3
    monkeypatch.undo()
    assert found["inertia"] == pytest.approx(float(fit(x, clusters=3)["inertia"]), rel=0.02)


@cases(
    "x, clusters, distinct",
    (np.ones((9, 2)), 2, 1),
    (np.repeat(np.eye(3), 5, axis=0), 4, 3),
    (np.ones((1, 1)), 2, 1),
)
def test_more_clusters_than_different_rows(x, clusters, distinct):
    message = f"the data: expected at least {clusters} different rows.*found {distinct}. Take at"
    with pytest.raises(DataError, match=message):
        fit(x, clusters=clusters)
    assert len(fit(x, clusters=distinct)["centres"]) == distinct


@cases("value", np.nan, np.inf, -np.inf)
def test_numbers_that_are_not_finite(value):
    x, _ = sample(20, 2, 2)
    x[7, 1] = value
    with pytest.raises(DataError, match="row 7, column 1: expected finite numbers"):
        fit(x, clusters=2)


def test_many_columns():
    x, _ = sample(50, 20_000, 2)
    found = fit(x, clusters=2)
    assert found["inertia"] == pytest.approx(own_inertia(x, found["centres"]), rel=1e-6)


def test_what_is_drawn_does_not_depend_on_the_order():
    random = np.random.default_rng(0)
    rows = random.integers(0, 3, (300, 2)).astype(float)
    # Equal rows have equal keys, as some others have.
    keys = np.array([3, 1, 4, 1, 5, 2, 6, 5, np.inf])[(rows @ [1, 3]).astype(int)]
    expected = sorted({(key, *row) for key, row in zip(keys, rows, strict=True) if key < np.inf})
    content = list(dict.fromkeys(row for _, *row in expected for row in [tuple(row)]))
    for count in (1, 4, 9, 20):
        order = random.permutation(300)
        parts = [_least(keys[part], rows[part], count) for part in (order[:99], order[99:])]
        joined = [np.concatenate([part[name] for part in parts]) for name in ("keys", "rows")]
        drawn = _least(*joined, count)["rows"]
        assert [tuple(row) for row in drawn] == content[:count]
