"""Losses of linear models: against the definitions, and where exponentials would overflow."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import naive
from devices import DEVICES
from kernels import dispatch
from kernels.cpu.linear import LOSSES

DTYPES = ("float32", "float64")
CLASSIFIERS = ("logistic", "squared_hinge", "hinge")

pytestmark = [pytest.mark.every_case, pytest.mark.parametrize("device", DEVICES)]


@st.composite
def rows(draw, most=30):
    """Scores, many of them where a loss has its kink, targets and weights."""
    count = draw(st.integers(0, most))
    some = st.floats(-30, 30, width=32) | st.sampled_from([-1.0, 0.0, 1.0, -0.0, 1e-30, -700.0])
    scores = draw(st.lists(some, min_size=count, max_size=count))
    targets = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    weights = draw(
        st.none() | st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.5]), min_size=count, max_size=count)
    )
    return scores, np.array(targets, np.int32), None if weights is None else np.array(weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", LOSSES)
@given(rows())
def test_losses_and_derivatives(device, loss, dtype, drawn):
    scores, targets, weights = drawn
    scores = np.array(scores, dtype)
    losses, derivatives = naive.linear_losses(loss, scores, targets, weights)
    found = scores.copy()
    got = dispatch.get("linear_loss", device)(loss, found, targets, weights)
    assert type(got) is float
    # Terms are not negative: nothing cancels, but for 1 - m near the kink.
    assert got == pytest.approx(losses.sum(), rel=1e-13, abs=1e-14)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, derivatives, rtol=4 * eps, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_as_targets(device, dtype):
    generator = np.random.default_rng(3)
    scores, targets = (generator.normal(size=50) * 100 for _ in range(2))
    scores = scores.astype(dtype)
    losses, derivatives = naive.linear_losses("squared", scores, targets)
    found = scores.copy()
    got = dispatch.get("linear_loss", device)("squared", found, targets)
    assert got == pytest.approx(losses.sum(), rel=1e-13)
    np.testing.assert_allclose(found, derivatives, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", CLASSIFIERS)
@pytest.mark.parametrize("far", [40.0, 800.0, 1e4, math.inf])
def test_far_scores(device, loss, dtype, far):
    """What is right costs nothing, and what is wrong costs its distance; nothing overflows."""
    scores = np.array([far, -far, far, -far], dtype)
    targets = np.array([1, 0, 0, 1], np.int32)
    derivatives = scores.copy()
    got = dispatch.get("linear_loss", device)(loss, derivatives, targets)
    per_row = {"logistic": far, "hinge": 1 + far, "squared_hinge": (1 + far) ** 2}[loss]
    assert got == pytest.approx(2 * per_row, rel=1e-14)
    slope = 2 * (1 + far) if loss == "squared_hinge" else 1.0
    tolerance = 1e-16 if loss == "logistic" else 0
    np.testing.assert_allclose(derivatives, [0, 0, slope, -slope], rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_nan_is_seen_and_stays_in_its_row(device, loss, dtype, where):
    scores = np.array([0.5, -0.25, 2], dtype)
    scores[where] = math.nan
    assert math.isnan(dispatch.get("linear_loss", device)(loss, scores, np.array([0, 1, 1])))
    assert np.flatnonzero(np.isnan(scores)).tolist() == [where]


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.lists(st.floats(-50, 50, width=32), max_size=30))
def test_sigmoid(device, dtype, scores):
    scores = np.array(scores, dtype)
    expected = naive.sigmoid(scores.astype("float64"))
    found = dispatch.get("sigmoid", device)(scores)
    assert found is scores
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid_far_out(device, dtype):
    scores = np.array([800, -800, math.inf, -math.inf, math.nan, -0.0], dtype)
    found = dispatch.get("sigmoid", device)(scores)
    np.testing.assert_array_equal(found, [1, 0, 1, 0, math.nan, 0.5])
