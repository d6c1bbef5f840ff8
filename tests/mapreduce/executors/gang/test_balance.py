"""Units go to ranks by speed: never another bit, and little longer than the best that there is."""

import itertools
import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from builders import blobs_in, keywords, left_by
from gangs import train
from mapreduce.engine.executor import Limit
from mapreduce.engine.leaf_ranges import (
    EVEN,
    LeafRange,
    Split,
    alignment,
    even_shares,
    ranges,
    shares,
)
from mapreduce.engine.program import packed
from mapreduce.errors import UsageError
from mapreduce.executors.gang import exchange, job
from mapreduce.executors.gang.balance import Balance
from mapreduce.executors.gang.rank import Role
from mapreduce.executors.gang.stopwatch import Stopwatch
from mapreduce.executors.options import slow_worker
from mapreduce.plan.settings import Settings
from mapreduce.reduction.message import Message
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import execution
from mapreduce.testing import Roots
from mapreduce.training import creating, driver
from quick import cases

SPEEDS = st.floats(1e-6, 1e6)


@st.composite
def splits(draw, most=6):
    """Tasks, and a split among them."""
    tasks = draw(st.integers(1, most))
    speeds = draw(st.lists(SPEEDS, min_size=tasks, max_size=tasks).map(tuple) | st.just(()))
    return tasks, Split(speeds, draw(st.integers(-1, tasks - 1)))


def pieces(leaves, tasks, split):
    """How many pieces each task has."""
    piece = 1 << alignment(leaves, tasks)
    return [-(-(stop - start) // piece) for start, stop in shares(leaves, tasks, split)]


class TestShares:
    @given(st.integers(1, 3000), splits())
    def test_all_units_in_order_in_whole_pieces(self, leaves, found):
        tasks, split = found
        parts = shares(leaves, tasks, split)
        assert len(parts) == tasks
        covered = [leaf for start, stop in parts for leaf in range(start, stop)]
        assert covered == list(range(leaves))
        for start, _ in parts:
            assert start == leaves or start % (1 << alignment(leaves, tasks)) == 0

    @given(st.integers(1, 3000), st.integers(1, 9), SPEEDS)
    def test_equal_tasks_have_the_usual_ranges(self, leaves, tasks, speed):
        for split in (EVEN, Split((speed,) * tasks)):
            parts = shares(leaves, tasks, split)
            assert [part for part in parts if part[0] < part[1]] == ranges(leaves, tasks)
            assert parts[: len(ranges(leaves, tasks))] == (*ranges(leaves, tasks),)

    @given(st.integers(1, 3000), st.integers(1, 9))
    def test_shares_that_stay_differ_by_one_unit_at_most(self, leaves, tasks):
        parts = even_shares(leaves, tasks)
        assert [leaf for part in parts for leaf in range(*part)] == list(range(leaves))
        sizes = [stop - start for start, stop in parts]
        assert len(sizes) == tasks and max(sizes) - min(sizes) <= 1

    @given(st.integers(1, 3000), splits())
    def test_a_faster_task_has_no_fewer_pieces(self, leaves, found):
        tasks, split = found
        counts = pieces(leaves, tasks, split._replace(probe=-1))
        if len({*split.speeds}) > 1:
            for one, other in itertools.permutations(range(tasks), 2):
                if split.speeds[one] > split.speeds[other]:
                    assert counts[one] >= counts[other]

    @given(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=2, max_size=4))
    def test_no_other_allocation_is_done_earlier(self, leaves, speeds):
        """Against all of them; a piece is one unit here."""
        tasks = len(speeds)
        counts = pieces(leaves, tasks, Split(tuple(map(float, speeds))))

        def end(each):
            return max(count / speed for count, speed in zip(each, speeds, strict=True))

        every = itertools.product(range(leaves + 1), repeat=tasks)
        best = min(end(each) for each in every if sum(each) == leaves)
        assert end(counts) == pytest.approx(best)

    @given(st.integers(1, 3000), splits())
    def test_a_probed_task_has_one_piece(self, leaves, found):
        tasks, split = found
        if tasks > 1 and split.probe >= 0:
            assert pieces(leaves, tasks, split)[split.probe] == 1


class Simulated:
    """Ranks whose units take some seconds, and a clock that no other computer disturbs."""

    def __init__(self, ranks, leaves):
        self.ranks, self.leaves = ranks, leaves
        self.balance, self.split = Balance(ranks, 0.0), EVEN
        self.now, self.changes = 0.0, 0

    def round(self, seconds, leaves=None):
        """The length of a round in which a unit takes a rank the ``seconds`` at its place."""
        leaves = leaves or self.leaves
        parts = shares(leaves, self.ranks, self.split)
        times = [(stop - start) * each for (start, stop), each in zip(parts, seconds, strict=True)]
        for rank, ((start, stop), took) in enumerate(zip(parts, times, strict=True)):
            if start < stop:
                self.balance.note(rank, stop - start, took)
        self.now += max(times)
        found = self.balance.decide(leaves, self.now)
        if found is not None:
            self.split, self.changes = found, self.changes + 1
        return max(times)

    def rounds(self, count, seconds):
        return [self.round(seconds) for _ in range(count)]


class TestBalance:
    @given(st.integers(2, 6), st.integers(2, 40), st.floats(1e-4, 1.0), st.integers(0, 5))
    def test_one_slower_rank(self, ranks, factor, seconds, slow):
        """Within a quarter of what the speeds allow if units could be cut."""
        each = [seconds] * ranks
        each[slow % ranks] *= factor
        one = Simulated(ranks, 16 * ranks)
        took = one.rounds(40, each)
        ideal = one.leaves / sum(1 / unit for unit in each)
        if ideal > 1e-3:
            assert np.median(took[-10:]) <= 1.25 * ideal

    @given(st.integers(2, 5), st.integers(0, 2**32), st.sampled_from([1e-5, 1e-3, 0.5]))
    def test_noise_among_equal_ranks_changes_nothing(self, ranks, seed, seconds):
        noise = np.random.default_rng(seed)
        one = Simulated(ranks, 64)
        for _ in range(200):
            one.round(seconds * noise.uniform(0.9, 1.2, ranks))
        assert (one.split, one.changes) == (EVEN, 0)

    def test_a_single_slow_round_changes_nothing(self):
        one = Simulated(3, 24)
        for number in range(100):
            one.round([0.1, 9.0 if number % 10 == 4 else 0.1, 0.1])
        assert one.changes == 0

    def test_rounds_too_short_to_measure_stay_even(self):
        one = Simulated(2, 2)
        one.rounds(200, [1e-6, 4e-5])
        assert one.split == EVEN

    def test_a_rank_that_is_fast_again_gets_the_even_split(self):
        one = Simulated(4, 64)
        one.rounds(40, [0.01, 0.04, 0.01, 0.01])
        assert one.split != EVEN
        one.rounds(40, [0.01] * 4)
        assert one.split == EVEN

    def test_far_too_slow_a_rank_gets_nothing_but_is_measured_now_and_then(self):
        each = [0.01, 2.0, 0.01, 0.01]
        one = Simulated(4, 64)
        one.rounds(10, each)
        assert pieces(64, 4, one.split._replace(probe=-1))[1] == 0
        started = one.now
        took = one.rounds(4000, each)
        probes = [seconds for seconds in took if seconds > 1]
        assert len(probes) >= 3
        # One in 50 of the time, or little more.
        assert sum(probes) <= 0.03 * (one.now - started)
        # It has recovered.
        one.rounds(2000, [0.01] * 4)
        assert one.split == EVEN

    def test_ranks_that_never_had_a_unit_are_tried_in_the_place_of_a_slow_one(self):
        one = Simulated(4, 2)
        one.rounds(60, [1.0, 0.1, 0.1, 0.1])
        parts = shares(2, 4, one.split._replace(probe=-1))
        assert parts[0][0] == parts[0][1]
        assert one.round([1.0, 0.1, 0.1, 0.1]) < 1

    def test_the_short_rounds_at_the_ends_of_epochs_decide_nothing(self):
        one = Simulated(2, 64)
        one.rounds(40, [0.01, 0.04])
        before = one.split
        for _ in range(50):
            one.round([0.01, 0.04], leaves=1)
        assert one.split == before != EVEN


# In a gang

#: Two rounds that a driver would save: ranks wait where there is none for more of them.
SETTINGS = Settings(
    "mlp:90", optimizer="adam", batch_size=96, slice_rows=6, rounds=8, eval_every=4, clip_norm=0.5
)


#: Also replicas with what each keeps of its own, whoever trains it in a round.
PLANS = {
    "sync": SETTINGS,
    "averaging": replace(
        SETTINGS,
        **keywords("strategy=averaging replicas=5 local_steps=2 replica_state=keep"),
        **keywords("compress=topk:0.1"),
    ),
}

data = blobs_in(train=(120, 97), test=(60, 31), features=400, classes=4)


def create(data, path, plan="sync"):
    return creating.create(path, PLANS[plan], data / "train", data / "test")


@pytest.fixture(scope="module")
def expected(data):
    """A run of each plan."""
    runs = {plan: create(data, data / plan, plan) for plan in PLANS}
    for run in runs.values():
        driver.train(run, Execution("inline"), 0, Events())
    return runs


@pytest.mark.slow
def test_no_split_changes_a_bit(data, expected, tmp_path, monkeypatch):
    """Another one in each round: ranks without units, probes, and back to even."""
    monkeypatch.setattr(Balance, "decide", lambda *_: next(others))
    others = iter(())
    number = itertools.count()

    @settings(max_examples=8)
    @given(st.sampled_from([*PLANS]), st.integers(2, 4), st.integers(1, 3), st.data())
    def check(plan, ranks, blocks, drawn):
        nonlocal others
        speeds = st.lists(st.sampled_from([1e-3, 1.0, 7.0]), min_size=ranks, max_size=ranks)
        split = st.builds(Split, speeds.map(tuple), st.integers(-1, ranks - 1))
        told = st.lists(split | st.just(EVEN) | st.none(), min_size=8, max_size=8)
        others = iter(drawn.draw(told))
        run, inline = create(data, tmp_path / f"run-{next(number)}", plan), expected[plan]
        train(run, ranks, blocks)
        assert left_by(run) == left_by(inline)

    check()


def test_a_slow_worker_has_the_hash_of_the_others(data, expected, tmp_path):
    run = create(data, tmp_path / "run")
    how = Execution("parallel", 3, executor="gang", slow_worker="1:9")
    ended = driver.train(run, how, 0, Events())
    assert ended.model_sha256 == expected["sync"].result().model_sha256


@pytest.mark.parametrize(("factor", "slept"), [(1.0, 0.0), (4.0, 6.0)])
def test_a_slow_worker_sleeps_and_says_so(factor, slept, monkeypatch):
    """Of a map of two seconds, at a factor of four: six more."""
    clock = SimpleNamespace(now=0.0)

    def pass_by(seconds):
        clock.now += seconds

    def mapped(part):
        pass_by(2.0)
        yield (0,), Message({}, {})

    monkeypatch.setattr(
        exchange, "time", SimpleNamespace(perf_counter=lambda: clock.now, sleep=pass_by)
    )
    rank = SimpleNamespace(_slowness=factor, _group=3, _is_timed=True)
    pairs = exchange.Exchange._map(rank, SimpleNamespace(map=mapped), LeafRange(0, 4, 9))
    assert clock.now == 2 + slept
    assert [key for key, _ in pairs] == [(0,)]
    assert rank._mine == {"rank": 3, "units": 5, "seconds": 2 + slept}


def test_the_rank_that_is_named_is_slow(monkeypatch):
    factors = []

    class Noted:
        def __init__(self, program, role, rank, status):
            factors.append(role.slowness(rank))

        def run(self):
            return []

    monkeypatch.setattr(job, "Rank", Noted)
    for slow in ("1:2.5", ""):
        role = packed(json.dumps(asdict(Role("/run", "t", 3, 1, slow_worker=slow))))
        made = job.GangJob(args=["--program", Roots(3).describe(), "--role", role])
        for rank in range(3):
            assert list(made.take_part(None, f"{rank:08d}")) == []
    assert factors == [1, 2.5, 1, 1, 1, 1]


def test_the_text_of_a_slow_worker():
    good = {"1:4": (1, 4.0), "0:1": (0, 1.0), "12:1.5": (12, 1.5)}
    assert {text: slow_worker(text) for text in good} == good
    bad = ["", "1", "1:", ":4", "1:0.5", "-1:4", "1:-4", "1:nan", "1:inf", "1:4:2", "\u0661:4"]
    assert [slow_worker(text) for text in [*bad, "1:" + "9" * 400]] == [None] * 12


@cases(
    "given, message",
    ({"slow_worker": "1:0.5"}, "--slow-worker: expected RANK:FACTOR.*, found 1:0.5"),
    ({"slow_worker": "2:4"}, "--slow-worker: expected a number from 0 to 1, found 2"),
    ({"slow_worker": "1:4", "executor": "chain"}, "expected --executor gang"),
    ({"slow_worker": "1:4", "executor": "auto"}, "expected --executor gang"),
    ({"slow_worker": "0:4", "workers": None}, "a number of --workers"),
)
def test_a_slow_worker_that_makes_no_sense(given, message):
    with pytest.raises(UsageError, match=message):
        execution({"executor": "gang", "workers": 2, **given})
    assert execution({"executor": "gang", "workers": 2, "slow_worker": "1:4"}).slow_worker == "1:4"


def test_the_watch_sums_maps_and_all_else(monkeypatch):
    """Three rounds after those that warm up; evaluations do not count, publishing does."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "mapreduce.executors.gang.stopwatch.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    watch = Stopwatch(Limit(), 9)
    watch.start()
    for _ in range(5):
        watch.note_maps([2.0, 3.0])
        watch.note_maps([])
        clock.now += 3.5
        watch.lap()
        clock.now += 0.25
        with watch.evaluating():
            clock.now += 70
        watch.resume()
    assert math.isclose(watch.mapped, 3 * 5)
    assert math.isclose(watch.rest, 3 * 0.75)
