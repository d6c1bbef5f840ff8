"""What held a run back is named, with the seconds that the same run has not taken without it."""

from dataclasses import replace

import numpy as np
import pytest

import made_traces
from mapreduce.support.phases import PHASES
from mapreduce.timing.cause import Cause
from mapreduce.timing.causes import causes, standing_out

#: By name: a simulator, faults, and what the run without them has; then the cause and its ranks.
PLANTED = {
    "slow by 4": ("gang", {"slow": ((1, 4.0),)}, {}, "slow worker", (1,)),
    "slow by 1.3": ("gang", {"slow": ((1, 1.3),)}, {}, "slow worker", (1,)),
    "slow owner": ("gang", {"ranks": 4, "slow": ((0, 3.0),)}, {"ranks": 4}, "slow worker", (0,)),
    "two slow": (
        "gang",
        {"ranks": 4, "slow": ((1, 3.0), (2, 3.0))},
        {"ranks": 4},
        "slow worker",
        (1, 2),
    ),
    "slow owners": (
        "gang",
        {"ranks": 4, "is_shared": True, "slow": ((2, 2.0),)},
        {"ranks": 4, "is_shared": True},
        "slow worker",
        (2,),
    ),
    "reads of one": ("gang", {"slow_reads": ((1, 40.0),)}, {}, "slow reads", (1,)),
    "reads of all": ("gang", {"read": 1.5e-3}, {}, "slow reads", ()),
    "reads of all, of one more slowly": (
        "gang",
        {"read": 2e-3, "slow_reads": ((1, 1.12),)},
        {"read": 1e-9},
        "slow reads",
        (),
    ),
    "bytes": ("gang", {"bandwidth": 2.5e6}, {}, "exchange by bytes", ()),
    "delay": ("gang", {"delay": 8e-3}, {}, "exchange by delay", ()),
    "delay of messages without arrays": (
        "gang",
        {"delay": 8e-3, "size": 600},
        {"size": 600},
        "exchange by delay",
        (),
    ),
    "updates": ("gang", {"reduce": 0.02, "pack": 3e-3}, {}, "sums and updates", ()),
    "updates of a tiny batch, and its messages": (
        "gang",
        {"units": 2, "reduce": 2e-3, "pack": 5e-4, "delay": 1.5e-4},
        {"units": 2, "reduce": 1e-9, "pack": 1e-9, "delay": 1e-9, "bandwidth": 1e15},
        "sums and updates",
        (),
    ),
    "tiny slices": (
        "gang",
        {"units": 64, "unit": 1e-5, "read": 1e-6, "cost": 1e-4, "last": 2},
        {"units": 64, "unit": 1e-5, "read": 1e-6, "cost": 1e-9, "last": 2},
        "tiny slices",
        (),
    ),
    "slices of one row": (
        "gang",
        {"units": 64, "unit": 5e-6, "read": 1e-6, "cost": 8e-5, "rows": 1, "last": 1},
        {"units": 64, "unit": 5e-6, "read": 1e-6, "cost": 1e-9, "rows": 1, "last": 1},
        "tiny slices",
        (),
    ),
    "slices of one row that cost reads, too": (
        "gang",
        {"units": 64, "unit": 1e-6, "read": 3e-5, "cost": 6e-5, "rows": 1, "last": 1},
        {"units": 64, "unit": 1e-6, "read": 1e-9, "cost": 1e-9, "rows": 1, "last": 1},
        "tiny slices",
        (),
    ),
    "other": ("gang", {"other": 5e-3}, {}, "fixed cost of a round", ()),
    "publishing": ("gang", {"publish": 0.5}, {}, "publishing", ()),
    "a slow disk": (
        "gang",
        {"publish": 0.05, "disk": 0.5, "evaluate_every": 50},
        {"publish": 0.05, "evaluate_every": 50},
        "publishing",
        (),
    ),
    "a slow disk, for which processors sleep": (
        "gang",
        {"disk": 0.9, "evaluate_every": 20, "cold": 0.7},
        {"evaluate_every": 20},
        "publishing",
        (),
    ),
    "evaluation": ("gang", {"evaluate": 0.2, "evaluate_every": 10}, {}, "evaluation", ()),
    "an evaluation for which a driver takes long": (
        "gang",
        {"evaluate": 0.003, "settle": 0.02, "publish": 1e-3, "evaluate_every": 1},
        {"evaluate": 0.003, "settle": 0.02, "publish": 1e-3},
        "evaluation",
        (),
    ),
    "start": ("gang", {"start": 3.0}, {}, "start and many jobs", ()),
    "many jobs": ("gang", {"jobs": 40}, {}, "start and many jobs", ()),
    "all busy": ("gang", {"busy": ((0, 0.5), (1, 0.5))}, {}, "busy processors", ()),
    "one busy": ("gang", {"busy": ((1, 0.4),)}, {}, "busy processors", ()),
    "late to wake up": ("gang", {"late": 8e-3}, {}, "busy processors", ()),
    "late to wake up in each exchange": (
        "gang",
        {"unit": 5e-5, "late": 2.5e-3, "often": 1.0},
        {"unit": 5e-5},
        "busy processors",
        (),
    ),
    "an evaluation for which the driver takes the processors": (
        "gang",
        {
            **{"evaluate": 0.003, "settle": 0.006, "publish": 1e-3, "evaluate_every": 1},
            **{"busy": ((0, 0.4), (1, 0.4)), "is_driver": True},
        },
        {"evaluate": 0.003, "settle": 0.006, "publish": 1e-3},
        "evaluation",
        (),
    ),
    "reads in which processors sleep": (
        "gang",
        {"slow_reads": ((0, 60.0), (1, 60.0)), "cold": 0.6},
        {"read": 1e-9},
        "slow reads",
        (),
    ),
    "a delay in which processors sleep": (
        "gang",
        {"delay": 3e-2, "cold": 0.6},
        {},
        "exchange by delay",
        (),
    ),
    "three units": (
        "gang",
        {"units": 3, "unit": 0.01},
        {"units": 4, "unit": 0.0075},
        "uneven shares",
        (),
    ),
    "hot key": ("jobs", {"hot": 6.0}, {}, "hot key", (0,)),
    "slow task": ("jobs", {"slow": 6.0}, {}, "slow task", (2,)),
    "tiny tasks": (
        "jobs",
        {"maps": 2000, "input": 100_000_000, "byte": 1e-7},
        {"maps": 4, "input": 100_000_000, "byte": 1e-7},
        "tiny tasks",
        (),
    ),
    "tiny tasks that take long to be planned": (
        "jobs",
        {"maps": 2000, "input": 100_000_000, "byte": 1e-7, "plan": 1e-3},
        {"maps": 4, "input": 100_000_000, "byte": 1e-7, "plan": 1e-3},
        "tiny tasks",
        (),
    ),
    "gaps": (
        "jobs",
        {"gap": 1.0, "steps": 3, "input": 1_200_000_000},
        {"steps": 3, "input": 1_200_000_000},
        "gaps of the driver",
        (),
    ),
    "jobs again": ("jobs", {"jobs": 10, "start": 0.8}, {"jobs": 10}, "start and many jobs", ()),
}

CLEAN = {
    "two ranks": ("gang", {}),
    "four ranks, with clocks of their own": (
        "gang",
        {"ranks": 4, "rounds": 800, "clock_error": 1e-3},
    ),
    "owners": ("gang", {"ranks": 4, "rounds": 800, "is_shared": True}),
    "one rank": ("gang", {"ranks": 1, "rounds": 100}),
    "without schedstat": ("gang", {"has_delays": False}),
    "uneven by nature": ("gang", {"jitter": 0.1}),
    "units of few rows that take long": (
        "gang",
        {"units": 8, "unit": 5e-3, "cost": 1e-9, "rows": 1, "last": 1},
    ),
    "units of which none shows its cost": (
        "gang",
        {"units": 64, "unit": 2e-4, "read": 1e-5, "cost": 1e-9},
    ),
    "units that cost a part of their rows": (
        "gang",
        {"units": 32, "unit": 8e-4, "cost": 1e-4, "last": 2},
    ),
    "plain updates": (
        "gang",
        {
            **{"rounds": 1200, "units": 16, "unit": 1e-4, "read": 5e-6, "evaluate_every": 0},
            **{"reduce": 1.5e-4, "pack": 6e-5},
        },
    ),
    "a short run, whose first round compiles": ("gang", {"rounds": 30, "warm_up": 0.15}),
    "a job": ("jobs", {}),
    "one worker": ("jobs", {"workers": 1}),
    "steps": ("jobs", {"steps": 3, "input": 1_200_000_000}),
}


def made(kind, seed, faults):
    return getattr(made_traces, kind)(seed=seed, **faults)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", [*PLANTED])
def test_a_planted_cause_is_named_with_its_seconds(name, seed):
    kind, faults, without, cause, ranks = PLANTED[name]
    trace, clean = made(kind, seed, faults), made(kind, seed, without)
    seconds = made_traces.seconds(trace)
    first, *_ = standing_out(causes(trace), seconds)
    assert (first.kind, first.ranks) == (cause, ranks)
    assert seconds - first.seconds == pytest.approx(made_traces.seconds(clean), rel=0.15)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", [*CLEAN])
def test_nothing_stands_out_of_a_clean_run(name, seed):
    kind, how = CLEAN[name]
    trace = made(kind, seed, how)
    assert standing_out(causes(trace), made_traces.seconds(trace)) == []


def test_a_slow_rank_is_named_while_processors_are_busy_with_that_doubt():
    trace = made("gang", 1, {"busy": ((0, 0.5), (1, 0.5)), "slow": ((1, 4.0),)})
    busy, slow = sorted(causes(trace)[:2], key=lambda one: one.kind)
    assert (busy.kind, slow.kind, slow.ranks) == ("busy processors", "slow worker", (1,))
    assert slow.text.endswith("as far as the busy processors let us see")


def test_a_slow_rank_is_named_that_waits_for_others_and_for_processors_at_once():
    """It has few units, so it waits for the others most of the time, and for its turn meanwhile."""
    trace = made("gang", 1, {"slow": ((1, 9.0),)})
    (segment,) = trace.segments
    events = segment.ranks[1].copy()
    is_sample = events["code"] == PHASES.index("sample")
    took = events["stop"][is_sample] - events["start"][is_sample]
    events["bytes"][is_sample], events["units"][is_sample] = took // 50, took * 2 // 3
    late = replace(trace, segments=(replace(segment, ranks=(segment.ranks[0], events)),))
    found = standing_out(causes(late), made_traces.seconds(late))
    assert ("slow worker", (1,)) in [(one.kind, one.ranks) for one in found]


def test_two_causes_are_named_if_the_second_is_nearly_as_large():
    first, near, far, small = (
        Cause(name, n, "") for name, n in zip("abcd", (5, 4.1, 3.9, 0.9), strict=True)
    )
    assert standing_out([first, near, far], 10) == [first, near]
    assert standing_out([first, far], 10) == [first]
    assert standing_out([small], 10) == []


def test_busy_processors_are_named_first_and_what_is_of_the_run_beside_them():
    own, busy = Cause("slow worker", 5, "", (1,)), Cause("busy processors", 2, "")
    assert standing_out([own, busy], 10) == [busy, own]
    assert standing_out([replace(busy, seconds=9), replace(own, seconds=0.9)], 10) == [
        replace(busy, seconds=9)
    ]


@pytest.mark.parametrize(
    "faults",
    [
        {"slow": ((1, 4.0),)},
        {"busy": ((0, 0.5), (1, 0.5))},
        {"unit": 5e-5, "late": 2.5e-3, "often": 1.0, "evaluate_every": 0},
    ],
)
def test_kept_rounds_stand_for_all(faults):
    """Of a trace that has every fourth round in full, and all samples, as of the whole one."""
    trace = made("gang", 1, faults)
    (segment,) = trace.segments
    code = PHASES.index("sample")
    some = tuple(
        one[(one["round"] % 4 == 1) | (one["round"] == 0) | (one["code"] == code)]
        for one in segment.ranks
    )
    part = replace(trace, segments=(replace(segment, ranks=some),))
    whole, sampled = causes(trace)[0], causes(part)[0]
    assert (whole.kind, whole.ranks) == (sampled.kind, sampled.ranks)
    assert sampled.seconds == pytest.approx(whole.seconds, rel=0.05)


def test_numbers_of_one_generation_are_not_told_as_those_of_all():
    found = causes(made_traces.gang(busy=((1, 0.5),), jobs=2))
    busy, start = (
        next(one for one in found if one.kind == kind)
        for kind in ("busy processors", "start and many jobs")
    )
    assert busy.text.endswith("for a processor that others had, in the worst of 2 parts of the run")
    assert "parts" not in start.text
    assert not any("parts" in one.text for one in causes(made_traces.gang(busy=((1, 0.5),))))


def test_events_without_their_sums_stand_for_themselves():
    trace = made_traces.gang(slow=((1, 4.0),))
    (segment,) = trace.segments
    bare = replace(segment, seconds=np.zeros_like(segment.seconds))
    found = causes(replace(trace, segments=(bare,)))
    assert found[0].kind == "slow worker"
    assert found[0].seconds == pytest.approx(causes(trace)[0].seconds, rel=0.05)


def test_ranks_of_a_gang_are_no_slow_tasks():
    """A job that traces its tasks, too, has ranks among them."""
    trace = made("gang", 1, {})
    tasks = np.zeros(2, made_traces.TASK)
    tasks["kind"], tasks["number"] = "map", [0, 1]
    tasks["ready"] = tasks["start"] = trace.start
    tasks["stop"] = [trace.stop, trace.segments[0].ranks[1]["stop"].max()]
    assert causes(replace(trace, tasks=tasks)) == causes(trace)


def test_nothing_at_all_has_no_cause():
    empty = replace(made("jobs", 1, {}), tasks=np.zeros(0, made_traces.TASK), stop=0, start=0)
    assert [one.seconds for one in causes(empty)] == [0.0, 0.0]


def test_what_the_driver_waits_for_processors_counts_where_no_rounds_go_on():
    trace = made("gang", 1, {"busy": ((1, 0.4),)})
    start, ends = trace.start / 1e9, trace.stop / 1e9
    rows = [made_traces.driver("rest", start, start + 2, waited=1.5), trace.driver]
    rows += [made_traces.driver("run", start + 2, ends, waited=5.0)]
    before, after = (
        next(one for one in causes(each) if one.kind == "busy processors")
        for each in (trace, replace(trace, driver=np.concatenate(rows)))
    )
    assert after.seconds == pytest.approx(before.seconds + 1.5)
    assert after.text == before.text
