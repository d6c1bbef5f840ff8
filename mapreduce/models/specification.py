"""What decides the functions of a model that a gradient trains: all but its parameters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mapreduce import models

if TYPE_CHECKING:
    from mapreduce.models.base import Model


@dataclass(frozen=True)
class Trunk:
    """The model of another run, of which a layer gives the features that a model takes.

    Attributes
    ----------
    model : str
        Its specification.
    classes : int
        Those that it knows; 0 if it predicts numbers.
    layer : str
        The layer, as :meth:`mapreduce.models.base.Model.named_layers` has it.
    outputs : int
        Numbers that the layer gives for a row.
    model_sha256 : str
        Digest of its parameters when the plan was made. They are in the initial parameters.
    """

    model: str
    classes: int
    layer: str
    outputs: int
    model_sha256: str


@dataclass(frozen=True)
class Specification:
    """A model, as a plan and a file of a fitted model have it.

    ``model``: As ``--model`` takes it. ``shape``: Of a row, as the model takes it. ``classes``: 0
    if it predicts numbers. ``dtype``, ``device``: Of the training. ``batch_invariant``, ``trunk``:
    See :class:`mapreduce.plan.plan.Plan`.
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    dtype: str
    device: str = "cpu"
    batch_invariant: bool = False
    trunk: Trunk | None = None

    def create(self, device: str | None = None) -> "Model":
        """The model, on the device of the training or another."""
        device, trunk = device or self.device, self.trunk
        if trunk is None:
            return models.create(self.model, self.shape, self.classes, self.dtype, device)
        # Only these models load it.
        from mapreduce.models.fed import Fed

        below = models.create(trunk.model, self.shape, trunk.classes, self.dtype, device)
        head = models.create(self.model, trunk.outputs, self.classes, self.dtype, device)
        return Fed(below, trunk.layer, head)
