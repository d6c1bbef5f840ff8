"""The commands of docs/emr.md work as they stand there, on moto."""

import json
import os
import re

import pytest
from test_readme import ROOT, blocks, shell

from hdfs_utils.paths import path_of

TEXT = (ROOT / "docs" / "emr.md").read_text()


@pytest.mark.slow
def test_commands_in_order(emr, tmp_path, monkeypatch):
    conf = tmp_path / "mrjob.conf"
    conf.write_text(json.dumps({"runners": {"emr": {"check_cluster_every": 0.1}}}))
    monkeypatch.setenv("MRJOB_CONF", str(conf))
    (tmp_path / "README.md").write_text("a b\nb\n")
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    *_, block = blocks("sh", TEXT)
    told = shell(f"set -e\n{block}", tmp_path)
    assert sorted(told.splitlines()[:2]) == ['"a"\t1', '"b"\t2']
    assert "on 360 rows" in told
    inline = shell(
        "gradreduce train data/train --run run --batch-size 512 --rounds 3 -r inline", tmp_path
    )
    assert re.search(r"model_sha256 \w+", inline)[0] in told
    # One for the job, and one for all of the training, which has ended with it.
    assert len(emr.requests) == 2
    found = {cluster.id: cluster for cluster in emr.clusters if len(cluster.steps) == 3}
    ((name, cluster),) = found.items()
    assert [step.state for step in cluster.steps] == ["COMPLETED"] * 3
    assert cluster.state in ("TERMINATING", "TERMINATED")
    events = path_of("s3://bucket/runs/digits/events.jsonl").read_text()
    assert re.findall(r'"application": "([^"]+)"', events) == [name]
    # Clients of S3 on the nodes have to know the region.
    assert {one["AWS_REGION"] for one in emr.environments} == {"us-east-1"}


@pytest.mark.slow
def test_a_rehearsal_needs_no_account(tmp_path, monkeypatch):
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MRJOB_CONF", os.devnull)
    (tmp_path / "README.md").write_text("a b\nb\n")
    for name in ("jobs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    install, command = blocks("sh", TEXT)[1].splitlines()
    assert install.startswith("pip install ")
    assert sorted(shell(command, tmp_path).splitlines()) == ['"a"\t1', '"b"\t2']


@pytest.mark.slow
def test_the_dry_run_needs_no_credentials(tmp_path, monkeypatch):
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    # Whoever calls AWS gets no answer.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "README.md").write_text("a b\nb\n")
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    (conf,), (shown,) = blocks("yaml", TEXT), blocks("text", TEXT)
    (tmp_path / "mrjob.conf").write_text(conf)
    install, command = blocks("sh", TEXT)[0].splitlines()
    assert install.startswith("pip install ")
    found = shell(command, tmp_path)
    assert found.startswith(shown)
    assert re.search(r"^steps +mapper, combiner, reducer$", found, re.M)
    assert "pip install -q numpy==" in found


def test_defaults_are_those_of_the_runner():
    from mapreduce.runners.emr.runner import RELEASE, EmrMRJobRunner

    assert f"`emr-{RELEASE}`" in TEXT
    options = EmrMRJobRunner._default_opts()
    for name in ("iam_service_role", "iam_instance_profile"):
        assert f"`{options[name]}`" in TEXT
    assert f"| {options['check_cluster_every']} seconds |" in TEXT
    known = EmrMRJobRunner.OPT_NAMES | {"executor", "numeric_profile", "gpus_per_task"}
    for flag in re.findall(r"`--([a-z-]+)", TEXT):
        assert flag.replace("-", "_") in known, flag
