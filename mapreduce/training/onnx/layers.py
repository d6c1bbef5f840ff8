"""Models and the layers of networks in a graph of ONNX.

A row is laid out as in the network: images are (height, width, channels), sequences (steps, n).
"""

import math
from typing import Any

import numpy as np

from mapreduce.errors import UsageError
from mapreduce.models.base import Array, Model
from mapreduce.models.fed import Fed
from mapreduce.models.layers.base import Arrays
from mapreduce.models.layers.normalisation import EPSILON
from mapreduce.models.layers.sequential import Sequential
from mapreduce.models.layers.stack import Stack
from mapreduce.models.linear import BinaryModel, LinearModel
from mapreduce.models.mlp import MLP
from mapreduce.models.softmax import Softmax
from mapreduce.training.onnx.graph import Graph

_OF_ELEMENTS = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
_POOLS = {"pool": "MaxPool", "average-pool": "AveragePool"}
#: ONNX's operator for a recurrent layer, and the places of the layer's gates in ONNX's order.
_RECURRENT = {"rnn": ("RNN", [0]), "gru": ("GRU", [1, 0, 2]), "lstm": ("LSTM", [0, 3, 1, 2])}


def logits(graph: Graph, model: Model, x: str, params: Arrays) -> str:
    """Logits (rows, classes) of flat rows, or numbers (rows, 1).

    ``params``: Arrays of the model's parameters, in order.

    Raises UsageError (the model, or a layer, has no form in ONNX).
    """
    match model:
        case Softmax():
            return _dense(graph, x, params)
        case BinaryModel():
            # The logit of the first class is 0.
            weight, bias = (np.stack([np.zeros_like(each), each], axis=-1) for each in params)
            return _dense(graph, x, [weight, bias[0]])
        case LinearModel():
            return _dense(graph, x, [params[0][:, None], params[1]])
        case MLP():
            for number in range(0, len(params), 2):
                x = _dense(graph, x, params[number : number + 2])
                if number + 2 < len(params):
                    x = graph.add("Relu", x)
                graph.layers[f"layers.{number // 2}"] = x
            return x
        case Sequential():
            x = _stack(graph, model.stack, _images(graph, model.stack, x), params)
            return x if model.steps is None else _last(graph, x)
        case Fed():
            own = len(model.head.parameters)
            logits(graph, model.trunk, x, params[own:])
            fed = graph.add("Flatten", graph.layers[model.layer])
            return logits(graph, model.head, fed, params[:own])
    raise UsageError(f"the model {type(model).__name__} has no form in ONNX")


def _images(graph: Graph, stack: Stack, x: str) -> str:
    """Flat rows as the first layer takes them."""
    shape = stack.layers[0].shape
    if len(shape) == 1:
        return x
    height, width, channels = shape
    images = graph.reshape(x, -1, channels, height, width)
    return graph.add("Transpose", images, perm=[0, 2, 3, 1])


def _stack(graph: Graph, stack: Stack, x: str, params: Arrays, prefix: str = "") -> str:
    for number, (layer, own) in enumerate(stack.with_parameters(params)):
        name = f"{prefix}{number}"
        x = graph.layers[name] = _layer(graph, layer, x, own, name)
    return x


def _layer(graph: Graph, layer: Any, x: str, params: Arrays, name: str) -> str:
    match layer.name():
        case "dense":
            return _dense(graph, graph.add("Flatten", x) if len(layer.shape) == 3 else x, params)
        case "conv":
            return _convolution(graph, layer, x, params)
        case "pool" | "average-pool" as kind:
            size, step = layer.window
            return _of_images(
                graph, _POOLS[kind], x, kernel_shape=[size, size], strides=[step, step]
            )
        case "global-average-pool":
            return graph.add("ReduceMean", x, graph.constant([1, 2], np.int64), keepdims=0)
        case "relu" | "tanh" | "sigmoid" as kind:
            return graph.add(_OF_ELEMENTS[kind], x)
        case "leaky-relu":
            return graph.add_single("LeakyRelu", x, alpha=layer.slope)
        case "gelu":
            return graph.add_single("Gelu", x, approximate="tanh")
        case "batchnorm":
            weight, bias, mean, variance = (array.astype(np.float64) for array in params)
            scale = weight / np.sqrt(variance + EPSILON)
            scaled = graph.add("Mul", x, graph.constant(scale, graph.dtype))
            return graph.add("Add", scaled, graph.constant(bias - mean * scale, graph.dtype))
        case "layernorm":
            # Moments of numbers far from 0 need more digits than float32 has.
            x, constants = (
                graph.cast(x, np.float64),
                (graph.constant(p, np.float64) for p in params),
            )
            x = graph.add("LayerNormalization", x, *constants, axis=-1, epsilon=EPSILON)
            return graph.cast(x, graph.dtype)
        case "dropout":
            return x
        case "embedding":
            return graph.add("Gather", graph.constant(params[0]), graph.cast(x, np.int64))
        case "rnn" | "gru" | "lstm":
            return _recurrent(graph, layer, x, params)
        case "last":
            return _last(graph, x)
        case "residual":
            count = len(layer.inner.parameters)
            inner = _stack(graph, layer.inner, x, params[:count], f"{name}.")
            if layer.shortcut is not None:
                x = _convolution(graph, layer.shortcut, x, params[count:])
            return graph.add("Add", x, inner)
    raise UsageError(f"layer {layer} has no form in ONNX")


def _dense(graph: Graph, x: str, params: Arrays) -> str:
    weight, *bias = params
    x = graph.add("MatMul", x, graph.constant(weight))
    return graph.add("Add", x, graph.constant(bias[0])) if bias else x


def _convolution(graph: Graph, layer: Any, x: str, params: Arrays) -> str:
    weight, *bias = params
    constants = [
        graph.constant(array, np.float32) for array in (weight.transpose(3, 2, 0, 1), *bias)
    ]
    moves = {"strides": [layer.stride] * 2, "pads": [layer.padding] * 4}
    return _of_images(graph, "Conv", x, *constants, **moves)


def _of_images(graph: Graph, operator: str, x: str, *values: str, **attributes: Any) -> str:
    """The output of an operator of images, of which ONNX has the channels first."""
    x = graph.add("Transpose", x, perm=[0, 3, 1, 2])
    x = graph.add_single(operator, x, *values, **attributes)
    return graph.add("Transpose", x, perm=[0, 2, 3, 1])


def _recurrent(graph: Graph, layer: Any, x: str, params: Arrays) -> str:
    """The states (rows, steps, units); ONNX has the steps first, and the gates as rows."""
    operator, order = _RECURRENT[layer.name()]
    (steps, units), count = layer.output, len(order)

    def gates(array: Array) -> Array:
        """Weights or biases (..., gates * units) as ONNX has them, (gates * units, ...)."""
        return array.reshape(-1, count, units)[:, order].reshape(-1, count * units).T

    weight, state_weight, *biases = map(gates, params)
    by_direction = (weight[None], state_weight[None], np.concatenate(biases).T)
    constants = [graph.constant(array, np.float32) for array in by_direction]
    # As here, the reset gate is applied after the product.
    more = {"linear_before_reset": 1} if operator == "GRU" else {}
    x = graph.reshape(x, -1, steps, math.prod(layer.shape[1:]))
    x = graph.add("Transpose", x, perm=[1, 0, 2])
    states = graph.add_single(operator, x, *constants, hidden_size=units, **more)
    # Behind the axis of the steps they have one of directions.
    return graph.reshape(graph.add("Transpose", states, perm=[2, 0, 1, 3]), -1, steps, units)


def _last(graph: Graph, x: str) -> str:
    """The last step (rows, n) of sequences."""
    return graph.add("Gather", x, graph.constant(-1, np.int64), axis=1)
