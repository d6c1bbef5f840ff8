"""Layers one after the other, of which some are computed together."""

import bisect
import copy
import math
from collections.abc import Iterator
from typing import Any

from mapreduce.models.base import Array, Parameter
from mapreduce.models.layers.activation import ReLU
from mapreduce.models.layers.base import Arrays, Initial, Layer, Pass, Shape
from mapreduce.models.layers.channels import ChannelLayer
from mapreduce.models.layers.normalisation import BatchNorm
from mapreduce.models.layers.pooling import MaxPool


class Stack:
    """A list of layers that are built for rows of a shape.

    A product before a batch norm has no bias, which the batch norm would subtract again. ReLU and
    max pooling that follow a product or a batch norm are computed by it, in one pass. Names of
    parameters begin with the number of their layer.
    """

    def __init__(self, layers: list[Layer], shape: Shape) -> None:
        self.layers = layers
        self.output = shape
        self.parameters: list[Parameter] = []
        #: For each layer the place of its parameters.
        self._places: list[slice] = []
        #: The numbers of the layers that are computed by themselves.
        self._steps: list[int] = []
        #: The numbers of its layers: not all of ``layers``, for a part.
        self._numbers = range(len(layers))
        for number, layer in enumerate(layers):
            if isinstance(layer, ChannelLayer):
                layer.has_bias = not isinstance(next(iter(layers[number + 1 :]), None), BatchNorm)
            layer.build(self.output)
            self.output = layer.output
            first = len(self.parameters)
            self.parameters += [
                one._replace(name=f"{number}.{one.name}") for one in layer.parameters
            ]
            self._places.append(slice(first, len(self.parameters)))
            if not self._joins(layer):
                self._steps.append(number)

    def _joins(self, layer: Layer) -> bool:
        """Let the step before compute a layer, if it can."""
        before = self.layers[self._steps[-1]] if self._steps else None
        if not isinstance(before, ChannelLayer) or before.pool > 1:
            return False
        if isinstance(layer, ReLU):
            before.relu = True
            return True
        if isinstance(layer, MaxPool) and layer.window == (layer.size, layer.size):
            before.pool = layer.size
            return True
        return False

    def named(self, prefix: str = "") -> Iterator[tuple[str, Layer]]:
        """The layers by name, those within others after them."""
        for number in self._numbers:
            name, layer = f"{prefix}{number}", self.layers[number]
            yield name, layer
            inner = getattr(layer, "inner", None)
            if isinstance(inner, Stack):
                yield from inner.named(f"{name}.")

    def with_parameters(self, params: Arrays) -> Iterator[tuple[Layer, Arrays]]:
        """The layers in order, each with its part of all parameters."""
        for layer, place in zip(self.layers, self._places, strict=True):
            yield layer, params[place]

    def costs(self) -> list[tuple[int, int]]:
        """Of each step, which is a layer with what it computes: its work, and its parameters.

        The work of a step is that of its layers (:attr:`mapreduce.models.layers.base.Layer.work`)
        for a row, its parameters are their elements.
        """
        found = [[0, 0] for _ in self._steps]

        def step(name: str) -> list[int]:
            return found[bisect.bisect_right(self._steps, int(name.partition(".")[0])) - 1]

        for name, layer in self.named():
            step(name)[0] += layer.work
        for one in self.parameters:
            step(one.name)[1] += math.prod(one.shape)
        return [(work, size) for work, size in found]

    def part(self, first: int, stop: int) -> "Stack":
        """The steps from ``first`` to before ``stop``, whose layers keep their numbers."""
        found = copy.copy(self)
        after = self._steps[stop] if stop < len(self._steps) else len(self.layers)
        found._steps, found._numbers = self._steps[first:stop], range(self._steps[first], after)
        begin, end = self._places[found._numbers[0]].start, self._places[after - 1].stop
        found.parameters = self.parameters[begin:end]
        found._places = [slice(one.start - begin, one.stop - begin) for one in self._places]
        found.output = self.layers[after - 1].output
        return found

    def until(self, name: str) -> "Stack":
        """The layers up to one of those that :meth:`named` names, for forward passes alone.

        It takes the parameters of all layers.
        """
        outer, _, inner = name.partition(".")
        number = int(outer)
        found = copy.copy(self)
        found._steps = [step for step in self._steps if step <= number]
        found.layers, found.output = [*self.layers], self.layers[number].output
        begin = found._steps[-1]
        last: Any = copy.copy(self.layers[begin])
        if inner:
            last = last.inner.until(inner)
            found.output = last.output
        elif isinstance(last, ChannelLayer):
            # What it computes of the layers after it.
            joined = self.layers[begin + 1 : number + 1]
            last.relu = any(isinstance(layer, ReLU) for layer in joined)
            last.pool = next((layer.size for layer in joined if isinstance(layer, MaxPool)), 1)
        found.layers[begin] = last
        return found

    def init(self, views: Arrays, uniform: Initial) -> None:
        """Fill the parameters, which are zeros, with initial values."""
        for number, layer in enumerate(self.layers):
            layer.init(views[self._places[number]], uniform.inner(number))

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        """See :meth:`mapreduce.models.layers.base.Layer.forward`."""
        for number in self._steps:
            layer = self.layers[number]
            x = layer.forward(x, params[self._places[number]], call.inner(number))
        return x

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        """See :meth:`mapreduce.models.layers.base.Layer.backward`."""
        below: Array | None = delta
        for number in reversed(self._steps):
            assert below is not None
            layer, place = self.layers[number], self._places[number]
            below = layer.backward(below, params[place], grads[place], call.inner(number))
        return below
