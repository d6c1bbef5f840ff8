"""Averaging of replicas, a strategy of one's own: it is explained, and it is sent to a cluster."""

import json
import secrets

import pytest
from own_averaging import REPLICAS

from builders import blobs_in, train
from hdfs_utils.paths import RemotePath
from mapreduce.cli.main import main
from mapreduce.data.copying import copy
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution

pytestmark = pytest.mark.usefixtures("forgotten")

SPEC = "own_averaging:Averaging"
#: Three pages of parameters, and rounds whose replicas have one slice or two.
SETTINGS = Settings(
    "mlp:700", strategy=SPEC, optimizer="momentum", batch_size=120, slice_rows=20, rounds=4
)

data = blobs_in(train=(200, 170, 97), features=50)


@pytest.mark.usefixtures("pinned")
def test_explain(data, tmp_path, capsys):
    train(tmp_path / "run", data, SETTINGS)
    command = ["explain", str(tmp_path / "run"), "--trust", SPEC]
    assert main([*command, "--round", "3", "--reducers", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["facts"]["strategy"], found["summed"]) == (SPEC, "replica")
    assert [step["methods"][-1]["name"] for step in found["steps"]] == ["average"]
    assert [check["is_equal"] for check in found["checks"]] == [True] * len(found["checks"])
    assert len(found["slices"]) == REPLICAS
    assert main(command) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{REPLICAS} replicas" in shown
    assert "average Publish the mean of the replicas' parameters of a block." in shown
    assert "differs from what the run has" not in shown


@pytest.mark.slow
def test_on_hadoop(cluster, data, tmp_path):
    """Tasks get the strategy's file from the driver."""
    folder = RemotePath(f"hdfs:///tests/averaging-{secrets.token_hex(4)}")
    copy(data, folder / "train")
    gang = Execution("hadoop", workers=2, blocks=2, executor="gang", gang_wait=120)
    found = train(folder / "run", folder / "train", SETTINGS, gang)
    assert found == train(tmp_path / "run", data, SETTINGS)
    folder.rmtree()
