"""YARN in client mode, on a real Hadoop: the executors are containers of the cluster."""

import json
import os
import sys
from pathlib import Path

import pytest

import programs
from mapreduce.errors import UsageError
from mapreduce.runners.spark import masters

#: A job of two steps, and trainings, in one application.
DRIVER = """\
import json
import sys
from pathlib import Path

import mapreduce
from jobs.top_k import TopK
from mapreduce.runners.spark import contexts

data, runs = map(Path, sys.argv[1:])
spark = contexts.get("yarn", 2).spark
plan = {"rounds": 12, "progress": False}
models = [mapreduce.train(data, "mlp:8", run=runs / "here", executor="here", **plan).model_sha256]
for executor in ("gang", "chain"):
    options = {"runner": "spark", "executor": executor, "workers": 2, **plan}
    models.append(mapreduce.train(data, "mlp:8", run=runs / executor, **options).model_sha256)
lines = Path("jobs/data/packages.tsv").read_text().splitlines()
answers = [
    sorted(map(str, mapreduce.run(TopK, lines=lines, runner=runner).pairs))
    for runner in ("inline", "spark")
]
print(json.dumps([spark.master, spark.applicationId, models, answers]))
"""


@pytest.mark.long
def test_a_job_and_trainings(cluster, tmp_path):
    programs.succeed("data", "digits", tmp_path / "digits", "-q")
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "TMPDIR": str(tmp_path)}
    command = (sys.executable, script, tmp_path / "digits" / "train", tmp_path / "runs")
    done = programs.ran(*command, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    master, application, models, answers = json.loads(done.stdout.splitlines()[-1])
    assert master == "yarn" and application.startswith("application_")
    assert len({*models}) == 1 and len(models) == 3
    assert answers[0] == answers[1] and answers[0]
    assert [path.name for path in tmp_path.glob("gradreduce-*")] == []


def test_a_folder_without_a_configuration_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(
        UsageError, match=rf"expected yarn-site.xml in HADOOP_CONF_DIR, found {tmp_path}"
    ):
        masters.parse("yarn", 2)


def test_on_another_cluster_nothing_is_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    found = masters.parse("yarn", 3)
    assert not found.is_here and "spark.yarn.jars" not in found.settings
    assert found.settings["spark.executor.instances"] == "3"
    assert not masters.parse("spark://elsewhere:7077", None).is_here
    assert masters.parse("spark://127.0.0.1:7077", None).is_here
