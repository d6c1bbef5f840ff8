"""docs/schedulers.md: its commands work, and its operator runs jobs on a real Hadoop."""

import json
import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest
from test_readme import ROOT, blocks, shell

import mapreduce
from hdfs_utils.paths import RemotePath
from mapreduce.errors import JobError
from mapreduce.runners.hadoop import installation
from mapreduce.runners.hadoop.rest import Yarn
from programs import COUNT, wait_until

TEXT = (ROOT / "docs" / "schedulers.md").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_commands(folder):
    first, submitted = blocks("sh", TEXT)
    report = json.loads(shell(first, folder).partition("{")[2].join(["{", ""]))
    assert (report["state"], report["exit_code"]) == ("succeeded", 0)
    counted = {(folder / name / "part-00000").read_text() for name in ("counted",)}
    assert '"state": "succeeded"' in shell(submitted, folder)
    assert {(folder / "again" / "part-00000").read_text()} == counted
    # It was removed.
    assert not list((folder / "state" / "gradreduce" / "jobs").iterdir())


@pytest.fixture
def operator(monkeypatch):
    """The page's class, with what it asks of Airflow."""

    class BaseOperator:
        def __init__(self, task_id):
            self.task_id, self.log = task_id, logging.getLogger(task_id)

    models = ModuleType("airflow.models")
    models.BaseOperator = BaseOperator
    monkeypatch.setitem(sys.modules, "airflow", SimpleNamespace(models=models))
    monkeypatch.setitem(sys.modules, "airflow.models", models)
    (code,) = blocks("python", TEXT)
    assert len(code.splitlines()) <= 40
    names: dict[str, type] = {}
    exec(code, names)
    return names["MapReduceOperator"]


@pytest.mark.slow
@pytest.mark.cluster
def test_the_operator_submits_polls_fetches_and_cancels(folder, operator, cluster):
    (folder / "count.py").write_text(f"{COUNT}\n\nif __name__ == '__main__':\n    Count.run()\n")
    text = RemotePath("hdfs:///user/schedulers/text.txt")
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_bytes(b"to be or not to be\n")
    asked = {"job": "count.py", "inputs": str(text), "arguments": ["--no-conf"]}
    task = operator(task_id="count", output=f"{text.parent}/counted", **asked)
    id = task.execute({})
    assert sorted(task.pairs(id)) == [("be", 2), ("not", 1), ("or", 1), ("to", 2)]
    report = mapreduce.SubmittedJob(id).status()
    yarn = Yarn(installation.find())
    assert yarn.application(report.applications[-1])["finalStatus"] == "SUCCEEDED"
    assert report.counters[0]["Map-Reduce Framework"]["Map input records"] == 1
    # The same again: its output exists.
    with pytest.raises(JobError, match="exists") as error:
        task.execute({})
    assert error.value.exit_code == 73
    # One that never ends is cancelled once its time is up.
    slow = (
        (folder / "count.py")
        .read_text()
        .replace("for word", "import time\n        time.sleep(600)\n        for word")
    )
    (folder / "slow.py").write_text(slow)
    task = operator(task_id="slow", output=f"{text.parent}/slow", **{**asked, "job": "slow.py"})
    submitted = mapreduce.submit(
        "slow.py", str(text), output=f"{text.parent}/slow", runner="hadoop"
    )
    wait_until(lambda: submitted.status().applications)
    task.submitted = submitted
    task.on_kill()
    assert submitted.status().state == "interrupted"
    (application,) = submitted.status().applications
    wait_until(lambda: yarn.application(application)["finalStatus"] == "KILLED")
    assert not RemotePath(f"{text.parent}/slow").exists()
