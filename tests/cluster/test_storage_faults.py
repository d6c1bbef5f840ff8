"""HDFS loses blocks, or has no space: no other bytes, and nothing half-written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import RemotePath
from mapreduce.data.copying import copy
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import CheckpointSaved, Events
from mapreduce.training import creating, driver
from programs import wait_until

from drills import INLINE, SAVING, SETTINGS, hdfs, train  # isort: skip

pytestmark = pytest.mark.fault


def replicas(cluster, path: Path) -> list[Path]:
    """Files of the data nodes that hold the one block of a file."""
    content = path.read_bytes()
    found = []
    for block in sorted(cluster.data.rglob("blk_*")):
        # Data nodes remove what was deleted when they come to it.
        with contextlib.suppress(FileNotFoundError):
            if block.stat().st_size == len(content) and block.read_bytes() == content:
                found.append(block)
    return found


def damage(block: Path) -> None:
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes(content)


@pytest.mark.long
def test_replicas_are_corrupted(cluster, drill_data, expected):
    """Row 10."""
    folder = drill_data[1] / "corrupted"
    copy(drill_data[0] / "train", folder / "train")
    entry = Dataset(drill_data[0] / "train").manifest.shards[0]
    # The other datasets' replicas have the same content.
    before = {block.name for block in replicas(cluster, drill_data[0] / "train" / entry.file)}
    hdfs(cluster, "dfs", "-rm", "-skipTrash", folder / "train" / entry.file)
    (folder / "train" / entry.file).write_bytes((drill_data[0] / "train" / entry.file).read_bytes())

    def added() -> list[Path]:
        found = replicas(cluster, drill_data[0] / "train" / entry.file)
        return [block for block in found if block.name not in before]

    # The file is closed as soon as one node has reported its block.
    wait_until(lambda: len(added()) == 3)
    blocks = added()
    for number, block in enumerate(blocks[:2]):
        damage(block)
        run = creating.create(folder / f"run-{number}", SETTINGS, folder / "train", None)
        assert train(run, execution=INLINE) == expected
    damage(blocks[2])
    run = creating.create(folder / "run", SETTINGS, folder / "train", None)
    with pytest.raises((DataError, StorageError), match=entry.file):
        train(run, execution=INLINE)
    assert run.read_json("result.json") is None
    assert checkpoint.saved_rounds(run) in ([], [0])


@contextlib.contextmanager
def quota(cluster, folder: RemotePath, size: int) -> Iterator[None]:
    hdfs(cluster, "dfsadmin", "-setSpaceQuota", size, folder)
    try:
        yield
    finally:
        hdfs(cluster, "dfsadmin", "-clrSpaceQuota", folder)


@pytest.mark.slow
def test_the_quota_is_reached(cluster, drill_data, expected):
    """Row 14."""
    folder = drill_data[1] / "quota"
    run = creating.create(folder / "run", SAVING, drill_data[1] / "train", None)

    def full(event):
        if isinstance(event, CheckpointSaved) and event.completed == 1:
            limits.enter_context(quota(cluster, folder, 1))

    with contextlib.ExitStack() as limits:
        with pytest.raises(StorageError, match=r"QuotaExceeded"):
            driver.train(run, INLINE, 2, Events(full))
        assert checkpoint.saved_rounds(run) == [1]
        model = run.config.plan.create_model()
        assert checkpoint.load(run, model, 1).completed == 1
    assert train(RunDir(run.path), execution=INLINE) == expected
    assert list(run.path.rglob("*.tmp")) == []
