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

from mapreduce.timing.cause import LEFT, START, Cause
from mapreduce.timing.figures import Array, Rounds, rounds_of, usage
from mapreduce.timing.speeds import (
    SLOW,
    duration,
    median,
    per_unit,
    ratio_of,
    speed_of,
    units_by_speed,
    with_maps,
)
from mapreduce.timing.task_causes import (
    driver_delay,
    driver_seconds,
    of_gaps,
    of_tasks,
    own_tasks,
    plans,
)
from mapreduce.timing.trace import Segment, Trace, by_step
from mapreduce.timing.waits import busy_processors, excess, network, sleeping_share

#: Causes of a smaller part of the time are not named; a second one is, if it is nearly as large.
NAMED, BESIDE = 0.1, 0.8

#: Units of few rows that show what a unit costs beside its rows; where no unit has more, it is most
#: of the time, and at most so many seconds. It is no cause where it is a smaller part of a unit.
_SHORT, _FEW_ROWS, _MOST_COST, _TINY = 5, 4, 1e-4, 1 / 3

#: The share of rounds in which the work of a rank takes less than in a good one.
_GOOD = 0.25

#: Seconds that any round takes to pack, add up and update, and the part of the updates of a tiny
#: batch that a batch ten times as large has.
_UPDATE, _FEWER = 2.5e-4, 0.1


def causes(trace: Trace) -> list[Cause]:
    """All causes, the costliest first; most of them cost next to nothing."""
    every = [
        cause
        for segment in trace.segments
        for cause in _of_segment(segment, driver_seconds(trace, segment))
    ]
    tasks, planned = own_tasks(trace), plans(trace.driver)
    steps = [of_tasks(some, max(trace.workers, 1), planned) for some in by_step(tasks)]
    every += [*filter(None, steps), *of_gaps(trace, tasks, _pop(every, START))]
    outside = driver_delay(trace)
    if outside:
        text = f"the driver was ready, and waited {outside:.3g} s for a processor that others had"
        every = _more(every, Cause("busy processors", outside, text))
    alike = defaultdict[tuple[str, tuple[int, ...]], list[Cause]](list)
    for cause in sorted(every, key=lambda each: -each.seconds):
        alike[cause.kind, cause.ranks].append(cause)
    return sorted(map(_sum, alike.values()), key=lambda cause: -cause.seconds)


def _pop(every: list[Cause], kind: str) -> float:
    """The seconds of all causes of a kind, which are removed."""
    seconds = sum(cause.seconds for cause in every if cause.kind == kind)
    every[:] = [cause for cause in every if cause.kind != kind]
    return float(seconds)


def _more(every: list[Cause], more: Cause) -> list[Cause]:
    """Causes, the costliest one of a kind with more seconds of it."""
    alike = [cause for cause in every if cause.kind == more.kind]
    most = max(alike, key=lambda cause: cause.seconds, default=None)
    if most is None:
        return [*every, more]
    text = most.text if most.seconds > more.seconds else more.text
    sum_of_both = replace(most, seconds=most.seconds + more.seconds, text=text)
    return [sum_of_both if cause is most else cause for cause in every]


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


# Ranks


def _of_segment(segment: Segment, beside: float) -> list[Cause]:
    """The causes of a segment, beside which the driver used a processor for some seconds."""
    rounds = rounds_of(segment)
    base, work = rounds.replay(), rounds.work.sum(1)
    if not base > 0:
        return []
    # Rounds of which no event was kept are like the others. A rank that was killed while it wrote
    # its first events has no sums yet.
    scale = (float(segment.seconds[:, segment.phases.index("round")].max()) or base) / base
    number = scale * len(rounds.numbers)
    asleep = sleeping_share(segment, rounds)

    def saved(*times: Array | None) -> float:
        return max(base - rounds.replay(*times), 0.0) * scale

    def awake(work: Array, transfer: Array | None = None, times: float = 2.0) -> float:
        """As ``saved``, of what ranks sleep in: awake, they work as in a good round.

        Processors that sleep in half of each round are cold in all of it, and at times slow for
        seconds. Those that sleep between some rounds are cold in that part, which is ``times`` 1.
        """
        share = min(times * saved(work, transfer) / (base * scale), times * asleep, 1.0)
        plain = rounds.of("map", "pack", "reduce", "other").sum(1)
        more = np.maximum(plain - np.quantile(plain, _GOOD, -1, keepdims=True), 0)
        return saved(work - share * more, transfer)

    def without(kind: str, what: Array, text: str) -> Cause:
        seconds = saved(work - what)
        return Cause(kind, seconds, text.format(f"{duration(seconds / number)} of a round"))

    busy, free = busy_processors(segment, rounds, saved)
    # What the driver does while rounds go on, it does for what they publish.
    waited = sum(usage(events)[1] for events in segment.ranks)
    driven = busy.seconds * min(beside / max(waited, 1e-12), 1.0)
    busy = replace(busy, seconds=busy.seconds - driven)
    uneven = _uneven(rounds, free, saved)
    if busy.seconds >= NAMED * base * scale and uneven.ranks:
        uneven = replace(uneven, text=f"{uneven.text}, as far as the busy processors let us see")
    reads = _reads(rounds, uneven)
    other, unit = rounds.of("other").sum(1), _unit_cost(segment, rounds, free)
    typical, late = median(speed_of(rounds)), excess(segment, rounds)
    sums, disk = rounds.of("pack", "reduce").sum(1), rounds.of("publish", "settle").sum(1)
    # No round does without.
    usual = np.minimum(sums, _UPDATE * sums / np.maximum(sums.sum(0), 1e-12))
    updates = replace(
        without("sums and updates", sums, "packing, adding up and updating take {}"),
        seconds=saved(work - sums + usual),
    )
    if 2 * sums.sum((0, 2)).max() > rounds.load.sum(1).max():
        # Of a tiny batch. Who updates less often sends fewer messages, too; what a slow network
        # adds to these is another cause.
        spared = work - (1 - _FEWER) * sums, np.minimum(rounds.transfer, late)
        updates = replace(updates, seconds=saved(*spared))
    return [
        busy,
        uneven,
        replace(
            without("slow reads", reads, "all ranks read for {}"),
            seconds=awake(work - reads),
        ),
        # Threads that are late to wake up make exchanges long, too.
        network(segment, rounds, awake(work, rounds.transfer - late)),
        updates,
        Cause(
            "tiny slices",
            saved(work - _cost_of_units(rounds, unit)),
            f"a unit takes {duration(typical)}, of which {duration(unit)} are for no row",
        ),
        without("fixed cost of a round", other, "{} are in no phase"),
        Cause(
            START,
            saved(work - _warm_up(rounds)) / scale,
            "first rounds take longer than others",
        ),
        *_between(segment, rounds, driven, awake(work - disk, times=1.0) - saved(work - disk)),
    ]


def _between(segment: Segment, rounds: Rounds, driven: float, cold: float) -> list[Cause]:
    """Publishing, and evaluations, for which rounds are published, too.

    ``driven``: Seconds that ranks waited for processors that the driver had. ``cold``: Seconds that
    rounds take longer for processors that sleep while the state is written, if they do.
    """
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
            (wait + driven + (slept + cold if slept > write / 2 else write)) * (1 - part),
            "the state is written, to go on from",
        ),
        Cause(
            "evaluation",
            own + (wait + driven + write + cold) * part,
            "the model is evaluated between rounds",
        ),
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


def _uneven(rounds: Rounds, free: Array, saved: Callable[..., float]) -> Cause:
    """Ranks that are slow, or else units that are not divided evenly."""
    each, ranks = per_unit(rounds), len(rounds.units)
    ratio = ratio_of(rounds, free)
    slow, share = np.flatnonzero(ratio > SLOW), rounds.units.sum(1) / max(rounds.units.sum(), 1)
    if not len(slow):
        seconds = saved(*with_maps(rounds, each, rounds.units.mean(0))) if ranks > 1 else 0.0
        text = f"rank {share.argmax()} has {share.max():.0%} of the units"
        return Cause("uneven shares", seconds, text)
    others = np.setdiff1d(np.arange(ranks), slow)
    reads = rounds.of("read").sum((0, 1, 3)) / np.maximum(rounds.units.sum(1), 1)
    reading = float((reads[slow] - np.median(reads[others])).mean())
    speed = speed_of(rounds)
    typical = float(np.nanmedian(speed[others]))
    is_reading = reading > float(speed[slow].mean() - typical) / 2
    verbs = ("takes", "has") if len(slow) == 1 else ("take", "have")
    text = (
        f"{_named('rank', slow)} {verbs[0]} {ratio[slow].max():.2g} times as long for a unit as "
        f"the others{', in reading' * is_reading}, and {verbs[1]} {share[slow].sum():.0%} of the "
        f"units"
    )
    # In each round a slow rank is as much faster as the others are in the median.
    faster = np.where(ratio > SLOW, speed / typical, 1)[:, None]
    seconds = saved(*with_maps(rounds, each / faster, units_by_speed(rounds, np.ones(ranks))))
    kind = "slow reads" if is_reading else "slow worker"
    return Cause(kind, seconds, text, tuple(map(int, slow)))


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
    part = np.minimum(median(each[~slow], 0.0) / np.maximum(each, 1e-12), 1)
    return read * np.where(slow, part, 1)[:, None]


def _unit_cost(segment: Segment, rounds: Rounds, free: Array) -> float:
    """Seconds that a unit costs whatever its rows are, as units with fewer rows show; or 0."""
    known, speed, costs = ratio_of(rounds, free) <= SLOW, speed_of(rounds), []
    for rank in np.flatnonzero(known):
        rows, seconds = _units(segment, segment.ranks[rank])
        most = np.median(rows) if len(rows) else 0
        is_full, is_short = rows == most, rows <= most / 2
        full = median(seconds[is_full], 0.0)
        if is_short.sum() >= _SHORT:
            few = np.median(rows[is_short])
            short = median(seconds[is_short])
            costs.append(short - max(full - short, 0.0) / (most - few) * few)
        elif 0 < most <= _FEW_ROWS:
            # To add up some of the units takes longer than the median one shows.
            full = np.fmax(full, speed[rank])
            costs.append(min(full * (1 - LEFT * most / _FEW_ROWS), _MOST_COST))
    cost = max(min(costs, default=0.0), 0.0)
    return cost if cost > _TINY * median(speed_of(rounds)) else 0.0


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
    """What units cost within the maps, if each costs so many seconds beside its rows.

    What a unit waits for by chance is longer with it. Of rounds that take twice as long as others,
    as the first one, the rest is for something else.
    """
    maps, typical = rounds.of("map", "read").sum(1), median(speed_of(rounds))
    most = 2 * typical * rounds.units
    return maps * np.minimum(most / np.maximum(rounds.load, 1e-12), 1) * min(unit / typical, 1)
