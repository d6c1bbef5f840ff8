"""Chains and gangs on a real Hadoop have the bits of inline, also when a rank is killed.

That every plan has them on every executor is shown without Hadoop, in ``test_bits.py``.
"""

import os
import random
import secrets
import sys
from dataclasses import replace

import pytest

import datasets
from builders import keywords
from hdfs_utils.paths import RemotePath
from mapreduce.cli.main import main
from mapreduce.data.copying import copy
from mapreduce.errors import GradreduceError
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.rendezvous import Meeting
from mapreduce.plan.settings import Settings
from mapreduce.runners.yarn.failures import JobFailedException
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, JobSubmitted, RoundCompleted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.support import cores, traits
from mapreduce.training import creating, driver

from drills import kill_one, tasks  # isort: skip
import programs
from quick import each, first_of

SETTINGS = Settings("mlp:9", optimizer="adam", batch_size=96, rounds=3)
#: Each replica has a state of its own, in messages that are compressed.
REPLICAS = replace(
    SETTINGS,
    **keywords("strategy=averaging replicas=3 replica_state=keep compress=topk:0.05 slice_rows=8"),
)
#: Its class comes with the job; it has a buffer, and dropout.
OWN = replace(
    SETTINGS,
    **keywords("model=running_mean:RunningMean optimizer=momentum rounds=40 checkpoint_every=10"),
    **keywords("eval_every=20"),
)
GANG = Execution("hadoop", 3, blocks=3, executor="gang", gang_wait=120)


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    """The same rows here and on HDFS."""
    folder = tmp_path_factory.mktemp("trainings")
    datasets.blobs(folder / "train", features=9_000)
    remote = RemotePath(f"hdfs:///tests/trainings-{secrets.token_hex(4)}")
    copy(folder / "train", remote / "train")
    yield folder, remote
    remote.rmtree()


def create(place, settings) -> RunDir:
    path = place / f"run-{secrets.token_hex(4)}"
    evaluation = place / "train" if settings.eval_every else None
    return creating.create(path, settings, place / "train", evaluation)


def trained(place, settings, execution):
    """The end of a training, and its events."""
    seen = []
    return driver.train(create(place, settings), execution, 2, Events(seen.append)), seen


def jobs(seen):
    return [event.application for event in seen if isinstance(event, JobSubmitted)]


@pytest.mark.slow
def test_a_chain_of_one_task_does_whole_rounds_within_the_master(data, yarn):
    expected, _ = trained(data[0], SETTINGS, Execution("inline", executor="chain"))
    found, seen = trained(data[0], SETTINGS, Execution("hadoop", 1, executor="chain"))
    assert found == expected
    done = [yarn.job(application) for application in jobs(seen)]
    assert [(job["mapsTotal"], job["reducesTotal"]) for job in done] == [(1, 0)] * 3
    assert all(job["uberized"] for job in done)


@pytest.mark.long
def test_each_of_several_tasks_of_a_chain_has_a_range(data, yarn):
    expected, _ = trained(data[0], REPLICAS, Execution("inline", executor="chain"))
    found, seen = trained(data[0], REPLICAS, Execution("hadoop", 2, executor="chain"))
    assert found == expected
    records = []
    for application in jobs(seen):
        for task in yarn.tasks(application):
            if task["type"] == "MAP":
                told = yarn._of_job(application, f"/tasks/{task['id']}/counters")
                groups = told["jobTaskCounters"]["taskCounterGroup"]
                counters = {one["name"]: one["value"] for each in groups for one in each["counter"]}
                records.append(counters["MAP_INPUT_RECORDS"])
    assert records == [1] * 2 * REPLICAS.rounds


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.parametrize("place", ["hdfs", "here"])
def test_a_gang_whose_rank_is_killed(data, monkeypatch, place):
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    OWN.trust_members()
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    after = random.Random(seed).randint(1, 15)
    expected, _ = trained(data[0], OWN, Execution("inline"))
    run = create(data[place == "hdfs"], OWN)
    rounds, killed, warnings = [], [], []

    def kill(event):
        if isinstance(event, Warned):
            warnings.append(event.message)
        if isinstance(event, RoundCompleted):
            rounds.append(event.completed)
            if event.completed >= after and not killed:
                killed.append(kill_one(tasks("mapper")))

    assert driver.train(run, GANG, 2, Events(kill)) == expected
    assert killed[0], "the fault did not happen"
    assert rounds == list(range(1, 41))
    lost = [warning for warning in warnings if warning.startswith("the gang lost rank ")]
    assert any("as generation 2: " in warning for warning in lost), warnings
    assert len(run.evaluation_losses()) == 2
    assert list((run.path / "gang").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("execution", each(2, [GANG, Execution("hadoop", 2, executor="chain")]))
def test_a_model_that_fails_has_its_history(data, monkeypatch, yarn, capsys, execution):
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    settings = replace(OWN, model="running_mean:Failing", eval_every=None)
    settings.trust_members()
    seen = []
    with pytest.raises((GradreduceError, JobFailedException), match="no gradient"):
        driver.train(create(data[1], settings), execution, 2, Events(seen.append))
    application = jobs(seen)[-1]
    assert yarn.application(application)["finalStatus"] == "FAILED"
    assert main(["logs", application]) == 0
    assert "ValueError: no gradient" in capsys.readouterr().out


@pytest.mark.long
def test_a_gang_larger_than_the_cluster(data):
    """Three nodes of 3,072 MB do not hold seven containers of 1,536."""
    execution = Execution(
        "hadoop", 7, executor="gang", gang_wait=15, mrjob_arguments=("--map-memory", "1536")
    )
    with pytest.raises(TooSmallError, match=r"of 7 tasks of the gang came within 15 s; missing"):
        trained(data[1], SETTINGS, execution)


def test_tasks_at_once_are_no_more_than_cores(cluster, yarn):
    # The masters of jobs that have ended live for some seconds.
    programs.wait_until(lambda: yarn.metrics()["containersAllocated"] == 0)
    assert traits.of("hadoop").tasks_at_once() == min(3 * 3 - 1, cores.available_cores())


LOOKS = """
import sys
from hdfs_utils.errors import StorageError
from hdfs_utils.paths import RemotePath
run = RemotePath(sys.argv[1])
print(sorted(path.name for path in run.iterdir()))
for look in (lambda: [*(run / "gang").iterdir()], (run / f"gang/{sys.argv[2]}.secret").read_bytes):
    try:
        print("seen:", look())
    except (StorageError, FileNotFoundError):
        print("refused")
"""


@pytest.mark.parametrize("scheme", first_of("hdfs", "webhdfs"))
def test_the_secret_is_for_its_owner_alone(cluster, data, scheme):
    """Under Hadoop's umask of 022; also if the folder was there before, and open to all."""
    root = data[1]
    if scheme == "webhdfs":
        web = cluster.namenode_url.replace("http://", "webhdfs://")
        root = RemotePath(f"{web}{root.path}")
    run = RunDir(root / f"run-{secrets.token_hex(4)}")
    run.path.mkdir()
    for _ in range(2):
        meeting = Meeting.prepare(run.path)
        done = programs.ran(
            sys.executable,
            "-c",
            LOOKS,
            str(data[1] / run.path.name),
            meeting.token,
            env=os.environ | {"HADOOP_USER_NAME": "stranger"},
        )
        assert done.stdout.splitlines() == ["['gang']", "refused", "refused"]
        assert len(meeting.secret) == 64
        data[1].storage.filesystem.handler.fs.client.set_permission((run.path / "gang").path, 0o755)
