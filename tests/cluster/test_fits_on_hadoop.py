"""Fits without gradients on a real Hadoop, with rows and rounds on HDFS, have the bits of here."""

import json
import secrets

import numpy as np
import pytest

from hdfs_utils.paths import RemotePath
from mapreduce.data.copying import copy
from mapreduce.data.importer import Rows, Source, import_rows
from quick import cases


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    """The same rows here and on HDFS: two units of the trees, and more of other models."""
    random = np.random.default_rng(0)
    x = 5 * random.integers(0, 3, (40_000, 1)) + random.normal(size=(40_000, 4)) * [1, 2, 3, 4]
    folder = tmp_path_factory.mktemp("fits")
    rows = Rows(x, x[:, 0] - x[:, 3])
    import_rows(Source([rows], (4,), 1.0, x.nbytes, {"format": "test"}), folder / "data", 4)
    remote = RemotePath(f"hdfs:///tests/fits-{secrets.token_hex(4)}")
    copy(folder / "data", remote / "data")
    yield folder, remote
    remote.rmtree()


@pytest.mark.long
@cases(
    "model, executor",
    ("boosting:trees=1,leaves=2", "chain"),
    ("boosting:trees=20,leaves=8", "gang"),
    ("k-means:3", "gang"),
    ("pca:2", "chain"),
    ("ridge:0.1", "chain"),
)
def test_one_model(data, answer, model, executor):
    """What units of the trees own is in files of HDFS, some of which refer to earlier ones."""
    found = []
    for place, how in zip(data, ("", f"-r hadoop --workers 2 --executor {executor}"), strict=True):
        run = place / secrets.token_hex(4)
        options = "--run", run, "--model", model, "--json", *how.split()
        summary = json.loads(answer(0, "train", place / "data", *options).out)
        found.append((summary["model_sha256"], summary["completed"]))
        assert summary["state"] == "ended"
    assert found[0] == found[1]
