"""PCA and ridge of rows that come in parts: one model for any cuts and any order of the rows."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.exceptions import NotFittedError

from mapreduce.algorithms import gram
from mapreduce.algorithms.gram import ProductSums
from mapreduce.errors import DataError, UsageError
from mapreduce.estimators import PCA, Ridge
from quick import cases

BITS = {"PCA": "d92e841752d3", "Ridge": "52311fec68e7"}


def table(rows=4000):
    """Columns of several sizes, by operations that any processor rounds alike."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 4)) * [1.0, 1e-3, 1e5, 1.0] + [0, 0, 1e6, -3]
    return x, x[:, 0] - 2 * x[:, 3] + random.normal(size=rows), random.random(rows)


def in_parts(model, x, y, weights, cuts=()):
    """The model after parts of the rows, between the cuts."""
    for start, stop in zip([0, *cuts], [*cuts, len(x)], strict=True):
        part = slice(start, stop)
        if stop > start:
            more = (y[part], weights[part]) if isinstance(model, Ridge) else ()
            model.partial_fit(x[part], *more)
    return model


def digest(model):
    arrays = model.fitted_.arrays
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()[:12]


@cases("kind", PCA, Ridge)
def test_any_cuts_and_any_order(kind):
    x, y, weights = table()
    assert digest(in_parts(kind(), x, y, weights)) == BITS[kind.__name__]

    @settings(max_examples=4, deadline=None)
    @given(st.lists(st.integers(0, len(x)), max_size=4).map(sorted), st.integers(0, 99))
    def law(cuts, seed):
        order = np.random.default_rng(seed).permutation(len(x))
        model = in_parts(kind(), x[order], y[order], weights[order], cuts)
        assert digest(model) == BITS[kind.__name__]

    law()


def test_sums_that_are_rounded_would_be_seen(monkeypatch):
    """A mutation: products of 50 bits, whose sums no float holds."""
    monkeypatch.setattr(gram, "_bands", lambda rows: [(-5, np.rint(rows * 32))])
    x, y, weights = table()
    # Which sums are rounded depends on the processor's BLAS.
    orders = [np.random.default_rng(seed).permutation(len(x)) for seed in range(8)]
    assert len({digest(in_parts(PCA(), x[rows], y, weights)) for rows in orders}) > 1


def test_a_row_at_a_time():
    x, y, weights = table(30)
    for kind in (PCA, Ridge):
        whole = digest(in_parts(kind(), x, y, weights))
        assert digest(in_parts(kind(), x, y, weights, range(1, 30))) == whole


def test_the_model_is_that_of_fit_but_for_its_last_digits():
    x, y, weights = table()
    parts, whole = in_parts(Ridge(0.1), x, y, weights, [9]), Ridge(0.1).fit(x, y, weights)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-7)
    assert parts.intercept_ == pytest.approx(whole.intercept_, rel=1e-7)
    parts, whole = in_parts(PCA(3), x, y, weights, [9]), PCA(3).fit(x)
    np.testing.assert_allclose(parts.transform(x), whole.transform(x), rtol=1e-5, atol=1e-5)
    assert parts.n_samples_ == len(x)


@given(
    st.lists(
        st.tuples(*[st.floats(-1e100, 1e100, allow_subnormal=False)] * 2), min_size=1, max_size=6
    )
)
@settings(max_examples=40, deadline=None)
def test_sums_are_exact(rows):
    sums = ProductSums()
    sums.add(np.array(rows))
    found, count = sums.moments(), len(rows)
    columns = [[Fraction(value) for value in column] for column in zip(*rows, strict=True)]
    for i, left in enumerate(columns):
        assert found.mean[i] == float(sum(left) / count)
        for j, right in enumerate(columns):
            products = sum(a * b for a, b in zip(left, right, strict=True))
            assert found.products[i, j] == float(products - sum(left) * sum(right) / count)
    assert (found.weight, found.rows) == (count, count)


def test_too_few_rows_are_kept_until_there_are_more():
    x, y, weights = table(9)
    model = PCA(3).partial_fit(x[:3])
    with pytest.raises(NotFittedError):
        model.transform(x)
    assert digest(model.partial_fit(x[3:])) == digest(in_parts(PCA(3), x, y, weights))
    line = Ridge(0).partial_fit(x[:2], y[:2])
    assert not hasattr(line, "coef_")
    assert line.partial_fit(x[2:], y[2:]).score(x, y) == pytest.approx(
        Ridge(0).fit(x, y).score(x, y)
    )


def test_parts_that_do_not_fit():
    x, y, _ = table(20)
    with pytest.raises(UsageError, match="X: expected rows, found a path"):
        PCA().partial_fit("data/train")
    with pytest.raises(ValueError, match="features"):
        PCA().partial_fit(x).partial_fit(x[:, :2])
    with pytest.raises(DataError, match=r"expected numbers below 2\*\*500"):
        PCA().partial_fit(x * 1e200)
    with pytest.raises(DataError, match="expected at most 1000 columns, found 1001"):
        PCA().partial_fit(np.ones((2, 1001)))
    with pytest.raises(ValueError, match="eights"):
        Ridge().partial_fit(x, y, np.zeros(20))
    with pytest.raises(DataError, match="all weights are 0"):
        (sums := ProductSums()).add(x, np.zeros(20))
        sums.moments()
    with pytest.warns(UserWarning, match="partial_fit begins anew: fit has rounded"):
        again = PCA().fit(x).partial_fit(x[:9])
    assert digest(again) == digest(PCA().partial_fit(x[:9]))
