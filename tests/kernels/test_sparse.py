"""Products with sparse rows: any shape against loops over all columns, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import naive
from arrays import assert_sums
from devices import DEVICES
from kernels import dispatch

DTYPES = ("float32", "float64")

pytestmark = [pytest.mark.every_case, pytest.mark.parametrize("device", DEVICES)]


@st.composite
def matrices(draw):
    """(indptr, indices, values, columns) of any density; entries before and after are others'."""
    rows, columns = draw(st.integers(0, 12)), draw(st.integers(1, 15))
    places = [
        sorted(draw(st.sets(st.integers(0, columns - 1), max_size=columns))) for _ in range(rows)
    ]
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    indptr = before + np.cumsum([0, *map(len, places)])
    used = [place for row in places for place in row]
    # Those of other rows would be out of range here.
    indices = np.array([columns + 5] * before + used + [-1] * after, np.int32)
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = generator.standard_normal(len(indices)).astype(draw(st.sampled_from(DTYPES)))
    values[draw(st.lists(st.integers(0, max(0, len(values) - 1)), max_size=3))[: len(values)]] = 0
    for array in (indptr, indices, values):
        array.flags.writeable = False
    return indptr.astype(np.int32), indices, values, columns


@given(matrices(), st.integers(0, 2**32 - 1))
def test_scores(device, matrix, seed):
    indptr, indices, values, columns = matrix
    generator = np.random.default_rng(seed)
    weight, bias = generator.standard_normal((columns, 1)).astype(values.dtype), np.array([0.75])
    out = np.full(len(indptr) - 1, np.nan, values.dtype)
    found = dispatch.get("csr_scores", device)(indptr, indices, values, weight[:, 0], 0.75, out)
    assert found is out
    dense = naive.csr_to_dense(indptr, indices, values, columns)
    magnitude = naive.affine(abs(dense), abs(weight), bias)[:, 0]
    assert_sums(out, naive.affine(dense, weight, bias)[:, 0], magnitude, columns)


@given(matrices(), st.integers(0, 2**32 - 1))
def test_gradients(device, matrix, seed):
    indptr, indices, values, columns = matrix
    rows = len(indptr) - 1
    delta = np.random.default_rng(seed).standard_normal(rows).astype(values.dtype)
    out = np.full(columns, np.nan, values.dtype)
    assert dispatch.get("csr_gradient", device)(indptr, indices, values, delta, out) is out
    dense = naive.csr_to_dense(indptr, indices, values, columns)
    expected = naive.affine_gradient(dense, delta[:, None])[0][:, 0]
    magnitude = naive.affine_gradient(abs(dense), abs(delta[:, None]))[0][:, 0]
    assert_sums(out, expected, magnitude, rows)
    # The same to the bit, for the columns that occur.
    kernel = dispatch.get("csr_gradient_sparse", device)
    touched, sums = kernel(indptr, indices, values, delta, columns)
    assert touched.dtype == np.int32
    assert touched.tolist() == sorted(set(indices[indptr[0] : indptr[-1]].tolist()))
    assert sums.dtype == values.dtype
    assert sums.tobytes() == out[touched].tobytes()
    rest = np.setdiff1d(np.arange(columns), touched)
    assert out[rest].tobytes() == bytes(out[rest].nbytes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_order_of_additions_is_that_of_the_entries(device, dtype):
    """Sums whose bits depend on it."""
    generator = np.random.default_rng(5)
    scale = 10.0 ** generator.integers(-6, 7, 300)
    values = (generator.standard_normal(300) * scale).astype(dtype)
    one_row, many = np.array([0, 300]), np.arange(301)
    expected = dtype_sum(values, np.dtype(dtype).type(0))
    assert expected != dtype_sum(values[::-1], np.dtype(dtype).type(0))
    columns, ones = np.arange(300, dtype=np.int32), np.ones(300, dtype)
    out = np.empty(1, dtype)
    dispatch.get("csr_scores", device)(one_row, columns, values, ones, 0.0, out)
    assert out[0] == expected
    zeros = np.zeros(300, np.int32)
    dispatch.get("csr_gradient", device)(many, zeros, values, ones, out)
    assert out[0] == expected


def dtype_sum(values, total):
    for value in values:
        total = total + value
    return total


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_stays_in_its_row_and_its_columns(device, dtype):
    indptr, indices = np.array([0, 2, 2, 4]), np.array([0, 3, 1, 3], np.int32)
    values = np.array([1, np.nan, 2, 3], dtype)
    out = np.empty(3, dtype)
    ones = np.ones(4, dtype)
    dispatch.get("csr_scores", device)(indptr, indices, values, ones, 0.5, out)
    np.testing.assert_array_equal(out, [np.nan, 0.5, 5.5])
    out = np.empty(4, dtype)
    dispatch.get("csr_gradient", device)(indptr, indices, values, ones[:3], out)
    np.testing.assert_array_equal(out, [1, 2, 0, np.nan])
