"""Every strategy gives a network with batch norm and dropout one hash, through kills, too."""

import json
import os
import random
import signal

import pytest

import datasets
import programs
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

NETWORK = "conv:8x3:padding=1,batchnorm,relu,pool:2,dropout:0.25,dense:250,batchnorm,relu"
#: The last round of an epoch has three slices, and so one replica without any.
SHARED = {"optimizer": "momentum", "batch_size": 32, "slice_rows": 8, "replicas": 4}
PLANS = {
    "averaging": {"strategy": "averaging", "local_steps": 2},
    "adasum": {"strategy": "averaging", "combine": "adasum", "replica_state": "keep"},
    "elastic": {"strategy": "averaging", "elastic": 0.2, "replica_state": "keep"},
    "onebit": {"strategy": "averaging", "compress": "onebit", "replica_state": "keep"},
    "topk": {"strategy": "averaging", "compress": "topk:0.01", "replica_state": "keep"},
    "downpour": {"strategy": "downpour", "staleness": 6},
    "tournament": {"strategy": "tournament", "local_steps": 2, "spread": 2.0},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strategies")
    datasets.blobs(folder / "train", (64, 48, 33), shape=(3, 8, 8), classes=4, dtype="uint8")
    return folder / "train"


def created(data, path, name, rounds):
    changes = {**SHARED, **PLANS[name], "rounds": rounds, "checkpoint_every": 5}
    return driver.create(path, Settings(NETWORK, learning_rate=0.01, **changes), data, None)


def train(data, path, name, execution, rounds=12):
    return driver.train(created(data, path, name, rounds), execution, 3, Events()).model_sha256


@pytest.mark.parametrize("name", PLANS)
def test_the_bits_of_inline(name, data, tmp_path):
    expected = train(data, tmp_path / "inline", name, Execution("inline"))
    for number, execution in enumerate(
        (
            Execution("parallel", 3, blocks=3, rounds_per_job=5),
            Execution("parallel", 2, blocks=2, executor="gang"),
            Execution("parallel", 3, executor="gang"),
        )
    ):
        assert train(data, tmp_path / f"{number}", name, execution) == expected, execution


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_killed_and_resumed(name, data, tmp_path):
    """By kill -9 of the driver, or of a worker, of any role, while the driver goes on."""
    rounds = 100
    expected = train(data, tmp_path / "undisturbed", name, Execution("inline"), rounds)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    run = created(data, tmp_path / "run", name, rounds)
    mark = str(tmp_path)
    env = {**os.environ, "GRADREDUCE_TEST_MARK": mark}
    kills = 0
    for moment in sorted(chance.sample(range(1, rounds - 10), 4)):
        way = chance.choice(["chain", "gang"]), chance.randint(2, 3)
        process = programs.start(
            "resume", run.path, "--executor", way[0], "--workers", way[1], env=env
        )
        programs.wait_until(
            lambda at=moment, it=process: has_come(run, at) or it.poll() is not None, 90
        )
        others = [pid for pid in programs.processes_of(mark) if pid != process.pid]
        if others and process.poll() is None and chance.random() < 0.5:
            os.kill(chance.choice(others), signal.SIGKILL)
            kills += 1
            later = min(moment + 5, rounds)
            programs.wait_until(
                lambda at=later, it=process: has_come(run, at) or it.poll() is not None, 90
            )
        kills += process.poll() is None
        programs.kill(process)
        programs.wait_until(lambda: not programs.processes_of(mark), 10)
    shown = json.loads(programs.succeed("resume", run.path, "--json", env=env))
    assert shown["model_sha256"] == expected
    assert kills >= 2


def has_come(run, moment):
    return max(run.complete_rounds(), default=0) >= moment
