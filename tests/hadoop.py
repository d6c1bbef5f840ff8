"""One real Hadoop for all tests of a session that ask for it, and never the user's own.

The first test with the fixture ``cluster`` starts it, whichever worker of pytest-xdist that is; it
is stopped when the session ends, also by Ctrl-C. Such tests run one at a time, and find all
processes of the cluster alive, whatever the test before has killed. They are marked ``cluster``:
by themselves, if they name the fixture. ``secure`` is another cluster, with Kerberos, for those
that are commands of their own.

Without Java or Maven they are skipped, and fail if ``GRADREDUCE_REQUIRE_CLUSTER`` is set.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hdfs_utils import cluster as hadoop
from hdfs_utils.cluster import artifacts, java
from hdfs_utils.errors import DownloadError, RequirementError

_PREFIX = f"gradreduce-cluster-{os.getuid()}-"
#: Temporary files of tests may be in memory (conftest.py).
_DISK = Path(os.environ.get("GRADREDUCE_TESTS_DISK") or tempfile.gettempdir())


def pytest_configure(config):
    """Give all tests a cluster's folder of their own; workers get it by the environment."""
    if not hasattr(config, "workerinput"):
        folder = _DISK / f"{_PREFIX}{os.getpid()}"
        config.stash[_FOLDER] = folder
        os.environ["GRADREDUCE_CLUSTER"] = str(folder)


def pytest_unconfigure(config):
    """Stop what the session has started."""
    folder = config.stash.get(_FOLDER, None)
    for place in (folder, *folder.parent.glob(f"{folder.name}-*")) if folder else ():
        if place.exists():
            _discard(place)


def pytest_collection_modifyitems(items):
    for item in items:
        if {"cluster", "own_cluster", "secure"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")
    # All with one worker of pytest-xdist, which begins with them: none waits for another's.
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Tests on the cluster run one at a time."""
    if not item.get_closest_marker("cluster"):
        return (yield)
    with _lock("test"):
        return (yield)


def _missing(reason):
    reason = f"needs a real Hadoop: {reason}"
    if os.environ.get("GRADREDUCE_REQUIRE_CLUSTER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def _hadoop():
    """Hadoop is here, and nothing is left of killed sessions."""
    _discard_stale()
    try:
        java.find()
        artifacts.assemble(lambda *_: None)
    except (RequirementError, DownloadError) as error:
        _missing(error)


@pytest.fixture(scope="session")
def cluster(_hadoop):
    """A Hadoop of three nodes; each counts two GPUs."""
    with _lock("start"):
        return hadoop.up(gpus=2)


@pytest.fixture(scope="session")
def secure(_hadoop):
    """A Hadoop of one node, with Kerberos: the environment of those who use it."""
    with _lock("start"), _in(_other("secure")) as folder:
        found = hadoop.up(1, secure=True)
    return os.environ | found.environment() | {"GRADREDUCE_CLUSTER": str(folder)}


@pytest.fixture
def own_cluster(_hadoop):
    """A folder for a cluster of a test's own, which ends with the test."""
    with _in(_other("own")) as folder:
        yield folder
    _discard(folder)


@pytest.fixture(autouse=True)
def _all_alive(request):
    """What an earlier test has killed runs again."""
    is_ours = "secure" not in request.fixturenames
    if is_ours and request.node.get_closest_marker("cluster"):
        request.getfixturevalue("cluster")
        hadoop.up()


@contextlib.contextmanager
def _lock(name):
    folder = Path(os.environ["GRADREDUCE_CLUSTER"])
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / f"{name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _discard_stale():
    """Stop what a killed session left behind."""
    for folder in _DISK.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _discard(folder)


def _discard(folder):
    with _in(folder):
        hadoop.down()
    shutil.rmtree(folder, ignore_errors=True)


def _other(kind):
    """The folder of a cluster beside that of the session."""
    return Path(f"{os.environ['GRADREDUCE_CLUSTER']}-{kind}")


@contextlib.contextmanager
def _in(folder):
    """Have another folder for the cluster."""
    before = os.environ["GRADREDUCE_CLUSTER"]
    os.environ["GRADREDUCE_CLUSTER"] = str(folder)
    try:
        yield folder
    finally:
        os.environ["GRADREDUCE_CLUSTER"] = before


_FOLDER = pytest.StashKey[Path]()
