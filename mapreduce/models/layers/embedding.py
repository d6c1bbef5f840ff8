"""Embeddings of tokens."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapreduce.errors import DataError
from mapreduce.models.base import Array, Parameter
from mapreduce.models.layers.base import Arrays, Initial, Layer, Pass, Shape


def tokens_of(x: Array, count: int, what: str, first: int = 0) -> Array:
    """Features as integers in ``range(count)``, or an error that says ``what`` they were to be.

    ``first`` is the place in a row of what is first in ``x``.
    """
    wrong = ~((x >= 0) & (x < count) & (x == np.floor(x)))
    if wrong.any():
        *_, place = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"element {first + place} of a row is {x[wrong][0]}: expected {what}, a whole number "
            f"from 0 to {count - 1}. Import text by --format text, and do not standardise what was "
            f"imported"
        )
    tokens: Array = x.astype(np.int64)
    return tokens


@dataclass(eq=False)
class Embedding(Layer):
    """A vector for each token: from a vector of tokens to a sequence.

    Tokens are whole numbers below ``words``; those of text are bytes. Initial vectors are uniform
    with variance 1.
    """

    form: ClassVar[str] = "embedding:SIZE[:words=N]"
    size: int
    words: int = 256

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.at_least(1, "size", "words")
        if len(shape) != 1:
            raise self.misfit("a vector of tokens")
        self.output = (*shape, self.size)
        self.parameters = [Parameter("weight", (self.words, self.size))]

    def init(self, views: Arrays, uniform: Initial) -> None:
        uniform(views[0], math.sqrt(3))

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        tokens = tokens_of(x, self.words, f"a token of layer {self}")
        call.kept["tokens"] = tokens
        out: Array = call.kernel("embed")(
            tokens, params[0], call.array("out", (len(x), *self.output))
        )
        return out

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        tokens = call.kept["tokens"]
        call.kernel("embed_gradient")(tokens, delta, grads[0])
        # Tokens are no continuous inputs: the gradient by them is zero.
        return np.zeros(tokens.shape, delta.dtype) if call.needs_input else None
