"""Recurrent layers, and the last step of a sequence."""

import math
from dataclasses import dataclass
from typing import ClassVar

from mapreduce.models.base import Array, Parameter
from mapreduce.models.layers.base import Arrays, Initial, Layer, Pass, Shape


class Recurrent(Layer):
    """A layer that goes through the steps of a sequence and gives its state after each.

    The formulas are those of :mod:`kernels.cpu.recurrent`, and PyTorch's: what its layer of this
    kind calls ``weight_ih``, ``weight_hh``, ``bias_ih`` and ``bias_hh`` are the transposed weights
    and the biases here. An image is read row by row. Initial parameters are uniform between
    ``-1 / sqrt(units)`` and ``1 / sqrt(units)``.

    ``gates``: Columns of the weights, in units.
    ``kept``: What the forward pass keeps of a step, in units.
    """

    gates: ClassVar[int]
    kept: ClassVar[int]
    units: int

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.at_least(1, "units")
        if len(shape) == 1:
            raise self.misfit("a sequence (steps, n) or an image")
        self._inputs = math.prod(shape[1:])
        self.output = (shape[0], self.units)
        width = self.gates * self.units
        self.parameters = [
            Parameter("weight", (self._inputs, width)),
            Parameter("state_weight", (self.units, width)),
            Parameter("bias", (width,), "bias"),
            Parameter("state_bias", (width,), "bias"),
        ]

    def init(self, views: Arrays, uniform: Initial) -> None:
        for view in views:
            uniform(view, 1 / math.sqrt(self.units))

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        rows, steps = len(x), self.shape[0]
        x = x.reshape((rows, steps, self._inputs))
        out = call.array("out", (rows, *self.output))
        kept = call.array("kept", (rows, steps, self.kept * self.units))
        call.kept |= {"x": x, "out": out, "kept": kept}
        call.kernel("recurrent")(self.name(), x, *params, out, kept)
        return out

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        x, out, kept = (call.kept[name] for name in ("x", "out", "kept"))
        below = call.array("below", x.shape) if call.needs_input else None
        call.kernel("recurrent_backward")(
            self.name(), delta, x, *params[:2], out, kept, *grads, below
        )
        return None if below is None else below.reshape((len(x), *self.shape))

    @property
    def work(self) -> int:
        return self.shape[0] * (self._inputs + self.units) * self.gates * self.units


@dataclass(eq=False)
class RNN(Recurrent):
    """A layer whose state goes through tanh at each step (Elman 1990)."""

    form: ClassVar[str] = "rnn:UNITS"
    gates, kept = 1, 1
    units: int


@dataclass(eq=False)
class LSTM(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997)."""

    form: ClassVar[str] = "lstm:UNITS"
    gates, kept = 4, 6
    units: int


@dataclass(eq=False)
class GRU(Recurrent):
    """A gated recurrent unit (Cho et al. 2014)."""

    form: ClassVar[str] = "gru:UNITS"
    gates, kept = 3, 4
    units: int


@dataclass(eq=False)
class Last(Layer):
    """The last step of a sequence, as a vector."""

    form: ClassVar[str] = "last"

    def build(self, shape: Shape) -> None:
        self.shape = shape
        if len(shape) != 2:
            raise self.misfit("a sequence (steps, n)")
        self.output = shape[1:]
        self.parameters = []

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        out = call.array("out", (len(x), *self.output))
        out[...] = x[:, -1]
        return out

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        if not call.needs_input:
            return None
        below = call.array("below", (len(delta), *self.shape))
        below.fill(0)
        below[:, -1] = delta
        return below
