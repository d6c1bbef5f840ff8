"""Multilayer perceptron: affine layers with ReLU between them, softmax at the end."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from mapreduce.data.batch import Batch
from mapreduce.errors import UsageError
from mapreduce.models.base import Array, Model, Parameter
from mapreduce.models.context import Context


class MLP(Model):
    """A feed-forward network of any depth with cross-entropy loss.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers, from the input on.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        dtype: str,
        device: str = "cpu",
        *,
        hidden: tuple[int, ...],
    ) -> None:
        if not hidden or min(hidden) < 1:
            raise UsageError("mlp needs the widths of its hidden layers, as in mlp:256,128")
        self.widths = [math.prod(shape), *hidden, classes]
        super().__init__(shape, classes, dtype, device)

    def _parameters(self) -> list[Parameter]:
        parameters = []
        for i, (inputs, outputs) in enumerate(pairwise(self.widths)):
            parameters.append(Parameter(f"layers.{i}.weight", (inputs, outputs)))
            parameters.append(Parameter(f"layers.{i}.bias", (outputs,), "bias"))
        return parameters

    def init(self, seed: int) -> Array:
        """Weights normal with variance 2 / inputs (He et al. 2015), biases zero."""
        params = np.zeros(self.size, self.dtype)
        generator = np.random.Generator(np.random.Philox(seed))
        for weight, _ in self._layers(params):
            deviation = np.sqrt(2 / len(weight))
            weight[:] = generator.standard_normal(weight.shape) * deviation
        return params

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        return self._forward(self._layers(params), params, batch, context)[-1]

    def named_layers(self) -> dict[str, str]:
        *hidden, last = range(len(self.widths) - 1)
        found = {f"layers.{i}": f"{self.widths[i + 1]} with ReLU" for i in hidden}
        return {**found, f"layers.{last}": f"{self.classes} logits"}

    def layer_outputs(self, params: Array, batch: Batch, context: Context, layer: str) -> Array:
        place = [*self.named_layers()].index(layer)
        return self._forward(self._layers(params), params, batch, context)[place + 1]

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        layers, found = self._layers(params), self._layers(out)
        activations = self._forward(layers, params, batch, context)
        delta = activations.pop()
        loss: float = self._kernel("softmax_cross_entropy")(delta, batch.labels, batch.weights)
        delta = self._stored(delta, params, context)
        for i in range(len(layers) - 1, -1, -1):
            x = activations[i]
            self._kernel("affine_gradient")(x, delta, *found[i])
            if i:
                below = context.workspace.array(f"delta{i}", x.shape, params.dtype)
                delta = self._kernel("relu_backward")(delta, layers[i][0], x, below)
        return loss

    def _forward(
        self, layers: list[tuple[Any, Any]], params: Array, batch: Batch, context: Context
    ) -> list[Array]:
        """The inputs, each hidden layer's output and the logits."""
        affine = self._kernel("affine")
        outputs = [self._inputs(params, batch, context)]
        for i, (weight, bias) in enumerate(layers):
            is_hidden = i < len(layers) - 1
            dtype = params.dtype if is_hidden else self.dtype
            out = context.workspace.array(f"layer{i}", (batch.rows, len(bias)), dtype)
            outputs.append(affine(outputs[-1], weight, bias, out, relu=is_hidden))
        return outputs

    def _layers(self, flat: Array) -> list[tuple[Any, Any]]:
        """(weight, bias) of each layer."""
        views = self.views(flat)
        return list(zip(views[::2], views[1::2], strict=True))
