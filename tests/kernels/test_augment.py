"""Flips and shifts of images, against loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_shapes_that_do_not_match():
    x, flips, shifts = np.zeros((2, 1, 3, 3)), np.zeros(2, bool), np.zeros((2, 2), np.int64)
    with pytest.raises(ValueError, match=r"expected images .* found x \(2, 9\)"):
        augment(x.reshape(2, 9), flips, shifts, x)
    for out in (np.zeros((2, 1, 3, 4)), np.zeros(x.shape, np.float32)):
        with pytest.raises(ValueError, match="and out alike"):
            augment(x, flips, shifts, out)
    with pytest.raises(
        ValueError, match=r"expected flips \(2,\) and shifts \(2, 2\), found \(3,\)"
    ):
        augment(x, np.zeros(3, bool), shifts, np.empty_like(x))
    with pytest.raises(ValueError, match=r"found \(2,\) and \(2, 1\)"):
        augment(x, flips, shifts[:, :1], np.empty_like(x))
