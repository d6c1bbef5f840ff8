"""Traces of ranks and of jobs that never were: a seeded simulator, in which faults are planted.

A fault is a field with another value, and the run without it is the same simulation with the
default. So the seconds that a cause has cost are known.
"""

from dataclasses import dataclass, replace

import numpy as np

from mapreduce.engine.leaf_ranges import EVEN, shares
from mapreduce.executors.gang.balance import Balance
from mapreduce.support.phases import EVENT, PHASES
from mapreduce.timing.trace import TASK, Segment, Trace

#: A rank's message that says nothing but that it is there, in bytes.
_EMPTY = 100


@dataclass(frozen=True)
class Gang:
    """A gang of ranks. Times are seconds; those of a unit are of its map without reading."""

    seed: int = 1
    ranks: int = 2
    rounds: int = 400
    units: int = 32
    unit: float = 1e-3
    read: float = 5e-5
    #: What a unit costs beside its rows, and the rows of the last one in each other round, of 8; if
    #: it costs something, each unit has an event of its own.
    cost: float = 0.0
    rows: int = 8
    last: int = 8
    #: By rank, of those that are not 1.
    slow: tuple[tuple[int, float], ...] = ()
    slow_reads: tuple[tuple[int, float], ...] = ()
    #: A pause of one rank in some of its maps.
    pack: float = 1e-4
    reduce: float = 3e-4
    size: int = 40_000
    delay: float = 1e-4
    bandwidth: float = 1e9
    other: float = 5e-5
    publish: float = 5e-3
    #: What a slow disk takes for it, and the wait for the driver before it.
    disk: float = 0.0
    settle: float = 0.0
    evaluate: float = 0.02
    evaluate_every: int = 100
    start: float = 0.2
    jobs: int = 1
    #: The share of a processor that somebody else has, by rank.
    busy: tuple[tuple[int, float], ...] = ()
    #: Seconds by which a rank is late to wake up in a part of its exchanges, for want of a
    #: processor.
    late: float = 0.0
    often: float = 0.5
    #: Whether it is the driver that has the processors.
    is_driver: bool = False
    #: How much longer work takes in some rounds, for processors that have slept; and the seconds
    #: that a first round takes longer than others.
    cold: float = 0.0
    warm_up: float = 0.0
    jitter: float = 0.03
    clock_error: float = 1e-4
    is_shared: bool = False  # every rank owns a block
    has_delays: bool = True


class _Rank:
    def __init__(self, how, number, random, clock):
        self.how, self.number, self.random, self.now = how, number, random, clock
        self.speed = dict(how.slow).get(number, 1.0)
        self.reads = dict(how.slow_reads).get(number, 1.0)
        self.busy = dict(how.busy).get(number, 0.0)
        self.rows, self.cpu, self.delay, self.sampled = [], 0.0, 0.0, clock
        self.round, self.slowness, self.delays = 0, 1.0, 0.0

    def note(self, name, depth, start, stop, size=0, units=0):
        row = (PHASES.index(name), depth, 0, self.round, start * 1e9, stop * 1e9, size, units)
        self.rows.append(row)

    def work(self, seconds):
        """Compute: others may have the processor meanwhile."""
        seconds *= np.exp(self.how.jitter * self.random.standard_normal()) * self.slowness
        waited = seconds * self.busy / (1 - self.busy)
        if waited:
            waited *= self.random.uniform(0.8, 1.2)
        self.cpu, self.delay = self.cpu + seconds, self.delay + waited
        self.now += seconds + waited

    def phase(self, name, depth, seconds, size=0, units=0):
        start = self.now
        self.work(seconds)
        self.note(name, depth, start, self.now, size, units)

    def map(self, units, is_last):
        start, began_reading = self.now, self.now
        if self.how.cost:
            for unit in range(units):
                is_short = is_last and unit == units - 1 and self.round % 2
                rows = self.how.last if is_short else self.how.rows
                self.phase("read", 2, self.how.read, 0, rows)
                self.work(self.how.cost + self.how.unit * rows / self.how.rows)
            self.note("map", 1, start, self.now, 0, units)
            return self.now - start
        # The reads of a round in one event, in front: only their sum counts.
        self.work(units * self.how.read)
        if self.reads > 1:
            self.now += units * self.how.read * (self.reads - 1)
        self.note("read", 2, began_reading, self.now, 0, units)
        self.work(units * self.how.unit + self.how.warm_up * (self.round == 1))
        # As --slow-worker does it, which sleeps.
        self.now += units * self.how.unit * (self.speed - 1)
        self.note("map", 1, start, self.now, 0, units)
        return self.now - start

    def publish(self):
        if self.how.settle:
            self.phase("settle", 1, self.how.settle)
        self.sample(0)
        start = self.now
        self.work(self.how.publish)
        self.now += self.how.disk
        self.sample(0)
        self.note("publish", 1, start, self.now)

    def sample(self, least=0.05):
        if self.now - self.sampled > least:
            cpu, delay = int(self.cpu * 1e9), int(self.delay * 1e9)
            self.note("sample", 1, self.sampled, self.now, cpu, delay * self.how.has_delays)
            self.delays += self.delay
            self.cpu = self.delay = 0.0
            self.sampled = self.now

    def events(self, error):
        rows = [
            (*row[:4], row[4] + error * 1e9, row[5] + error * 1e9, *row[6:]) for row in self.rows
        ]
        events = np.array([tuple(map(int, row)) for row in rows], EVENT)
        return events[np.lexsort((events["depth"], events["start"]))]


def _exchange(ranks, name, depth, size, senders, receivers):
    """Messages from all senders to all receivers."""
    how = ranks[0].how
    begun = {rank.number: rank.now for rank in ranks}
    send = how.delay + size / how.bandwidth
    for rank in ranks:
        start = rank.now
        others = [begun[n] for n in senders if n != rank.number]
        if rank.number in receivers and others:
            noise = np.exp(how.jitter * rank.random.standard_normal())
            # A receiver's messages come one after the other, through one cable.
            through = how.delay + len(others) * size / how.bandwidth
            rank.now = max(rank.now, max(others)) + noise * through
            if how.late and rank.random.random() < how.often:
                rank.now, rank.delay = rank.now + how.late, rank.delay + how.late
        elif rank.number in senders and len(ranks) > 1:
            rank.now += send
        sent = size if rank.number in senders and len(ranks) > 1 else 0
        rank.note(name, depth, start, rank.now, sent)


def _segment(how, clock, rounds, name):
    """One job of a gang; returns its segment and when it ends."""
    random = np.random.default_rng([how.seed, len(name), *map(ord, name)])
    ranks = [_Rank(how, number, random, clock) for number in range(how.ranks)]
    everybody = range(how.ranks)
    owners = everybody if how.is_shared else range(1)
    for rank in ranks:
        rank.phase("start", 0, how.start)
        rank.phase("load", 0, 2e-3)
    _exchange(ranks, "spread", 0, _EMPTY, everybody, everybody)
    balance, split = Balance(how.ranks, clock), EVEN
    published = ranks[0].now
    for number in range(1, rounds + 1):
        begun = [rank.now for rank in ranks]
        parts = shares(how.units, how.ranks, split)
        senders = [n for n, (a, b) in enumerate(parts) if a < b]
        for rank, (a, b) in zip(ranks, parts, strict=True):
            rank.round = number
            if how.cold:
                rank.slowness = 1 + how.cold * (rank.random.random() < 0.3)
            rank.work(how.other)
            if a < b:
                balance.note(rank.number, b - a, rank.map(b - a, b == how.units))
                rank.phase("pack", 1, how.pack)
        size = how.size // len(owners)
        _exchange(ranks, "exchange", 1, size, senders, owners)
        for owner in owners:
            ranks[owner].phase("reduce", 1, how.reduce / len(owners), 0, 1)
        split = balance.decide(how.units, ranks[0].now) or split
        _exchange(ranks, "spread", 1, size, owners, everybody)
        due = how.evaluate_every and not number % how.evaluate_every
        if due or ranks[0].now - published > 1:
            published = ranks[0].now
            for owner in owners:
                ranks[owner].publish()
        if due:
            starts = [rank.now for rank in ranks]
            for rank in ranks:
                rank.phase("map", 2, how.evaluate, 0, 4)
            _exchange(ranks, "exchange", 2, 4 * _EMPTY, everybody, range(1))
            _exchange(ranks, "spread", 2, _EMPTY, range(1), everybody)
            for rank, start in zip(ranks, starts, strict=True):
                rank.note("evaluate", 1, start, rank.now)
        for rank, start in zip(ranks, begun, strict=True):
            rank.note("round", 0, start, rank.now)
            rank.sample()
    _exchange(ranks, "spread", 0, _EMPTY, everybody, everybody)
    errors = [0.0, *random.uniform(-how.clock_error, how.clock_error, how.ranks - 1)]
    events = tuple(rank.events(error) for rank, error in zip(ranks, errors, strict=True))
    ends = max(rank.now for rank in ranks)
    used = sum(rank.delays for rank in ranks) if how.is_driver else 0.0
    return segment(name, events, how.clock_error), ends, driver("run", clock, ends, used)


def driver(kind, start, stop, used=0.0, waited=0.0):
    """What a driver did, in seconds."""
    times = [int(one * 1e9) for one in (start, start, stop, used, waited)]
    return np.array([(0, 0, kind, 0, 0, *times, -1, -1, -1)], TASK)


def segment(name, events, error=0.0, phases=PHASES):
    """A segment of events, with their sums."""
    seconds = np.zeros((len(events), len(phases)))
    for rank, one in enumerate(events):
        np.add.at(seconds[rank], one["code"], (one["stop"] - one["start"]) / 1e9)
    rounds = len(np.unique(np.concatenate([one["round"] for one in events]))) - 1
    return Segment(name, events, seconds, rounds, phases, np.full(len(events), error))


def gang(**faults):
    """A run of a gang, with faults: the fields of :class:`Gang` that are not as always."""
    how = Gang(**faults)
    clock, segments, rows = 10.0, [], []
    for job in range(how.jobs):
        clock += 0.1
        made, clock, row = _segment(how, clock, how.rounds // how.jobs, f"{job:03d}")
        clock += 0.02
        segments.append(made)
        rows.append(row)
    whole = int(10e9), int(clock * 1e9), how.ranks
    return Trace(tuple(segments), np.zeros(0, TASK), *whole, np.concatenate(rows))


@dataclass(frozen=True)
class Jobs:
    """Jobs of map and reduce tasks, each begun when the one before has ended."""

    seed: int = 1
    workers: int = 4
    jobs: int = 1
    steps: int = 1
    maps: int = 16
    reduces: int = 4
    #: Bytes of the input, and seconds for one of them; a task's cost beside its bytes.
    input: int = 400_000_000
    byte: float = 5e-8
    task: float = 0.02
    #: How much more the first reduce task has, in bytes.
    hot: float = 1.0
    #: How much longer the third map task takes, for no more bytes.
    slow: float = 1.0
    slow_worker: float = 1.0
    #: Seconds of the driver before a job, to plan a task, and before a phase.
    start: float = 0.1
    plan: float = 0.0
    gap: float = 0.02
    jitter: float = 0.05


def jobs(**faults):
    """The tasks of jobs, handed to the first free worker."""
    how = Jobs(**faults)
    random = np.random.default_rng(how.seed)
    now, rows, planned = 100.0, [], []
    for job in range(how.jobs):
        now += how.start
        for step in range(how.steps):
            for kind, count in (("map", how.maps), ("reduce", how.reduces)):
                began = now + how.gap
                now = began + how.plan * count
                planned.append(driver("plan", began, now))
                ready = now
                sizes = np.full(count, how.input / how.jobs / how.steps / max(count, 1))
                sizes *= np.exp(how.jitter * random.standard_normal(count))
                if kind == "reduce" and how.hot > 1 and count:
                    sizes[0] *= how.hot
                    sizes *= how.input / how.jobs / how.steps / sizes.sum()
                free = np.full(how.workers, now)
                for number, size in enumerate(sizes):
                    worker = int(free.argmin())
                    seconds = how.task + size * how.byte
                    seconds *= np.exp(how.jitter * random.standard_normal())
                    if kind == "map" and number == 2:
                        seconds *= how.slow
                    if worker == 1:
                        seconds *= how.slow_worker
                    start = free[worker] + 5e-4
                    free[worker] = start + seconds
                    times = [int(one * 1e9) for one in (ready, start, start + seconds, seconds)]
                    amount = int(size), int(size / 2), int(size / 50)
                    rows.append((job, step, kind, number, worker, *times, 0, *amount))
                now = max(free)
    tasks = np.array(rows, TASK)
    return Trace(
        (),
        tasks[np.argsort(tasks["start"], kind="stable")],
        int(100e9),
        int(now * 1e9),
        how.workers,
        np.concatenate(planned),
    )


def seconds(trace):
    """The time of the whole."""
    return (trace.stop - trace.start) / 1e9


__all__ = ["Gang", "Jobs", "driver", "gang", "jobs", "replace", "seconds", "segment"]
