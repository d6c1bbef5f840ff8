"""Tests of -r spark: one context for all of a process, since Java takes seconds to start."""

from importlib.util import find_spec

import pytest

WHY = "" if find_spec("pyspark") else "needs PySpark and Java: pip install 'gradreduce[spark]'"


@pytest.fixture(scope="session", autouse=True)
def context():
    """The context, with two slots."""
    if WHY:
        pytest.skip(WHY)
    from mapreduce.runners.spark import contexts

    yield contexts.get(None, 2)
    contexts.stop()
