"""Looking at the whole gradient before a step: clipping, skipping, and the scale of the loss.

float16 cannot hold numbers below 2**-24, which gradients often are. So the loss is multiplied by a
power of two before its gradient is stored, and the gradient is divided by it before the step
(Micikevicius et al., Mixed Precision Training, 2018). The scale is halved whenever the gradient
overflows, and doubled after many rounds in which it did not.
"""

import math

import numpy as np

from mapreduce.errors import NonFiniteError
from mapreduce.optim.contract import (
    Array,
    Arrays,
    GlobalTransformation,
    Scalars,
    Shared,
    Transformation,
)

#: Rounds without an overflow after which the scale of the loss is doubled.
GROWTH_ROUNDS = 2000
#: The scale is never larger, nor smaller than 1.
LARGEST_SCALE = 2.0**24


class Guarded(GlobalTransformation):
    """An optimizer that looks at the whole gradient before a step.

    ``clip_norm``: A gradient with a larger Euclidean norm is scaled down to it (Pascanu, Mikolov
    and Bengio 2013). ``skip_non_finite``: Whether a round whose gradient or loss has a NaN or an
    infinity leaves parameters and state as they are. ``first_scale``: Scale of the loss in the
    first round, a power of two. Gradients come divided by the scale. A round whose loss is finite
    and whose gradient is not is then skipped, and the scale halved. If the scale is 1 already, it
    is a :class:`mapreduce.errors.NonFiniteError`.
    """

    width = 2

    def __init__(
        self,
        inner: Transformation,
        clip_norm: float | None = None,
        skip_non_finite: bool = False,
        first_scale: float | None = None,
    ) -> None:
        self._inner = inner
        self._clip_norm = clip_norm
        self._skips = skip_non_finite
        self._first_scale = first_scale

    def init(self, params: Array) -> Arrays:
        return self._inner.init(params)

    def first_scalars(self) -> Scalars:
        # Rounds skipped; the scale, if there is one, and the good rounds since it last changed.
        return np.array([0.0] if self._first_scale is None else [0.0, self._first_scale, 0.0])

    def skipped(self, scalars: Scalars) -> int:
        return int(scalars[0])

    def loss_scale(self, scalars: Scalars) -> float:
        return 1.0 if self._first_scale is None else float(scalars[1])

    def tolerates_non_finite(self, completed: int, is_loss_finite: bool) -> bool:
        return self._skips or (self._first_scale is not None and is_loss_finite)

    def sums(self, gradient: Array, state: Arrays, params: Array, scalars: Scalars) -> Scalars:
        finite = np.isfinite(gradient)
        kept = np.where(finite, gradient, 0).astype(np.float64)
        return np.array([kept @ kept, gradient.size - np.count_nonzero(finite)])

    def update(
        self, gradient: Array, state: Arrays, params: Array, step: int, shared: Shared
    ) -> tuple[Array, Arrays, Scalars]:
        squares, bad = shared.sums
        overflows = bad > 0 and math.isfinite(shared.value) and self.loss_scale(shared.scalars) > 1
        is_bad = bad > 0 or not math.isfinite(shared.value)
        if overflows or (is_bad and self._skips):
            return params, state, self._next(shared.scalars, True, overflows)
        if is_bad and self._first_scale is not None:
            raise NonFiniteError(
                f"round {step}: the gradient has {bad:,.0f} elements that float16 cannot hold, "
                f"though the loss is no longer scaled. The training diverged: try a smaller "
                f"--learning-rate or --schedule warmup, or take --precision full"
            )
        norm = math.sqrt(squares)
        if self._clip_norm is not None and norm > self._clip_norm:
            gradient = gradient * gradient.dtype.type(self._clip_norm / norm)
        updates, state = self._inner.update(gradient, state, params, step)
        return params + updates, state, self._next(shared.scalars, False, False)

    def _next(self, scalars: Scalars, is_skipped: bool, overflows: bool) -> Scalars:
        if self._first_scale is None:
            return scalars + is_skipped
        skipped, scale, good = scalars
        if is_skipped:
            return np.array([skipped + 1, scale / 2 if overflows else scale, 0])
        if good + 1 < GROWTH_ROUNDS:
            return np.array([skipped, scale, good + 1])
        return np.array([skipped, min(2 * scale, LARGEST_SCALE), 0])
