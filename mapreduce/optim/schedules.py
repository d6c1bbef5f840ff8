"""Schedules of the learning rate, which give a factor for each round.

A schedule is made by ``schedule(rounds, *arguments)``, with the arguments as strings. It raises a
ValueError if one is wrong.
"""

import math
from collections.abc import Callable

Factor = Callable[[int], float]


def constant(rounds: int) -> Factor:
    """1 in all rounds."""
    return lambda step: 1.0


def step(rounds: int, every: str | None = None, factor: str = "0.1") -> Factor:
    """Multiplied by ``factor`` whenever ``every`` rounds have passed, by default a third of all."""
    length = max(1, rounds // 3) if every is None else _positive(every)
    base = _finite(factor)
    return lambda step: power(base, step // length)


def cosine(rounds: int) -> Factor:
    """``(1 + cos(pi round / rounds)) / 2`` (Loshchilov and Hutter 2017)."""
    return lambda step: 0.5 * (1 + _cosine_of_half_turns(step / rounds))


def warmup(rounds: int, ramp: str | None = None) -> Factor:
    """Rises to 1 in ``ramp`` equal steps, by default in a twentieth of all rounds."""
    length = max(1, rounds // 20) if ramp is None else _positive(ramp)
    return lambda step: min(1.0, (step + 1) / length)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


# Powers and cosines of the platform's mathematical library may be rounded differently on another
# machine; additions and multiplications are not.


def power(base: float, exponent: int) -> float:
    """``base ** exponent`` by repeated squaring."""
    result = 1.0
    while exponent:
        if exponent % 2:
            result *= base
        base *= base
        exponent //= 2
    return result


def _cosine_of_half_turns(turns: float) -> float:
    """``cos(pi * turns)`` for ``turns`` in [0, 1], by its Taylor series up to degree 24."""
    if turns > 0.5:
        return -_cosine_of_half_turns(1 - turns)
    angle = math.pi * turns
    square = angle * angle
    result = 1.0
    for degree in range(24, 0, -2):
        result = 1 - result * square / (degree * (degree - 1))
    return result
