"""Normalisation: by the statistics of a slice, and by those of each row."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapreduce.models.base import Array, Parameter
from mapreduce.models.layers.base import Arrays, Initial, Layer, Pass, Shape
from mapreduce.models.layers.channels import ChannelLayer
from mapreduce.reduction.aggregator import moments

#: The share of a round's moments in the running ones, and what is added to variances: those of
#: Ioffe and Szegedy (2015) as most libraries have them.
MOMENTUM, EPSILON = 0.1, 1e-5


@dataclass(eq=False)
class BatchNorm(ChannelLayer):
    """``weight * (x - mean) / sqrt(variance + 1e-5) + bias`` for each channel.

    In training, mean and variance are those of a slice over its rows and positions: ghost batch
    normalisation (E. Hoffer, I. Hubara and D. Soudry, "Train longer, generalize better", 2017).
    Slices belong to the plan, so the result does not depend on the number of workers. A slice of
    one row, and a model in use, take the running moments. After each round, the running moments
    move by a tenth towards the mean and the variance of all rows of the round. Variances are
    divided by the number of values. A round with a single value has no variance, and leaves the
    running variance unchanged. Weights of rows do not change moments.
    """

    form: ClassVar[str] = "batchnorm"
    on_cuda: ClassVar[bool] = True
    has_moments: ClassVar[bool] = True
    mixes_rows: ClassVar[bool] = True

    def build(self, shape: Shape) -> None:
        self.shape = self.output = shape
        channels = (shape[-1],)
        self.parameters = [
            Parameter("weight", channels),
            Parameter("bias", channels, "bias"),
            Parameter("running_mean", channels, "buffer"),
            Parameter("running_var", channels, "buffer"),
        ]

    def init(self, views: Arrays, uniform: Initial) -> None:
        views[0][:] = 1
        views[3][:] = 1

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        channels = self.shape[-1]
        flat = x.reshape((math.prod(x.shape) // channels, channels))
        weight, bias, mean, variance = (call.host(one).astype(np.float64) for one in params)
        is_own = call.training and len(x) > 1
        if call.training:
            own, squares = np.empty(channels), np.empty(channels)
            call.kernel("channel_moments")(flat, own, squares)
            call.add_moments(moments(len(flat), own, squares))
            if is_own:
                mean, variance = own, squares / len(flat)
        inverse = 1 / np.sqrt(variance + EPSILON)
        scale = weight * inverse
        shift = bias - mean * scale
        call.kept |= {"flat": flat, "mean": mean, "inverse": inverse, "is_own": is_own}
        out = self._finish(x, scale.astype(x.dtype), shift.astype(x.dtype), call)
        return out if self.pool > 1 else out.reshape(x.shape)

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        kept, flat = call.kept, call.kept["flat"]
        into = call.array("unpooled", kept["z"].shape) if self.pool > 1 else None
        delta = self._unfinish(delta, grads[1], into, call).reshape(flat.shape)
        call.kernel("batch_norm_backward")(
            delta,
            flat,
            kept["mean"],
            kept["inverse"],
            params[0],
            grads[0],
            grads[1],
            delta,
            kept["is_own"],
        )
        return delta.reshape((flat.size // math.prod(self.shape), *self.shape))

    def update_buffer(self, name: str, part: slice, values: Array, moments: Array) -> Array:
        channels = self.shape[-1]
        new = moments[1 : 1 + channels] if name == "running_mean" else moments[1 + channels :]
        if name == "running_var":
            if moments[0] < 2:
                return values
            new = new / moments[0]
        moved = values + MOMENTUM * (new[part] - values)
        return moved.astype(values.dtype)


@dataclass(eq=False)
class LayerNorm(Layer):
    """``weight * (x - mean) / sqrt(variance + 1e-5) + bias`` by the moments of each row itself.

    J. Ba, J. Kiros and G. Hinton, "Layer normalization", 2016. The moments are those of a vector,
    of a step of a sequence, or of the channels at a position of an image.
    """

    form: ClassVar[str] = "layernorm"

    def build(self, shape: Shape) -> None:
        self.shape = self.output = shape
        width = shape[-1:]
        self.parameters = [Parameter("weight", width), Parameter("bias", width, "bias")]

    def init(self, views: Arrays, uniform: Initial) -> None:
        views[0][:] = 1

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        width = self.shape[-1]
        flat = x.reshape((x.size // width, width))
        out = call.array("out", flat.shape)
        moments = [call.array(name, (len(flat),), "float64") for name in ("mean", "inverse")]
        call.kept |= {"flat": flat, "moments": moments}
        call.kernel("layer_norm")(flat, *params, out, *moments)
        return out.reshape(x.shape)

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        flat, moments = call.kept["flat"], call.kept["moments"]
        rows = delta.reshape(flat.shape)
        call.kernel("layer_norm_backward")(rows, flat, params[0], *moments, *grads, rows)
        return delta
