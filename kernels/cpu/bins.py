"""Rows of boosted trees: bins of numbers, gradients as integers, and losses.

A gradient is a multiple of ``2**-GRADIENT_BITS``, a hessian one of ``2**-HESSIAN_BITS``. So their
sums are integers, which are the same in any order of the rows.

Features are float32, and NaN where a number is missing. A number's *key* is a uint32 with the order
of the numbers. The *cuts* of a feature are keys in ascending order: the bin of a number is how many
cuts are below its key, and :data:`MISSING` is that of a missing one.

A category has codes from 0 on, :data:`PAGE` of them in each column of bins.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import scalar
from kernels.cpu import inline, jit
from kernels.cpu.shapes import expect

Array = npt.NDArray[Any]

GRADIENT_BITS, HESSIAN_BITS = 30, 28
#: The bin of a missing number; all others are below it.
MISSING = 255
#: Codes of a category in a column of bins, and the bin of those that are in another column.
PAGE = ELSEWHERE = 254
#: The key of no number.
NONE = 2**32 - 1

_GRADIENT = float(1 << GRADIENT_BITS)
_HESSIAN = float(1 << HESSIAN_BITS)

_exp = inline(scalar.exp)
_log = inline(scalar.log)


def keys_of(numbers: Array) -> Array:
    """The keys, uint32, of float32 numbers of any shape, none of which is NaN."""
    bits = (np.asarray(numbers, np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def numbers_of(keys: npt.NDArray[np.uint32]) -> Array:
    """The float32 numbers of :func:`keys_of`."""
    return np.where(keys >> 31, keys & np.uint32((1 << 31) - 1), ~keys).view(np.float32)


@inline
def _key(number):
    # 0.0 and -0.0 are one number.
    bits = np.float32(number + np.float32(0)).view(np.uint32)
    if bits >> np.uint32(31):
        return ~bits
    return bits | np.uint32(2147483648)


@inline
def _below(table, row, key):
    # How many of 255, ascending, are below a key: eight steps without a branch, so that a processor
    # need not guess.
    at = 0
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        at += step * np.int64(table[row, at + step - 1] < key)  # type: ignore[assignment]
    return at


@jit
def _count_cells(x, shift, prefixes, counts):
    rows, features = x.shape
    above = np.uint64(shift + 8)
    for i in range(rows):
        for f in range(features):
            number = x[i, f]
            if number != number:
                continue
            key = _key(number)
            prefix = np.uint32(np.uint64(key) >> above)
            at = _below(prefixes, f, prefix)
            if at < 255 and prefixes[f, at] == prefix:
                counts[at, f, (np.uint64(key) >> np.uint64(shift)) & np.uint64(255)] += 1


def count_cells(x: Array, shift: int, prefixes: Array, counts: Array) -> None:
    """Count numbers by the 8 bits of their keys from ``shift`` on, for some prefixes.

    Parameters
    ----------
    x : array (rows, features), float32
    shift : int
    prefixes : array (features, 255), uint32
        The bits above those, of which some are counted: ascending, then :data:`NONE`.
    counts : array (n, features, 256), int64
        To which the numbers are added; missing ones are not. ``n`` is at least the number of
        prefixes of any feature.
    """
    expect("count_cells", "prefixes", prefixes, (x.shape[1], 255))
    most = int((prefixes != NONE).sum(axis=1).max(initial=0))
    expect("count_cells", "counts", counts, (max(len(counts), most), x.shape[1], 256))
    _count_cells(x, shift, prefixes, counts)


@jit
def _bin_rows(x, cuts, out):
    rows, features = x.shape
    for i in range(rows):
        for f in range(features):
            number = x[i, f]
            out[i, f] = 255 if number != number else _below(cuts, f, _key(number))


def bin_rows(x: Array, cuts: Array) -> npt.NDArray[np.uint8]:
    """The bins of numbers (rows, features), float32.

    ``cuts``: Array (features, 255), uint32: ascending, then :data:`NONE`.
    """
    expect("bin_rows", "cuts", cuts, (x.shape[1], 255))
    out = np.empty(x.shape, np.uint8)
    _bin_rows(x, cuts, out)
    return out


# Gradients: arrays (rows, 2), int32, of the gradient and of the hessian


@jit
def _logistic_gradients(raw, labels, weights, out):
    for i in range(len(raw)):
        score = raw[i]
        small = _exp(-abs(score))
        p = 1.0 / (1.0 + small) if score >= 0.0 else small / (1.0 + small)
        weight = weights[i] if weights.size else 1.0
        out[i, 0] = np.int32(np.rint((p - labels[i]) * weight * _GRADIENT))
        out[i, 1] = np.int32(np.rint(p * (1.0 - p) * weight * _HESSIAN))


@jit
def _exponentials(raw, row):
    # The largest score of a row, and the sum of the exponentials of all scores less this one.
    classes = raw.shape[0]
    largest = raw[0, row]
    for j in range(1, classes):
        largest = max(largest, raw[j, row])
    total = 0.0
    for j in range(classes):
        total += _exp(raw[j, row] - largest)
    return largest, total


@jit
def _softmax_gradients(raw, label, labels, weights, out):
    for i in range(raw.shape[1]):
        largest, total = _exponentials(raw, i)
        p = _exp(raw[label, i] - largest) / total
        weight = weights[i] if weights.size else 1.0
        is_label = 1.0 if labels[i] == label else 0.0
        out[i, 0] = np.int32(np.rint((p - is_label) * weight * _GRADIENT))
        out[i, 1] = np.int32(np.rint(p * (1.0 - p) * weight * _HESSIAN))


def log_loss_gradients(
    raw: Array, label: int, labels: Array, weights: Array, out: npt.NDArray[np.int32]
) -> None:
    """Gradients of the log loss with respect to the raw scores of the class ``label``.

    Parameters
    ----------
    raw : array (classes, rows), float64; or (1, rows) for classes 0 and 1
        Of which the softmax, or the logistic function, are probabilities.
    label : int
    labels : array (rows,), int32
    weights : array (rows,), float64, or empty
        At most 1; empty for a weight of 1 each.
    out : array (rows, 2), int32
    """
    _check_gradients("log_loss_gradients", raw.shape[1], labels, weights, out)
    if len(raw) == 1:
        _logistic_gradients(raw[0], labels, weights, out)
        return
    if not 0 <= label < len(raw):
        raise ValueError(f"log_loss_gradients: label {label}, expected below {len(raw)}")
    _softmax_gradients(raw, label, labels, weights, out)


@jit
def _squared_gradients(raw, bound, labels, weights, out):
    largest = 0.0
    for i in range(len(raw)):
        difference = raw[i] - labels[i]
        largest = max(largest, abs(difference))
        weight = weights[i] if weights.size else 1.0
        out[i, 0] = np.int32(np.rint(difference / bound * weight * _GRADIENT))
        out[i, 1] = np.int32(np.rint(weight * _HESSIAN))
    return largest


def squared_gradients(
    raw: Array, bound: float, labels: Array, weights: Array, out: npt.NDArray[np.int32]
) -> float:
    """Gradients of half of the squared error, divided by ``bound``.

    ``raw``: Scores (rows,), float64. ``bound``: A power of two, and no difference of a score and
    its label (rows,), float64, is above it. Returns the largest difference. See
    :func:`log_loss_gradients`.
    """
    _check_gradients("squared_gradients", len(raw), labels, weights, out)
    return float(_squared_gradients(raw, bound, labels, weights, out))


@jit
def _log_losses(raw, labels, out):
    classes, rows = raw.shape
    for i in range(rows):
        if classes == 1:
            score = raw[0, i]
            out[i] = max(score, 0.0) - score * labels[i] + _log(1.0 + _exp(-abs(score)))
            continue
        largest, total = _exponentials(raw, i)
        out[i] = largest - raw[labels[i], i] + _log(total)


def log_losses(raw: Array, labels: Array) -> npt.NDArray[np.float64]:
    """The log loss (rows,) of each row; see :func:`log_loss_gradients`."""
    classes, rows = raw.shape
    expect("log_losses", "labels", labels, (rows,))
    if labels.max(initial=0) >= max(classes, 2) or labels.min(initial=0) < 0:
        raise ValueError(f"log_losses: labels up to {labels.max()}, expected below {classes}")
    out = np.empty(rows)
    _log_losses(raw, labels, out)
    return out


def _check_gradients(kernel: str, rows: int, labels: Array, weights: Array, out: Array) -> None:
    expect(kernel, "labels", labels, (rows,))
    expect(kernel, "out", out, (rows, 2))
    if weights.size:
        expect(kernel, "weights", weights, (rows,))


# Histograms: arrays (features, 256, 3), int64, of the sums of gradients, hessians and rows
