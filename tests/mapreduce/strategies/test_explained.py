"""``explain`` shows a round of each strategy, and says nothing that is true of ``sync`` alone."""

import json

import pytest

import datasets
from builders import trained
from mapreduce.plan.settings import Settings

pytestmark = pytest.mark.usefixtures("pinned")

RUNS = {
    "averaging": ({"replicas": 3, "local_steps": 2, "compress": "onebit"}, "update", True),
    "adasum": ({"replicas": 3, "combine": "adasum"}, "update", False),
    "elastic": ({"replicas": 3, "elastic": 0.2, "replica_state": "keep"}, "update", False),
    "downpour": ({"strategy": "downpour", "replicas": 3, "staleness": 4}, "gradient", True),
    "tournament": ({"strategy": "tournament", "replicas": 3}, "model", False),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_round(name, tmp_path, answer):
    changes, summed, is_mean = RUNS[name]
    settings = {"model": "mlp:6", "strategy": "averaging", "batch_size": 48, "slice_rows": 8}
    datasets.blobs(tmp_path / "data")
    made = Settings(**{**settings, "rounds": 4, **changes})
    run = trained(tmp_path / "run", tmp_path / "data", made)
    found = json.loads(answer(0, "explain", run.path, "--json").out)
    assert (found["unit"], found["summed"], found["is_mean"]) == ("replica", summed, is_mean)
    assert [check["is_equal"] for check in found["checks"]] == [True] * len(found["checks"])
    text = " ".join(answer(0, "explain", run.path).out.split())
    rows = sum(one["stop"] - one["start"] for one in found["slices"])
    assert f"3 replicas of {rows} rows give 3 {summed}s" in text
    assert ("norm of mean" in text) == is_mean
    assert "What travels: " in text
    assert "mappers compute gradients of slices" not in text
