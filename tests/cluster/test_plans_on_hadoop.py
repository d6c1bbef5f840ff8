"""Networks and strategies on a real Hadoop: a chain, and a gang with a killed rank, as inline."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

import datasets
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

from drills import kill_one, tasks  # isort: skip

BASE = Settings(batch_size=32, slice_rows=8)
REPLICAS = replace(BASE, model="mlp:20", optimizer="momentum", strategy="averaging", replicas=3)
NETWORK = "conv:8x3,batchnorm,relu,pool:2,dropout:0.25,dense:20,batchnorm,relu"
TORCH = replace(BASE, model="torch:torch_networks:coloured_cnn", optimizer="adam")
CHAINS = {
    "cnn": replace(BASE, model=NETWORK, optimizer="adam"),
    "torch": TORCH,
    "compressed": replace(REPLICAS, replica_state="keep", compress="topk:0.05", local_steps=2),
    "downpour": replace(REPLICAS, strategy="downpour", staleness=4),
}
GANGS = {
    "gru": replace(BASE, model="gru:12,last,dropout:0.2", optimizer="momentum"),
    "torch": TORCH,
    "compressed": replace(REPLICAS, replica_state="keep", compress="onebit"),
    "adasum": replace(REPLICAS, replica_state="keep", combine="adasum", learning_rate=0.01),
    "tournament": replace(REPLICAS, strategy="tournament", spread=2.0),
}
_NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def plans(settings):
    """The table as cases, of which those for PyTorch are skipped where it is not installed."""
    return pytest.mark.parametrize(
        ("name", "settings"),
        [
            pytest.param(*row, marks=[_NEEDS_TORCH] * (row[0] == "torch"), id=row[0])
            for row in settings.items()
        ],
    )


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    datasets.blobs(folder / "train", (60, 49), shape=(3, 8, 8), classes=4, dtype="uint8")
    return folder


def train(data, settings, place, execution, *subscribers):
    run = driver.create(data / place, settings, data / "train", data / "train")
    return driver.train(run, execution, 2, Events(*subscribers)).model_sha256


@pytest.mark.slow
@plans(CHAINS)
def test_a_chain_has_the_bits_of_inline(data, name, settings):
    settings = replace(settings, rounds=2)
    expected = train(data, settings, f"{name}-chain-inline", Execution("inline", executor="chain"))
    hadoop = Execution("hadoop", 2, executor="chain")
    assert train(data, settings, f"{name}-chain", hadoop) == expected


@pytest.mark.slow
@plans(GANGS)
def test_a_gang_whose_rank_is_killed_has_the_bits_of_inline(data, name, settings):
    settings = replace(settings, rounds=40, checkpoint_every=10)
    expected = train(data, settings, f"{name}-gang-inline", Execution("inline"))
    killed = []

    def kill(event):
        if isinstance(event, RoundCompleted) and event.completed == 10 and not killed:
            killed.append(kill_one(tasks("mapper")))

    execution = Execution("hadoop", 2, executor="gang", gang_wait=120)
    assert train(data, settings, f"{name}-gang", execution, kill) == expected
    assert killed[0], "the fault did not happen"
