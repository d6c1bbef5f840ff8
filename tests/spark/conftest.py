"""Tests of -r spark: one context for all of a process, since Java takes seconds to start."""

import contextlib
import json
import os
import random
import socket
from importlib.util import find_spec

import pytest

import programs

WHY = "" if find_spec("pyspark") else "needs PySpark and Java: pip install 'gradreduce[spark]'"


@pytest.fixture(scope="session", autouse=True)
def context():
    """The context, with two slots."""
    if WHY:
        pytest.skip(WHY)
    from mapreduce.runners.spark import contexts

    yield contexts.get(None, 2)
    contexts.stop()


def free_port():
    """A port below those that the system gives to any program that asks for one."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def standalone(tmp_path):
    """The environment and the address of a standalone Spark: two workers, of one core each."""
    port = free_port()
    environment = {**os.environ, "GRADREDUCE_SPARK": str(tmp_path / "spark")}
    try:
        up = programs.succeed("spark", "up", "--json", "--port", port, env=environment)
        yield environment, json.loads(up)["master"]
    finally:
        programs.succeed("spark", "down", env=environment)
    assert not programs.processes_of(str(tmp_path / "spark"))
