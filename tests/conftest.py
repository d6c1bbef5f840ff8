"""Settings of all tests."""

import logging
import os
import secrets
import sys
from pathlib import Path

# Before NumPy is loaded: one BLAS thread, as in every process of a run.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

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

# Test files may import mrjob before they import what makes it import on Python 3.12 and later.
compat.install()

# Bring the fixtures ``cluster``, a real Hadoop for tests, and ``emr``, moto's with real steps, and
# the option ``--quick``.
pytest_plugins = ["hadoop", "emr_steps", "quick"]

settings.register_profile("gradreduce", deadline=None, print_blob=True)
settings.load_profile("gradreduce")


@pytest.fixture(autouse=True)
def _no_silence():
    """Undoes what commands in this process do for all that follow: to mrjob's log, by ``-q``."""
    logging.getLogger("mrjob").setLevel(logging.NOTSET)
    os.environ.pop(kernels.QUIET, None)


@pytest.fixture
def pinned(monkeypatch):
    """Lets commands run in this process: they would start it again to set what is set already."""
    for name, value in numeric.environment("native").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def forgotten(monkeypatch):
    """What a test trusts is forgotten when it ends."""
    for name in ("GRADREDUCE_TRUSTED", "GRADREDUCE_TRUSTED_FOLDERS"):
        monkeypatch.setenv(name, "")


@pytest.fixture(scope="session")
def _moto():
    """S3 of moto, in a thread of this process."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


@pytest.fixture
def s3(_moto, monkeypatch):
    """A bucket of moto's S3, as a URI; the environment leads there."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": _moto,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", region_name="us-east-1", endpoint_url=_moto).create_bucket(Bucket="bucket")
    return "s3://bucket"


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.cluster)])
def root(request):
    """A folder of its own on another filesystem."""
    if request.param == "s3":
        yield path_of(f"{request.getfixturevalue('s3')}/{secrets.token_hex(4)}")
    else:
        path = path_of(f"{request.getfixturevalue('cluster').hdfs_uri}/tmp/{secrets.token_hex(4)}")
        yield path
        path.rmtree()
