"""A model that learns from what a layer of another one gives, which stays as it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from mapreduce.data.batch import Batch
from mapreduce.errors import UsageError
from mapreduce.models.base import Array, Model, Parameter
from mapreduce.models.context import Context, Workspace
from mapreduce.reduction.vectors import DENSITY, SparseVector, Vector

#: The beginning of the names of the trunk's parameters and layers; the head's have none.
TRUNK = "trunk."


class _Apart(Workspace):
    """Memory for the trunk in the workspace of the head, under names of its own."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        return self._workspace.array(TRUNK + name, shape, dtype)


class Fed(Model):
    """A ``head`` whose features are the outputs of a ``layer`` of a ``trunk``.

    Rows are those of the trunk. Its parameters are buffers, after those of the head: they never
    change. It computes as a model in use does: without dropout, and with running moments.

    ``trunk``: A model for the rows, on the CPU; ``layer`` is one of its
    :meth:`~mapreduce.models.base.Model.named_layers`.
    ``head``: A model of the same dtype for rows of the shape (n,), if that layer gives n numbers.

    Raises UsageError (a device other than the CPU).
    """

    takes_mixed = False

    def __init__(self, trunk: Model, layer: str, head: Model) -> None:
        if trunk.device != "cpu" or head.device != "cpu":
            raise UsageError(
                "--device cuda: a model that is trained with --features-from runs on the CPU "
                "alone. Take --device cpu"
            )
        self.trunk, self.layer, self.head = trunk, layer, head
        super().__init__(trunk.shape, head.classes, head.dtype.name)
        self.regression, self.steps = head.regression, head.steps
        self.is_random, self.mixes_rows = head.is_random, head.mixes_rows
        self.forks_after_gradient = head.forks_after_gradient
        self.row_bytes = head.row_bytes + head.features * head.dtype.itemsize
        self._indices = np.arange(head.size, dtype=np.int32)

    def _parameters(self) -> list[Parameter]:
        frozen = [Parameter(TRUNK + one.name, one.shape, "buffer") for one in self.trunk.parameters]
        return [*self.head.parameters, *frozen]

    def _split(self, flat: Array) -> tuple[Array, Array]:
        """The head's part of a flat vector, and the trunk's."""
        return flat[: self.head.size], flat[self.head.size :]

    def _fed(self, params: Array, batch: Batch, context: Context) -> tuple[Array, Batch, Context]:
        """What a method of the head takes: its parameters, and the features of a batch."""
        head, trunk = self._split(params)
        apart = Context(_Apart(context.workspace))
        features = self.trunk.layer_outputs(trunk, batch, apart, self.layer)
        return head, replace(batch, features=features, scale=1.0), context

    def init(self, seed: int) -> Array:
        """The head's initial parameters, and then the trunk's."""
        return np.concatenate([self.head.init(seed), self.trunk.init(seed)])

    def batch_invariant(self) -> Self:
        found = super().batch_invariant()
        found.trunk, found.head = self.trunk.batch_invariant(), self.head.batch_invariant()
        return found

    def hold(self, params: Array) -> None:
        for model, part in zip((self.head, self.trunk), self._split(params), strict=True):
            model.hold(part)

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        own, frozen = self._split(out)
        frozen[:] = 0
        head, features, context = self._fed(params, batch, context)
        return self.head.gradient(head, features, own, context)

    def sparse_gradient(
        self, params: Array, batch: Batch, context: Context
    ) -> tuple[float, Vector] | None:
        # So the zeros in the place of a large trunk are neither sent nor added.
        if self.head.size > DENSITY * self.size:
            return None
        own = np.empty(self.head.size, self.dtype)
        loss = self.head.gradient(*self._fed(params, batch, context)[:2], own, context)
        return loss, SparseVector(self._indices, own, self.size)

    def extras(self, completed: int) -> tuple[str, ...]:
        return self.head.extras(completed)

    def update_buffer(
        self, name: str, part: slice, values: Array, means: Mapping[str, Array]
    ) -> Array:
        if name.startswith(TRUNK):
            return values
        return self.head.update_buffer(name, part, values, means)

    def logits(self, params: Array, batch: Batch, context: Context) -> Array:
        return self.head.logits(*self._fed(params, batch, context))

    def score(self, params: Array, batch: Batch, context: Context) -> tuple[float, int]:
        return self.head.score(*self._fed(params, batch, context))

    def probabilities(self, params: Array, batch: Batch, context: Context) -> Array:
        return self.head.probabilities(*self._fed(params, batch, context))

    def of_logits(self) -> None:
        """None: the head would take logits for its own rows."""

    def named_layers(self) -> dict[str, str]:
        """The trunk's layers up to the one that feeds the head, and the head's."""
        found: dict[str, str] = {}
        for name, kind in self.trunk.named_layers().items():
            found[TRUNK + name] = kind
            if name == self.layer:
                break
        return {**found, **self.head.named_layers()}

    def layer_outputs(self, params: Array, batch: Batch, context: Context, layer: str) -> Array:
        if not layer.startswith(TRUNK):
            return self.head.layer_outputs(*self._fed(params, batch, context), layer)
        _, trunk = self._split(params)
        return self.trunk.layer_outputs(trunk, batch, context, layer.removeprefix(TRUNK))

    def feature_at(self, index: int) -> int | None:
        return None

    @property
    def libraries(self) -> dict[str, str]:
        return self.trunk.libraries | self.head.libraries
