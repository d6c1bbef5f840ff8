"""Networks on a real Hadoop, as a chain and as a gang, whose rank is killed: the bits of inline."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

import datasets
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

from drills import kill_one, tasks  # isort: skip

PLANS = {
    "cnn": Settings(
        "conv:8x3,batchnorm,relu,pool:2,dropout:0.25,dense:20,batchnorm,relu", optimizer="adam"
    ),
    "gru": Settings("gru:12,last,dropout:0.2", optimizer="momentum"),
    "torch": Settings("torch:torch_networks:coloured_cnn", optimizer="adam"),
}
_NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
NAMES = [pytest.param(name, marks=[_NEEDS_TORCH] * (name == "torch")) for name in PLANS]


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    datasets.blobs(folder / "train", (60, 49), shape=(3, 8, 8), classes=4, dtype="uint8")
    return folder


def train(data, name, place, execution, events=None):
    settings = replace(PLANS[name], batch_size=32, slice_rows=8, rounds=2)
    if execution.executor == "gang":
        settings = replace(settings, rounds=40, checkpoint_every=10)
    run = driver.create(data / f"{place}-{name}", settings, data / "train", data / "train")
    return driver.train(run, execution, 2, events or Events()).model_sha256


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_chain_has_the_bits_of_inline(name, data):
    expected = train(data, name, "chain-inline", Execution("inline", executor="chain"))
    assert train(data, name, "chain", Execution("hadoop", 2, executor="chain")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_gang_whose_rank_is_killed_has_the_bits_of_inline(name, data):
    expected = train(data, name, "gang-inline", Execution("inline", executor="gang"))
    events, killed = Events(), []

    def kill(event):
        if isinstance(event, RoundCompleted) and event.completed == 10 and not killed:
            killed.append(kill_one(tasks("mapper")))

    events.subscribe(kill)
    execution = Execution("hadoop", 2, executor="gang", gang_wait=120)
    assert train(data, name, "gang", execution, events) == expected
    assert killed[0], "the fault did not happen"
