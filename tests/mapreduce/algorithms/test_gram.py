"""Principal components and ridge regression beside scikit-learn's, and rows that they refuse."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from mapreduce.algorithms.gram import Gram, components, moments, ridge
from mapreduce.data.batch import Batch, Csr
from mapreduce.errors import DataError
from mapreduce.executors.here import Here
from quick import cases


def moments_of(x, y=None, weights=None):
    x = np.asarray(x, np.float64)
    rows = Batch(x, None if y is None else np.asarray(y), weights=weights)
    return moments(Here().advance(Gram.over(rows, target=y is not None)).blocks)


def sample(rows, columns, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, columns)) @ random.normal(size=(columns, columns))
    x = x * 10.0 ** random.integers(-2, 3, columns) + random.normal(size=columns) * 100
    return x, x @ random.normal(size=columns) + random.normal(size=rows), random


@cases("rows, columns", (3, 5), (300, 4), (5000, 30))
def test_components(rows, columns):
    x, _, _ = sample(rows, columns)
    found, twin = components(moments_of(x)), PCA().fit(x)
    count = min(rows - 1, columns)
    assert found.rank == count
    scale = twin.explained_variance_[0]
    np.testing.assert_allclose(
        found.variances[:count], twin.explained_variance_[:count], atol=1e-10 * scale
    )
    np.testing.assert_allclose(found.mean, twin.mean_, rtol=1e-11)
    clear = twin.explained_variance_[:count] > 1e-4 * scale
    np.testing.assert_allclose(
        found.vectors[:count][clear], twin.components_[:count][clear], atol=1e-8
    )


@cases("alpha", 0.0, 1e-3, 1.0, 1e4)
@cases("intercept", True, False)
def test_ridge(alpha, intercept):
    x, y, random = sample(2000, 6)
    for weights in (None, random.random(2000) * 3):
        found, bias = ridge(moments_of(x, y, weights), alpha, intercept)
        twin = Ridge(alpha=alpha, fit_intercept=intercept, solver="svd").fit(x, y, weights)
        # Of standardised columns and targets.
        errors = np.abs(found - twin.coef_) * x.std(axis=0) / y.std()
        assert errors.max() < 1e-10
        assert bias == pytest.approx(twin.intercept_, rel=1e-8)


@given(st.integers(1, 40), st.integers(0, 2**30))
def test_whole_numbers_are_not_rounded_at_all(rows, seed):
    """By exact fractions: what is rounded is a quotient, once."""
    random = np.random.default_rng(seed)
    x = random.integers(-(2**18), 2**18, (rows, 3))
    found = moments_of(x)
    deviations = x * rows - x.sum(axis=0)
    exact = deviations.astype(object).T @ deviations.astype(object)
    np.testing.assert_allclose(found.products, (exact / rows**2).astype(float), rtol=1e-11)
    assert found.rows == found.weight == rows


def test_weights_are_as_many_rows():
    x, y, random = sample(200, 3)
    times = random.integers(0, 4, 200)
    repeated = np.repeat(np.arange(200), times)
    found = ridge(moments_of(x, y, times.astype(float)), 1.0, True)
    expected = ridge(moments_of(x[repeated], y[repeated]), 1.0, True)
    np.testing.assert_allclose(np.append(*found), np.append(*expected), rtol=1e-7)


def test_large_numbers_close_together():
    """A column of times in seconds, whose squares cancel where they are not centred."""
    x, y, _ = sample(1000, 3)
    x[:, 1] = 1.7e9 + np.arange(1000) / 8
    found, _ = ridge(moments_of(x, y), 0.0, True)
    expected = np.linalg.lstsq(x - x.mean(axis=0), y - y.mean())[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_column_of_one_value():
    x, y, _ = sample(500, 3)
    x[:, 1] = 7.0
    coefficients, _ = ridge(moments_of(x, y), 0.0, True)
    assert coefficients[1] == 0
    found = components(moments_of(x))
    assert found.rank == 2
    assert found.variances[2] == 0


def test_columns_that_depend_on_each_other():
    x, y, _ = sample(500, 4)
    x[:, 3] = x[:, 0] + 2 * x[:, 1]
    with pytest.raises(DataError, match=r"column 3: it is a combination .* alpha larger than 0\.0"):
        ridge(moments_of(x, y), 0.0, True)
    found, _ = ridge(moments_of(x, y), 1.0, True)
    assert np.isfinite(found).all()


@cases(
    "change, message",
    ((3, 1, np.nan), "the data, row 3, column 1: expected finite numbers, found nan. Fill"),
    ((2999, 2, -np.inf), "the data, row 2999, column 2: expected finite numbers, found -inf"),
    ((0, 0, 1e300), "column 0: its numbers are between .* and 1e.300, and squares of these"),
)
def test_numbers_that_fixed_point_does_not_hold(change, message):
    x, _, _ = sample(3000, 3)
    row, column, value = change
    x[row, column] = value
    with pytest.raises(DataError, match=message):
        moments_of(x)


def test_outliers_of_little_weight():
    x, _, _ = sample(3000, 3)
    x[5, 1], weights = 1e16, np.ones(3000)
    weights[5] = 1e-30
    with pytest.raises(DataError, match="column 1: most of its numbers are so close to each other"):
        moments_of(x, weights=weights)
    weights[5] = 0
    assert moments_of(x, weights=weights).mean[1] == pytest.approx(np.delete(x, 5, 0)[:, 1].mean())


def test_tiny_numbers():
    x, _, _ = sample(30, 2)
    with pytest.raises(DataError, match=r"column 0: its numbers are .*, and 1 more"):
        moments_of(x * 1e-300)


@cases(
    "rows, message",
    (Batch(np.ones((4, 1001)), None), "expected at most 1000 columns, found 1001"),
    (Batch(np.ones((4, 2)), None, weights=np.zeros(4)), "all weights are 0"),
    (Batch(np.ones((2, 2)), None, weights=np.array([1, -1.0])), "expected finite weights of 0"),
    (Batch(Csr(*np.zeros((3, 2), np.int32), 4), None), "expected dense rows, found sparse ones"),
)
def test_rows_that_have_no_gram(rows, message):
    with pytest.raises(DataError, match=message):
        Here().advance(Gram.over(rows))


@cases("labels, kind", (None, "none"), (np.zeros(4, np.int32), "classes"))
def test_targets_are_numbers(labels, kind):
    with pytest.raises(DataError, match=f"expected labels that are numbers, found {kind}"):
        Here().advance(Gram.over(Batch(np.ones((4, 2)), labels), target=True))


def test_stored_integers_are_scaled():
    x = np.random.default_rng(0).integers(0, 256, (50, 3)).astype(np.uint8)
    found = moments(Here().advance(Gram.over(Batch(x, None, scale=1 / 255))).blocks)
    np.testing.assert_allclose(found.mean, x.mean(axis=0) / 255, rtol=1e-11)
