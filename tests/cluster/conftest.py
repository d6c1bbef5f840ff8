"""A training on a real Hadoop, for the drills."""

import random
import secrets

import pytest

import datasets
from hdfs_utils.paths import RemotePath
from mapreduce.data.copying import copy
from mapreduce.runners.hadoop import installation
from mapreduce.runners.hadoop.rest import Yarn
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver

from drills import SETTINGS  # isort: skip


@pytest.fixture(scope="session")
def drill_data(cluster, tmp_path_factory):
    """The same dataset here and on HDFS."""
    folder = tmp_path_factory.mktemp("faults")
    datasets.blobs(folder / "train")
    remote = RemotePath(f"hdfs:///tests/faults-{secrets.token_hex(4)}")
    copy(folder / "train", remote / "train")
    return folder, remote


@pytest.fixture(scope="session")
def expected(drill_data):
    """The hash that an undisturbed training has inline."""
    run = creating.create(drill_data[0] / "run", SETTINGS, drill_data[0] / "train", None)
    return driver.train(run, Execution("inline"), 2, Events()).model_sha256


@pytest.fixture
def run(drill_data, request):
    path = drill_data[1] / request.node.name
    return creating.create(path, SETTINGS, drill_data[1] / "train", None)


@pytest.fixture
def chance():
    """Chance from a seed that a failed test shows."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def yarn(cluster):
    return Yarn(installation.find())
