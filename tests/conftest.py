"""Settings of all tests."""

import contextlib
import logging
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

# Before NumPy is loaded: one BLAS thread, as in every process of a run.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

import clocks
import kernels
from hdfs_utils.paths import path_of
from mapreduce import compat
from mapreduce.support import numeric

# Tests start hundreds of Pythons; each takes three times as long where byte code is not kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
sys.pycache_prefix = os.environ.setdefault(
    "PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".cache" / "pycache")
)

# Temporary files are in memory, where syncing costs a tenth. A real Hadoop stays on the disk,
# and tests of full or odd disks mount their own.
_MEMORY, _ROOM = Path("/dev/shm"), 6 << 30
if not {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & {*os.environ}:
    os.environ["GRADREDUCE_TESTS_DISK"] = tempfile.gettempdir()
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        # What an earlier session has left, as the folders of tests that failed, goes now.
        for left in _MEMORY.glob(f"pytest-{os.getuid()}-*"):
            if not Path("/proc", left.name.rpartition("-")[2]).exists():
                shutil.rmtree(left, ignore_errors=True)
        folder = _MEMORY / f"pytest-{os.getuid()}-{os.getpid()}"
        folder.mkdir()
        # As the one on the disk: some tests become another user.
        folder.chmod(0o1777)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)

# Test files may import mrjob before they import what makes it import on Python 3.12 and later.
compat.install()

# Bring the fixtures ``cluster``, a real Hadoop for tests, ``s3``, moto's, and ``emr``, with real
# steps, the options ``--quick`` and ``--lane``, and the processor time of tests.
pytest_plugins = ["hadoop", "emr_steps", "quick", "lanes", "costs", "memory_pages", "pytester"]

settings.register_profile("gradreduce", deadline=None, print_blob=True)
settings.load_profile("gradreduce")


def pytest_collection_finish():
    clocks.stop()


@pytest.fixture(autouse=True)
def _no_silence():
    """Undoes what commands in this process do for all that follow: to mrjob's log, by ``-q``."""
    for name in ("mrjob", "mrjob.inline"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    os.environ.pop(kernels.QUIET, None)


@pytest.fixture(autouse=True)
def _no_large_files(request):
    """Removes what would fill the memory in which temporary files are; modules are imported on."""
    yield
    for folder, _, names in os.walk(request.node.funcargs.get("tmp_path", "")):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if path.lstat().st_size > 1 << 20:
                    path.unlink()


@pytest.fixture
def pinned(monkeypatch):
    """Lets commands run in this process: they would start it again to set what is set already."""
    for name, value in numeric.environment("native").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def answer(capfd, pinned):
    """Runs a command in this process, which must end with a code; returns what it prints."""
    from mapreduce.cli.main import main

    def run(code, *arguments):
        ended = main([*map(str, arguments)])
        printed = capfd.readouterr()
        assert ended == code, printed.err
        assert "Traceback" not in printed.err
        return printed

    return run


@pytest.fixture
def refused(answer):
    """Runs a command in this process, which must end with a code; returns what it says of that."""
    return lambda code, *arguments: answer(code, *arguments).err


@pytest.fixture
def forgotten(monkeypatch):
    """What a test trusts is forgotten when it ends."""
    for name in ("GRADREDUCE_TRUSTED", "GRADREDUCE_TRUSTED_FOLDERS"):
        monkeypatch.setenv(name, "")


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.cluster)])
def root(request):
    """A folder of its own on another filesystem."""
    if request.param == "s3":
        yield path_of(f"{request.getfixturevalue('s3')}/{secrets.token_hex(4)}")
    else:
        path = path_of(f"{request.getfixturevalue('cluster').hdfs_uri}/tmp/{secrets.token_hex(4)}")
        yield path
        path.rmtree()
