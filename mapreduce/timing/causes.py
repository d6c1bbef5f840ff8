"""What held a run back: for each cause, the seconds that the run would have saved without it.

Rounds are replayed with other times (:meth:`mapreduce.timing.figures.Rounds.replay`), as in J. Lin
et al., Understanding stragglers in large model training using what-if analysis, 2025. A gang gives
slow ranks fewer units, so what a rank's maps take says little: what a unit takes says it.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mapreduce.engine.leaf_ranges import EVEN, Split, shares
from mapreduce.timing.cause import START, Cause
from mapreduce.timing.figures import EXCHANGES, Array, Rounds, rounds_of, usage
from mapreduce.timing.task_causes import of_gaps, of_tasks, own_tasks
from mapreduce.timing.trace import Segment, Trace, by_step

#: Causes of a smaller part of the time are not named; a second one is, if it is nearly as large.
NAMED, BESIDE = 0.1, 0.8

#: How much longer than those of others the units of a slow rank take.
_SLOW = 1.15

#: Ranks whose speeds differ by a larger part get different numbers of units.
_UNLIKE = 0.4

#: Seconds that a thread without a processor waits for one: of maps that are shorter, the median one
#: has not waited.
_TURN = 3e-3

#: The part of work that remains in any case.
_LEFT = 0.1

#: Units of few rows that show what a unit costs beside its rows; where no unit has more, it is most
#: of the time, and at most so many seconds. It is no cause where it is a smaller part of a unit.
_SHORT, _FEW_ROWS, _MOST_COST, _TINY = 5, 4, 1e-4, 1 / 3

#: Seconds of an exchange that no network is blamed for, and those that it takes on none.
_MOMENT, _LEAST = 2e-4, 2.5e-5

#: The share of exchanges that takes less than what it always takes.
_ALWAYS = 0.25

#: Bytes of an exchange that takes as long as an empty one: on any network, and on most.
_EMPTY, _MESSAGE = 4_096, 65_536


def causes(trace: Trace) -> list[Cause]:
    """All causes, the costliest first; most of them cost next to nothing."""
    every = [cause for segment in trace.segments for cause in _of_segment(segment)]
    tasks = own_tasks(trace)
    steps = [of_tasks(some, max(trace.workers, 1)) for some in by_step(tasks)]
    every += [*filter(None, steps), *of_gaps(trace, tasks)]
    alike = defaultdict[tuple[str, tuple[int, ...]], list[Cause]](list)
    for cause in sorted(every, key=lambda each: -each.seconds):
        alike[cause.kind, cause.ranks].append(cause)
    return sorted(map(_sum, alike.values()), key=lambda cause: -cause.seconds)


def _sum(alike: list[Cause]) -> Cause:
    """A cause of several generations, jobs or steps, of which the first one is the costliest."""
    first, number = alike[0], sum(cause.seconds > 0 for cause in alike)
    text = first.text
    if number > 1 and first.kind != START and any(map(str.isdigit, text)):
        text = f"{text}, in the worst of {number:,} parts of the run"
    return replace(first, seconds=float(sum(cause.seconds for cause in alike)), text=text)


def standing_out(every: list[Cause], seconds: float) -> list[Cause]:
    """The causes to name, of a trace that took some seconds: none, one or two.

    Busy processors come first, since they are of the machine, and then what is of the run.
    """
    large = [cause for cause in every if cause.seconds >= NAMED * seconds > 0]
    busy = [cause for cause in large if cause.kind == "busy processors"]
    own = [cause for cause in large if cause.kind != "busy processors"]
    if busy:
        return [*busy, *own][:2]
    return [cause for cause in own if cause.seconds >= BESIDE * own[0].seconds][:2]


def _duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


# Ranks


def _of_segment(segment: Segment) -> list[Cause]:
    rounds = rounds_of(segment)
    base, work = rounds.replay(), rounds.work.sum(1)
    if not base > 0:
        return []
    # Rounds of which no event was kept are like the others. A rank that was killed while it wrote
    # its first events has no sums yet.
    scale = (float(segment.seconds[:, segment.phases.index("round")].max()) or base) / base
    number = scale * len(rounds.numbers)

    def saved(*times: Array | None) -> float:
        return max(base - rounds.replay(*times), 0.0) * scale

    def without(kind: str, what: Array, text: str) -> Cause:
        seconds = saved(work - what)
        return Cause(kind, seconds, text.format(f"{_duration(seconds / number)} of a round"))

    busy, free = _busy(segment, rounds, saved)
    uneven = _uneven(rounds, free, saved)
    if busy.seconds >= NAMED * base * scale and uneven.ranks:
        uneven = replace(uneven, text=f"{uneven.text}, as far as the busy processors let us see")
    other, unit = rounds.of("other").sum(1), _unit_cost(segment, rounds, free)
    typical, late = _median(_speed(rounds)), _late(segment, rounds)
    sums = rounds.of("pack", "reduce").sum(1)
    updates = without("sums and updates", sums, "packing, adding up and updating take {}")
    if 2 * sums.sum((0, 2)).max() > rounds.load.sum(1).max():
        # Of a tiny batch. Who updates less often sends fewer messages, too; what a slow network
        # adds to these is another cause.
        updates = replace(updates, seconds=saved(work - sums, np.minimum(rounds.transfer, late)))
    return [
        busy,
        uneven,
        without("slow reads", _reads(rounds, uneven), "all ranks read for {}"),
        # Threads that are late to wake up make exchanges long, too.
        _network(segment, rounds, saved(None, rounds.transfer - late)),
        updates,
        Cause(
            "tiny slices",
            saved(work - _cost_of_units(rounds, unit)),
            f"a unit takes {_duration(typical)}, of which {_duration(unit)} are for no row",
        ),
        without("fixed cost of a round", other, "{} are in no phase"),
        Cause(
            START,
            saved(work - _warm_up(rounds)) / scale,
            "first rounds take longer than others",
        ),
        *_between(segment, rounds),
    ]


def _between(segment: Segment, rounds: Rounds) -> list[Cause]:
    """Publishing, and evaluations, for which rounds are published, too."""
    publish, settle, evaluate = (
        segment.seconds[:, segment.phases.index(name)] for name in ("publish", "settle", "evaluate")
    )
    # The last rank to come waits for no other.
    rank = int((publish + settle).argmax())
    own = float(evaluate[rank])
    published = rounds.of("publish", "settle").sum((0, 1, 2))
    evaluated = rounds.of("evaluate").sum((0, 1, 2)) > 0
    part = float(published[evaluated].sum() / max(published.sum(), 1e-12))
    part *= own > publish[rank] * part / 3
    wait, write = float(settle.max()), float(publish[rank])
    # A fast disk saves what is no computing, if that is most of it.
    slept = write - _computing(segment, rank, "publish")
    return [
        Cause(
            "publishing",
            (wait + (slept if slept > write / 2 else write)) * (1 - part),
            "the state is written, to go on from",
        ),
        Cause("evaluation", own + (wait + write) * part, "the model is evaluated between rounds"),
    ]


def _computing(segment: Segment, rank: int, phase: str) -> float:
    """Seconds on a processor in a phase of a rank, which has samples of its own."""
    events = segment.ranks[rank]
    samples = events[events["code"] == segment.phases.index("sample")]
    spans = events[events["code"] == segment.phases.index(phase)]
    whole = float(segment.seconds[rank, segment.phases.index(phase)])
    if not len(spans) or not len(samples):
        return whole
    used = np.concatenate([[0], np.cumsum(samples["bytes"])])
    first, last = (
        np.searchsorted(samples["stop"], spans[name], "right") for name in ("start", "stop")
    )
    seconds = float((spans["stop"] - spans["start"]).sum())
    return whole * float((used[last] - used[first]).sum()) / max(seconds, 1.0)


def _per_unit(rounds: Rounds) -> Any:
    """Seconds of a unit, by rank and round; nan without units."""
    return rounds.load / np.where(rounds.units > 0, rounds.units, np.nan)


def _ratio_of(rounds: Rounds, free: Array) -> Any:
    """How many times as long as with others a unit takes a rank, while it has a processor."""
    return _ratio(_speed(rounds) * np.where(_is_short(rounds), 1, free))


def _is_short(rounds: Rounds) -> Any:
    """Whether the maps of a rank are so short that most of them did not wait for a processor."""
    return np.array([_median(each[each > 0], 0.0) for each in rounds.load]) < _TURN


def _speed(rounds: Rounds) -> Any:
    """The median seconds of a unit, by rank; nan for ranks without units."""
    return np.array([_median(one, np.nan) for one in _per_unit(rounds)])


def _median(values: Array, default: float = 1e-9) -> float:
    """Of values that are finite."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else default


def _with_maps(rounds: Rounds, per_unit: Array, units: Array) -> tuple[Any, Any, Any]:
    """What :meth:`Rounds.with_all` returns, had each rank so many units, and had a unit taken so
    long; nan: the median."""
    typical = _median(per_unit)
    work, transfer, senders = rounds.with_all()
    work = work.sum(1) - rounds.of("map", "read").sum(1)
    work[0] += units * np.where(np.isfinite(per_unit), per_unit, typical)
    return work, transfer, senders


def _divided(rounds: Rounds, speed: Any) -> Any:
    """The units of each rank and round, as a gang divides them among ranks of some speeds."""
    known = np.where(np.isfinite(speed), speed, _median(speed))
    split = EVEN if np.ptp(known) <= _UNLIKE * known.min() else Split(tuple(1 / known))
    parts = [shares(int(units), len(known), split) for units in rounds.units.sum(0)]
    return np.array([[stop - start for start, stop in one] for one in parts], float).T


def _busy(segment: Segment, rounds: Rounds, saved: Callable[..., float]) -> tuple[Cause, Array]:
    """What ranks waited for processors, and the part of each rank's time without that."""
    used, waited = np.array([usage(events) for events in segment.ranks]).T
    active = np.maximum(rounds.work.sum((0, 1, 3)) + rounds.transfer.sum((0, 2)), 1e-9)
    # A thread that is late to wake up has waited while it waited for others.
    least = np.clip(used / active, _LEFT, 1)
    free = np.where(waited > 0, np.clip(1 - waited / active, least, 1), 1.0)
    most = int(waited.argmax())
    text = f"rank {most} was ready, and waited {waited[most]:.3g} s for a processor that others had"
    if not waited.any():
        return Cause("busy processors", 0.0, text), free
    # Ranks that wait have fewer units, which would be divided anew.
    anew = _with_maps(rounds, _per_unit(rounds), _divided(rounds, _speed(rounds) * free))
    is_even = np.ptp(free) < _SLOW - 1
    work, transfer, *senders = (rounds.work.sum(1), rounds.transfer) if is_even else anew
    left = waited
    if transfer.size:
        # A rank that is late to wake up has waited in exchanges, and for the rest in its work.
        more = transfer - np.minimum(transfer, np.quantile(transfer, _ALWAYS, -1, keepdims=True))
        whole = np.maximum(more.sum((0, 2)), 1e-12)
        asleep = np.minimum(left, whole)
        transfer, left = transfer - more * (asleep / whole)[:, None], left - asleep
    usual = np.where(_is_short(rounds)[:, None], np.median(work, -1, keepdims=True), 0)
    part = np.clip(1 - left / np.maximum(work.sum((0, 2)), 1e-12), least, 1)
    part = (part if is_even else free)[:, None]
    work = np.maximum(work * part, np.minimum(work, usual))
    seconds = saved(work, transfer, *senders)
    return Cause("busy processors", min(seconds, float(waited.sum())), text), free


def _uneven(rounds: Rounds, free: Array, saved: Callable[..., float]) -> Cause:
    """Ranks that are slow, or else units that are not divided evenly."""
    each, ranks = _per_unit(rounds), len(rounds.units)
    ratio = _ratio_of(rounds, free)
    slow, share = np.flatnonzero(ratio > _SLOW), rounds.units.sum(1) / max(rounds.units.sum(), 1)
    if not len(slow):
        seconds = saved(*_with_maps(rounds, each, rounds.units.mean(0))) if ranks > 1 else 0.0
        text = f"rank {share.argmax()} has {share.max():.0%} of the units"
        return Cause("uneven shares", seconds, text)
    others = np.setdiff1d(np.arange(ranks), slow)
    reads = rounds.of("read").sum((0, 1, 3)) / np.maximum(rounds.units.sum(1), 1)
    reading = float((reads[slow] - np.median(reads[others])).mean())
    speed = _speed(rounds)
    typical = float(np.nanmedian(speed[others]))
    is_reading = reading > float(speed[slow].mean() - typical) / 2
    verbs = ("takes", "has") if len(slow) == 1 else ("take", "have")
    text = (
        f"{_named('rank', slow)} {verbs[0]} {ratio[slow].max():.2g} times as long for a unit as "
        f"the others{', in reading' * is_reading}, and {verbs[1]} {share[slow].sum():.0%} of the "
        f"units"
    )
    # In each round a slow rank is as much faster as the others are in the median.
    faster = np.where(ratio > _SLOW, speed / typical, 1)[:, None]
    seconds = saved(*_with_maps(rounds, each / faster, _divided(rounds, np.ones(ranks))))
    kind = "slow reads" if is_reading else "slow worker"
    return Cause(kind, seconds, text, tuple(map(int, slow)))


def _ratio(speed: Array) -> Any:
    """How many times as long as with the faster half of the ranks a unit takes; 1 if unknown."""
    known = np.isfinite(speed)
    base = np.median(speed[known & (speed <= np.median(speed[known]))]) if known.any() else 1.0
    return np.where(known, speed, base) / base


def _named(word: str, numbers: Array) -> str:
    *most, last = [f"{one:,}" for one in numbers]
    return f"{word}s {', '.join(most)} and {last}" if most else f"{word} {last}"


def _warm_up(rounds: Rounds) -> Any:
    """What the first round took longer than the median one: it imports and compiles."""
    work = rounds.work.sum(1)
    more = np.zeros_like(work)
    more[..., 0] = np.maximum(work[..., 0] - np.median(work, -1), 0)
    return more


def _reads(rounds: Rounds, uneven: Cause) -> Any:
    """What the ranks read; of those that read slowly, as much as the others read."""
    read, slow = rounds.of("read").sum(1), np.zeros(len(rounds.units), bool)
    slow[[*uneven.ranks]] = uneven.kind == "slow reads"
    each = read.sum((0, 2)) / np.maximum(rounds.units.sum(1), 1)
    part = np.minimum(_median(each[~slow], 0.0) / np.maximum(each, 1e-12), 1)
    return read * np.where(slow, part, 1)[:, None]


def _unit_cost(segment: Segment, rounds: Rounds, free: Array) -> float:
    """Seconds that a unit costs whatever its rows are, as units with fewer rows show; or 0."""
    known, costs = _ratio_of(rounds, free) <= _SLOW, []
    for events in (each for each, is_known in zip(segment.ranks, known, strict=True) if is_known):
        rows, seconds = _units(segment, events)
        most = np.median(rows) if len(rows) else 0
        is_full, is_short = rows == most, rows <= most / 2
        full = _median(seconds[is_full], 0.0)
        if is_short.sum() >= _SHORT:
            few = np.median(rows[is_short])
            short = _median(seconds[is_short])
            costs.append(short - max(full - short, 0.0) / (most - few) * few)
        elif 0 < most <= _FEW_ROWS:
            costs.append(min(full * (1 - _LEFT), _MOST_COST))
    cost = max(min(costs, default=0.0), 0.0)
    return cost if cost > _TINY * _median(_speed(rounds)) else 0.0


def _units(segment: Segment, events: Array) -> tuple[Array, Array]:
    """Rows and seconds of units of the main thread: each begins with a read of its rows."""
    events = events[events["thread"] == 0]
    maps, reads = (
        events[(events["code"] == segment.phases.index(name)) & (events["depth"] == depth)]
        for name, depth in (("map", 1), ("read", 2))
    )
    at = np.searchsorted(maps["start"], reads["start"], "right") - 1
    reads, at = reads[at >= 0], at[at >= 0]
    ends = np.minimum(maps["stop"][at], np.append(reads["start"][1:], 1 << 62))
    return reads["units"], (ends - reads["start"]) / 1e9


def _cost_of_units(rounds: Rounds, unit: float) -> Any:
    """What units cost within the maps, if each costs so many seconds beside its rows."""
    maps = rounds.of("map").sum(1)
    cost = np.minimum(rounds.units * unit, maps.sum(0) * (1 - _LEFT))
    return maps * (cost / np.maximum(maps.sum(0), 1e-12))


def _late(segment: Segment, rounds: Rounds) -> Any:
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
    waited = sum(usage(events)[1] for events in segment.ranks)
    return always + at_times * max(1 - waited / max(float(at_times.sum()), 1e-12), 0)


def _network(segment: Segment, rounds: Rounds, seconds: float) -> Cause:
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
        text = f"an exchange takes {_duration(typical)}, however few its bytes are"
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
