"""Networks of layers, one after the other."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from mapreduce.data.batch import Batch, Csr
from mapreduce.errors import UsageError
from mapreduce.models.base import Array, Model, Parameter
from mapreduce.models.context import Context, Key
from mapreduce.models.layers.base import Arrays, Initial, Pass, Shape
from mapreduce.models.layers.dense import Dense, Outputs
from mapreduce.models.layers.embedding import tokens_of
from mapreduce.models.layers.spec import parse
from mapreduce.models.layers.stack import Stack
from mapreduce.reduction.aggregator import MOMENTS

#: Rows that pass the layers at once where they are not trained, so that memory stays small.
ROWS = 64
#: On a GPU, where starting kernels takes longer than a few rows do, as many as take these bytes.
_DEVICE_BYTES = 1 << 30

#: The replica whose random numbers are those of the initial parameters: none has this number.
_INITIAL = 2**32 - 1


class Forward(NamedTuple):
    """A forward pass, for the backward pass after it."""

    call: Pass
    params: Arrays
    x: Array | None
    outputs: Array


class Sequential(Model):
    """Layers, a dense layer to the classes, softmax and cross-entropy.

    Images are (height, width, channels) within the network; data sets have them as (channels,
    height, width), or (height, width) for one channel.

    Layers that give a sequence are a language model: at each step the dense layer predicts the next
    element of the row, and at the last one its label. The loss of a row is the mean over its steps,
    its prediction that of the last one.

    ``stack``: The layers, the last one included, with their shapes.
    ``source``: Of a :meth:`part` that begins later than the network, it gives the next inputs of
      its first layer, (rows, *shape): the outputs of the layer before for the rows of the call.
    """

    takes_shape = True
    takes_mixed = False
    #: Numbers that the last layer gives for a row; None for one of each class.
    outputs: ClassVar[int | None] = None

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        dtype: str,
        device: str = "cpu",
        *,
        layers: str,
    ) -> None:
        self._input = _row_shape(shape)
        self.stack = Stack([*parse(layers), Outputs(self.outputs or classes)], self._input)
        if device != "cpu":
            _check_device(self.stack, device)
        self.steps = self._steps()
        self.is_random = any(layer.is_random for _, layer in self.stack.named())
        self.mixes_rows = any(layer.mixes_rows for _, layer in self.stack.named())
        self.source: Callable[[], Array] | None = None
        super().__init__(shape, classes, dtype, device)
        # What goes forward, and the gradient by it.
        elements = sum(math.prod(layer.output) for _, layer in self.stack.named())
        self.row_bytes = 2 * elements * self.dtype.itemsize

    def _steps(self) -> int | None:
        if len(self.stack.output) == 1:
            return None
        steps, elements = self.stack.output[0], math.prod(self._input)
        if self.regression or steps != elements:
            expected = "numbers" if self.regression else f"the next of {elements} elements"
            raise UsageError(
                f"the last layers give a sequence of {steps} steps, which cannot predict "
                f"{expected}: expected a vector. Add the layer last, which takes the last step"
            )
        return steps

    def _parameters(self) -> list[Parameter]:
        self._moments = {name: layer for name, layer in self.stack.named() if layer.has_moments}
        return self.stack.parameters

    def part(self, first: int, stop: int) -> "Sequential":
        """Some steps of the stack as a network of their own, with their parameters alone.

        The part without the first step needs a :attr:`source`. Only the part with the last step
        has outputs that :meth:`loss` takes.
        """
        found = copy.copy(self)
        found.stack = self.stack.part(first, stop)
        found._lay_out()
        return found

    def init(self, seed: int) -> Array:
        """Initial parameters by the counter generator; each layer says how."""
        params = np.zeros(self.size, self.dtype)
        self.stack.init(self.views(params), Initial(Key(seed, replica=_INITIAL)))
        return params

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        going = self.forward(params, batch, context)
        loss = self.loss(going, batch)
        self.backward(going, going.outputs, out)
        return loss

    def forward(self, params: Array, batch: Batch, context: Context) -> Forward:
        """The first half of :meth:`gradient`: outputs of the rows, or of what the source gives."""
        views, x = self.views(params), None
        call = Pass(context, self.device, self._kernel, self.dtype)
        if self.source is None or self.steps is not None:
            x = self._images(params, batch, context)
        inputs = x if self.source is None else self.source()
        assert inputs is not None
        return Forward(call, views, x, self.stack.forward(inputs, views, call))

    def loss(self, going: Forward, batch: Batch) -> float:
        """The loss of a batch, and its derivative by the outputs in their place."""
        return self._loss(going.outputs, *self._targets(going.x, batch))

    def backward(self, going: Forward, delta: Array, out: Array) -> Array | None:
        """The second half of :meth:`gradient`, from the gradient by the outputs.

        Returns that by the inputs, for a part that begins later than the network.
        """
        grads = self.views(out)
        for one, grad in zip(self.parameters, grads, strict=True):
            if one.role == "buffer":
                # Arrays of a device take no scalars.
                grad[:] = np.zeros(one.shape, self.dtype)
        return self.stack.backward(delta, going.params, grads, going.call)

    def _targets(self, x: Array | None, batch: Batch) -> tuple[Array | None, Array | None]:
        """What the outputs are to predict, and the weight of each."""
        if self.steps is None:
            return batch.labels, batch.weights
        assert batch.labels is not None
        assert x is not None
        following = tokens_of(x[:, 1:], self.classes, "a class", first=1)
        targets = np.column_stack((following, batch.labels)).reshape(-1)
        weights = np.ones(batch.rows) if batch.weights is None else batch.weights
        return targets, np.repeat(weights / self.steps, self.steps)

    def _loss(self, outputs: Array, targets: Array | None, weights: Array | None) -> float:
        """The loss, and its derivative by the outputs in their place."""
        logits = outputs.reshape((outputs.size // self.classes, self.classes))
        loss: float = self._kernel("softmax_cross_entropy")(logits, targets, weights)
        return loss

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        width = self.outputs or self.classes
        out = context.workspace.array("logits", (batch.rows, width), self.dtype)
        start = 0
        for part, going in self.passes(params, batch, context):
            last = going.outputs if self.steps is None else going.outputs[:, -1]
            self._kernel("scale")(last, 1.0, out[start : start + part.rows])
            start += part.rows
        return out

    def named_layers(self) -> dict[str, str]:
        return {name: str(layer) for name, layer in self.stack.named()}

    def layer_outputs(self, params: Array, batch: Batch, context: Context, layer: str) -> Array:
        found = copy.copy(self)
        found.stack = self.stack.until(layer)
        width = math.prod(found.stack.output)
        out = context.workspace.array("layer_outputs", (batch.rows, width), self.dtype)
        start = 0
        for part, going in found.passes(params, batch, context):
            outputs = going.outputs.reshape((part.rows, width))
            self._kernel("scale")(outputs, 1.0, out[start : start + part.rows])
            start += part.rows
        return out

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        if self.steps is None:
            return super().score(params, batch, context)
        loss, correct = 0.0, 0
        for part, going in self.passes(params, batch, context):
            correct += self._kernel("score")(going.outputs[:, -1].copy(), part.labels)[1]
            loss += self.loss(going, part)
        return loss, correct

    def passes(
        self, params: Array, batch: Batch, context: Context
    ) -> Iterator[tuple[Batch, Forward]]:
        """The forward passes of a few rows at a time, by which a model in use goes through them."""
        rows = ROWS
        if self.device != "cpu":
            rows = max(rows, _DEVICE_BYTES // max(1, self.row_bytes))
        for start in range(0, batch.rows, rows):
            part = batch[start : start + rows]
            yield part, self.forward(params, part, context)

    def feature_at(self, index: int) -> int | None:
        # Only a product of the rows themselves has a weight for each feature.
        is_product = isinstance(self.stack.layers[0], Dense)
        return super().feature_at(index) if is_product and len(self._input) == 1 else None

    def _images(self, params: Array, batch: Batch, context: Context) -> Array:
        """The features as the first layer takes them, (rows, *shape)."""
        shape = (batch.rows, *self._input)
        if len(self._input) < 3 or self._input[2] == 1:
            return self._inputs(params, batch, context).reshape(shape)
        if isinstance(batch.features, Csr):
            raise UsageError("images cannot be sparse")
        out = context.workspace.array("inputs", shape, self.dtype)
        images: Array = self._kernel("channels_last")(batch.features, batch.scale, out)
        return images

    def extras(self, completed: int) -> tuple[str, ...]:
        return tuple(MOMENTS + name for name in self._moments)

    def update_buffer(
        self, name: str, part: slice, values: Array, means: Mapping[str, Array]
    ) -> Array:
        layer, _, own = name.rpartition(".")
        return self._moments[layer].update_buffer(own, part, values, means[MOMENTS + layer])


class SequentialRegression(Sequential):
    """Layers, a dense layer to one number, and half the squared error."""

    regression = True
    outputs = 1

    def _loss(self, outputs: Array, targets: Array | None, weights: Array | None) -> float:
        scores = outputs.reshape((outputs.size,))
        loss: float = self._kernel("linear_loss")("squared", scores, targets, weights)
        return loss

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        """Sum of the losses, and 0."""
        return self._loss(self.logits(params, batch, context), batch.labels, batch.weights), 0


def _row_shape(shape: tuple[int, ...]) -> Shape:
    """Shape of a row as the first layer takes it, of that which a data set has."""
    if len(shape) == 3:
        channels, height, width = shape
        return height, width, channels
    return (*shape, 1) if len(shape) == 2 else (math.prod(shape),)


def _check_device(stack: Stack, device: str) -> None:
    for name, layer in stack.named():
        if not layer.on_cuda:
            raise UsageError(
                f"--device {device}: layer {name}, {layer}, runs on the CPU alone. Take --device "
                f"cpu"
            )


Sequential.for_numbers = SequentialRegression
