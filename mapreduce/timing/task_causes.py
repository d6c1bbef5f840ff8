"""What held jobs back: long tasks, tiny ones, and the time in which no task runs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mapreduce.support.words import count
from mapreduce.timing.cause import START, Cause
from mapreduce.timing.figures import Array
from mapreduce.timing.trace import Segment, Trace, by_step

#: How many times as long as others a slow task takes, and the seconds by which it is late.
_SLOW_TASK, _LATE = 1.5, 0.05

#: Bytes of a tiny task, the seconds in which one of them is read, and how many tasks for each
#: worker are many.
_TINY_TASK, _BYTE, _MANY = 1_000_000, 1e-7, 4

#: Seconds that any run takes to begin and to end, and any step's maps or reduces to be handed over.
_BEGIN, _HAND_OVER = 0.5, 0.01

#: What a task has, in words.
_NOUNS = {"records": "records", "read": "bytes"}


def own_tasks(trace: Trace) -> Any:
    """The tasks of a trace that are no ranks of a gang: these have a segment."""
    tasks = trace.tasks
    for segment in trace.segments:
        first, last = _span(segment.ranks)
        common = np.minimum(tasks["stop"], last) - np.maximum(tasks["start"], first)
        tasks = tasks[common * 2 <= tasks["stop"] - tasks["start"]]
    return tasks


def _span(arrays: Iterable[Array]) -> tuple[int, int]:
    """From the first start to the last stop."""
    some = [one for one in arrays if len(one)]
    stop = max((int(one["stop"].max()) for one in some), default=0)
    return min((int(one["start"].min()) for one in some), default=stop), stop


def plans(driver: Array) -> Mapping[int, float]:
    """Seconds that a driver took to plan tasks, by when it began to hand them out."""
    rows = driver[driver["kind"] == "plan"]
    return dict(zip(rows["stop"].tolist(), (rows["stop"] - rows["start"]) / 1e9, strict=True))


def driver_seconds(trace: Trace, segment: Segment) -> float:
    """Seconds of a processor that the driver used while the ranks of a segment worked."""
    first, last = _span(segment.ranks)
    rows = trace.driver
    common = np.minimum(rows["stop"], last) - np.maximum(rows["start"], first)
    part = common.clip(0) / np.maximum(rows["stop"] - rows["start"], 1)
    return float((rows["cpu"] * part).sum() / 1e9)


def driver_delay(trace: Trace) -> float:
    """Seconds that the driver was ready and had no processor, while no tasks ran."""
    rows = trace.driver
    return float(rows["waited"][rows["kind"] != "run"].sum() / 1e9)


def of_tasks(tasks: Array, workers: int, planned: Mapping[int, float]) -> Cause | None:
    """Of the tasks of one kind of a step: that they are tiny, or that one of them is long.

    ``planned``: As :func:`plans` returns it.
    """
    number, read = len(tasks), tasks["read"]
    seconds = (tasks["stop"] - tasks["start"] - tasks["waited"]) / 1e9
    whole = (int(tasks["stop"].max()) - int(tasks["ready"].min())) / 1e9
    what, step = f"{tasks['kind'][0]} task", f"of step {tasks['step'][0] + 1}"
    if number > _MANY * workers and read.min() >= 0 and np.median(read) < _TINY_TASK:
        # Many tasks take long to be planned, too.
        whole += planned.get(int(tasks["ready"].min()), 0.0)
        left = read.sum() * _BYTE / workers + whole * workers / number
        text = f"{count(number, what)} {step} read {np.median(read):,.0f} bytes each"
        return Cause("tiny tasks", max(whole - left, 0.0), text)
    at = int(seconds.argmax())
    typical = float(np.median(np.delete(seconds, at))) if number > 1 else seconds[at]
    times = float(seconds[at] / max(typical, 1e-9))
    if times < _SLOW_TASK or seconds[at] - typical < _LATE:
        return None
    noun = "records" if tasks["records"].min() > 0 else "read"
    amount = tasks[noun].clip(0)
    more = float(amount[at] / max(np.median(np.delete(amount, at)), 1))
    name = f"{what} {tasks['number'][at]} {step} takes {times:.2g} times as long as the others"
    # Other tasks differ as before.
    other = np.where(seconds > _SLOW_TASK * typical, typical, seconds)
    kind = "slow task"
    text = f"{name}, for no more {_NOUNS[noun]}"
    # Records of a hot key may be shorter than others.
    if more - 1 > (times - 1) / 3:
        kind = "hot key" if tasks["kind"][0] == "reduce" else "large split"
        other *= seconds.sum() / other.sum()
        text = f"{name}, with {more:.2g} times the {_NOUNS[noun]}"
    lanes = min(workers, number)
    before, after = (max(each.sum() / lanes, each.max()) for each in (seconds, other))
    return Cause(kind, whole * float(1 - after / before), text, (int(tasks["number"][at]),))


def of_gaps(trace: Trace, tasks: Array, first: float = 0.0) -> list[Cause]:
    """The time in which neither rounds nor tasks ran: around jobs, and within them.

    ``first``: Seconds that first rounds took longer than others, which is a part of the beginning.
    """
    steps, spans_of = by_step(tasks), defaultdict[int, list[Array]](list)
    for some in steps:
        spans_of[int(some["job"][0])].append(some)
    spans = []
    for segment in trace.segments:
        code = segment.phases.index("round")
        span = _span(one[one["code"] == code] for one in segment.ranks)
        # Of a driver that found all rounds done there are none.
        spans += [span] if span[1] else []
    jobs = [*map(_span, spans_of.values()), *spans]
    busy = _covered([*spans, *zip(tasks["start"], tasks["stop"], strict=True)])
    outside = max((trace.stop - trace.start) / 1e9 - _covered(jobs), 0.0)
    inside = max(_covered(jobs) - busy, 0.0)
    # Between jobs nothing is needed.
    edges = [edge for job in jobs for edge in job] or [trace.stop]
    begin = min((min(edges) - trace.start + trace.stop - max(edges)) / 1e9, _BEGIN)
    start = f"{count(len(jobs), 'job')} took {outside:.3g} s to begin and to end"
    first = max(first - _BEGIN + begin, 0.0)
    if first > outside - begin:
        start = "first rounds take longer than others"
    gaps = f"within jobs no task ran for {inside:.3g} s"
    return [
        Cause(START, max(outside - begin, 0.0) + first, start),
        Cause("gaps of the driver", max(inside - len(steps) * _HAND_OVER, 0.0), gaps),
    ]


def _covered(spans: Iterable[tuple[int, int]]) -> float:
    """Seconds that lie in at least one of some spans."""
    covered, end = 0, -(2**63)
    for start, stop in sorted((int(a), int(b)) for a, b in spans):
        covered += max(stop - max(start, end), 0)
        end = max(end, stop)
    return covered / 1e9
