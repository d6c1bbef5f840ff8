"""The choice of an execution, against worlds whose costs are known."""

import math
import random

import pytest

from mapreduce.engine.executor import CHANGE, Limit
from mapreduce.executors.gang import stopwatch
from mapreduce.executors.gang.stopwatch import Stopwatch
from mapreduce.support.traits import Costs
from mapreduce.training.tuning import Tuner, Way, Work, ways

COSTS = Costs(job=0.05, worker=0.03, step=0.004, task=0.001)
AUTO = ("executor", "workers", "threads", "blocks")
PINNED = Way("chain", 2)


def simulated(cost, tuner, rounds, noise=0.02, seed=0):
    """Seconds of a training whose rounds take ``cost(way, completed)``, and the ways it took."""
    rng, total, done, seen, log = random.Random(seed), 0.0, 0, 0, []
    while done < rounds:
        way, wanted = tuner.choose(rounds - done)
        total += COSTS.job + COSTS.worker * max(0, way.workers - seen)
        seen, first, began, changed = max(seen, way.workers), done, total, 0
        while done < rounds:
            seconds = cost(way, done) * rng.uniform(1 - noise, 1 + noise)
            total, done = total + seconds, done + 1
            if wanted.seconds and total - began >= wanted.seconds:
                if (rounds - done) * seconds >= wanted.worth:
                    break
                wanted = Limit()
            if wanted.expected and total - began > wanted.patience:
                ratio = seconds / wanted.expected
                changed = 0 if 1 / CHANGE < ratio < CHANGE else changed + 1
                if changed > 20:
                    break
        tuner.add(way, seconds, done - first)
        log.append((way, done - first))
    return total, log


def machine(work, cores=2, exchange=4e-4, handing=2e-4):
    def cost(way, _completed=0):
        busy = work / min(way.workers * way.threads, cores)
        return busy + 1e-4 + exchange * (way.workers - 1) + 4 * handing * (way.threads > 1)

    return cost


def choices(cores=2, auto=AUTO, pinned=PINNED, can_gang=True, is_here=True):
    if "executor" in auto:
        pinned = pinned._replace(executor="gang" if can_gang else "chain")
    return ways(pinned, auto, cores, is_here)


WAYS = choices()


@pytest.mark.parametrize("error", [0.1, 0.5, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("work", [1e-4, 1e-3, 3e-3, 2e-2, 0.3])
@pytest.mark.parametrize("seconds", [0.3, 4.0, 60.0])
def test_near_the_best_way_even_if_the_estimate_is_wrong_by_ten_times(work, error, seconds):
    cost, every = machine(work), choices()
    rounds = max(2, math.ceil(seconds / work))
    tuner = Tuner(every, COSTS, 2, Work(work * error, 0.0, 4, 400_000))
    found, log = simulated(cost, tuner, rounds)
    best = min(COSTS.job + COSTS.worker * w.workers + rounds * cost(w) for w in every)
    # What tries cost; Python's start, a second in any case, is not counted here.
    assert found <= 1.15 * best + 0.3, log


def test_a_neighbour_on_the_cores_is_noticed_and_its_end_too():
    quiet, busy = machine(0.02), machine(0.02, cores=1, exchange=0.02)

    def cost(way, completed):
        return (busy if 1000 <= completed < 3000 else quiet)(way)

    _, log = simulated(cost, Tuner(choices(), COSTS, 2, Work(0.02, 0.0, 4, 4000)), 8000)
    at, cores = 0, []
    for way, rounds in log:
        at += rounds
        cores += [(at, way.workers * way.threads)] * (rounds > 50)
    assert [used for _, used in cores][:2] == [2, 1], log
    # It looks again now and then, after twice the time of the time before.
    assert [used for _, used in cores][-1] == 2, log
    assert sum(rounds for way, rounds in log if way.workers * way.threads == 2) > 4000, log


def test_one_slow_job_of_a_chain_is_no_change():
    chains = choices(pinned=Way("chain", 1), auto=("workers",))
    tuner = Tuner(chains, COSTS, 2, Work(0.001, 0.0, 4, 4000))
    for way, seconds in zip(chains, (0.005, 0.006), strict=True):
        tuner.add(way, seconds, 10)
    for seconds in (0.005, 0.009, 0.005, 0.003, 0.005):
        tuner.add(chains[0], seconds, 10)
        assert len(tuner.measured) == 2
    for _ in range(30):
        tuner.add(chains[0], 0.02, 10)
    assert tuner.choose(10_000)[0] == chains[1]


def test_one_core_has_one_way():
    (only,) = choices(cores=1)
    assert only == Way("gang", 1)
    tuner = Tuner([only], COSTS, 1, Work(1.0, 0.0, 4, 4000))
    assert tuner.choose(100) == (only, Limit())


@pytest.mark.parametrize(("work", "rounds"), [(1e-4, 100), (0.3, 100), (1e-4, 10**6), (0.0, 1)])
def test_in_this_process_if_no_job_would_end_sooner(work, rounds):
    tuner = Tuner(choices(), COSTS, 2, Work(work, 0.0, 8, 8000))
    job = min(COSTS.job + COSTS.worker * way.workers + rounds * machine(work)(way) for way in WAYS)
    expected = work * rounds if 0 < work * rounds < job else None
    assert tuner.alone(rounds) == expected


def test_ways_that_a_user_has_pinned_are_the_only_ones():
    pinned = Way("chain", 3, 2, 1)
    assert choices(pinned=pinned, auto=("executor",)) == [Way("gang", 3, 2, 1)]
    assert choices(pinned=pinned, auto=("executor",), can_gang=False) == [pinned]
    found = choices(cores=6, pinned=pinned, auto=("workers",))
    assert found == [pinned._replace(workers=count) for count in (1, 2, 4, 6)]
    assert {way.blocks for way in choices(auto=AUTO[:3], pinned=Way("gang", 1, 1, 5))} == {5}
    assert {way.threads for way in choices(cores=4, is_here=False)} == {1}


def test_slow_starts_are_not_spent_on_tries():
    slow = Costs(job=10.0, worker=1.0, step=5.0, task=3.0)
    for work, rounds in ((0.001, 10), (0.01, 100), (0.1, 10)):
        way, wanted = Tuner(choices(4), slow, 4, Work(work, 0.0, 8, 4000)).choose(rounds)
        assert (way.workers, wanted.worth) == (1, 120.0)
    # Ten hours of work are worth all four.
    _, log = simulated(
        machine(36.0, 4), Tuner(choices(4, is_here=False), slow, 4, Work(36.0, 0.0, 8, 4)), 1000
    )
    assert max(log, key=lambda each: each[1])[0].workers == 4, log


def test_a_choice_is_told_in_words():
    tuner = Tuner(choices(), COSTS, 2, Work(0.01, 0.0, 4, 4000))
    assert tuner.why(Way("gang", 1), 1000) == "about 10.1 ms a round, 10.1 s in all, expected"
    tuner.add(Way("gang", 1), 0.0123, 10)
    tuner.add(Way("gang", 2), 0.0071, 10)
    words = "7.1 ms a round; tried: gang of 1 worker 12.3 ms"
    assert tuner.why(Way("gang", 2), 1000) == words
    assert str(Way("chain", 1, 2, 3)) == "chain of 2 threads, 3 blocks"


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(stopwatch.time, "monotonic", lambda: self.now)


class TestStopwatch:
    """A rank's clock, which is the system's monotonic one: a clock that is set does not matter."""

    def rounds(self, clock, watch, seconds, count):
        """Make rounds; the number of those after which the job ended, or None."""
        for number in range(1, count + 1):
            clock.now += seconds
            over = watch.is_over(number)
            watch.lap()
            if over:
                return number
            watch.resume()
        return None

    def test_it_ends_at_a_round(self, monkeypatch):
        clock, watch = Clock(monkeypatch), Stopwatch(Limit(until=7), 100)
        watch.start()
        assert self.rounds(clock, watch, 0.1, 50) == 7

    def test_it_ends_after_seconds_unless_little_is_left(self, monkeypatch):
        clock = Clock(monkeypatch)
        for worth, over in ((0.0, 10), (89.0, 10), (91.0, None)):
            watch = Stopwatch(Limit(seconds=10, worth=worth), 100)
            watch.start()
            assert self.rounds(clock, watch, 1.0, 50) == over

    def test_the_first_rounds_and_evaluations_do_not_count(self, monkeypatch):
        clock, watch = Clock(monkeypatch), Stopwatch(Limit(), 100)
        watch.start()
        assert (watch.seconds, watch.evaluation) == (None, None)
        self.rounds(clock, watch, 9.0, 2)
        assert watch.seconds == 9.0
        for _ in range(6):
            self.rounds(clock, watch, 1.0, 1)
            with watch.evaluating():
                clock.now += 5
            watch.resume()
        assert (watch.seconds, watch.evaluation) == (1.0, 5.0)

    def test_it_ends_when_rounds_have_changed_for_a_while(self, monkeypatch):
        clock = Clock(monkeypatch)
        for seconds, is_over in ((0.1, False), (0.13, False), (0.15, True), (0.07, True)):
            watch = Stopwatch(Limit(expected=0.1, patience=3.0), 1000)
            watch.start()
            before = clock.now
            assert (self.rounds(clock, watch, seconds, 200) is not None) == is_over
            if is_over:
                assert 3.0 <= clock.now - before <= 4.5
