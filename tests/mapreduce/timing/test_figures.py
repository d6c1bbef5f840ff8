"""Seconds by phase, waits and imbalance, against loops over made traces."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import made_traces
from mapreduce.support.phases import EVENT, PHASES
from mapreduce.timing.figures import COLUMNS, WORK, efficiencies, imbalance, rounds_of, table

_CODE = {name: code for code, name in enumerate(PHASES)}


def events(*rows):
    """Events of a rank: phase, depth, round, start and stop in milliseconds, bytes, units."""
    full = [
        (_CODE[row[0]], row[1], 0, *row[2:3], row[3] * 10**6, row[4] * 10**6, *row[5:])
        for row in rows
    ]
    return np.array([(*row, *[0] * (8 - len(row))) for row in full], EVENT)


def test_a_rank_waits_until_the_last_has_begun_to_send():
    """Rank 0 owns the block; rank 1 is 30 ms late, and its message takes 5 ms."""
    early = events(
        ("round", 0, 1, 0, 60),
        ("map", 1, 1, 0, 10, 0, 2),
        ("read", 2, 1, 2, 6, 0, 2),
        ("exchange", 1, 1, 10, 45),
        ("reduce", 1, 1, 45, 50, 0, 1),
        ("spread", 1, 1, 50, 52, 100),
    )
    late = events(
        ("round", 0, 1, 0, 60),
        ("map", 1, 1, 0, 40, 0, 2),
        ("exchange", 1, 1, 40, 41, 100),
        ("spread", 1, 1, 41, 55),
    )
    segment = made_traces.segment("a", (early, late))
    rounds = rounds_of(segment)
    assert rounds.wait[:, :, 0] * 1e3 == pytest.approx(np.array([[30, 0], [0, 9]]))
    assert rounds.transfer[:, :, 0] * 1e3 == pytest.approx(np.array([[5, 1], [2, 5]]))
    columns = table(segment, rounds)
    assert [*columns] == [*COLUMNS]
    assert np.array(columns["map"]) * 1e3 == pytest.approx([6, 40])
    assert np.array(columns["read"]) * 1e3 == pytest.approx([4, 0])
    assert np.array(columns["other"]) * 1e3 == pytest.approx([8, 5])
    # Rank 1 maps for 40, the message takes 5, the update 5, its message back 5, and the rest 5.
    assert rounds.replay() * 1e3 == pytest.approx(60)


def test_a_rank_that_has_no_units_as_if_it_had_some():
    """Its message is packed, sent and awaited as in the first round, in which both had units."""

    def both(*rows):
        return tuple(events(*one) for one in zip(*rows, strict=True))

    spans = [(0, 60), (60, 100)]
    early, late = both(
        *((("round", 0, n, *span), ("round", 0, n, *span)) for n, span in enumerate(spans, 1)),
        (("map", 1, 1, 0, 10, 0, 1), ("map", 1, 1, 0, 20, 0, 1)),
        (("exchange", 1, 1, 10, 35), ("exchange", 1, 1, 30, 31, 100)),
        (("reduce", 1, 1, 35, 40, 0, 1), ("pack", 1, 1, 20, 30)),
        (("spread", 1, 1, 40, 42, 100), ("spread", 1, 1, 31, 44)),
        (("map", 1, 2, 60, 80, 0, 2), ("exchange", 1, 2, 61, 62)),
        (("exchange", 1, 2, 80, 80), ("spread", 1, 2, 62, 98)),
        (("reduce", 1, 2, 80, 81, 0, 1), ("sample", 1, 0, 0, 1)),
        (("spread", 1, 2, 81, 83, 100), ("sample", 1, 0, 0, 1)),
    )
    rounds = rounds_of(made_traces.segment("a", (early, late)))
    work, transfer, senders = rounds.with_all()
    assert senders[0].all() and not rounds.sends[0, 1, 1]
    packing = WORK.index("pack"), WORK.index("reduce")
    assert work[0, packing[0], 1] * 1e3 == pytest.approx([10, 10])
    assert work[1, packing[1], 0] * 1e3 == pytest.approx([5, 5])
    assert transfer[0, :, 1] * 1e3 == pytest.approx([5, 1])
    assert transfer[0, :, 0] == pytest.approx(rounds.transfer[0, :, 0])


def test_nobody_waits_for_a_rank_that_is_late_in_a_round_before_it_has_no_units():
    both = ("round", 0, 1, 0, 30), ("round", 0, 2, 30, 60)
    owner = events(
        *both,
        *(("map", 1, n, at, at + 10, 0, 1) for n, at in ((1, 0), (2, 30))),
        *(("exchange", 1, n, at, at) for n, at in ((1, 10), (2, 40))),
        *(("reduce", 1, n, at, at + 1, 0, 1) for n, at in ((1, 10), (2, 40))),
        *(("spread", 1, n, at, at + 1, 9) for n, at in ((1, 11), (2, 41))),
    )
    idle = events(
        *both,
        *(("exchange", 1, n, at, at) for n, at in ((1, 0), (2, 30))),
        *(("spread", 1, n, at, at + 29) for n, at in ((1, 1), (2, 31))),
    )
    rounds = rounds_of(made_traces.segment("a", (owner, idle)))
    # The owner sends after 29 ms, and is done in another one; the other rank needs 19 for it.
    assert rounds.replay() * 1e3 == pytest.approx(30 + 29 + 19)


def test_a_rank_without_units_keeps_nobody_waiting():
    rank = events(
        ("round", 0, 1, 0, 60),
        ("map", 1, 1, 0, 10, 0, 2),
        ("exchange", 1, 1, 10, 11),
        ("reduce", 1, 1, 11, 12, 0, 1),
        ("spread", 1, 1, 12, 13, 100),
    )
    idle = events(
        ("round", 0, 1, 0, 60),
        ("exchange", 1, 1, 50, 51),
        ("spread", 1, 1, 51, 52),
    )
    assert not rounds_of(made_traces.segment("a", (rank, idle))).wait.any()


@pytest.mark.parametrize("faults", [{}, {"ranks": 4, "is_shared": True}, {"slow": ((1, 3.0),)}])
def test_columns_add_up_to_the_time_of_each_rank(faults):
    (segment,) = made_traces.gang(**faults).segments
    columns = table(segment, rounds_of(segment))
    spans = [(one["stop"].max() - one["start"].min()) / 1e9 for one in segment.ranks]
    assert sum(np.array(one) for one in columns.values()) == pytest.approx(spans, rel=1e-3)
    assert min(map(min, columns.values())) >= 0


def test_a_replay_without_a_change_takes_what_the_rounds_took():
    for faults in ({}, {"ranks": 4}, {"ranks": 4, "is_shared": True}, {"delay": 5e-3}):
        (segment,) = made_traces.gang(**faults).segments
        assert rounds_of(segment).replay() == pytest.approx(segment.seconds[0, 0], rel=0.02)


def naive(load):
    """As R computes them, of one round."""
    most, mean, count = max(load), sum(load) / len(load), len(load)
    deviation = (sum((one - mean) ** 2 for one in load) / (count - 1)) ** 0.5
    return {
        "percent imbalance": (most / mean - 1) / (most / mean),
        "imbalance percentage": (most - mean) / most * (count / (count - 1)),
        "imbalance time": (most - mean) / most,
        "standard deviation": deviation / most,
        "norm": sum(map(abs, load)) / count / most,
    }


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9))
def test_five_metrics_are_those_of_a_loop(load):
    metrics = imbalance(np.array(load)[:, None])
    assert {name: one[0] for name, one in metrics.items()} == pytest.approx(naive(load), abs=1e-12)


def test_one_rank_and_rounds_without_load_are_even():
    even = {"percent imbalance": 0, "imbalance percentage": 0, "imbalance time": 0}
    even |= {"standard deviation": 0, "norm": 1}
    for load in (np.array([[3.0]]), np.zeros((3, 1)), np.ones((4, 1))):
        assert {name: one[0] for name, one in imbalance(load).items()} == pytest.approx(even)


def test_efficiencies_are_products():
    columns = {name: [0.0, 0.0] for name in COLUMNS} | {"map": [6.0, 2.0], "wait": [1.0, 5.0]}
    columns["transfer"] = [1.0, 1.0]
    expected = {"load_balance": 4 / 6, "communication": 6 / 8, "parallel": 0.5}
    expected |= {"idle_percent": 50.0, "ideal_seconds": 4.0}
    assert efficiencies(columns) == pytest.approx(expected)
