"""Looking at the whole gradient before a step: clipping, skipping, and the scale of the loss.

What is stored as float16 has no room for numbers below 2**-24, which gradients often are. So the
loss is multiplied with a power of two, which costs no bit, before its gradient is stored, and the
gradient divided by it before the step (Micikevicius et al., Mixed Precision Training, 2018). The
scale is halved whenever the gradient overflows, and doubled after many rounds in which it did not.
"""

import math

import numpy as np

from mapreduce.errors import NonFiniteError
from mapreduce.optim.contract import (
    Array,
    GlobalTransformation,
    Scalars,
    Shared,
    State,
    Transformation,
)

#: Rounds without an overflow after which the scale of the loss is doubled.
GROWTH_ROUNDS = 2000
#: The scale is never larger, nor smaller than 1.
LARGEST_SCALE = 2.0**24


def guarded(
    inner: Transformation,
    clip_norm: float | None = None,
    skip_non_finite: bool = False,
    first_scale: float | None = None,
    growth_rounds: int = GROWTH_ROUNDS,
) -> GlobalTransformation:
    """An optimizer that looks at the whole gradient first.

    ``memory`` is the number of rounds that were skipped, and with a scale, that and the number of
    good rounds since it last changed.

    Parameters
    ----------
    inner : Transformation
    clip_norm : float, optional
        A gradient with a larger Euclidean norm is scaled down to it (Pascanu, Mikolov and Bengio
        2013).
    skip_non_finite : bool
        Whether a round whose gradient or loss has a NaN or an infinity leaves parameters and state
        as they are.
    first_scale : float, optional
        Scale of the loss in the first round, a power of two. Gradients come divided by the scale.
        With one, a round whose loss is finite but its gradient is not is always skipped, and the
        scale halved.
    growth_rounds : int
        Good rounds after which the scale is doubled.

    Raises
    ------
    NonFiniteError
        By ``update``: the gradient is not finite although the scale is 1, and it is not to be
        skipped.
    """

    def sums(gradient: Array, state: State, params: Array, memory: Scalars) -> Scalars:
        finite = np.isfinite(gradient)
        kept = np.where(finite, gradient, 0).astype(np.float64)
        return np.array([kept @ kept, gradient.size - np.count_nonzero(finite)])

    def update(
        gradient: Array, state: State, params: Array, step: int, shared: Shared
    ) -> tuple[Array, State, Scalars]:
        squares, bad = shared.sums
        overflows = bad > 0 and math.isfinite(shared.value) and loss_scale(shared.memory) > 1
        is_bad = bad > 0 or not math.isfinite(shared.value)
        if overflows or (is_bad and skip_non_finite):
            return params, state, _after_a_skip(shared.memory, overflows)
        if is_bad and first_scale is not None:
            raise NonFiniteError(
                f"round {step}: the gradient has {bad:,.0f} elements that float16 cannot hold, "
                f"though the loss is not scaled any more. The training diverged: try a smaller "
                f"--learning-rate or --schedule warmup, or take --precision full"
            )
        norm = math.sqrt(squares)
        if clip_norm is not None and norm > clip_norm:
            gradient = gradient * gradient.dtype.type(clip_norm / norm)
        updates, state = inner.update(gradient, state, params, step)
        return params + updates, state, _after_a_step(shared.memory, growth_rounds)

    def memory() -> Scalars:
        return np.array([0.0] if first_scale is None else [0.0, first_scale, 0.0])

    return GlobalTransformation(inner.init, update, sums, 2, memory)


def loss_scale(memory: Scalars) -> float:
    """What the loss is multiplied with in the round after, by the memory of :func:`guarded`."""
    return float(memory[1]) if len(memory) > 1 else 1.0


def _after_a_skip(memory: Scalars, overflows: bool) -> Scalars:
    if len(memory) == 1:
        return memory + 1
    skipped, scale, _ = memory
    return np.array([skipped + 1, scale / 2 if overflows else scale, 0])


def _after_a_step(memory: Scalars, growth_rounds: int) -> Scalars:
    if len(memory) == 1:
        return memory
    skipped, scale, good = memory
    if good + 1 < growth_rounds:
        return np.array([skipped, scale, good + 1])
    return np.array([skipped, min(2 * scale, LARGEST_SCALE), 0])
