"""Every command of docs/clusters.md works as it stands there."""

import os
import re

import pytest
from test_readme import ROOT, blocks, shell

from hdfs_utils import cluster as hadoop
from hdfs_utils.cluster import processes
from hdfs_utils.paths import path_of

TEXT = (ROOT / "docs" / "clusters.md").read_text()
SECTION = TEXT.split("\n## ")[1]


@pytest.mark.slow
def test_shell_commands_in_order(own_cluster, tmp_path):
    (tmp_path / "README.md").write_text("a\nb\n")
    found = [shell(f"set -e\n{block}", tmp_path) for block in blocks("sh", SECTION)]
    assert "3 of 3 nodes" in found[0]
    assert found[1].split()[-1] == "2"
    assert "is HEALTHY" in found[1]
    assert hadoop.running() is None
    assert not processes.stop(own_cluster)


@pytest.mark.slow
def test_files_in_other_filesystems(cluster, tmp_path):
    (block,) = blocks("sh", TEXT.split("\n## Data and runs on HDFS and S3\n")[1].split("\n## ")[0])
    try:
        told = shell(f"set -e\n{block}", tmp_path)
        local = shell(
            "gradreduce train copied --run run --model mlp:16 --rounds 20 -r inline --json -q &&"
            "gradreduce train hdfs:///digits/test --run hdfs:///runs/second --model mlp:16 "
            "--rounds 20 --json -q",
            tmp_path,
        )
        assert "hdfs://127.0.0.1:" in told
        assert "1 shards match their digests" in told
        assert len(set(re.findall(r'"model_sha256": "(\w+)"', local))) == 1
    finally:
        for name in ("digits", "runs"):
            path_of(f"{cluster.hdfs_uri}/{name}").rmtree()


# tests/cli/test_far_tables.py has these commands with other tables.
@pytest.mark.long
def test_tables(cluster, tmp_path):
    (block,) = blocks("sh", TEXT.split("\n## Tables on HDFS and S3\n")[1].split("\n## ")[0])
    rows = "".join(f"{i},{i % 7},{'no' if i % 7 > 3 else 'yes'}\n" for i in range(200))
    path_of(f"{cluster.hdfs_uri}/tables/table.csv").write_bytes(f"id,x,label\n{rows}".encode())
    try:
        told = shell(f"set -e\n{block}", tmp_path)
        assert "hdfs:///tables/predictions.csv: 40 predictions" in told
    finally:
        for name in ("tables", "runs"):
            path_of(f"{cluster.hdfs_uri}/{name}").rmtree()


@pytest.mark.long
def test_jobs_and_training(cluster, tmp_path):
    (tmp_path / "README.md").write_text("a b\nb\n")
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    parts = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")}
    try:
        (counts,) = (shell(f"set -e\n{block}", tmp_path) for block in blocks("sh", parts["Jobs"]))
        assert counts == '"a"\t1\n"b"\t2\n'
        told = "".join(
            shell(f"set -e\n{block}", tmp_path) for block in blocks("sh", parts["Training"])
        )
        assert told.count("model_sha256") == 2
        assert "on 360 rows" in told
        assert "==> attempt_" in told
    finally:
        for name in ("data", "runs"):
            path_of(f"{cluster.hdfs_uri}/{name}").rmtree()


def test_ports_are_those_of_the_default_folder():
    assert "GRADREDUCE_CLUSTER" in os.environ
    cluster = hadoop.Cluster(*[None] * 2, 19800, *[None] * 3)
    for url in (
        cluster.hdfs_uri,
        cluster.namenode_url,
        cluster.resourcemanager_url,
        cluster.historyserver_url,
    ):
        assert f"`{url}`" in SECTION
