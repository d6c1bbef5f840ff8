"""A search on a real Hadoop has the table of other runners."""

import json
import secrets

import pytest

import datasets
from hdfs_utils.paths import RemotePath
from mapreduce.data.copying import copy

SPACE = "--model", "mlp:4..16|softmax", "--learning-rate", "log:0.01..1", "--epochs", 2


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    """Rows on HDFS, since the commands in a table name their path."""
    folder = tmp_path_factory.mktemp("searches")
    datasets.blobs(folder / "data")
    remote = RemotePath(f"hdfs:///tests/searches-{secrets.token_hex(4)}")
    copy(folder / "data", remote / "data")
    yield remote
    remote.rmtree()


@pytest.mark.slow
def test_one_table(data, answer):
    tables, models = set(), set()
    ways = "--executor here", "-r inline", "-r parallel --workers 2", "-r hadoop --workers 2"
    for number, how in enumerate(ways):
        start = "search", data / "data", "--run", data / f"{number}", *SPACE, "--trials", 6
        found = json.loads(answer(0, *start, *how.split(), "--json", "-q").out)
        assert (found["ended"], found["state"]) == (6, "ended"), how
        tables.add(found["table_sha256"])
        models.add((data / f"{number}" / "best/result.json").read_bytes())
    assert len(tables) == len(models) == 1
