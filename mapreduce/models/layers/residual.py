"""Residual blocks."""

import math
from dataclasses import dataclass
from typing import ClassVar

from mapreduce.errors import UsageError
from mapreduce.models.base import Array
from mapreduce.models.layers.base import Arrays, Initial, Layer, Pass, Shape, described
from mapreduce.models.layers.convolution import Conv
from mapreduce.models.layers.stack import Stack


@dataclass(eq=False)
class Residual(Layer):
    """The sum of some layers' outputs and of their inputs (He et al. 2016).

    If the layers change the shape of an image, the inputs pass a convolution of 1 × 1 without a
    bias, whose stride gives that shape.
    """

    form: ClassVar[str] = "residual(LAYER,...)"
    layers: list[Layer]

    @property
    def on_cuda(self) -> bool:  # type: ignore[override]
        return all(layer.on_cuda for layer in self.layers)

    def __str__(self) -> str:
        return f"residual({','.join(map(str, self.layers))})"

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.inner = Stack(self.layers, shape)
        self.output = self.inner.output
        self.parameters = list(self.inner.parameters)
        self.shortcut: Conv | None = None
        if self.output != shape:
            self.shortcut = self._projection()
            self.parameters += [
                one._replace(name=f"shortcut.{one.name}") for one in self.shortcut.parameters
            ]

    def _projection(self) -> Conv:
        if len(self.output) == len(self.shape) == 3:
            shortcut = Conv(self.output[2], 1, -(-self.shape[0] // self.output[0]))
            shortcut.has_bias = False
            shortcut.build(self.shape)
            if shortcut.output == self.output:
                return shortcut
        raise UsageError(
            f"layer {self}: its layers give {described(self.output)}, which cannot be added to "
            f"what it gets, {described(self.shape)}: expected the same shape, or an image that is "
            f"smaller by a stride"
        )

    def init(self, views: Arrays, uniform: Initial) -> None:
        count = len(self.inner.parameters)
        self.inner.init(views[:count], uniform)
        if self.shortcut:
            self.shortcut.init(views[count:], uniform.inner(len(self.layers)))

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        count = len(self.inner.parameters)
        y = self.inner.forward(x, params[:count], call)
        if self.shortcut:
            x = self.shortcut.forward(x, params[count:], call.inner(len(self.layers)))
        return _sum(x, y, call.array("out", y.shape), call)

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        count = len(self.inner.parameters)
        # Layers may overwrite what they get.
        copy = call.kernel("scale")(delta, 1.0, call.array("delta", delta.shape))
        below = self.inner.backward(copy, params[:count], grads[:count], call)
        aside: Array | None = delta
        if self.shortcut:
            outer = call.inner(len(self.layers))
            aside = self.shortcut.backward(delta, params[count:], grads[count:], outer)
        if below is None or aside is None:
            return None
        return _sum(aside, below, call.array("below", below.shape), call)

    @property
    def work(self) -> int:
        """That of the shortcut alone: the layers within have their own."""
        return self.shortcut.work if self.shortcut else 0


def _sum(a: Array, b: Array, out: Array, call: Pass) -> Array:
    size = (math.prod(out.shape),)
    call.kernel("scale")(a, 1.0, out)
    call.kernel("add_into")(out.reshape(size), b.reshape(size))
    return out
