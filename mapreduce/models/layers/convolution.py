"""Convolutional layers."""

import math
from dataclasses import dataclass
from typing import ClassVar

from mapreduce.models.base import Array, Parameter
from mapreduce.models.layers.base import IMAGE, Arrays, Initial, Pass, Shape
from mapreduce.models.layers.channels import ChannelLayer


@dataclass(eq=False)
class Conv(ChannelLayer):
    """Two-dimensional convolution by square filters, ``size`` pixels wide.

    Around the image there are ``padding`` zeros on each side. As in all such libraries it is a
    cross-correlation: filters are not flipped. Initial weights are uniform with variance
    2 / (size**2 * channels), of the channels of the input (He et al. 2015), biases zero.
    """

    form: ClassVar[str] = "conv:FILTERSxSIZE[:stride=N][:padding=N]"
    on_cuda: ClassVar[bool] = True
    filters: int
    size: int
    stride: int = 1
    padding: int = 0

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.at_least(1, "filters", "size", "stride")
        self.at_least(0, "padding")
        if len(shape) != 3:
            raise self.misfit(f"an image ({IMAGE})")
        height, width, channels = shape
        if min(height, width) + 2 * self.padding < self.size:
            raise self.misfit(
                f"an image of at least {self.size} × {self.size} with its padding of {self.padding}"
            )
        self.output = (self._positions(height), self._positions(width), self.filters)
        self.parameters = [Parameter("weight", (self.size, self.size, channels, self.filters))]
        if self.has_bias:
            self.parameters.append(Parameter("bias", (self.filters,), "bias"))

    def _positions(self, length: int) -> int:
        """Of a filter along a side of the image."""
        return (length + 2 * self.padding - self.size) // self.stride + 1

    def init(self, views: Arrays, uniform: Initial) -> None:
        inputs = math.prod(views[0].shape[:-1])
        uniform(views[0], math.sqrt(6 / inputs))

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        call.kept["x"] = x
        z = call.array("z", (len(x), *self.output))
        call.kernel("convolve")(x, params[0], z, self.stride, self.padding)
        return self._finish(z, None, params[1], call) if self.has_bias else z

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        if self.has_bias:
            delta = self._unfinish(delta, grads[1], None, call)
        x, moves = call.kept["x"], (self.stride, self.padding)
        call.kernel("convolve_weight_gradient")(x, delta, grads[0], *moves)
        if not call.needs_input:
            return None
        below = call.array("below", x.shape)
        call.kernel("convolve_input_gradient")(delta, params[0], below, *moves)
        return below

    @property
    def work(self) -> int:
        return math.prod(self.output) * self.size**2 * self.shape[-1]
