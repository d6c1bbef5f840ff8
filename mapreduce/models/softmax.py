"""Softmax regression (multinomial logistic regression): one affine layer."""

import numpy as np

from mapreduce.data.batch import Batch
from mapreduce.models.base import Array, Model, Parameter
from mapreduce.models.context import Context


class Softmax(Model):
    """``softmax(x @ weight + bias)`` with cross-entropy loss; starts from zeros."""

    def _parameters(self) -> list[Parameter]:
        return [
            Parameter("weight", (self.features, self.classes)),
            Parameter("bias", (self.classes,), "bias"),
        ]

    def init(self, seed: int) -> Array:
        # The loss is convex, so every starting point leads to the same minimum.
        return np.zeros(self.size, self.dtype)

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        return self._affine(params, self._inputs(params, batch, context), context)

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        x = self._inputs(params, batch, context)
        delta = self._affine(params, x, context)
        loss: float = self._kernel("softmax_cross_entropy")(delta, batch.labels, batch.weights)
        delta = self._stored(delta, params, context)
        weight_grad, bias_grad = self.views(out)
        self._kernel("affine_gradient")(x, delta, weight_grad, bias_grad)
        return loss

    def _affine(self, params: Array, x: Array, context: Context) -> Array:
        weight, bias = self.views(params)
        out = context.workspace.array("logits", (len(x), self.classes), self.dtype)
        result: Array = self._kernel("affine")(x, weight, bias, out, relu=False)
        return result
