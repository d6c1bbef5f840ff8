"""Rows in fixed point: sums of whole numbers, which have the same bits in any order.

A number is taken as ``rint((x - shift) * factor)``. Products of whole numbers below 2**53 are exact
in float64, whatever BLAS and whatever processor multiplies them.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import expect, expect_all

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
#: Rows of float32, float64 or small integers.
Rows = npt.NDArray[np.generic]

#: Bits of each of the two parts of a number, so that products of at most UNIT_ROWS rows are exact.
PART_BITS, UNIT_ROWS = 20, 2048


def extremes(rows: Rows) -> tuple[Array, Array]:
    """The least and the largest number (columns,) of each column; NaN where one is not finite."""
    low, high = np.full(rows.shape[1], np.inf), np.full(rows.shape[1], -np.inf)
    _extremes(rows, low, high)
    return low, high


def to_grid(rows: Rows, shift: Array, factor: Array) -> Array:
    """The rows (rows, columns) as whole numbers; ``shift`` and ``factor`` are those of columns."""
    expect_all("to_grid", rows.shape[1:], shift=shift, factor=factor)
    out = np.empty(rows.shape)
    _to_grid(rows, shift, factor, out)
    return out


def gram_parts(whole: Array, bits: int) -> tuple[Integers, Integers, Integers]:
    """The sum of ``row' row`` of whole numbers of up to ``2 * bits`` bits, exact, in three parts.

    ``high * 4**bits + middle * 2**bits + low`` is the sum: (columns, columns) each.

    Raises ValueError (the rows or the bits are too many).
    """
    if len(whole) > UNIT_ROWS or not 1 <= bits <= PART_BITS:
        raise ValueError(
            f"gram_parts: {len(whole)} rows of {bits} bits, expected at most {UNIT_ROWS} of 1 to "
            f"{PART_BITS}"
        )
    high, low, both = np.empty(whole.shape), np.empty(whole.shape), np.empty(whole.shape)
    _parts(whole, 2.0**bits, high, low, both)
    # Symmetric products alone, of which BLAS computes one half.
    first, last, mixed = high.T @ high, low.T @ low, both.T @ both
    mixed -= first
    mixed -= last
    return first.astype(np.int64), mixed.astype(np.int64), last.astype(np.int64)


def nearest(whole: Array, centres: Array) -> tuple[npt.NDArray[np.int32], Array]:
    """The nearest centre of each row, the first of several, and the squared distance from it.

    Both are whole numbers, (rows, columns) and (k, columns), whose products are exact.
    """
    expect("nearest", "centres", centres, (len(centres), whole.shape[1]))
    if not len(centres):
        raise ValueError("nearest: centres are none, expected at least one")
    labels, squares = np.empty(len(whole), np.int32), np.empty(len(whole))
    # Twice the rows: then all numbers stay whole.
    _nearest(whole, whole @ (2.0 * centres.T), (centres * centres).sum(axis=1), labels, squares)
    return labels, squares


def add_rows(
    rows: Rows, labels: npt.NDArray[np.int32], shift: Array, factor: Array, sums: Integers
) -> None:
    """Add the rows in fixed point to the row of ``sums`` (k, columns) that their label names."""
    expect("add_rows", "labels", labels, rows.shape[:1])
    expect_all("add_rows", rows.shape[1:], shift=shift, factor=factor)
    expect("add_rows", "sums", sums, (len(sums), rows.shape[1]))
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(sums):
        raise ValueError(f"add_rows: labels beyond the {len(sums)} sums")
    _add_rows(rows, labels, shift, factor, sums)


def row_chances(whole: Array, seed: int) -> Array:
    """A number in (0, 1) for each row, by its content and the seed alone."""
    out = np.empty(len(whole))
    _row_chances(whole, np.uint64(seed), out)
    return out


@jit
def _extremes(rows, low, high):
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            x = np.float64(rows[i, j])
            # Finite numbers alone are equal to themselves without themselves.
            if x - x != 0.0:
                low[j] = high[j] = np.nan
            if x < low[j]:
                low[j] = x
            if x > high[j]:
                high[j] = x


@jit
def _to_grid(rows, shift, factor, out):
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i, j] = np.rint((rows[i, j] - shift[j]) * factor[j])


@jit
def _parts(whole, step, high, low, both):
    for i in range(whole.shape[0]):
        for j in range(whole.shape[1]):
            h = np.rint(whole[i, j] / step)
            rest = whole[i, j] - h * step
            high[i, j], low[i, j], both[i, j] = h, rest, h + rest


@jit
def _nearest(whole, products, norms, labels, squares):
    for i in range(products.shape[0]):
        best, at = norms[0] - products[i, 0], 0
        for c in range(1, products.shape[1]):
            score = norms[c] - products[i, c]
            if score < best:
                best, at = score, c
        own = 0.0
        for j in range(whole.shape[1]):
            own += whole[i, j] * whole[i, j]
        labels[i] = at
        squares[i] = best + own


@jit
def _add_rows(rows, labels, shift, factor, sums):
    for i in range(rows.shape[0]):
        at = labels[i]
        for j in range(rows.shape[1]):
            sums[at, j] += np.int64(np.rint((rows[i, j] - shift[j]) * factor[j]))


@jit
def _row_chances(whole, seed, out):
    for i in range(whole.shape[0]):
        h = seed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x1234567)
        for j in range(whole.shape[1]):
            h ^= np.uint64(np.int64(whole[i, j]))
            h *= np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(31)
            h *= np.uint64(0x94D049BB133111EB)
            h ^= h >> np.uint64(29)
        out[i] = (np.float64(h >> np.uint64(12)) + 0.5) / 4503599627370496.0
