"""The contract of a layer of a :class:`mapreduce.models.layers.sequential.Sequential`."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from kernels import arrays
from mapreduce.errors import UsageError
from mapreduce.models.base import Array, Parameter
from mapreduce.models.context import Context, Key
from mapreduce.reduction.aggregator import MOMENTS

#: Shape of a row: (n,) for a vector, (height, width, channels) for an image, (steps, n) for a
#: sequence.
Shape = tuple[int, ...]
IMAGE = "height, width, channels"

#: Parameters of a layer, or their gradients, in its order.
Arrays = list[Array]


class Initial:
    """Random numbers for initial parameters, a function of the seed and the layer alone."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def __call__(self, array: Array, bound: float) -> None:
        """Fill an array with numbers uniform between -bound and bound; others at every call."""
        numbers = self._key.uniform(1, array.size).reshape(array.shape)
        array[...] = (2 * numbers - 1) * bound
        self._key = self._key._replace(row=self._key.row + 1)

    def inner(self, number: int) -> "Initial":
        """Those of a layer within this one."""
        return Initial(self._key.fold(number))


class Pass:
    """One layer's part of a forward pass and of the backward pass after it.

    ``kept``: What the forward pass leaves for the backward pass.
    ``needs_input``: Whether the backward pass must return the gradient by the layer's inputs.
    ``training``: Whether layers such as dropout train.
    ``key``: Gives the layer's random numbers for the rows of the batch.
    """

    def __init__(
        self, context: Context, device: str, kernel: Callable[[str], Any], dtype: np.dtype[Any]
    ) -> None:
        self._context = context
        self._device = device
        self._dtype = dtype
        self._name = ""
        self._inner: dict[int, Pass] = {}
        self.kernel = kernel
        self.kept: dict[str, Any] = {}
        self.needs_input = False
        self.training = context.training
        self.key: Key = context.key

    def inner(self, number: int) -> "Pass":
        """The pass of a layer within this one."""
        found = self._inner.get(number)
        if found is None:
            found = Pass(self._context, self._device, self.kernel, self._dtype)
            found._name = f"{self._name}.{number}" if self._name else f"{number}"
            found.key = self.key.fold(number)
            found.needs_input = self.needs_input or number > 0
            self._inner[number] = found
        return found

    def array(self, name: str, shape: Shape, dtype: npt.DTypeLike | None = None) -> Array:
        """An uninitialised array of the layer on the device, valid until it is asked for again."""
        return self._context.workspace.array(
            f"{self._name}.{name}", shape, self._dtype if dtype is None else dtype
        )

    def host(self, array: Array) -> Array:
        """The values of an array of the device or of the host, for NumPy."""
        values: Array = arrays.values(array)
        return values

    def add_moments(self, moments: Array) -> None:
        """Send the moments of the layer's inputs along the tree: see :data:`MOMENTS`."""
        self._context.extras[MOMENTS + self._name] = moments


class Layer(ABC):
    """A layer; its fields are the arguments of its specification.

    A subclass is a dataclass: fields without a default are joined by ``x``, as in ``conv:16x5``,
    and the others are written ``name=value``, as in ``conv:16x5:stride=2``.

    ``form``: The form of its specification, which begins with the layer's name.
    ``on_cuda``: Whether all of its kernels have twins on CUDA.
    ``has_moments``: Whether it sends moments of its inputs along the tree, which
      :meth:`update_buffer` gets.
    ``is_random``: Whether its outputs, in training, are drawn anew in every round.
    ``mixes_rows``: Whether a row's output, in training, depends on the other rows of its slice.
    ``shape``, ``output``: Shape of a row that goes in, and of one that comes out; :meth:`build`
      sets them.
    ``parameters``: Set by :meth:`build`; their names are those within the layer.
    """

    form: ClassVar[str]
    on_cuda: ClassVar[bool] = False
    has_moments: ClassVar[bool] = False
    is_random: ClassVar[bool] = False
    mixes_rows: ClassVar[bool] = False

    shape: Shape
    output: Shape
    parameters: list[Parameter]

    @abstractmethod
    def build(self, shape: Shape) -> None:
        """Set the shapes and the parameters for rows of a shape.

        Raises UsageError (the layer does not take rows of this shape; see :meth:`misfit`).
        """

    def init(self, views: Arrays, uniform: Initial) -> None:
        """Fill the parameters, which are zeros, with initial values."""
        return

    @abstractmethod
    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        """Outputs (rows, *output) of inputs (rows, *shape), which are not changed."""

    @abstractmethod
    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        """Carry the gradient by the outputs, (rows, *output), back to the parameters and inputs.

        ``delta`` may be overwritten, and ``grads`` are; buffers' are zeros already. ``call`` is
        that of :meth:`forward`. Returns the gradient by the inputs, (rows, *shape), if
        ``call.needs_input``.
        """

    def update_buffer(self, name: str, part: slice, values: Array, moments: Array) -> Array:
        """New values of a part of a buffer: see :meth:`mapreduce.models.base.Model.update_buffer`.

        ``moments`` are those of the layer's inputs over all rows of the round.
        """
        raise NotImplementedError(f"{type(self).__name__} has no buffer {name}")

    @property
    def work(self) -> int:
        """Multiplications with an addition in the forward pass of a row."""
        return 0

    @classmethod
    def name(cls) -> str:
        """The name in specifications."""
        return re.split(r"[:(\[]", cls.form, maxsplit=1)[0]

    def __str__(self) -> str:
        """The layer's specification."""
        required, named = arguments(type(self))
        sizes = "x".join(str(getattr(self, one.name)) for one in required)
        given = [
            f"{one.name}={getattr(self, one.name)}"
            for one in named.values()
            if getattr(self, one.name) != one.default
        ]
        return ":".join([self.name(), *filter(None, [sizes]), *given])

    def misfit(self, expected: str) -> UsageError:
        """The error for a shape that the layer does not take."""
        return UsageError(f"layer {self}: expected {expected}, found {described(self.shape)}")

    def at_least(self, least: int, *names: str) -> None:
        """Refuse arguments below a number."""
        for name in names:
            if getattr(self, name) < least:
                raise UsageError(
                    f"layer {self}: expected {name} of at least {least}, found "
                    f"{getattr(self, name)}"
                )


def arguments(kind: type[Layer]) -> tuple[list["Field[Any]"], dict[str, "Field[Any]"]]:
    """The fields of a layer that are joined by ``x``, and those that have names."""
    known = fields(kind)  # type: ignore[arg-type]
    required = [one for one in known if one.default is MISSING]
    return required, {one.name: one for one in known if one not in required}


def described(shape: Shape) -> str:
    """A row's shape in words."""
    kind, sizes = {1: ("vector", ""), 2: ("sequence", "steps, n"), 3: ("image", IMAGE)}[len(shape)]
    meaning = f" ({sizes})" if sizes else ""
    return f"{'an' if kind == 'image' else 'a'} {kind} of {' × '.join(map(str, shape))}{meaning}"
