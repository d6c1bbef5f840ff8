"""The told error of a clock holds the true one, in traces that are made and in those of gangs."""

import numpy as np
import pytest

import gangs
from builders import blobs_in
from mapreduce.plan.settings import Settings
from mapreduce.support import phases
from mapreduce.support.phases import EVENT, EXCHANGE, HEAD, LOAD, MAP, ROUND, SPREAD, START
from mapreduce.support.tracefiles import FOLDER
from mapreduce.timing.clocks import differences
from mapreduce.timing.reading import read
from mapreduce.training import creating

data = blobs_in(train=(200, 170, 97), test=(60, 31), features=40, classes=4)

#: The clocks are 5 s and 200 ppm apart.
OFFSET, DRIFT = 5_000_000_000, 200e-6


def shifted(events):
    """Events by another clock."""
    found = events.copy()
    for name in ("start", "stop"):
        found[name] += OFFSET + np.rint(events[name] * DRIFT).astype(int)
    return found


def made(seed, rounds=3000, idle=0.1):
    """Two ranks, of which rank 1 sometimes has no units, and then sends nothing."""
    random = np.random.default_rng(seed)
    now, rows = np.array([10**12, 10**12 + 10**6]), ([], [])

    def add(rank, code, depth, at, start, stop):
        rows[rank].append((code, depth, 0, at, start, stop, 0, 1))

    def took(scale, size=2):
        return (scale * random.exponential(1, size)).astype(int) + 20_000

    met = max(now) + took(1e5)
    for rank in range(2):
        add(rank, START, 0, 0, now[rank], met[rank] + 500)
        add(rank, LOAD, 1, 0, now[rank] + 100, met[rank] + 100)
        add(rank, EXCHANGE, 2, 0, now[rank] + 200, met[rank])
    now = met + 1000
    for at in range(1, rounds + 1):
        begun, sends = now.copy(), random.random() > idle
        mapped = now + took(5e5)
        # Rank 1 sends to rank 0, which sends to rank 1: each message takes its time.
        arrived = max(mapped[0], mapped[1] + took(2e5, 1)[0]) if sends else mapped[0]
        enters = np.array([arrived, mapped[1] + 5000]) + 50_000
        leaves = np.array([enters[0] + 5000, max(enters[1], enters[0] + took(2e5, 1)[0])]) + 1000
        for rank, stop in enumerate((arrived, mapped[1] + 5000)):
            add(rank, ROUND, 0, at, begun[rank], leaves[rank] + 10)
            if sends or not rank:
                add(rank, MAP, 1, at, begun[rank] + 10, mapped[rank] - 10)
            add(rank, EXCHANGE, 1, at, mapped[rank], stop)
            add(rank, SPREAD, 1, at, enters[rank], leaves[rank])
        now = leaves + took(1e5)
    return [np.array(each, EVENT) for each in rows]


@pytest.mark.parametrize("seed", range(10))
def test_the_error_holds_in_every_window_of_a_made_trace(seed):
    zero, true = made(seed)
    other = shifted(true)
    wide = []
    for name in ("start", "stop"):
        difference, error = differences(zero, other, other[name])
        assert (np.abs(other[name] + difference - true[name]) <= error).all()
        windows = (true[name] - true[name][0]) // 10**9
        wide += [error[windows == each].max() for each in np.unique(windows)]
    assert len(wide) >= 2
    # Messages take 20 microseconds and more.
    assert 2e4 < max(wide) < 1e6


def test_a_rank_of_which_nothing_came_has_no_bound():
    zero, other = made(0, 20, idle=1.0)
    only = other[other["round"] > 0]
    difference, error = differences(zero, only, only["start"])
    assert not difference.any()
    assert np.isinf(error).all()


def test_clocks_that_jump_widen_the_error():
    zero, true = made(3)
    other = shifted(true)
    for name in ("start", "stop"):
        other[name][len(other) // 2 :] += 10**7
    error = differences(zero, other, other["start"])[1]
    assert error.max() > 1e6


@pytest.mark.parametrize("seed", range(5))
def test_the_error_holds_in_a_real_gang(data, tmp_path, seed):
    chosen = Settings(
        model="mlp:9", batch_size=96, slice_rows=12, rounds=80, learning_rate=0.05, seed=seed
    )
    run = creating.create(tmp_path / "run", chosen, data / "train", None)
    gangs.train(run, 2, 2, trace=True)
    (true,) = read(run.path).segments
    # A machine of its own.
    path = run.path / FOLDER / f"{true.name}.1{phases.SUFFIX}"
    content = bytearray(path.read_bytes())
    head, events = np.frombuffer(content, HEAD, 1), np.frombuffer(content, EVENT, -1, HEAD.itemsize)
    head["machine"] = "another"
    events[:] = shifted(events)
    for name in ("start", "stop"):
        head[name] += OFFSET + int(head[name][0] * DRIFT)
    head["start"] -= 1
    path.write_bytes(content)
    (segment,) = read(run.path).segments
    assert true.clock_errors.tolist() == [0, 0]
    assert segment.clock_errors[0] == 0
    assert 0 < segment.clock_errors[1] < 1
    for name in ("start", "stop"):
        wrong = np.abs(segment.ranks[1][name] - true.ranks[1][name]).max() / 1e9
        assert wrong <= segment.clock_errors[1]
