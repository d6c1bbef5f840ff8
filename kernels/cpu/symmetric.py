"""Eigenvectors and solutions of symmetric matrices, with the same bits on any processor.

LAPACK chooses its loops by the processor, and rounds otherwise on each. These loops add in the
order in which they are written: Householder's reduction and implicit QL as in EISPACK's ``tred2``
and ``tql2``, by rows, and Cholesky's factors.
"""

import math

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import expect

Array = npt.NDArray[np.float64]

#: Rotations of QL that an eigenvalue may take; it needs two or three.
_MOST_ROTATIONS = 60


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues (n,), ascending, and eigenvectors (n, n), the columns.

    Of the matrix the lower triangle is read. Raises ValueError (it is not square, or not finite).
    """
    reduced = _square("eigh", matrix).copy()
    size = len(reduced)
    # Squares of it neither overflow nor vanish.
    power = int(np.frexp(np.abs(reduced).max())[1])
    reduced = np.ldexp(reduced, -power)
    diagonal, beside, work = np.zeros(size), np.zeros(size), np.zeros(size)
    _tridiagonal(reduced, diagonal, beside, work)
    vectors = np.zeros((size, size))
    _accumulate(reduced, diagonal, vectors, work)
    # Its rows are vectors, so that a rotation mixes two rows.
    turned = np.ascontiguousarray(vectors.T)
    if not _ql(diagonal, beside, turned):
        raise ValueError("eigh: the eigenvalues did not converge")
    order = np.argsort(diagonal, kind="stable")
    return np.ldexp(diagonal[order], power), turned[order].T


def cholesky_solve(matrix: Array, right: Array) -> tuple[Array, Array]:
    """The solution (n,) of ``matrix @ x = right``, and a share (n,) for each row.

    The share is what is left of a diagonal element after the rows before were taken from it: next
    to nothing if the row is a combination of those. The solution is NaN if one is not positive.

    Of the matrix the lower triangle is read. Raises ValueError (shapes do not fit).
    """
    factor = _square("cholesky_solve", matrix).copy()
    expect("cholesky_solve", "right", right, factor.shape[:1])
    solution, shares = np.array(right, np.float64), np.zeros(len(factor))
    if not _cholesky_solve(factor, solution, shares):
        solution[:] = np.nan
    return solution, shares


def _square(kernel: str, matrix: Array) -> Array:
    found = np.ascontiguousarray(matrix, np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not len(found):
        raise ValueError(f"{kernel}: matrix has shape {found.shape}, expected a square")
    if not np.isfinite(found).all():
        raise ValueError(f"{kernel}: matrix is not finite")
    return found


@jit
def _tridiagonal(a, d, e, w):
    # Reflections stay in the rows of a, the last one first; e is the diagonal beside the main one.
    for i in range(len(d) - 1, 0, -1):
        scale = 0.0
        for k in range(i):
            scale += abs(a[i, k])
        if i == 1 or scale == 0.0:
            e[i] = a[i, i - 1]
            d[i] = 0.0
            continue
        h = 0.0
        for k in range(i):
            a[i, k] /= scale
            h += a[i, k] * a[i, k]
        f = a[i, i - 1]
        g = -math.sqrt(h) if f > 0.0 else math.sqrt(h)
        e[i] = scale * g
        h -= f * g
        a[i, i - 1] = f - g
        # w = A u / h, by rows of the lower triangle.
        for j in range(i):
            w[j] = 0.0
        for j in range(i):
            u = a[i, j]
            s = a[j, j] * u
            for k in range(j):
                w[k] += a[j, k] * u
            for k in range(j):
                s += a[j, k] * a[i, k]
            w[j] += s
        f = 0.0
        for j in range(i):
            w[j] /= h
            f += w[j] * a[i, j]
        half = f / (h + h)
        for j in range(i):
            w[j] -= half * a[i, j]
        for j in range(i):
            f, g = a[i, j], w[j]
            for k in range(j + 1):
                a[j, k] -= f * w[k] + g * a[i, k]
        d[i] = h


@jit
def _accumulate(a, d, q, w):
    # The product of all reflections; then d is the main diagonal.
    n = len(d)
    for i in range(n):
        q[i, i] = 1.0
    for i in range(1, n):
        if d[i] != 0.0:
            for k in range(i):
                w[k] = 0.0
            for j in range(i):
                u = a[i, j]
                for k in range(i):
                    w[k] += u * q[j, k]
            for j in range(i):
                u = a[i, j] / d[i]
                for k in range(i):
                    q[j, k] -= u * w[k]
    for i in range(n):
        d[i] = a[i, i]


@jit
def _ql(d, e, v):
    n = len(d)
    for i in range(1, n):
        e[i - 1] = e[i]
    e[n - 1] = 0.0
    # What is next to nothing beside the whole matrix: it may have rows that depend on each other.
    small = 0.0
    for i in range(n):
        small = max(small, 2.220446049250313e-16 * (abs(d[i]) + abs(e[i])))
    for low in range(n):
        for rotations in range(_MOST_ROTATIONS + 1):
            m = low
            while m < n - 1 and abs(e[m]) > small:
                m += 1
            if m == low:
                break
            if rotations == _MOST_ROTATIONS:
                return False
            g = (d[low + 1] - d[low]) / (2.0 * e[low])
            r = math.sqrt(g * g + 1.0)
            g = d[m] - d[low] + e[low] / (g + (r if g >= 0.0 else -r))
            s = c = 1.0
            p = 0.0
            i = m - 1
            while i >= low:
                f, b = s * e[i], c * e[i]
                r = math.sqrt(f * f + g * g)
                e[i + 1] = r
                if r == 0.0:
                    d[i + 1] -= p
                    e[m] = 0.0
                    break
                s, c = f / r, g / r
                g = d[i + 1] - p
                r = (d[i] - g) * s + 2.0 * c * b
                p = s * r
                d[i + 1] = g + p
                g = c * r - b
                for k in range(n):
                    f = v[i + 1, k]
                    v[i + 1, k] = s * v[i, k] + c * f
                    v[i, k] = c * v[i, k] - s * f
                i -= 1
            if i < low:
                d[low] -= p
                e[low] = g
                e[m] = 0.0
    return True


@jit
def _cholesky_solve(a, x, shares):
    n = len(x)
    for i in range(n):
        for j in range(i):
            s = a[i, j]
            for k in range(j):
                s -= a[i, k] * a[j, k]
            a[i, j] = s / a[j, j]
        s = a[i, i]
        for k in range(i):
            s -= a[i, k] * a[i, k]
        shares[i] = s / a[i, i]
        if not s > 0.0:
            return False
        a[i, i] = math.sqrt(s)
    for i in range(n):
        for k in range(i):
            x[i] -= a[i, k] * x[k]
        x[i] /= a[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            x[i] -= a[k, i] * x[k]
        x[i] /= a[i, i]
    return True
