"""Activation functions as layers."""

from dataclasses import dataclass
from typing import ClassVar

from mapreduce.models.base import Array
from mapreduce.models.layers.base import Arrays, Layer, Pass, Shape


class Activation(Layer):
    """A function of each element, by the kernel of the layer's name."""

    on_cuda: ClassVar[bool] = True
    slope: float = 0.0

    def build(self, shape: Shape) -> None:
        self.shape = self.output = shape
        self.parameters = []

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        out = call.array("out", x.shape)
        call.kernel("activate")(self.name(), x, out, self.slope)
        call.kept |= {"x": x, "out": out}
        return out

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        if not call.needs_input:
            return None
        x, out = call.kept["x"], call.kept["out"]
        call.kernel("activate_backward")(self.name(), delta, x, out, delta, self.slope)
        return delta


@dataclass(eq=False)
class ReLU(Activation):
    """``max(x, 0)``."""

    form: ClassVar[str] = "relu"


@dataclass(eq=False)
class LeakyReLU(Activation):
    """``x``, or ``slope * x`` below 0."""

    form: ClassVar[str] = "leaky-relu[:slope=NUMBER]"
    slope: float = 0.01


@dataclass(eq=False)
class Tanh(Activation):
    """Hyperbolic tangent."""

    form: ClassVar[str] = "tanh"


@dataclass(eq=False)
class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``."""

    form: ClassVar[str] = "sigmoid"


@dataclass(eq=False)
class GELU(Activation):
    """Gaussian error linear unit in its tanh form (Hendrycks and Gimpel 2016)."""

    form: ClassVar[str] = "gelu"
