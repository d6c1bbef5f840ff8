"""From a run's folder to the state before one of its rounds, and what is known of that after it.

A run keeps its last round and a few checkpoints. Between them rounds are run again, in a folder of
their own: the run is only read.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mapreduce.errors import DataError, MissingInputError, UsageError, WireError
from mapreduce.executors.chain import run_rounds
from mapreduce.runs import checkpoint, events
from mapreduce.runs.directory import Array, Position, RunDir
from mapreduce.runs.execution import Execution
from mapreduce.tracing.training.model import Check
from mapreduce.training.driver import initial

#: Rounds in one job, as in a training.
_ROUNDS_PER_JOB = 50

#: In this process, whatever a configuration of mrjob says.
_HERE = Execution(runner="inline", mrjob_arguments=("--no-conf",))

#: Number of rounds from which on a replay is announced.
_MANY = 200


class Start(NamedTuple):
    """A state that is kept, and where."""

    position: Position
    place: str


def finished(run: RunDir) -> int:
    """Rounds that the run has finished.

    Raises
    ------
    UsageError
        None.
    """
    ended = {result.completed} if (result := run.result()) is not None else set()
    rounds = max({*run.complete_rounds(), *checkpoint.saved(run), *ended}, default=0)
    if not rounds:
        raise UsageError(
            f"{run.path} has finished no round yet, so there is none to explain. Go on with "
            f"'gradreduce resume {run.path}'"
        )
    return rounds


def chosen(run: RunDir, number: int | None) -> int:
    """The round to explain: the one asked for, or the last with as many slices as a round has.

    The last one of an epoch may have fewer.

    Raises
    ------
    UsageError
        The run has not got there.
    """
    last = finished(run)
    plan = run.config.plan
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


def kept(run: RunDir, completed: int, tell: Callable[[str], None]) -> Start | None:
    """The state after some rounds, if the run has it, whole."""
    if completed in checkpoint.saved(run):
        try:
            position = checkpoint.load(run, run.config.plan.create_model(), completed)
            return Start(position, f"the checkpoint after {completed:,} rounds")
        except DataError as error:
            tell(f"warning: {error}. 'gradreduce resume {run.path}' makes it again")
    blocks = run.complete_rounds().get(completed)
    if blocks is not None:
        try:
            position = run.read_round(completed, blocks)
            return Start(position, f"the blocks of the run after {completed:,} rounds")
        except (MissingInputError, WireError):
            pass
    if completed == 0:
        return Start(initial(run.config.plan), "the seed of the plan")
    return None


def nearest(run: RunDir, completed: int, tell: Callable[[str], None]) -> Start:
    """The last state kept after at most ``completed`` rounds."""
    known = {0, *checkpoint.saved(run), *run.complete_rounds()}
    for at in sorted((one for one in known if one <= completed), reverse=True):
        if (found := kept(run, at, tell)) is not None:
            return found
    raise AssertionError("before the first round there is always a state")


def advance(
    scratch: RunDir, start: Start, completed: int, blocks: int, tell: Callable[[str], None]
) -> Position:
    """Run rounds again in ``scratch``, up to ``completed`` ones, and publish the state there."""
    first = start.position.completed
    if completed - first > _MANY:
        tell(f"running {completed - first:,} rounds again, from {start.place} on")
    scratch.publish_round(start.position, 1)
    for at in range(first, completed, _ROUNDS_PER_JOB):
        _run(scratch, at, min(at + _ROUNDS_PER_JOB, completed), 1)
    position = scratch.read_round(completed, 1)
    # As many blocks as the round to explain has.
    scratch.publish_round(position, blocks)
    return position


def _run(scratch: RunDir, start: int, stop: int, blocks: int) -> None:
    """Run rounds, without what mrjob has to say of it."""
    log = logging.getLogger("mrjob")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        run_rounds(scratch, start, stop, replace(_HERE, blocks=blocks))
    finally:
        log.setLevel(level)


# What the run left behind


def comparable(run: RunDir, completed: int, tell: Callable[[str], None]) -> Start | None:
    """The first state that the run has after at least ``completed`` rounds, if it is not far."""
    known = {*checkpoint.saved(run), *run.complete_rounds()}
    for at in sorted(known):
        is_near = completed <= at <= completed + _ROUNDS_PER_JOB
        if is_near and (found := kept(run, at, tell)):
            return found
    return None


def on_to(scratch: RunDir, after: Position, completed: int, blocks: int) -> Position:
    """The state some rounds on from that after the round."""
    if completed == after.completed:
        return after
    _run(scratch, after.completed, completed, blocks)
    return scratch.read_round(completed, blocks)


def compare_states(found: Start, number: int, ours: Position) -> list[Check]:
    """What was computed beside what the run has after as many rounds.

    ``number`` is the round that is explained.
    """
    theirs, place = found
    later = ours.completed - number
    when = f", {later:,} round{'s' * (later > 1)} later" if later else ""
    if theirs.params.shape != ours.params.shape:
        return [Check("the model", f"{place} is of another size", False)]
    checks = [_comparison(f"the model{when}", place, [theirs.params], [ours.params])]
    names = sorted(theirs.state)
    if names or theirs.scalars.size:
        pairs = [
            [*(position.state[name] for name in names), position.scalars]
            for position in (theirs, ours)
        ]
        checks.append(_comparison(f"the optimizer's state{when}", place, *pairs))
    return checks


def _comparison(what: str, place: str, theirs: list[Array], ours: list[Array]) -> Check:
    is_equal = all(same_bits(a, b) for a, b in zip(theirs, ours, strict=True))
    return Check(what, _difference(place, theirs, ours), is_equal)


def _difference(place: str, theirs: list[Array], ours: list[Array]) -> str:
    elements = sum(one.size for one in ours)
    bits = sum(
        int(np.count_nonzero(_bits(a) != _bits(b))) for a, b in zip(theirs, ours, strict=True)
    )
    if not bits:
        return f"each of its {elements:,} elements has the bits that are in {place}"
    with np.errstate(all="ignore"):
        largest = max(
            float(np.max(np.abs(a.astype(float) - b.astype(float)), initial=0.0))
            for a, b in zip(theirs, ours, strict=True)
        )
    return (
        f"{bits:,} of {elements:,} elements differ from those in {place}, by at most {largest:.3g}"
    )


def compare_loss(run: RunDir, completed: int, loss: float) -> Check:
    """The loss of a round beside the loss that the run reported."""
    recorded = [
        event["loss"]
        for event in events.read(run.path / "events.jsonl")
        if event["event"] == "RoundCompleted" and event["completed"] == completed
    ]
    if not recorded:
        return Check("the loss of the round", "not in the events of the run", None)
    # JSON has no NaN.
    if recorded[-1] == (loss if math.isfinite(loss) else None):
        return Check("the loss of the round", f"{loss!r}, as the events of the run say", True)
    text = f"{loss!r}, where the events of the run say {recorded[-1]!r}"
    return Check("the loss of the round", text, False)


def same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays are the same to the bit: ``0.0`` is not ``-0.0``, NaN equals itself."""
    return left.shape == right.shape and bool(np.array_equal(_bits(left), _bits(right)))


def _bits(array: Array) -> Array:
    whole = np.ascontiguousarray(array)
    return whole.view(f"u{whole.itemsize}")
