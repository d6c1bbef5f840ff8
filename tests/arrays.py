"""Random arrays, and what sums in another order may differ by."""

import numpy as np


def normal(seed, shape, dtype="float32"):
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_sums(found, expected, magnitude, terms):
    """Any order of additions stays within ``terms`` roundings of the sum of magnitudes.

    What is stored as float16 is summed in float32, and rounded once more.
    """
    is_half = found.dtype == np.float16
    bound = (terms + 2) * np.finfo("float32" if is_half else found.dtype).eps * np.abs(magnitude)
    if is_half:
        bound += np.abs(expected) * 2.0**-11 + 2.0**-25
    assert np.all(np.abs(found - expected) <= bound)


def differences(function, x, epsilon=1e-4):
    """The gradient of a function of an array, by central differences."""
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        kept = x[place]
        x[place] = kept + epsilon
        above = function()
        x[place] = kept - epsilon
        below = function()
        x[place] = kept
        gradient[place] = (above - below) / (2 * epsilon)
    return gradient
