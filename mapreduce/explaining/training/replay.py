"""From a run's folder to the state before one of its rounds, and the comparison of that after it.

A run keeps its last round and a few checkpoints. Between them rounds are run again, in a folder of
their own: the run is only read.
"""

import contextlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mapreduce.engine.state import InFolder
from mapreduce.errors import DataError, MissingInputError, UsageError, WireError
from mapreduce.executors.here import Here
from mapreduce.explaining.training.model import Check
from mapreduce.runs import checkpoint, events
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Array, Position
from mapreduce.strategies.program import Training
from mapreduce.support.commands import resume

#: Rounds that are run again at most to compare with a state that the run has kept.
_NEAR = 50

#: Number of rounds from which on a replay is announced.
_MANY = 200


class Start(NamedTuple):
    """A state that is kept, and where."""

    position: Position
    place: str


def choose_round(run: RunDir, number: int | None) -> int:
    """The round to explain: the one asked for, or the last with as many slices as a round has.

    The last one of an epoch may have fewer.
    """
    plan, result = run.config.plan, run.result()
    ended = {result.completed} if result is not None else set()
    last = max({*run.rounds.complete(), *checkpoint.saved_rounds(run), *ended}, default=0)
    if not last:
        raise UsageError(
            f"{run.path} has not finished a round yet. Continue with '{resume(run.path)}'"
        )
    if number is None:
        whole = (one for one in (last, last - 1) if one and plan.leaves(one - 1) > 1)
        return next(whole, last)
    if number > last:
        more = "" if number <= plan.rounds else f", of {plan.rounds:,} that are planned"
        raise UsageError(
            f"--round {number}: {run.path} has finished {last:,} rounds{more}. Expected a number "
            f"from 1 to {last:,}"
        )
    return number


def state_after(run: RunDir, completed: int, tell: Callable[[str], None]) -> Start | None:
    """The state after some rounds, if the run has it, whole."""
    if completed in checkpoint.saved_rounds(run):
        try:
            position = checkpoint.load(run, run.config.plan.about, completed)
            return Start(position, f"the checkpoint after {completed:,} rounds")
        except DataError as error:
            tell(f"warning: {error}. '{resume(run.path)}' computes it again")
    if (blocks := run.rounds.complete().get(completed)) is not None:
        with contextlib.suppress(MissingInputError, WireError):
            position = run.read_round(completed, blocks)
            return Start(position, f"the blocks of the run after {completed:,} rounds")
    return Start(checkpoint.first(run), "the seed of the plan") if completed == 0 else None


def nearest(run: RunDir, completed: int, tell: Callable[[str], None]) -> Start:
    """The last state kept after at most ``completed`` rounds."""
    known = {0, *checkpoint.saved_rounds(run), *run.rounds.complete()}
    places = sorted((one for one in known if one <= completed), reverse=True)
    return next(found for at in places if (found := state_after(run, at, tell)))


def advance(
    scratch: RunDir, start: Start, completed: int, blocks: int, tell: Callable[[str], None]
) -> Position:
    """Run rounds again in ``scratch``, up to ``completed`` ones, and publish the state there."""
    first = start.position.completed
    if completed - first > _MANY:
        tell(f"running {completed - first:,} rounds again, from {start.place} on")
    scratch.publish_round(start.position, 1)
    _run(scratch, first, completed, 1)
    position = scratch.read_round(completed, 1)
    # As many blocks as the round to explain has.
    scratch.publish_round(position, blocks)
    return position


def _run(scratch: RunDir, start: int, stop: int, blocks: int) -> None:
    """Run rounds from a published one on."""
    training = Training.from_cache(scratch)
    state = InFolder(scratch.rounds, blocks, training.owners())
    if start < stop:
        Here(state).advance(training, start, stop)


# What the run left behind


def compare_states(
    run: RunDir, scratch: RunDir, after: Position, blocks: int, tell: Callable[[str], None]
) -> list[Check]:
    """Compare the state with the first one that the run has kept from there on, if it is near.

    Rounds up to that one are run again in ``scratch``, which holds ``after``, the state after the
    round that is explained, in ``blocks`` blocks.
    """
    number = after.completed
    for at in sorted({*checkpoint.saved_rounds(run), *run.rounds.complete()}):
        if number <= at <= number + _NEAR and (found := state_after(run, at, tell)):
            break
    else:
        saved = ", ".join(f"{one:,}" for one in checkpoint.saved_rounds(run)) or "none"
        text = f"the run has not kept it, nor one soon after it: its checkpoints are {saved}"
        return [Check("the model", text, None)]
    (theirs, place), ours, when = found, after, ""
    if at > number:
        _run(scratch, number, at, blocks)
        ours = scratch.read_round(at, blocks)
        when = f", {at - number:,} round{'s' * (at > number + 1)} later"
    if theirs.params.shape != ours.params.shape:
        return [Check("the model", f"{place} is of another size", False)]
    checks = [_compared(f"the model{when}", place, theirs.params, ours.params)]
    if theirs.state or theirs.scalars.size:
        states = [
            np.concatenate([*(one.state[name] for name in sorted(theirs.state)), one.scalars])
            for one in (theirs, ours)
        ]
        checks.append(_compared(f"the optimizer's state{when}", place, *states))
    return checks


def _compared(what: str, place: str, theirs: Array, ours: Array) -> Check:
    """A comparison to the bit: ``0.0`` is not ``-0.0``, and a NaN equals itself."""
    kind = f"u{ours.itemsize}"
    differing = int(np.count_nonzero(theirs.view(kind) != ours.view(kind)))
    if not differing:
        text = f"each of its {ours.size:,} elements has the bits that are in {place}"
        return Check(what, text, True)
    with np.errstate(all="ignore"):
        largest = float(np.max(np.abs(theirs.astype(float) - ours.astype(float))))
    text = f"{differing:,} of {ours.size:,} elements differ from those in {place}"
    return Check(what, f"{text}, by at most {largest:.3g}", False)


def compare_loss(run: RunDir, completed: int, loss: float) -> Check:
    """The loss of a round beside the loss that the run reported."""
    what = "the loss of the round"
    recorded = [
        event["loss"]
        for event in events.read(run.path / "events.jsonl")
        if event["event"] == "RoundCompleted" and event["completed"] == completed
    ]
    if not recorded:
        return Check(what, "not in the events of the run", None)
    # JSON has no NaN.
    if recorded[-1] == (loss if math.isfinite(loss) else None):
        return Check(what, f"{loss!r}, as the events of the run say", True)
    return Check(what, f"{loss!r}, where the events of the run say {recorded[-1]!r}", False)
