"""A module of PyTorch as a model: forward and backward are torch's, sums and steps are ours."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from mapreduce.data.batch import Batch, Csr
from mapreduce.errors import UsageError
from mapreduce.models import MODELS
from mapreduce.models.base import Array, Model, Parameter
from mapreduce.models.context import Context
from mapreduce.models.torch_network import network, pin, seed_of, seeded
from mapreduce.reduction.aggregator import MOMENTS

# After what says how to install it.
import torch  # isort: skip

#: Torch's random state and settings are the process's, so that it computes one slice at a time.
_LOCK = threading.Lock()


class TorchModule(Model):
    """A ``torch.nn.Module`` with softmax and cross-entropy.

    The module takes rows (rows, ...) of the shape that the data have, with channels first, and of
    the dtype of the parameters; rows (height, width) come as (rows, 1, height, width). It returns
    logits (rows, classes). Each slice has one forward and one backward pass of its own, in which a
    batch norm normalises by the slice's own moments, or of a slice of one row by the running ones.
    These follow the moments of all rows of a round; the variance is that of a population, the sum
    of squared differences divided by the number of values. The round of a single value has none,
    and leaves the running one as it is. Weights of rows do not change moments.

    ``factory``: ``MODULE:NAME`` of a function or class that returns the module, and takes no
    arguments.
    """

    takes_shape = True
    takes_mixed = False
    # On a machine with a GPU, the first backward pass starts threads, which a fork would lack.
    forks_after_gradient = False
    #: Numbers that the module gives for a row; None for one of each class.
    outputs: ClassVar[int | None] = None

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        dtype: str,
        device: str = "cpu",
        *,
        factory: str,
    ) -> None:
        if device != "cpu":
            raise UsageError(
                f"--device {device}: the modules of --model torch compute on the CPU. "
                f"Take --device cpu"
            )
        self._factory = factory
        make = MODELS.imported(factory)
        self._network = network(factory, make, shape, self.outputs or classes, dtype)
        self.mixes_rows = bool(self._network.norms)
        super().__init__(shape, classes, dtype, device)

    def _parameters(self) -> list[Parameter]:
        return self._network.parameters

    def init(self, seed: int) -> Array:
        """Parameters of a new module, as after ``torch.manual_seed(seed)``."""
        params = np.empty(self.size, self.dtype)
        with _LOCK, seeded(seed):
            pin()
            tensors = self._network.tensors(self._network.made())
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != {one.name: one.shape for one in self.parameters}:
            self._network.refuse("it gives a module with other parameters each time")
        for name, view in self.named(params).items():
            view[...] = tensors[name].detach().numpy()
        return params

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        with _LOCK:
            pin()
            self._network.bind(params, context.key)
            loss = self._passes(batch, out, context)
            # A task that is new in each round would do it in each.
            if context.training and not context.key.round and not self._network.is_checked:
                self._check_state(params, batch, out, loss, context)
                self._network.is_checked = True
        return loss

    def _passes(self, batch: Batch, out: Array, context: Context) -> float:
        """Loss and gradient, with the parameters that the network has."""
        self._take(batch)
        out[:] = 0
        moments = context.extras if context.training else None
        with self._network.gradients(out), seeded(seed_of(context.key)):
            try:
                with torch.enable_grad():
                    output = self._network.outputs_of(batch.rows, context.training, moments)
                delta = self._copied(output, context)
                loss = self._loss(delta, batch)
                if not output.requires_grad:
                    self._network.refuse("its output does not depend on its parameters")
                output.backward(torch.from_numpy(delta).view(output.shape))
            except RuntimeError as error:
                if "deterministic" not in str(error):
                    raise
                operation = str(error).partition(" does not have")[0]
                self._network.refuse(f"{operation} has no form that gives the same bits each time")
        return loss

    def _check_state(
        self, params: Array, batch: Batch, out: Array, loss: float, context: Context
    ) -> None:
        """Refuse a module that gives another result for the same slice."""
        if (at := _first_difference(self._network.flat, params)) is not None:
            self._network.refuse(f"{self.parameter_at(at)} changes in a forward pass")
        again = np.empty_like(out)
        second = self._passes(batch, again, replace(context, extras={}))
        at = _first_difference(again, out)
        if at is not None or np.float64(second).tobytes() != np.float64(loss).tobytes():
            where = "" if at is None else f", and another gradient of {self.parameter_at(at)}"
            self._network.refuse(
                f"the same slice gave the loss {loss} and then {second}{where}. It keeps a state "
                f"between calls, or draws random numbers that are not torch's"
            )

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        with _LOCK, torch.no_grad(), seeded(seed_of(context.key)):
            pin()
            self._network.bind(params, context.key)
            self._take(batch)
            return self._copied(self._network.outputs_of(batch.rows, training=False), context)

    def named_layers(self) -> dict[str, str]:
        return self._network.named_modules()

    def layer_outputs(self, params: Array, batch: Batch, context: Context, layer: str) -> Array:
        with _LOCK, torch.no_grad(), seeded(seed_of(context.key)):
            pin()
            self._network.bind(params, context.key)
            self._take(batch)
            found = self._network.module_outputs(batch.rows, layer)
            copy = context.workspace.array("layer_outputs", tuple(found.shape), self.dtype)
            copy[...] = found.numpy()
            return copy

    def _take(self, batch: Batch) -> None:
        """Give the network the rows of a batch, scaled."""
        assert not isinstance(batch.features, Csr)
        self._kernel("scale")(batch.features, batch.scale, self._network.rows(batch.rows))

    def _copied(self, output: Any, context: Context) -> Array:
        shape = output.shape[0], self._network.outputs
        copy = context.workspace.array("logits", shape, self.dtype)
        copy[...] = output.detach().numpy().reshape(shape)
        return copy

    def _loss(self, outputs: Array, batch: Batch) -> float:
        """The loss, and its derivative by the outputs in their place."""
        loss: float = self._kernel("softmax_cross_entropy")(outputs, batch.labels, batch.weights)
        return loss

    def extras(self, completed: int) -> tuple[str, ...]:
        """The moments of the inputs of batch norms."""
        return (*self._network.norms,)

    def update_buffer(
        self, name: str, part: slice, values: Array, means: Mapping[str, Array]
    ) -> Array:
        path, _, kind = name.rpartition(".")
        norm = self._network.norms.get(MOMENTS + path)
        if norm is None or not means[MOMENTS + path][0]:
            return values
        count, (mean, squares) = means[MOMENTS + path][0], means[MOMENTS + path][1:].reshape(2, -1)
        if kind == "running_var" and count < 2:
            return values
        new = mean if kind == "running_mean" else squares / count
        moved: Array = values + norm.momentum * (new[part] - values)
        return moved.astype(self.dtype)

    def feature_at(self, index: int) -> int | None:
        return None

    def state(self, flat: Array) -> dict[str, Array]:
        """All that ``load_state_dict`` takes: tied parameters twice, and constant buffers."""
        with _LOCK:
            self._network.bind(flat, Context().key)
            return {name: array.copy() for name, array in self._network.state().items()}

    def of_state(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """The parameters in a ``state_dict``; names that are not the module's are kept."""
        own = {one.name for one in self.parameters}
        others = self._network.state().keys() - own
        return {name: array for name, array in state.items() if name not in others}

    @property
    def libraries(self) -> dict[str, str]:
        return {
            "torch": torch.__version__,
            "torch_cpu": torch.backends.cpu.get_cpu_capability(),
        }


class TorchRegression(TorchModule):
    """A ``torch.nn.Module`` that gives a number for a row, (rows, 1) or (rows,): squared error."""

    regression = True
    outputs = 1

    def _loss(self, outputs: Array, batch: Batch) -> float:
        scores = outputs.reshape((batch.rows,))
        loss: float = self._kernel("linear_loss")("squared", scores, batch.labels, batch.weights)
        return loss

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        """Sum of the losses, and 0."""
        return self._loss(self.logits(params, batch, context), batch), 0


TorchModule.for_numbers = TorchRegression


def _first_difference(found: Array, expected: Array) -> int | None:
    """The first element whose bits differ, or None."""
    if found.tobytes() == expected.tobytes():
        return None
    bits = f"u{found.itemsize}"
    return int((found.view(bits) != expected.view(bits)).argmax())
