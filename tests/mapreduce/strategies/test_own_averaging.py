"""Averaging of replicas, a strategy of one's own: it is explained, and it is sent to a cluster."""

import json
import secrets
import sys

import pytest
from own_averaging import REPLICAS

import datasets
from builders import train
from hdfs_utils.paths import RemotePath
from mapreduce.cli.main import main
from mapreduce.data.copying import copy
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution

SPEC = "own_averaging:Averaging"
#: Three pages of parameters, and rounds whose replicas have one slice or two.
SETTINGS = Settings(
    "mlp:700",
    strategy=SPEC,
    optimizer="momentum",
    batch_size=120,
    slice_rows=20,
    rounds=4,
    checkpoint_every=2,
)


@pytest.fixture(scope="module", autouse=True)
def _forgotten():
    """What these tests trust is forgotten when they end."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRADREDUCE_TRUSTED", "GRADREDUCE_TRUSTED_FOLDERS"):
            patch.setenv(name, "")
        patch.setattr(sys, "path", [*sys.path])
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("averaging")
    datasets.blobs(folder / "train", features=50)
    return folder


@pytest.fixture(scope="module")
def expected(data):
    return train(data / "inline", data / "train", SETTINGS)


@pytest.mark.usefixtures("pinned")
class TestExplain:
    def explain(self, data, capsys, *options) -> str:
        command = ["explain", str(data / "inline"), "--trust", SPEC, *options]
        assert main(command) == 0
        return capsys.readouterr().out

    def test_figures_of_a_round(self, data, expected, capsys):
        found = json.loads(self.explain(data, capsys, "--round", "3", "--reducers", "2", "--json"))
        assert (found["facts"]["strategy"], found["summed"]) == (SPEC, "replica")
        assert [step["methods"][-1]["name"] for step in found["steps"]] == ["average"]
        assert [check["is_equal"] for check in found["checks"]] == [True] * len(found["checks"])
        assert len(found["slices"]) == REPLICAS

    def test_report(self, data, expected, capsys):
        shown = " ".join(self.explain(data, capsys).split())
        assert f"{REPLICAS} replicas" in shown
        assert "average Publish the mean of the replicas' parameters of a block." in shown
        assert "differs from what the run has" not in shown


@pytest.fixture(scope="module")
def remote(cluster, data):
    folder = RemotePath(f"hdfs:///tests/averaging-{secrets.token_hex(4)}")
    copy(data / "train", folder / "train")
    yield folder
    folder.rmtree()


@pytest.mark.slow
def test_on_hadoop(remote, expected):
    """Tasks get the strategy's file from the driver."""
    gang = Execution("hadoop", workers=2, blocks=2, executor="gang", gang_wait=120)
    assert train(remote / "run", remote / "train", SETTINGS, gang) == expected
