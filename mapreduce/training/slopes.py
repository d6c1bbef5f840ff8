"""Whether a model's loss is a sum over rows, and its gradient the derivative of this loss."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mapreduce.data.batch import Array, Batch
from mapreduce.models.base import Model
from mapreduce.models.context import NOWHERE, Context, Workspace

#: Random points at which the gradient is compared, and how many have to tell of another one.
_POINTS, _ENOUGH = 4, 3
#: Steps along a direction, as shares of the parameters: small ones miss most kinks, and large ones
#: are above the rounding of a model that computes in float32.
_STEPS = (1e-4, 1e-3, 1e-5, 1e-2, 1e-6)
#: Relative differences that do not count: of slopes, of losses, and of factors from each other.
_SLOPE, _LOSS, _FACTOR = 1e-5, 1e-3, 5e-2
#: How many times farther the point is at which losses are compared with those of scores.
_FAR = 10
#: The largest relative error of a slope that tells anything.
_TOLD = 0.2
#: Parameters of the largest model that should be tried, which takes ten times their memory.
MOST = 1 << 22


class Wrong(NamedTuple):
    """What was expected, and found; if that is not certain, some models are meant to be so."""

    is_certain: bool
    expected: str
    found: str


def first_wrong(model: Model, batch: Batch, seed: int) -> Wrong | None:
    """What is wrong with the loss of some rows, its gradient or its score; None if nothing is.

    Nothing is said of a model whose numbers are too coarse to tell.
    """
    tried = _Tried(model, batch, seed)
    return tried.sums() or tried.slopes() or tried.scores()


def other_score(scored: float, loss: float, rows: int) -> Wrong | None:
    """What is wrong if ``score`` and ``gradient`` return these losses of some rows."""
    if not math.isfinite(loss) or np.isclose(scored, loss, rtol=_LOSS, atol=1e-6 * rows):
        return None
    what = (
        "score and gradient have one loss, or else evaluations tell of another one: write a method "
        "score with the model's loss, or set is_random if its rows change by chance"
    )
    return Wrong(True, what, f"{scored:.6g} and {loss:.6g} of the first {rows} rows")


class _Tried:
    def __init__(self, model: Model, batch: Batch, seed: int) -> None:
        self._model, self._batch, self._workspace = model, batch, Workspace()
        self._random = np.random.default_rng(seed)
        self._initial = model.init(seed).astype(np.float64)
        self._out = np.zeros(model.size, model.dtype)
        self._places = {
            one.name: place for one, _, place in model.parts(0, model.size) if one.role != "buffer"
        }
        #: The size of a change of each parameter.
        self._scale = np.zeros(model.size)
        for place in self._places.values():
            self._scale[place] = np.sqrt(np.mean(self._initial[place] ** 2)) or 0.1

    def _loss(self, params: Array, batch: Batch, row: int = 0) -> float:
        context = Context(self._workspace, key=NOWHERE._replace(row=row), training=True)
        return self._model.gradient(params.astype(self._model.dtype), batch, self._out, context)

    def _point(self) -> Array:
        return self._initial + self._scale * self._random.uniform(-0.5, 0.5, self._model.size)

    def sums(self) -> Wrong | None:
        """Compare the loss with those of two halves, and with that of rows of twice the weight."""
        batch, half, point = self._batch, self._batch.rows // 2, self._point()
        if self._model.is_random or self._model.mixes_rows or not half:
            return None
        whole, parts = self._loss(point, batch), (batch[:half], batch[half:])
        losses = [self._loss(point, parts[0]), self._loss(point, parts[1], half)]
        if not math.isfinite(whole + sum(losses)):
            return None
        halves = " and ".join(f"{loss:.6g}" for loss in losses)
        found = f"{whole:.6g} of the first {batch.rows} rows, and {halves} of their halves"
        if not np.isclose(whole, sum(losses), rtol=_LOSS):
            weights = [part.weight for part in parts]
            if sum(weights) and np.isclose(whole, np.average(losses, weights=weights), rtol=_LOSS):
                return Wrong(True, "gradient returns the sum of the losses, not a mean", found)
            what = (
                "gradient returns the sum of the losses of the rows: a penalty of its own would "
                "count once for each slice, that of --l2 counts once for each round, and a model "
                "whose rows depend on each other says mixes_rows = True"
            )
            return Wrong(False, what, found)
        if batch.weights is not None:
            double = self._loss(point, replace(batch, weights=2 * batch.weights))
            if math.isfinite(double) and not np.isclose(double, 2 * whole, rtol=_LOSS):
                what = "gradient multiplies the loss of each row by its weight, of batch.weights"
                found = f"{whole:.6g}, and {double:.6g} with weights that are twice as large"
                return Wrong(True, what, found)
        return None

    def slopes(self) -> Wrong | None:
        """Compare the gradient with how the loss changes along random directions."""
        factors = self._factors(self._scale)
        if not factors:
            return None
        factor, rows = float(np.median(factors)), self._batch.rows
        what = "gradient writes the derivative of the loss that it returns"
        if np.ptp(factors) <= _FACTOR * min(abs(factor), abs(factor - 1)):
            known = {-1.0: ": its sign is wrong", 1 / rows: f": a mean of {rows} rows"}
            named = (known[one] for one in known if math.isclose(one, factor, rel_tol=_FACTOR))
            return Wrong(True, what, f"{factor:.4g} times that{next(named, '')}")
        names = []
        for name, place in self._places.items():
            scale = np.zeros_like(self._scale)
            scale[place] = self._scale[place]
            if self._factors(scale):
                names.append(name)
        among = f", along {', '.join(names):.200}," if names else ""
        found = f"a slope{among} that is {factors[0]:.4g} and {factors[1]:.4g} times the loss's"
        return Wrong(False, what, f"{found} at two random points. It may be meant so")

    def scores(self) -> Wrong | None:
        """Compare the losses of ``score`` and ``gradient``, which may agree where a model begins.

        If all parameters are 0, for example, all classes have one probability.
        """
        model = self._model
        # Farther off than other points: small logits have nearly equal losses.
        point = self._initial + _FAR * (self._point() - self._initial)
        point = point.astype(model.dtype)
        if model.is_random or model.mixes_rows or model.steps is not None:
            return None
        loss = model.gradient(point, self._batch, self._out, Context(self._workspace))
        scored, _ = model.score(point, self._batch, Context(self._workspace))
        return other_score(scored, loss, self._batch.rows) if math.isfinite(scored) else None

    def _factors(self, scale: Array) -> list[float]:
        """The gradient's slopes divided by the loss's, if they differ wherever it can be told."""
        # Along the gradient the loss changes most, beside its rounding; and a small part that is
        # wrong shows least.
        for is_along in (False, True):
            factors = []
            for _ in range(_POINTS):
                factor = self._factor(scale, is_along)
                if factor == 1:
                    return []
                factors += [] if factor is None else [factor]
            if len(factors) >= _ENOUGH:
                return factors
        return []

    def _factor(self, scale: Array, is_along: bool) -> float | None:
        """The factor at one point: 1 for about 1, and None if it cannot be told."""
        point, direction = self._point(), scale * self._random.standard_normal(len(scale))
        self._loss(point, self._batch)
        if is_along:
            direction = np.where(self._out, abs(direction) * np.sign(self._out), direction)
        slope, slopes = float(self._out @ direction), dict[float, float]()
        for step in _STEPS:
            ends = [self._loss(point + way * step * direction, self._batch) for way in (1, -1)]
            slopes[step] = (ends[0] - ends[1]) / (2 * step)
            if abs(slope - slopes[step]) <= _SLOPE * max(abs(slope), abs(slopes[step])):
                return 1.0
        in_order = [slopes[step] for step in sorted(slopes)]
        near = min((in_order[at : at + 3] for at in range(len(in_order) - 2)), key=np.ptp)
        expected, error = float(np.median(near)), 10 * float(np.ptp(near))
        # Slopes of 0 are those of a loss that has steps.
        if not all(near) or not error <= _TOLD * abs(expected) or not math.isfinite(slope):
            return None
        is_one = abs(slope - expected) <= error + _SLOPE * abs(expected)
        return 1.0 if is_one else slope / expected
