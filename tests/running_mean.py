"""Softmax regression with dropout and a buffer that follows the mean of the inputs."""

import math
import os

import numpy as np

from mapreduce.data.batch import Batch
from mapreduce.models.base import Model, Parameter
from mapreduce.models.softmax import Softmax

#: The buffer has the mean as many times: two pages of 64 features, so that blocks cut it.
COPIES = 512


class Plain(Model):
    """Without a buffer."""

    copies = 0

    def _parameters(self):
        self._inner = Softmax(self.shape, self.classes, self.dtype.name)
        buffer = Parameter("mean", (self.copies, self.features), "buffer")
        return [*([buffer] if self.copies else []), *self._inner.parameters]

    def init(self, seed):
        return np.zeros(self.size, self.dtype)

    def _trained(self, flat):
        return flat[self.copies * self.features :]

    def gradient(self, params, batch, out, context):
        x = batch.features.astype(self.dtype) * self.dtype.type(batch.scale)
        if self.copies:
            out[: self.copies * self.features] = 0
            weights = np.ones(batch.rows) if batch.weights is None else batch.weights
            context.extras["inputs"] = weights @ x.astype(np.float64)
        if context.training:
            x = x * (context.key.fold(3).uniform(*x.shape) < 0.5)
        kept = Batch(x, batch.labels, 1.0, batch.weights)
        return self._inner.gradient(self._trained(params), kept, self._trained(out), context)

    def logits(self, params, batch, context):
        return self._inner.logits(self._trained(params), batch, context)


class Failing(Plain):
    """Has no gradient on a node of Hadoop."""

    def gradient(self, params, batch, out, context):
        if "CONTAINER_ID" in os.environ:
            raise ValueError("no gradient")
        return super().gradient(params, batch, out, context)


class RunningMean(Plain):
    """With the buffer."""

    copies = COPIES

    def extras(self, completed):
        return ("inputs",)

    def update_buffer(self, name, part, values, means):
        assert name == "mean"
        mean = np.tile(means["inputs"], math.ceil(part.stop / self.features))[part]
        return values + (mean - values) / 4
