"""Softmax regression (multinomial logistic regression): one affine layer."""

import numpy as np

from mapreduce.data.batch import Batch
from mapreduce.models.base import Array, Model, Parameter, Workspace


class Softmax(Model):
    """``softmax(x @ weight + bias)`` with cross-entropy loss; starts from zeros."""

    def _parameters(self) -> list[Parameter]:
        return [
            Parameter("weight", (self.features, self.classes)),
            Parameter("bias", (self.classes,)),
        ]

    def init(self, seed: int) -> Array:
        # The loss is convex: every starting point leads to the same minimum.
        return np.zeros(self.size, self.dtype)

    def logits(self, params: Array, batch: Batch, workspace: Workspace) -> Array:
        return self._affine(params, self._inputs(params, batch, workspace), workspace)

    def gradient(
        self,
        params: Array,
        batch: Batch,
        out: Array,
        workspace: Workspace,
        loss_scale: float = 1.0,
    ) -> float:
        x = self._inputs(params, batch, workspace)
        delta = self._affine(params, x, workspace)
        loss: float = self._kernel("softmax_cross_entropy")(delta, batch.labels, batch.weights)
        delta = self._stored(delta, params, loss_scale, workspace)
        weight_grad, bias_grad = self.views(out)
        self._kernel("affine_gradient")(x, delta, weight_grad, bias_grad)
        return loss

    def _affine(self, params: Array, x: Array, workspace: Workspace) -> Array:
        weight, bias = self.views(params)
        out = workspace.array("logits", (len(x), self.classes), self.dtype)
        result: Array = self._kernel("affine")(x, weight, bias, out, relu=False)
        return result
