"""Eigenvectors and solutions of symmetric matrices, beside NumPy's."""

import hashlib

import numpy as np
import pytest

from kernels import dispatch
from quick import cases

eigh, cholesky_solve = map(dispatch.get, ("eigh", "cholesky_solve"))


def matrix(size, rank=None, seed=0):
    random = np.random.default_rng(seed)
    rows = random.integers(-1000, 1000, (2 * size if rank is None else rank, size))
    return (rows.T @ rows).astype(float)


@cases("size, rank", (1, None), (2, None), (3, 1), (30, None), (30, 7), (120, None))
def test_vectors_are_those_of_the_matrix(size, rank):
    whole = matrix(size, rank)
    values, vectors = eigh(whole)
    scale = values[-1]
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(whole), atol=1e-13 * scale)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(size), atol=1e-13)
    np.testing.assert_allclose(whole @ vectors, vectors * values, atol=1e-13 * scale)


@cases("whole", np.zeros((3, 3)), np.diag([3.0, 1.0, 2.0]), np.full((4, 4), 1e-200), np.eye(2))
def test_matrices_without_much_in_them(whole):
    values, vectors = eigh(whole)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(whole), rtol=1e-14, atol=1e-214)
    np.testing.assert_allclose(whole @ vectors, vectors * values, rtol=1e-13, atol=1e-214)


def test_solutions():
    whole = matrix(40)
    right = whole @ np.arange(40.0)
    solution, shares = cholesky_solve(whole, right)
    np.testing.assert_allclose(solution, np.arange(40.0), rtol=1e-12, atol=1e-12)
    # A row's share is 1 - R² of its regression on the rows before.
    last = np.linalg.inv(whole)[-1, -1] * whole[-1, -1]
    assert shares[-1] == pytest.approx(1 / last)


def test_a_row_that_others_give_has_no_share():
    whole = matrix(5)
    whole[4], whole[:, 4] = whole[0] + whole[1], whole[:, 0] + whole[:, 1]
    whole[4, 4] = whole[0, 4] + whole[1, 4]
    _, shares = cholesky_solve(whole, np.ones(5))
    assert shares[:4].min() > 1e-3
    assert abs(shares[4]) < 1e-12
    solution, _ = cholesky_solve(-np.eye(2), np.ones(2))
    assert np.isnan(solution).all()


def test_the_same_bits_on_any_processor():
    """Noted once; LAPACK gives others on each kind of core."""
    digest = hashlib.sha256()
    for size in (3, 30, 100):
        whole = matrix(size)
        for found in (*eigh(whole), *cholesky_solve(whole, whole.sum(axis=1))):
            digest.update(np.ascontiguousarray(found).tobytes())
    assert digest.hexdigest()[:16] == "05ecb2c6beaff510"


@cases(
    "kernel, whole, message",
    (eigh, np.ones((2, 3)), r"eigh: matrix has shape \(2, 3\), expected a square"),
    (eigh, np.ones((0, 0)), r"eigh: matrix has shape \(0, 0\), expected a square"),
    (eigh, np.full((2, 2), np.nan), "eigh: matrix is not finite"),
)
def test_what_is_no_symmetric_matrix(kernel, whole, message):
    with pytest.raises(ValueError, match=message):
        kernel(whole)
