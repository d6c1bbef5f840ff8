"""Moments of values that come in parts: how many, their mean, and how far they are from it."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

#: Of one kind of values, or an array with an element for each kind.
Values = TypeVar("Values", float, npt.NDArray[np.float64], npt.NDArray[Any])


def merge(
    left: tuple[float, Values, Values], right: tuple[float, Values, Values]
) -> tuple[float, Values, Values]:
    """The moments of the values of both.

    By the formula of T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the
    sample variance", 1983, which subtracts no large numbers from each other.

    Parameters
    ----------
    left, right : tuple
        The number of values, or the sum of their weights; their mean; and the sum of the squared
        differences from it, in float64. A part without values, or whose values weigh nothing,
        changes no bit of the other.
    """
    if not right[0]:
        return left
    if not left[0]:
        return right
    count = left[0] + right[0]
    share = right[0] / count
    difference = right[1] - left[1]
    mean = left[1] + difference * share
    squares = left[2] + right[2] + difference * difference * (left[0] * share)
    return count, mean, squares
