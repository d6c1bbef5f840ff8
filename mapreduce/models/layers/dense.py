"""Dense (fully connected) layers."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapreduce.models.base import Array, Parameter
from mapreduce.models.layers.base import Arrays, Initial, Pass, Shape
from mapreduce.models.layers.channels import ChannelLayer


@dataclass(eq=False)
class Dense(ChannelLayer):
    """``x @ weight + bias``, at every step of a sequence; an image is taken as a vector.

    Initial weights are uniform with variance 2 / inputs (He et al. 2015), biases zero.
    """

    form: ClassVar[str] = "dense:UNITS"
    on_cuda: ClassVar[bool] = True
    units: int
    #: Variance of the weights, times the inputs.
    gain: ClassVar[float] = 2.0

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.at_least(1, "units")
        self._inputs = shape[-1] if len(shape) == 2 else math.prod(shape)
        self.output = (shape[0], self.units) if len(shape) == 2 else (self.units,)
        self.parameters = [Parameter("weight", (self._inputs, self.units))]
        if self.has_bias:
            self.parameters.append(Parameter("bias", (self.units,), "bias"))

    def init(self, views: Arrays, uniform: Initial) -> None:
        uniform(views[0], math.sqrt(3 * self.gain / self._inputs))

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        rows = math.prod(x.shape) // self._inputs
        x = x.reshape((rows, self._inputs))
        call.kept["x"] = x
        z = call.array("z", (rows, self.units))
        bias = params[1] if self.has_bias else np.zeros(self.units, z.dtype)
        call.kernel("affine")(x, params[0], bias, z, relu=self.relu)
        call.kept["z"] = z
        return z.reshape((rows * self.units // math.prod(self.output), *self.output))

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        x, z = call.kept["x"], call.kept["z"]
        delta = delta.reshape(z.shape)
        sums = grads[1] if self.has_bias else call.array("sums", (self.units,))
        if self.relu:
            as_images = (len(x), 1, 1, self.units)
            images = delta.reshape(as_images)
            call.kernel("scale_shift_backward")(
                images, z.reshape(as_images), None, images, sums, True, 1
            )
        call.kernel("affine_gradient")(x, delta, grads[0], sums)
        if not call.needs_input:
            return None
        below = call.array("below", x.shape)
        call.kernel("affine_input_gradient")(delta, params[0], below)
        return below.reshape((x.size // math.prod(self.shape), *self.shape))

    @property
    def work(self) -> int:
        return math.prod(self.shape) * self.units


class Outputs(Dense):
    """The last layer: a number for each class, or one.

    Its weights have variance 1 / inputs, so that the classes are about equally probable at first.
    """

    gain = 1.0
