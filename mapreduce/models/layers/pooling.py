"""Pooling layers."""

from dataclasses import dataclass
from typing import ClassVar

from mapreduce.models.base import Array
from mapreduce.models.layers.base import IMAGE, Arrays, Layer, Pass, Shape


class Pooling(Layer):
    """Windows of an image that become one value for each channel.

    What is left at the right and lower edge, beyond the last window, is not used.

    ``kernel``: Name of the kernel; that of the backward pass has ``_backward`` behind it.
    ``window``: Its last arguments: the size of the windows and their stride, which is the size if
      it was not given.
    """

    on_cuda: ClassVar[bool] = True
    kernel: ClassVar[str]
    window: tuple[int, ...]
    size: int
    stride: int

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.parameters = []
        self.at_least(1, "size")
        self.at_least(0, "stride")
        step = self.stride or self.size
        self.window = self.size, step
        if len(shape) != 3 or min(shape[:2]) < self.size:
            raise self.misfit(f"an image of at least {self.size} × {self.size} ({IMAGE})")
        height, width = ((length - self.size) // step + 1 for length in shape[:2])
        self.output = (height, width, shape[2])

    def _places(self, shape: Shape, call: Pass) -> tuple[Array, ...]:
        """What both kernels take beside values and gradients."""
        return ()

    def forward(self, x: Array, params: Arrays, call: Pass) -> Array:
        shape = (len(x), *self.output)
        out, places = call.array("out", shape), self._places(shape, call)
        call.kernel(self.kernel)(x, out, *places, *self.window)
        call.kept |= {"shape": x.shape, "places": places}
        return out

    def backward(self, delta: Array, params: Arrays, grads: Arrays, call: Pass) -> Array | None:
        if not call.needs_input:
            return None
        below, places = call.array("below", call.kept["shape"]), call.kept["places"]
        call.kernel(f"{self.kernel}_backward")(delta, *places, below, *self.window)
        return below


@dataclass(eq=False)
class MaxPool(Pooling):
    """The largest value of each window; the first of several has the gradient."""

    form: ClassVar[str] = "pool:SIZE[:stride=N]"
    kernel: ClassVar[str] = "max_pool"
    size: int
    stride: int = 0

    def build(self, shape: Shape) -> None:
        super().build(shape)
        # Places within a window are stored in a byte.
        if self.size > 15:
            raise self.misfit("windows of at most 15 × 15")

    def _places(self, shape: Shape, call: Pass) -> tuple[Array, ...]:
        return (call.array("places", shape, "uint8"),)


@dataclass(eq=False)
class AveragePool(Pooling):
    """The mean of each window."""

    form: ClassVar[str] = "average-pool:SIZE[:stride=N]"
    kernel: ClassVar[str] = "average_pool"
    size: int
    stride: int = 0


@dataclass(eq=False)
class GlobalAveragePool(Pooling):
    """The mean over all positions of an image, a vector of its channels."""

    form: ClassVar[str] = "global-average-pool"
    kernel: ClassVar[str] = "global_average"
    window = ()

    def build(self, shape: Shape) -> None:
        self.shape = shape
        self.parameters = []
        if len(shape) != 3:
            raise self.misfit(f"an image ({IMAGE})")
        self.output = shape[2:]
