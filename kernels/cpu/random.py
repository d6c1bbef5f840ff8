"""Random numbers that are a function of a key and a place, and dropout by them.

The generator is :func:`kernels.scalar.philox`, and no state is kept: element ``j`` of row ``r`` is
word ``j % 4`` of the counter ``(j // 4, r)``, each of two words, whichever rows a call asks for.
"""

import numpy as np
import numpy.typing as npt

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.shapes import Array

_philox = inline(scalar.philox)
_BITS, _WORD = scalar.WORD_BITS, scalar.WORD


def uniform(key: int, row: int, out: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Numbers (rows, n) in [0, 1), multiples of 2**-32.

    ``key`` is below 2**64, and ``row``, the number of the first row, below 2**63.
    """
    _uniform(np.uint64(key), np.uint64(row), out)
    return out


@jit
def _uniform(key, row, out):
    rows, n = out.shape
    words = np.empty((n + 3) // 4 * 4, np.uint32)
    for i in range(rows):
        _draw(key, row + np.uint64(i), words)
        for j in range(n):
            out[i, j] = words[j] * 2.0**-32


def dropout(x: Array, key: int, row: int, rate: float, out: Array) -> Array:
    """Zero a share of the numbers and scale the others, so that the mean stays.

    ``out = x / (1 - rate)``, but 0 where the place's number of :func:`uniform` is below ``rate``
    (N. Srivastava et al., Dropout, 2014). With the key and row of the forward pass, the gradient by
    its outputs becomes that by its inputs. ``out`` may be ``x``. A rate that is not at least 0 and
    below 1 is a ValueError.
    """
    threshold = _threshold(x, rate, out)
    factor = out.dtype.type(1 / (1 - rate))
    _dropout(x, np.uint64(key), np.uint64(row), np.uint32(threshold), factor, out)
    return out


@jit
def _dropout(x, key, row, threshold, factor, out):
    rows, n = x.shape
    words = np.empty((n + 3) // 4 * 4, np.uint32)
    for i in range(rows):
        _draw(key, row + np.uint64(i), words)
        for j in range(n):
            kept = x[i, j] * factor
            out[i, j] = kept if words[j] >= threshold else 0


@jit
def _draw(key, row, words):
    # Four words of 64 bits each in an iteration: the compiler treats several counters at once.
    first, second, low, high = key & _WORD, key >> _BITS, row & _WORD, row >> _BITS
    for block in range(words.size // 4):
        place = np.uint64(block)
        a, b, c, d = _philox(place & _WORD, place >> _BITS, low, high, first, second)
        words[4 * block] = a
        words[4 * block + 1] = b
        words[4 * block + 2] = c
        words[4 * block + 3] = d


def _threshold(x: Array, rate: float, out: Array) -> int:
    """The first of the 2**32 words that keeps its number."""
    if not 0 <= rate < 1:
        raise ValueError(f"dropout: rate {rate}, expected at least 0 and below 1")
    if x.ndim != 2 or tuple(out.shape) != tuple(x.shape):
        raise ValueError(f"dropout: x {x.shape} and out {out.shape}, expected (rows, n) twice")
    return int(rate * 2**32)
