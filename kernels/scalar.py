"""The mathematics, once: scalar functions that the loops of every device call.

They are plain Python, so that they can be read, tested and stepped through; each device's modules
compile them, each by itself, so that none calls another: the caller supplies what it needs of
another. Only ``+ - * /``, comparisons and moves of bits are used. IEEE 754 fixes the result of
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

# exp is zero below the first, and infinity above the second, a little early: so its power of two is
# a normal number.
EXP_UNDERFLOW = -708.0
EXP_OVERFLOW = 709.0

# Between 2**52 and 2**53 there are the integers alone: adding this rounds to the nearest one.
ROUND = 1.5 * 2.0**52

# The bits of ROUND, less the bias of an exponent: the bits of ROUND + k less these are k + 1023,
# which is the field of the exponent in 2**k.
ROUND_BITS = (1023 + 52 << 52) + (1 << 51) - 1023


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
    # In this order NaN is clamped too: k has to be an integer.
    clamped = min(max(EXP_UNDERFLOW, x), EXP_OVERFLOW)
    rounded = clamped * LOG2_E + ROUND
    k = rounded - ROUND
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
    # Most processors' vectors have no conversion of k to an integer.
    power = np.int64((np.float64(rounded).view(np.int64) - ROUND_BITS) << 52).view(np.float64)
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


def leaky_relu(x, slope):
    """``x`` above 0, else ``slope * x``; NaN stays NaN."""
    if x > 0:
        return x
    return slope * x


def tanh(x, power):
    """Hyperbolic tangent of a float64, to three units in the last place.

    Below 5/8, ``x + x**3 P(x**2) / Q(x**2)`` with the coefficients of Cephes (S. Moshier, Methods
    and Programs for Mathematical Functions, 1989), so that small arguments keep their digits; else
    ``1 - 2 / (exp(2 |x|) + 1)``. The caller supplies ``power = exp(2 * abs(x))``. NaN and zeros of
    both signs stay what they are.
    """
    s = x * x
    p = -9.64399179425052238628e-01
    p = p * s - 9.92877231001918586564e01
    p = p * s - 1.61468768441708447952e03
    q = s + 1.12811678491632931402e02
    q = q * s + 2.23548839060100448583e03
    q = q * s + 4.84406305325125486048e03
    result = 1.0 - 2.0 / (power + 1.0)
    if x < 0:
        result = -result
    if abs(x) < 0.625:
        result = x + x * s * (p / q)
    if not abs(x) > 0:
        result = x
    return result


# 2 sqrt(2 / pi), and 0.044715 times it.
GELU_LINEAR = 1.5957691216057308
GELU_CUBIC = 0.07135481627260025

# Beyond it the gate is exactly 0 or 1; its products with infinite numbers would be NaN.
GELU_TAIL = 40.0


def gelu_score(x):
    """The score whose :func:`sigmoid` is the gate of :func:`gelu`."""
    return x * (GELU_LINEAR + GELU_CUBIC * x * x)


def gelu(x, gate):
    """Gaussian error linear unit in its form with tanh (D. Hendrycks and K. Gimpel, 2016).

    ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))``, which is ``x`` times a gate, the sigmoid of
    :func:`gelu_score`: without the difference that cancels where ``x`` is negative. The caller
    supplies the gate.
    """
    result = x * gate
    if x < -GELU_TAIL:
        result = 0.0
    return result


def gelu_derivative(x, gate):
    """The derivative of :func:`gelu` by ``x``; the caller supplies the gate of ``x``."""
    change = x * gate * (1.0 - gate) * (GELU_LINEAR + 3.0 * GELU_CUBIC * x * x)
    if abs(x) > GELU_TAIL:
        change = 0.0
    return gate + change


# Unsigned also where they meet a compiled loop's numbers: an int64 beside a uint64 would make both
# floating-point numbers.
WORD_BITS = np.uint64(32)
WORD = np.uint64(0xFFFFFFFF)
PHILOX_FIRST = np.uint64(0xD2511F53)
PHILOX_SECOND = np.uint64(0xCD9E8D57)
WEYL_FIRST = np.uint64(0x9E3779B9)
WEYL_SECOND = np.uint64(0xBB67AE85)


def philox(a, b, c, d, first, second):
    """Four random words from a counter of four and a key of two: Philox 4x32-10.

    J. Salmon, M. Moraes, R. Dror and D. Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011.
    There is no state: each counter gives its words whichever are asked for before. All numbers are
    uint64 below 2**32, so that the product of two is exact.
    """
    for _ in range(10):
        left, right = a * PHILOX_FIRST, c * PHILOX_SECOND
        a = (right >> WORD_BITS) ^ b ^ first
        c = (left >> WORD_BITS) ^ d ^ second
        b, d = right & WORD, left & WORD
        first, second = (first + WEYL_FIRST) & WORD, (second + WEYL_SECOND) & WORD
    return a, b, c, d
