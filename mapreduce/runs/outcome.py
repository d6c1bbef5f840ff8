"""Whether a training went well, as its last line and the list of runs say it."""

import math
from collections.abc import Mapping
from statistics import median

from mapreduce.plan.plan import Plan
from mapreduce.runs.events import RunEnded

#: How many times the loss at the beginning cannot be noise: where that is known, and where it is
#: the squared error of a batch, which may be far from that of others.
_DIVERGED, _DIVERGED_NOISY = 1.25, 10.0
#: A classifier whose loss is so many times that of guessing is none, whatever it began with.
_WORTHLESS = 4.0
#: A loss that was so many times that of the beginning, and did not fall below that again.
_PEAK = 100.0

#: Rows and mean loss of rounds, by the rounds completed; None for a loss that was not finite.
Losses = Mapping[int, tuple[int, float | None]]


def pass_loss(plan: Plan, losses: Losses) -> float | None:
    """Mean loss of the last rounds that together take all rows once; None if none is finite."""
    return _mean(_last(losses, plan.rounds_per_epoch))


def _last(losses: Losses, rounds: int) -> list[tuple[int, float]]:
    last = (losses[completed] for completed in sorted(losses)[max(0, len(losses) - rounds) :])
    return [(rows, loss) for rows, loss in last if loss is not None]


def _mean(found: list[tuple[int, float]]) -> float | None:
    rows = sum(rows for rows, _ in found)
    return sum(rows * loss for rows, loss in found) / rows if rows else None


def warning(plan: Plan, ended: RunEnded | None, losses: Losses) -> str | None:
    """What the user should know of a training that looks as if it had gone well, or None.

    Parameters
    ----------
    plan : Plan
    ended : RunEnded or None
        None if it goes on, or was stopped.
    losses : mapping
        Of the rounds up to the model that is the result.
    """
    # Out of patience a search has ended as it should.
    search = "" if ended is None else ended.search
    if ended and (search == "stalled" or (search == "unfinished" and not ended.stopped_early)):
        how, tries = f"stalled at {plan.dtype} precision after {ended.completed:,}", plan.cures
        if search == "unfinished":
            how, tries = f"not converged within {plan.rounds:,}", "take more --rounds"
        return (
            f"{how} rounds: the gradient's norm is {ended.gradient_norm:.3g}, "
            f"--tol {plan.tol:g}; {tries}, or a larger --tol"
        )
    first = losses.get(1, (0, None))[1]
    if first is None or len(losses) < 2:
        return None
    # The first half is of a training that has not begun to work yet.
    last = _last(losses, min(plan.rounds_per_epoch, len(losses) // 2))
    value = mean = _mean(last)
    if value is None or mean is None:
        return f"the loss is not finite any more; {plan.cures}"
    before, nothing, factor = "in the first round", first, _DIVERGED
    if plan.data.classes:
        # With scores of 0: the logarithm of the classes, or a hinge's 1.
        before, nothing = "by guessing", 1.0 if "svm" in plan.model else math.log(plan.data.classes)
        first = min(max(first, nothing), _WORTHLESS * nothing)
    elif plan.rounds_per_epoch > 1:
        value, factor = median(loss for _, loss in last), _DIVERGED_NOISY
    # A network of which nothing is left guesses.
    peak = max(loss for _, loss in losses.values() if loss is not None)
    has_collapsed = peak > _PEAK * first and value > 0.9 * nothing
    if value <= factor * first and not has_collapsed:
        return None
    return (
        f"the training diverged: the loss is {mean:.4g}, {before} it is {nothing:.4g}; {plan.cures}"
    )
