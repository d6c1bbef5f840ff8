"""Whether a training went well, for its last line and the list of runs."""

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np

from mapreduce.plan.plan import Plan
from mapreduce.runs.events import RunEnded

#: Multiples of the first loss that are not noise; the second if that is a batch's squared error.
_DIVERGED, _DIVERGED_NOISY = 1.25, 10.0
#: The largest first loss of a classifier to compare with, as a multiple of the loss of guessing.
_WORTHLESS = 4.0
#: The multiple of the first loss that a training which collapsed has once exceeded.
_PEAK = 100.0
#: How far the mean loss of the last pass may be above that of the first, of passes in batches.
_RISEN = 1.05

#: Rounds of which quarters are compared, and the share of the fall in the last that is much.
_SOME, _STILL = 16, 0.15

_SEPARATED = (
    "the loss fell to 0: the model tells the training rows apart without an error, and its "
    "probabilities are nearly 0 or 1; take --l2 if they are to say how sure it is"
)

_NOTHING = (
    "nothing was learned: the search ended where it began, since the gradient there is as good as "
    "0. Features that are not standardised can do that: import the data without --no-standardise, "
    "or take a smaller --tol. Else the features do not tell the labels"
)

#: Weight and mean loss of rounds, by the rounds completed; None for a loss that was not finite.
Losses = Mapping[int, tuple[float, float | None]]


def pass_loss(plan: Plan, losses: Losses) -> float | None:
    """Mean loss of the last rounds that together take all rows once; None if none is finite."""
    return _mean(_last(losses, plan.rounds_per_epoch))


def _last(losses: Losses, rounds: int) -> list[tuple[float, float]]:
    last = (losses[completed] for completed in sorted(losses)[max(0, len(losses) - rounds) :])
    return [(weight, loss) for weight, loss in last if loss is not None]


def _mean(found: list[tuple[float, float]]) -> float | None:
    total = sum(weight for weight, _ in found)
    return sum(weight * loss for weight, loss in found) / total if total else None


def warning(plan: Plan, ended: RunEnded | None, losses: Losses) -> str | None:
    """A warning about a training that did not go well, or None.

    ``ended`` is None if it is running, or was stopped. ``losses`` are those of the rounds up to the
    model that is the result.
    """
    # A search that is stopped early, by patience, has ended as it should.
    search = "" if ended is None else ended.search
    if ended and search == "converged" and ended.completed <= 1 and not _is_nothing(plan, losses):
        return _NOTHING
    if search == "stalled" and _is_nothing(plan, losses):
        return _SEPARATED if plan.data.classes else None
    if ended and (search == "stalled" or (search == "unfinished" and not ended.stopped_early)):
        how, tries = f"stalled at {plan.dtype} precision after {ended.completed:,}", plan.cures
        if search == "unfinished":
            how, tries = f"not converged within {plan.rounds:,}", "take more --rounds"
        return f"{how} rounds: {gradient_norm(plan, ended)}; {tries}, or a larger --tol"
    first = losses.get(1, (0, None))[1]
    if first is None or len(losses) < 2:
        return None
    # The first half of a short training does not show whether it works.
    last = _last(losses, min(plan.rounds_per_epoch, len(losses) // 2))
    value = mean = _mean(last)
    if value is None or mean is None:
        return f"the loss is no longer finite; {plan.cures}"
    before, nothing, factor = "in the first round", first, _DIVERGED
    if plan.data.classes:
        # The loss of scores of 0: the logarithm of the number of classes, or a hinge's 1.
        before, nothing = "by guessing", 1.0 if "svm" in plan.model else math.log(plan.data.classes)
        first = min(max(first, nothing), _WORTHLESS * nothing)
    elif plan.rounds_per_epoch > 1:
        value, factor = median(loss for _, loss in last), _DIVERGED_NOISY
    # A network whose units have all died guesses.
    peak = max(loss for _, loss in losses.values() if loss is not None)
    has_collapsed = peak > _PEAK * first and value > 0.9 * nothing
    if value <= factor * first and not has_collapsed:
        return _risen(plan, losses) if ended and not search else None
    return (
        f"the training diverged: the loss is {mean:.4g}, and {before} it is {nothing:.4g}; "
        f"{plan.cures}"
    )


def _is_nothing(plan: Plan, losses: Losses) -> bool:
    """Whether a loss is nothing beside the first, at the precision of the parameters."""
    found = [loss for _, loss in losses.values() if loss is not None]
    first = losses.get(1, (0, None))[1]
    return first is not None and min(found) <= float(np.finfo(plan.dtype).eps) * first


def _risen(plan: Plan, losses: Losses) -> str | None:
    """A warning if the last pass over all rows has a higher loss than the first, or None."""
    rounds = plan.rounds_per_epoch
    if len(losses) < 2 * rounds or (rounds > 1 and not plan.data.classes):
        return None
    first = _mean(_last({at: losses[at] for at in sorted(losses)[:rounds]}, rounds))
    last = pass_loss(plan, losses)
    factor = _RISEN if rounds > 1 else 1 + 1e-6
    if first is None or last is None or last <= factor * first:
        return None
    return (
        f"the loss ended above where it began: {last:.4g} in the last pass over the rows, "
        f"{first:.4g} in the first; {plan.cures}"
    )


def hardly_trained(ended: RunEnded | None, losses: Losses) -> str | None:
    """What to do if the losses fell until the end, so that more rounds would help, or None."""
    found = np.array([losses[at][1] for at in sorted(losses)], np.float64)
    if ended is None or ended.stopped_early or ended.search or len(found) < 4:
        return None
    parts = np.array_split(found, 4 if len(found) >= _SOME else 2)
    first, before, last = (part.mean() for part in (parts[0], *parts[-2:]))
    noise = 2 * np.hypot(*(part.std() / len(part) ** 0.5 for part in parts[-2:]))
    # False where a loss was not finite.
    if before - last > max(_STILL * (first - last), 0.02 * abs(last), noise):
        fall = f"from {before:.4g} to {last:.4g} within the last of {len(found):,} rounds"
        return f"hardly trained: the loss still fell, {fall}; take more --epochs"
    return None


def gradient_norm(plan: Plan, ended: RunEnded) -> str:
    """The norm of the gradient at the end of a search, and what it was compared with."""
    relative = " relative to the loss" if plan.relative_tol else ""
    return f"the gradient's norm is {ended.gradient_norm:.3g}{relative}, --tol {plan.tol:g}"


def warnings(
    plan: Plan, ended: RunEnded | None, losses: Losses, recorded: Iterable[Mapping[str, Any]]
) -> list[str]:
    """All warnings about a training; ``recorded`` are the events of its log."""
    found = warning(plan, ended, losses)
    lasting = [
        event["message"]
        for event in recorded
        if event["event"] == "Warned" and event.get("lasting") is True
    ]
    # A driver that starts again warns again.
    return [*dict.fromkeys([*([found] if found else []), *lasting])]


def matches_won(recorded: Iterable[Mapping[str, Any]], completed: int) -> int | None:
    """Matches of a tournament that the model after some rounds and its ancestors won.

    The ancestor of a model in an earlier round is the replica whose parameters it goes on from.
    None if the log lacks a round, as all do where nobody competes.
    """
    rounds = {one["completed"]: one for one in recorded if one["event"] == "TournamentDecided"}
    if any(at not in rounds for at in range(1, completed + 1)) or not completed:
        return None
    replica, won = rounds[completed]["best"], 0
    for at in range(completed, 0, -1):
        winners, losers = rounds[at]["winners"], rounds[at]["losers"]
        if replica in losers:
            replica = winners[losers.index(replica)]
        won += replica in winners
    return won
