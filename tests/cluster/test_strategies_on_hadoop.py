"""Strategies on a real Hadoop, as a chain and as a gang with a killed rank: the bits of inline."""

from dataclasses import replace

import pytest

import datasets
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

from drills import kill_one, tasks  # isort: skip

SETTINGS = Settings(
    "mlp:20", batch_size=32, slice_rows=4, optimizer="momentum", strategy="averaging", replicas=3
)
KEPT = replace(SETTINGS, replica_state="keep")
CHAINS = {
    "compressed": replace(KEPT, compress="topk:0.05", local_steps=2),
    "downpour": replace(SETTINGS, strategy="downpour", staleness=4),
}
GANGS = {
    "compressed": replace(KEPT, compress="onebit"),
    "adasum": replace(KEPT, combine="adasum", learning_rate=0.01),
    "tournament": replace(SETTINGS, strategy="tournament", spread=2.0),
}


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("strategies")
    datasets.blobs(folder / "train", (60, 49))
    return folder


def train(data, settings, name, execution, events=None):
    run = driver.create(data / name, settings, data / "train", None)
    return driver.train(run, execution, 2, events or Events()).model_sha256


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_the_bits_of_inline(name, data):
    settings = replace(CHAINS[name], rounds=2)
    expected = train(data, settings, f"{name}-chain-inline", Execution("inline"))
    assert train(data, settings, f"{name}-chain", Execution("hadoop", 2)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", GANGS)
def test_a_gang_whose_rank_is_killed_has_the_bits_of_inline(name, data):
    settings = replace(GANGS[name], rounds=40, checkpoint_every=10)
    expected = train(data, settings, f"{name}-gang-inline", Execution("inline"))
    events, killed = Events(), []

    def kill(event):
        if isinstance(event, RoundCompleted) and event.completed == 10 and not killed:
            killed.append(kill_one(tasks("mapper")))

    events.subscribe(kill)
    execution = Execution("hadoop", 2, executor="gang", gang_wait=120)
    assert train(data, settings, f"{name}-gang", execution, events) == expected
    assert killed[0], "the fault did not happen"
