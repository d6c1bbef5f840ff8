"""The driver of a search is killed at any moment; the search goes on to the same table."""

import os
import random

import pytest

from builders import blobs_in
from killing import KillAt, in_child
from mapreduce.searching import driver
from mapreduce.searching.options import SearchOptions
from quick import cases

pytestmark = pytest.mark.fault

SPACE = {"model": "mlp:4..9|softmax", "learning_rate": "log:0.01..1"}
HERE = {"executor": "here"}

data = blobs_in(train=(300, 123), test=(60,))


def start(data, folder, how, sampler, is_evaluated=True, trials=4, folds=None):
    """A search; its tables, and the result of its best model."""
    if sampler == "tpe":
        pytest.importorskip("optuna")
    evaluation = data / "test" if is_evaluated else None
    wanted = SearchOptions(trials, "1,2", folds, sampler, width=trials // 2)
    driver.start(folder, data / "train", evaluation, SPACE, how, print, wanted)
    names = ["trials.csv", "best/result.json", *["folds.csv"] * bool(folds)]
    return [(folder / name).read_bytes() for name in names]


def killed(start, kill_at):
    """Whether a driver was killed, which must not have failed."""
    status, _ = in_child(start, kill_at)
    assert status == 0 or os.WIFSIGNALED(status)
    return status != 0


@cases(
    "sampler, is_evaluated, folds",
    ("random", False, None),
    ("random", True, None),
    ("tpe", True, None),
    ("tpe", False, 2),
)
def test_killed_at_any_boundary(sampler, is_evaluated, folds, data, tmp_path):
    """Whatever call that changes the file system the driver is killed at."""

    def search(name):
        return lambda: start(data, tmp_path / name, HERE, sampler, is_evaluated, folds=folds)

    expected = search("first")()
    status, calls = in_child(search("whole"), KillAt(0, False))
    assert (status, calls > 150) == (0, True)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    # The last ones publish the best model.
    moments = draw.sample(range(1, calls - 40), 7) + draw.sample(range(calls - 40, calls + 1), 5)
    for number in moments:
        name = f"killed-{number}"
        assert killed(search(name), KillAt(number, draw.random() < 0.5)), f"call {number}"
        assert search(name)() == expected, number
        assert not list((tmp_path / name).rglob("*.tmp")), number


@pytest.mark.slow
@cases("sampler", "tpe", "random")
def test_killed_five_times_with_eight_workers(sampler, data, tmp_path):
    workers = {"runner": "parallel", "workers": 8, "start_method": "fork"}

    def search(name):
        return lambda: start(data, tmp_path / name, workers, sampler, trials=8)

    expected = start(data, tmp_path / "here", HERE, sampler, trials=8)
    status, calls = in_child(search("whole"), KillAt(0, False))
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    kills = [killed(search("killed"), KillAt(draw.randint(1, calls // 3), False)) for _ in range(5)]
    assert (status, kills[0]) == (0, True)
    assert search("killed")() == expected
