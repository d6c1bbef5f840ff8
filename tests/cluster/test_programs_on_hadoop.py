"""A program of one's own on a real Hadoop, where its module comes along."""

import importlib
import secrets
from pathlib import Path

import pytest

import datasets
from hdfs_utils.paths import path_of
from mapreduce.data.copying import copy
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.runs.execution import Execution

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.mark.long
def test_k_means(cluster, tmp_path, monkeypatch, forgotten):
    (text,) = (
        block.partition("```")[0]
        for block in PAGE.read_text().split("```python\n")
        if block.startswith("# k_means.py")
    )
    (tmp_path / "k_means.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("k_means").KMeans
    data = datasets.blobs(tmp_path / "data", (900, 700))
    place = path_of(f"{cluster.hdfs_uri}/tmp/{secrets.token_hex(4)}")
    copy(data.folder, place / "data")
    near, far = (
        kind(str(folder), data.manifest.sha256, clusters=3, limit=3)
        for folder in (data.folder, place / "data")
    )
    begun = Here().advance(near, until=1)
    expected = Here().advance(near)
    assert begun.completed < expected.completed == 3
    for name in ("chain", "gang"):
        executor = Resumable.of(Execution("hadoop", 2, executor=name), place=place / name)
        for _ in range(2):
            # The second time nothing is left to do.
            found = executor.advance(far)
            assert found.completed == 3
            arrays = [one.blocks[0].arrays["centres"].tobytes() for one in (found, expected)]
            assert arrays[0] == arrays[1]
