"""Sums of flat vectors: the inner loop of every reducer."""

import math

import numpy as np

from kernels.cpu import jit
from kernels.cpu.shapes import Array


def add_into(left: Array, right: Array) -> Array:
    """``left += right``, in place, for arrays (n,) of the same dtype; returns ``left``."""
    _check(left, right)
    # A number that is not finite shows in the sum, which the caller checks.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add(left, right, out=left)


def _check(left: Array, right: Array) -> None:
    if left.shape != right.shape or left.dtype != right.dtype:
        raise ValueError(
            f"add_into: {left.dtype}{left.shape} and {right.dtype}{right.shape} differ"
        )


def first_non_finite(a: Array) -> int:
    """Index of the first NaN or infinity of an array (n,), or -1."""
    # The sum of squares is finite only if all are, and BLAS is four times as fast as a loop.
    if a.dtype != np.float16:
        with np.errstate(all="ignore"):
            squares = np.dot(a, a)
        if math.isfinite(squares):
            return -1
    return int(_first_non_finite(a))


@jit
def _first_non_finite(a):
    # x - x is 0 for finite x and NaN otherwise; no branch slows down the sum over a page.
    page = 4096
    for start in range(0, a.size, page):
        stop = min(start + page, a.size)
        bad = False
        for i in range(start, stop):
            bad |= (a[i] - a[i]) != 0
        if bad:
            for i in range(start, stop):
                if (a[i] - a[i]) != 0:
                    return i
    return -1
