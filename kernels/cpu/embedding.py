"""Embeddings: a vector for each token, and its gradient.

``tokens`` is an integer array (rows, steps) with values in ``range(words)``; the others are
C-contiguous, of one dtype, float32 or float64.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.cpu.shapes import Array

Tokens = npt.NDArray[np.integer]


def embed(tokens: Tokens, weight: Array, out: Array) -> Array:
    """Put the vector of each token in its place: ``out[i, s] = weight[tokens[i, s]]``.

    ``tokens`` is (rows, steps), ``weight`` (words, n). A token that is not a word is a ValueError.
    """
    _check("embed", tokens, weight, out)
    _embed(tokens.reshape(-1), weight, out.reshape(-1, weight.shape[1]))
    return out


@jit
def _embed(tokens, weight, out):
    for i in range(tokens.size):
        out[i] = weight[tokens[i]]


def embed_gradient(tokens: Tokens, delta: Array, weight_grad: Array) -> None:
    """The gradient by the vectors: each the sum of ``delta`` where its token is, in their order."""
    _check("embed_gradient", tokens, weight_grad, delta)
    weight_grad.fill(0)
    _embed_gradient(tokens.reshape(-1), delta.reshape(-1, weight_grad.shape[1]), weight_grad)


@jit
def _embed_gradient(tokens, delta, weight_grad):
    for i in range(tokens.size):
        total, part = weight_grad[tokens[i]], delta[i]
        for j in range(part.size):
            total[j] += part[j]


def _check(kernel: str, tokens: Tokens, weight: Array, vectors: Array) -> None:
    words, n = weight.shape
    if vectors.shape != (*tokens.shape, n):
        raise ValueError(
            f"{kernel}: vectors {vectors.shape} of tokens {tokens.shape}: expected "
            f"{(*tokens.shape, n)}"
        )
    # The compiled loop would read and write beyond the words.
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < words):
        raise ValueError(
            f"{kernel}: tokens {tokens.min()} to {tokens.max()}: expected 0 to {words - 1}"
        )
