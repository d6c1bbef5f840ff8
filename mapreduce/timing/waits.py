"""What ranks wait for: processors that others have, and messages."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mapreduce.timing.cause import LEFT, Cause
from mapreduce.timing.figures import EXCHANGES, Array, Rounds, usage
from mapreduce.timing.speeds import (
    SLOW,
    duration,
    is_short,
    per_unit,
    speed_of,
    units_by_speed,
    with_maps,
)
from mapreduce.timing.trace import Segment

#: Seconds of an exchange that no network is blamed for, and those that it takes on none.
_MOMENT, _LEAST = 2e-4, 2.5e-5

#: The share of exchanges that takes less than what it always takes.
_ALWAYS = 0.25

#: Bytes of an exchange that takes as long as an empty one: on any network, and on most.
_EMPTY, _MESSAGE = 4_096, 65_536


def busy_processors(
    segment: Segment, rounds: Rounds, saved: Callable[..., float]
) -> tuple[Cause, Array]:
    """What ranks waited for processors, and the part of each rank's time without that."""
    used, waited = _usage(segment, rounds)
    active = np.maximum(rounds.work.sum((0, 1, 3)) + rounds.transfer.sum((0, 2)), 1e-9)
    # A thread that is late to wake up has waited while it waited for others.
    least = np.clip(used / active, LEFT, 1)
    whole = active + rounds.wait.sum((0, 2))
    free = np.where(waited > 0, np.clip(1 - waited / whole, least, 1), 1.0)
    most = int(waited.argmax())
    seconds = usage(segment.ranks[most])[1]
    text = f"rank {most} was ready, and waited {seconds:.3g} s for a processor that others had"
    if not waited.any():
        return Cause("busy processors", 0.0, text), free
    # Ranks whose maps wait have fewer units, which would be divided anew.
    has_short = is_short(rounds)
    of_maps = np.where(has_short, 1.0, free)
    anew = with_maps(rounds, per_unit(rounds), units_by_speed(rounds, speed_of(rounds) * of_maps))
    is_even = np.ptp(of_maps) < SLOW - 1
    work, transfer, *senders = (rounds.work.sum(1), rounds.transfer) if is_even else anew
    usual = np.where(has_short[:, None], np.median(work, -1, keepdims=True), 0)
    left = waited
    if transfer.size:
        # A rank that is late to wake up has waited in exchanges, and for the rest in its work.
        often = np.quantile(transfer, _ALWAYS, -1, keepdims=True)
        transfer, left = _less(transfer, np.minimum(transfer, often), left)
        # What short maps have not waited, exchanges have, even if all of them took longer for it.
        elsewhere = np.where(has_short, np.minimum(left, _longer(rounds)), left)
        transfer, asleep = _less(transfer, np.minimum(transfer, _LEAST), left - elsewhere)
        left = elsewhere + asleep
    part = np.clip(1 - left / np.maximum(work.sum((0, 2)), 1e-12), least, 1)
    part = (part if is_even else free)[:, None]
    work = np.maximum(work * part, np.minimum(work, usual))
    every = float(sum(usage(events)[1] for events in segment.ranks))
    return Cause("busy processors", min(saved(work, transfer, *senders), every), text), free


def _usage(segment: Segment, rounds: Rounds) -> Any:
    """Seconds that ranks used, and that they waited for processors: the share of these rounds.

    Of rounds that were left out there are samples, too.
    """
    share = min(len(rounds.numbers) / max(segment.rounds, 1), 1.0)
    return share * np.array([usage(events) for events in segment.ranks]).T


def _less(transfer: Array, least: Array, seconds: Array) -> tuple[Array, Array]:
    """Transfers without some seconds of each rank, but not below the least, and what is left."""
    more = transfer - least
    whole = np.maximum(more.sum((0, 2)), 1e-12)
    taken = np.minimum(seconds, whole)
    return transfer - more * (taken / whole)[:, None], seconds - taken


def sleeping_share(segment: Segment, rounds: Rounds) -> float:
    """The part of the rounds in which ranks neither had a processor nor waited for one."""
    awake = float(_usage(segment, rounds).sum())
    whole = float((rounds.work.sum((0, 1)) + (rounds.wait + rounds.transfer).sum(0)).sum())
    return min(max(1 - awake / max(whole, 1e-12), 0.0), 1.0)


def _longer(rounds: Rounds) -> Any:
    """Seconds that the work of each rank's rounds took longer than in the median one."""
    work = rounds.of("map", "read", "pack", "reduce", "other").sum(1)
    return np.maximum(work - np.median(work, -1, keepdims=True), 0)[..., 1:].sum((0, 2))


def excess(segment: Segment, rounds: Rounds) -> Any:
    """What exchanges take longer than on one machine.

    Threads that are late to wake up make some exchanges long, too, but not nearly all of them.
    """
    if not rounds.transfer.size:
        return rounds.transfer
    typical = np.median(rounds.transfer, -1, keepdims=True)
    least = np.minimum(rounds.transfer, np.where(typical > 2 * _MOMENT, _LEAST, _MOMENT))
    always = np.quantile(rounds.transfer, _ALWAYS, -1, keepdims=True)
    always = np.maximum(np.minimum(rounds.transfer, always) - least, 0)
    at_times = rounds.transfer - least - always
    _, waited = _usage(segment, rounds)
    left = float(waited.sum() - at_times.sum())
    if left <= 0:
        return always + at_times * (1 - float(waited.sum()) / max(float(at_times.sum()), 1e-12))
    # All exchanges are long, if a rank has to wait for a processor in each of them.
    exchanges = (rounds.transfer + rounds.wait).sum((0, 2))
    part = exchanges / np.maximum(exchanges + rounds.work.sum((0, 1, 3)), 1e-12)
    within = np.where(is_short(rounds), waited - _longer(rounds), waited * part).clip(0)
    left = max(float(within.sum() - at_times.sum()), 0.0)
    return always * max(1 - left / max(float(always.sum()), 1e-12), 0)


def network(segment: Segment, rounds: Rounds, seconds: float) -> Cause:
    """What exchanges took: for bytes, or for each message, whatever its bytes are."""
    begun = np.where(rounds.sends, rounds.begun, -np.inf).max(1)
    ended = np.where(np.isnan(rounds.ended), -np.inf, rounds.ended).max(1)
    is_known = np.isfinite(begun) & np.isfinite(ended)
    took = ended[is_known] - begun[is_known]
    sent, typical = float(rounds.bytes.sum()), float(np.median(took)) if took.size else 0.0
    bare = _greetings(segment)
    size = float(np.median(rounds.bytes.sum(1))) if took.size else 0.0
    # Arrays in memory that ranks share are no bytes of messages.
    if size < _EMPTY or (bare > typical / 2 if bare else size < _MESSAGE):
        text = f"an exchange takes {duration(typical)}, however few its bytes are"
        return Cause("exchange by delay", seconds, text)
    rate = sent / max(float(took.sum()), 1e-12)
    text = f"{sent / 1e6:,.3g} MB were exchanged, at {rate / 1e6:,.3g} MB/s"
    return Cause("exchange by bytes", seconds, text)


def _greetings(segment: Segment) -> float:
    """Median seconds of exchanges before and after the rounds, which are nearly without bytes."""
    codes = [segment.phases.index(name) for name in EXCHANGES]
    each = [
        one[np.isin(one["code"], codes) & ((one["depth"] == 0) | (one["round"] == 0))]
        for one in segment.ranks
    ]
    few = min(map(len, each))
    if len(each) < 2 or not few:
        return 0.0
    begun, ended = (np.max([one[name][-few:] for one in each], 0) for name in ("start", "stop"))
    return float(np.median(ended - begun)) / 1e9
