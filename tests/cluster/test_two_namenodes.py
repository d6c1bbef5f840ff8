"""HDFS with two name nodes: what runs meanwhile goes on when the other becomes the active one."""

import json
import threading
from collections import Counter

import pytest
from test_clusters_page import TEXT as PAGE
from test_readme import ROOT, blocks, shell

import programs
from hdfs_utils import cluster as hadoop
from hdfs_utils.errors import ClusterError
from hdfs_utils.paths import path_of
from programs import gradreduce, succeed
from quick import cases

pytestmark = pytest.mark.slow

LINES = [f"{i % 7} word" for i in range(400)]


def haadmin(env, *arguments):
    command = [f"{env['HADOOP_HOME']}/bin/hdfs", "haadmin", *arguments]
    return programs.ran(*command, env=env, check=False)


class Failovers(threading.Thread):
    """One failover after another, until the body ends: there was at least one, and none failed."""

    def __init__(self, env):
        super().__init__()
        self._env, self._end, self.codes = env, threading.Event(), []

    def run(self):
        names = ["nn2", "nn1"]  # The page's command made the second one active.
        while not self._end.wait(3):
            self.codes.append(haadmin(self._env, "-failover", *names).returncode)
            names.reverse()

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self._end.set()
        self.join()
        assert self.codes
        assert not any(self.codes)


@cases(
    "executor, options",
    ("gang", "--ha"),
    pytest.param("chain", "--ha --kerberos", marks=pytest.mark.long),
)
def test_jobs_and_trainings_go_on(own_cluster, monkeypatch, tmp_path, executor, options):
    """The page's commands, also with Kerberos, then failovers, then the death of the active one."""
    for name in ("README.md", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (block,) = blocks("sh", PAGE.split("\n## A Hadoop with two name nodes\n")[1].split("\n## ")[0])
    told = shell(f"set -e\n{block.replace('--ha', options)}", tmp_path)
    counts = Counter(line.split("\t")[0] for line in told.splitlines())
    assert counts['"gradreduce"'] == 1
    env = hadoop.require_running().environment()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    place = path_of("hdfs://gradreduce/tests")
    place.mkdir()
    (place / "lines").write_bytes("\n".join(LINES).encode())
    succeed("data", "digits", tmp_path / "data", "-q")
    data = tmp_path / "data" / "test"
    plan = "--model", "mlp:8", "--rounds", 4, "--eval-every", 2, "--quiet", "--json"
    succeed("data", "copy", data, f"{place}/data", "-q")
    digests = [succeed("train", data, "--run", tmp_path / "run", "--eval", data, *plan)]
    with Failovers(env):
        out = succeed("run", "jobs/word_count.py", "-q", "-r", "hadoop", f"{place}/lines")
        where = "--run", f"{place}/{executor}", "--eval", f"{place}/data"
        on = "-r", "hadoop", "--workers", 2, "--executor", executor
        if executor == "gang":
            on = *on, "--gang-wait", programs.PATIENCE
        digests.append(succeed("train", f"{place}/data", *where, *plan, *on))
    counted = Counter(word for line in LINES for word in line.split())
    assert sorted(out.splitlines()) == sorted(f'"{word}"\t{n}' for word, n in counted.items())
    assert len({json.loads(each)["model_sha256"] for each in digests}) == 1
    kill_the_active_one(env, place / "lines")


def kill_the_active_one(env, kept):
    content = kept.read_bytes()
    if haadmin(env, "-getServiceState", "nn1").stdout.strip() != "active":
        assert haadmin(env, "-failover", "nn2", "nn1").returncode == 0
    succeed("cluster", "kill", "namenode", 1)
    assert haadmin(env, "-failover", "--forcefence", "nn1", "nn2").returncode == 0
    assert kept.read_bytes() == content
    status = json.loads(gradreduce("cluster", "status", "--json").stdout)
    assert status["lacks"] == ["the name node is dead"]
    assert status["hdfs"]["namenode"].endswith(str(hadoop.require_running().port + 18))
    succeed("cluster", "start", "namenode", 1)
    assert json.loads(succeed("cluster", "status", "--json"))["state"] == "up"
    with pytest.raises(ClusterError, match=r"is up with two name nodes\. Stop it first"):
        hadoop.up(ha=False)
    hadoop.down()
    with pytest.raises(ClusterError, match=r"an HDFS with two name nodes\. .* --fresh"):
        hadoop.up(ha=False)
    hadoop.up()
    assert kept.read_bytes() == content
