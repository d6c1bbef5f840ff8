"""Rows in fixed point: sums of whole numbers, which have the same bits in any order.

A number is taken as ``rint((x - shift) * factor)``. Products of whole numbers below 2**53 are exact
in float64, whatever BLAS and whatever processor multiplies them.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.scratch import scratch
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


def gram_parts(
    rows: Rows, shift: Array, factor: Array, roots: Array, bits: int
) -> tuple[Integers, Integers, Integers]:
    """The sum of ``row' row`` over rows of whole numbers with a last column, exact, in three parts.

    The numbers are ``rint((x - shift) * root * factor)``, of which the root (rows,) is the row's
    and the others are the columns'. The last column has ``rint(root * factor)``. All have up to
    ``2 * bits`` bits. ``high * 4**bits + middle * 2**bits + low`` is the sum.

    Raises ValueError (the rows or the bits are too many, or shapes do not fit).
    """
    columns = rows.shape[1]
    expect("gram_parts", "shift", shift, (columns,))
    expect("gram_parts", "factor", factor, (columns + 1,))
    expect("gram_parts", "roots", roots, (len(rows),))
    if len(rows) > UNIT_ROWS or not 1 <= bits <= PART_BITS:
        raise ValueError(
            f"gram_parts: {len(rows)} rows of {bits} bits, expected at most {UNIT_ROWS} of 1 to "
            f"{PART_BITS}"
        )
    size = len(rows) * (columns + 1)
    high, low, both = scratch("parts", 3 * size, np.float64).reshape(3, len(rows), columns + 1)
    _parts(rows, shift, factor, roots, 2.0**bits, high, low, both)
    # Symmetric products alone, of which BLAS computes one half.
    first, last, mixed = high.T @ high, low.T @ low, both.T @ both
    mixed -= first
    mixed -= last
    return first.astype(np.int64), mixed.astype(np.int64), last.astype(np.int64)


def centred(
    first: Integers, mixed: Integers, last: Integers, bits: int
) -> tuple[float, Array, Array]:
    """The last number of a sum of :func:`gram_parts`, which is that of the rows' weights, the means
    (columns,) and the sums (columns, columns) of the products of deviations from these.

    They are computed to 100 bits, and then rounded.
    """
    shape = len(first), len(first)
    expect_all("centred", shape, first=first, mixed=mixed, last=last)
    gram, means = np.empty((2, *shape)), np.empty(len(first) - 1)
    products = np.empty((len(means), len(means)))
    _centred(first, mixed, last, 2.0**bits, gram, means, products)
    return float(gram[0, -1, -1]), means, products


def nearest(
    whole: Array, centres: Array, *, squared: bool = True
) -> tuple[npt.NDArray[np.int32], Array]:
    """The nearest centre of each row, the first of several, and the squared distance from it.

    Both are whole numbers, (rows, columns) and (k, columns), whose products are exact. Squared
    distances are empty where they are not asked for.
    """
    expect("nearest", "centres", centres, (len(centres), whole.shape[1]))
    if not len(centres):
        raise ValueError("nearest: centres are none, expected at least one")
    products = scratch("products", len(whole) * len(centres), np.float64)
    # Twice the rows: then all numbers stay whole.
    np.matmul(whole, 2.0 * centres.T, out=products.reshape(len(whole), len(centres)))
    labels, squares = np.empty(len(whole), np.int32), np.empty(len(whole) if squared else 0)
    norms = (centres * centres).sum(axis=1)
    _nearest(whole, products.reshape(len(whole), -1), norms, labels, squares)
    return labels, squares


def closest(rows: Rows, centres: Array) -> tuple[npt.NDArray[np.int32], Array]:
    """As :func:`nearest`, of any numbers: each distance is added up column by column."""
    expect("closest", "centres", centres, (len(centres), rows.shape[1]))
    if not len(centres):
        raise ValueError("closest: centres are none, expected at least one")
    labels, squares = np.empty(len(rows), np.int32), np.empty(len(rows))
    _closest(rows, np.ascontiguousarray(centres.T), np.empty(len(centres)), labels, squares)
    return labels, squares


def move_rows(
    rows: Rows,
    weights: Array,
    before: npt.NDArray[np.int32],
    labels: npt.NDArray[np.int32],
    shift: Array,
    factor: Array,
    sums: Integers,
) -> None:
    """Move rows between ``sums`` (k, columns + 1): from that of the label before to the new one.

    A row is ``rint((x - shift) * weight * factor)``, with its weight in the last column. Where the
    label before is -1, the row is in no sum yet.
    """
    columns = rows.shape[1]
    expect_all("move_rows", rows.shape[:1], weights=weights, before=before, labels=labels)
    expect("move_rows", "shift", shift, (columns,))
    expect("move_rows", "factor", factor, (columns + 1,))
    expect("move_rows", "sums", sums, (len(sums), columns + 1))
    for part in (before + 1, labels):
        if len(labels) and not 0 <= part.min() <= part.max() < len(sums) + (part is not labels):
            raise ValueError(f"move_rows: labels beyond the {len(sums)} sums")
    _move_rows(rows, weights, before, labels, shift, factor, sums)


def row_chances(whole: Array, seed: int) -> Array:
    """A number in (0, 1) for each row, by its content and the seed alone."""
    out = np.empty(len(whole))
    _row_chances(whole, np.uint64(seed), out)
    return out


def choose(squares: Array, weights: Array, draws: Array) -> Integers:
    """The numbers of candidates that greedy k-means++ draws: the best of several choices.

    ``squares``: Squared distances between the candidates (n, n). ``weights``: Theirs (n,).
    ``draws``: Numbers in [0, 1): (drawn, choices, trials).
    """
    expect("choose", "squares", squares, (len(weights), len(weights)))
    best, chosen = np.empty((2, draws.shape[0]), np.int64)
    _choose(squares, weights, draws, np.empty((2, len(weights))), chosen, best)
    return best


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
def _parts(rows, shift, factor, roots, step, high, low, both):
    columns = rows.shape[1]
    share = 1.0 / step
    for i in range(rows.shape[0]):
        root = roots[i]
        for j in range(columns):
            whole = np.rint((rows[i, j] - shift[j]) * root * factor[j])
            upper = np.rint(whole * share)
            high[i, j], low[i, j] = upper, whole - upper * step
            both[i, j] = high[i, j] + low[i, j]
        whole = np.rint(root * factor[columns])
        upper = np.rint(whole * share)
        high[i, columns], low[i, columns] = upper, whole - upper * step
        both[i, columns] = high[i, columns] + low[i, columns]


# Numbers of about 106 bits are sums of two floats (T. J. Dekker, "A floating-point technique for
# extending the available precision", 1971).


@jit
def _sum(a, b):
    high = a + b
    part = high - a
    return high, (a - (high - part)) + (b - part)


@jit
def _product(a, a_low, b, b_low):
    high, a_long, b_long = a * b, a * 134217729.0, b * 134217729.0
    a_first, b_first = a_long - (a_long - a), b_long - (b_long - b)
    a_last, b_last = a - a_first, b - b_first
    low = ((a_first * b_first - high) + a_first * b_last + a_last * b_first) + a_last * b_last
    return _sum(high, low + (a * b_low + a_low * b))


@jit
def _quotient(a, a_low, b, b_low):
    found = a / b
    high, low = _product(found, 0.0, b, b_low)
    return found + (((a - high) - low) + a_low) / b


@jit
def _centred(first, mixed, last, step, gram, means, products):
    n = means.size
    for i in range(n + 1):
        for j in range(i, n + 1):
            high = low = 0.0
            for part, unit in ((first, step * step), (mixed, step), (last, 1.0)):
                whole = part[i, j]
                upper = whole >> 32
                for number in (upper * 4294967296.0, np.float64(whole - (upper << 32))):
                    high, error = _sum(high, number * unit)
                    high, low = _sum(high, low + error)
            gram[0, i, j], gram[1, i, j] = high, low
    weight, weight_low = gram[0, n, n], gram[1, n, n]
    for i in range(n):
        means[i] = _quotient(gram[0, i, n], gram[1, i, n], weight, weight_low)
        for j in range(i, n):
            high, low = _product(gram[0, i, j], gram[1, i, j], weight, weight_low)
            other, other_low = _product(gram[0, i, n], gram[1, i, n], gram[0, j, n], gram[1, j, n])
            high, error = _sum(high, -other)
            high, low = _sum(high, error + (low - other_low))
            products[i, j] = products[j, i] = _quotient(high, low, weight, weight_low)


@jit
def _nearest(whole, products, norms, labels, squares):
    for i in range(products.shape[0]):
        best, at = norms[0] - products[i, 0], 0
        for c in range(1, products.shape[1]):
            score = norms[c] - products[i, c]
            if score < best:
                best, at = score, c
        labels[i] = at
        if squares.size:
            own = 0.0
            for j in range(whole.shape[1]):
                own += whole[i, j] * whole[i, j]
            squares[i] = best + own


@jit
def _closest(rows, columns, sums, labels, squares):
    for i in range(rows.shape[0]):
        sums[:] = 0.0
        for j in range(rows.shape[1]):
            x = np.float64(rows[i, j])
            # Lanes are centres, so that each sum has the order of the columns.
            for c in range(sums.size):
                gap = x - columns[j, c]
                sums[c] += gap * gap
        at = 0
        for c in range(1, sums.size):
            if sums[c] < sums[at]:
                at = c
        labels[i] = at
        squares[i] = sums[at]


@jit
def _move_rows(rows, weights, before, labels, shift, factor, sums):
    columns = rows.shape[1]
    for i in range(rows.shape[0]):
        old, new = before[i], labels[i]
        if old == new:
            continue
        weight = weights[i]
        for j in range(columns):
            whole = np.int64(np.rint((rows[i, j] - shift[j]) * weight * factor[j]))
            sums[new, j] += whole
            if old >= 0:
                sums[old, j] -= whole
        whole = np.int64(np.rint(weight * factor[columns]))
        sums[new, columns] += whole
        if old >= 0:
            sums[old, columns] -= whole


@jit
def _choose(squares, weights, draws, scratch, chosen, best):
    left, sums = scratch
    least, last = np.inf, weights.size - 1
    for choice in range(draws.shape[1]):
        left[:] = np.inf
        cost = np.inf
        for number in range(draws.shape[0]):
            # Sums in the order of the candidates.
            total = 0.0
            for i in range(weights.size):
                total += left[i] * weights[i] if number else weights[i]
                sums[i] = total
            cost = np.inf
            for trial in range(draws.shape[2]):
                draw = draws[number, choice, trial] * total
                place = min(np.searchsorted(sums, draw, "right"), last)
                own = 0.0
                for i in range(weights.size):
                    own += min(left[i], squares[place, i]) * weights[i]
                if own < cost:
                    cost, chosen[number] = own, place
            for i in range(weights.size):
                left[i] = min(left[i], squares[chosen[number], i])
        if cost < least:
            least = cost
            best[:] = chosen


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
