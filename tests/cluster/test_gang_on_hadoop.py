"""A gang of map tasks on a real Hadoop: the chain's bits, also when one of them is killed."""

import os
import random
import secrets
import sys

import pytest

import datasets
from hdfs_utils.paths import RemotePath
from mapreduce.data.copying import copy
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.rendezvous import Meeting
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

from drills import kill_one, tasks  # isort: skip
import programs

SETTINGS = Settings(
    "mlp:9", optimizer="adam", batch_size=96, rounds=40, checkpoint_every=10, eval_every=20
)
GANG = Execution("hadoop", 3, blocks=3, executor="gang", gang_wait=120)


@pytest.fixture(scope="module")
def data(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gang")
    datasets.blobs(folder / "train", features=9_000)
    remote = RemotePath(f"hdfs:///tests/gang-{secrets.token_hex(4)}")
    copy(folder / "train", remote / "train")
    yield folder, remote
    remote.rmtree()


@pytest.fixture(scope="module")
def expected(data):
    run = driver.create(data[0] / "run", SETTINGS, data[0] / "train", data[0] / "train")
    return driver.train(run, Execution("inline"), 2, Events())


def create(remote, settings=SETTINGS) -> RunDir:
    path = remote / f"run-{secrets.token_hex(4)}"
    return driver.create(path, settings, remote / "train", remote / "train")


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


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])
def test_the_secret_is_for_its_owner_alone(cluster, data, scheme):
    """Under Hadoop's umask of 022; also if the folder was there before, and open to all."""
    root = data[1]
    if scheme == "webhdfs":
        web = cluster.namenode_url.replace("http://", "webhdfs://")
        root = RemotePath(f"{web}{root.path}")
    run = RunDir(root / f"run-{secrets.token_hex(4)}")
    run.path.mkdir()
    for _ in range(2):
        meeting = Meeting.prepare(run)
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


@pytest.mark.slow
def test_the_bits_of_the_chain(data, expected):
    run = create(data[1])
    seen = []
    assert driver.train(run, GANG, 2, Events(seen.append)) == expected
    rounds = [event.completed for event in seen if isinstance(event, RoundCompleted)]
    assert rounds == list(range(1, 41))
    assert len(run.evaluation_losses()) == 2
    assert list((run.path / "gang").iterdir()) == []


@pytest.mark.slow
@pytest.mark.fault
def test_a_rank_is_killed(data, expected, monkeypatch):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    after = random.Random(seed).randint(1, 15)
    run = create(data[1])
    killed = []

    def kill(event):
        if isinstance(event, RoundCompleted) and event.completed >= after and not killed:
            killed.append(kill_one(tasks("mapper")))

    assert driver.train(run, GANG, 2, Events(kill)) == expected
    assert killed[0], "the fault did not happen"


@pytest.mark.slow
def test_a_gang_larger_than_the_cluster(data):
    """Three nodes of 3,072 MB do not hold seven containers of 1,536."""
    run = create(data[1])
    execution = Execution(
        "hadoop", 7, executor="gang", gang_wait=15, mrjob_arguments=("--map-memory", "1536")
    )
    with pytest.raises(TooSmallError, match=r"of 7 tasks of the gang came within 15 s; missing"):
        driver.train(run, execution, 2, Events())
