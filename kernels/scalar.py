"""The mathematics, once: scalar functions that the loops of every device call.

They are plain Python, so that they can be read, tested and stepped through; each device's modules
compile them. Only ``+ - * /``, comparisons and moves of bits are used. IEEE 754 fixes the result of
each of those, so a kernel built from them gives the same bits on every processor, which the
``exp`` and ``log`` of the platform's mathematical library do not promise.
"""

import math

import numpy as np

# ln 2 in two parts: the high part has 21 trailing zero bits, so that k * LN2_HIGH is exact for
# every exponent k (W. Cody and W. Waite, Software Manual for the Elementary Functions, 1980).
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
LOG2_E = 1.44269504088896338700

# exp underflows to zero below the first and overflows above the second (normal numbers only).
EXP_UNDERFLOW = -708.0
EXP_OVERFLOW = 709.0

# Between 2**52 and 2**53 there are the integers alone: adding this rounds to the nearest one.
ROUND = 1.5 * 2.0**52


def exp(x):
    """Exponential of a float64, to about one unit in the last place.

    Range reduction ``x = k ln 2 + r`` with ``|r| <= ln(2)/2``, then the Taylor series of degree 13
    in Horner's form (its truncation error is below 5e-18), then ``2**k`` put together from its
    bits.

    Parameters
    ----------
    x : float64
        Any value. Below -708 the result is 0.0 (no subnormal numbers), above 709 infinity; NaN
        stays NaN.

    Returns
    -------
    float64
    """
    # In this order NaN is clamped too: the conversion of k to an integer needs a number.
    clamped = min(max(EXP_UNDERFLOW, x), EXP_OVERFLOW)
    k = (clamped * LOG2_E + ROUND) - ROUND
    r = (clamped - k * LN2_HIGH) - k * LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = np.int64((np.int64(k) + 1023) << 52).view(np.float64)
    result = p * power
    if x < EXP_UNDERFLOW:
        result = 0.0
    if x > EXP_OVERFLOW:
        result = math.inf
    if x != x:
        result = x
    return result


def log(x):
    """Natural logarithm of a positive, finite, normal float64, to two units in the last place.

    ``x = m 2**e`` with ``sqrt(1/2) <= m < sqrt(2)``; then ``log m = 2 artanh(s)``,
    ``s = (m - 1) / (m + 1)``, by its series up to ``s**25`` (truncation error below 2e-19).

    Parameters
    ----------
    x : float64
        A positive, finite, normal number: the sums of exponentials of a softmax lie in
        ``[1, classes]``. NaN stays NaN; other values give meaningless results.

    Returns
    -------
    float64
    """
    bits = np.float64(x).view(np.int64)
    e = (bits >> 52) - 1023
    m = np.int64((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    if m > 1.4142135623730951:
        m = m * 0.5
        e = e + 1
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    p = 2.0 / 25.0
    p = p * q + 2.0 / 23.0
    p = p * q + 2.0 / 21.0
    p = p * q + 2.0 / 19.0
    p = p * q + 2.0 / 17.0
    p = p * q + 2.0 / 15.0
    p = p * q + 2.0 / 13.0
    p = p * q + 2.0 / 11.0
    p = p * q + 2.0 / 9.0
    p = p * q + 2.0 / 7.0
    p = p * q + 2.0 / 5.0
    p = p * q + 2.0 / 3.0
    exponent = np.float64(e)
    result = exponent * LN2_HIGH + ((p * q * s + exponent * LN2_LOW) + 2.0 * s)
    if x != x:
        result = x
    return result


def relu(x):
    """``max(x, 0)``; NaN stays NaN, so that a broken activation is seen and not hidden."""
    if x <= 0:
        return 0.0
    return x


def squared(score, target):
    """Half the squared error ``(score - target)**2 / 2``, and its derivative by the score."""
    error = score - target
    return 0.5 * error * error, error


def logistic(score, target, small, log_sum):
    """Cross-entropy of two classes, 0 and 1, and its derivative by the score (logit) of class 1.

    With the margin ``m``, the score for target 1 and its negative for target 0, the loss is
    ``log(1 + exp(-m))``; the derivative is the probability ``1 / (1 + exp(-score))`` less the
    target. The caller supplies ``small = exp(-abs(score))``, the one exponential that cannot
    overflow, and ``log_sum = log(1 + small)``.
    """
    margin = score if target > 0.5 else -score
    probability = (1.0 if score >= 0.0 else small) / (1.0 + small)
    return log_sum + max(-margin, 0.0), probability - target


def sigmoid(score, small):
    """``1 / (1 + exp(-score))``, for ``small = exp(-abs(score))``."""
    return (1.0 if score >= 0.0 else small) / (1.0 + small)


def squared_hinge(score, target):
    """``max(0, 1 - m)**2`` for the margin ``m`` of the target, 0 or 1, and its derivative."""
    sign = 1.0 if target > 0.5 else -1.0
    slack = 1.0 - sign * score
    if slack <= 0.0:
        slack = 0.0
    return slack * slack, -2.0 * sign * slack


def hinge(score, target):
    """``max(0, 1 - m)`` for the margin ``m`` of the target, 0 or 1, and a subgradient.

    At ``m = 1``, where there is no derivative, it is 0.
    """
    sign = 1.0 if target > 0.5 else -1.0
    slack = 1.0 - sign * score
    if slack <= 0.0:
        return 0.0, 0.0
    # If the slack is NaN, so is the derivative.
    return slack, -sign if slack == slack else slack
