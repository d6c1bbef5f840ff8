"""A model that a gradient has trained, in use: the estimator of its flat vector of parameters."""

from functools import cached_property

import numpy as np

from kernels import arrays
from mapreduce.data.batch import Batch
from mapreduce.errors import DataError
from mapreduce.models import MODELS
from mapreduce.models.base import Array, Model, device_errors, model_sha256
from mapreduce.models.context import Context, Workspace
from mapreduce.models.fitted import Estimator, FittedModel
from mapreduce.models.specification import Specification
from mapreduce.support.jsonfiles import build

#: What fitted models call it.
KIND = "gradient"


class GradientModel(Estimator):
    """A :class:`mapreduce.models.base.Model` with parameters, both of which may be replaced."""

    def __init__(self, fitted: FittedModel, device: str | None = None) -> None:
        super().__init__(fitted, device)
        self._specification = build(Specification, dict(fitted.options))
        self.model = self._specification.create(device)
        self.device = self.model.device
        self.regression, self.dtype = self.model.regression, self.model.dtype
        self.takes_sparse = self.model.takes_sparse
        self.forks_after_use = self.model.forks_after_gradient
        if (self.model.features, self._specification.classes) != (
            fitted.data.features,
            len(fitted.data.classes),
        ):
            raise DataError(
                f"{fitted.path} is damaged: its model takes {self.model.features} features, for "
                f"{self._specification.classes} classes, and was trained on "
                f"{fitted.data.features}, of {len(fitted.data.classes)}"
            )
        self._place = self.device if self.model.stays_on_device else "cpu"
        self._params: Array | None = None

    @property
    def model(self) -> Model:
        """The model, or a part of it, as the specification has it compute."""
        return self._model

    @model.setter
    def model(self, model: Model) -> None:
        is_invariant = self._specification.batch_invariant
        self._model = model.batch_invariant() if is_invariant else model

    @property
    def params(self) -> Array:
        """The parameters (size,), where the model keeps its arrays."""
        if self._params is None:
            self.params = self._flat()
            assert self._params is not None
        return self._params

    @params.setter
    def params(self, params: Array) -> None:
        with device_errors(self.device):
            self._params = arrays.to_device(params, self._place)
        self.model.hold(self._params)

    def _flat(self) -> Array:
        fitted = self.fitted
        params = self.model.flat(self.model.of_state(fitted.arrays), fitted.path)
        found = model_sha256(self.model.named(params))
        if found != fitted.model_sha256:
            raise DataError(
                f"{fitted.path} is damaged: the model is {found[:16]}…, expected "
                f"{fitted.model_sha256[:16]}…"
            )
        return params

    @cached_property
    def context(self) -> Context:
        """Memory of the device, which belongs to one thread."""
        return Context(Workspace(self._place))

    @property
    def is_batch_invariant(self) -> bool:  # type: ignore[override]
        """Whether all of its code is the toolkit's, and multiplies by kernels that are."""
        specification = self._specification
        trunk = specification.trunk
        specs = [specification.model, *([trunk.model] if trunk else [])]
        names = {MODELS.split(spec)[0] for spec in specs}
        is_ours = names <= MODELS.builtin.keys() - {"torch"}
        return specification.batch_invariant and self.device == "cpu" and is_ours

    def logits(self, batch: Batch) -> Array:
        found: Array = arrays.values(self.model.logits(self.params, batch, self.context))
        return found

    def probabilities(self, batch: Batch) -> Array:
        found: Array = arrays.values(self.model.probabilities(self.params, batch, self.context))
        return found

    def score(self, batch: Batch) -> tuple[float, int]:
        loss, correct = self.model.score(self.params, batch, self.context)
        # NumPy's numbers are no JSON.
        return float(loss), int(correct)

    def of_logits(self) -> Estimator | None:
        model = self.model.of_logits() if self.is_batch_invariant else None
        if model is None:
            return None
        found = GradientModel(self.fitted, "cpu")
        found.model = model
        return found

    @property
    def is_log_loss(self) -> bool:
        if MODELS.split(self._specification.model)[0] not in MODELS:
            # One of somebody's own may have any loss.
            return type(self.model).score is Model.score
        return getattr(self.model, "loss", "logistic") == "logistic"

    def named_layers(self) -> dict[str, str]:
        return self.model.named_layers()

    def layer_outputs(self, batch: Batch, layer: str) -> Array:
        found = self.model.layer_outputs(self.params, batch, self.context, layer)
        values: Array = arrays.values(found)
        return values

    def state(self) -> dict[str, Array]:
        return self.model.state(np.asarray(arrays.values(self.params)))

    @property
    def libraries(self) -> dict[str, str]:
        return self.model.libraries
