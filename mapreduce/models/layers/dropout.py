"""Dropout."""

import math
from dataclasses import dataclass
from typing import ClassVar

from mapreduce.errors import UsageError
from mapreduce.models.base import Array
from mapreduce.models.layers.base import Arrays, Layer, Pass, Shape


@dataclass(eq=False)
class Dropout(Layer):
    """In training, each value becomes 0 with a probability, and the others grow to make up for it.

    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
    Which ones is a function of seed, round, row and layer.
    """

    form: ClassVar[str] = "dropout:RATE"
    on_cuda: ClassVar[bool] = True
    is_random: ClassVar[bool] = True
    rate: float

    def build(self, shape: Shape) -> None:
        self.shape = self.output = shape
        self.parameters = []
        if not 0 <= self.rate < 1:
            raise UsageError(f"layer {self}: expected a rate in [0, 1), found {self.rate}")

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        if not call.training:
            return x
        return self._drop(x, call.array("out", x.shape), call)

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        return self._drop(delta, delta, call) if call.training else delta

    def _drop(self, x: Array, out: Array, call: Pass) -> Array:
        flat = (len(x), math.prod(self.shape))
        key = call.key
        call.kernel("dropout")(x.reshape(flat), key.word, key.row, self.rate, out.reshape(flat))
        return out
