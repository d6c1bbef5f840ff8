"""Flips and shifts of images, against loops."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import naive
from kernels import dispatch

augment = dispatch.get("augment")


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@given(
    st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 7)),
    st.integers(0, 99),
)
def test_every_pixel(dtype, shape, seed):
    random = np.random.default_rng(seed)
    x = (random.random(shape) * 250 + 1).astype(dtype)
    if dtype != "uint8":
        x[random.random(shape) < 0.1] = np.nan
    # Beyond the whole image, too.
    shifts = random.integers(-8, 9, (shape[0], 2))
    flips = random.random(shape[0]) < 0.5
    out = np.full_like(x, 77)
    # Rows of a dataset cannot be written to.
    x.flags.writeable = False
    assert augment(x, flips, shifts, out) is out
    np.testing.assert_array_equal(out, naive.augment(x, flips, shifts))
