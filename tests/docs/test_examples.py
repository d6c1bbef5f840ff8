"""The Examples sections of docstrings: what they show is what comes out."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mapreduce", "kernels", "hdfs_utils")


def modules():
    """Names of the modules whose docstrings have examples."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    for path in paths:
        if ">>> " in path.read_text("utf-8"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__")


def test_there_are_examples():
    assert "mapreduce.training.api.training" in set(modules())


@pytest.mark.every_case
@pytest.mark.parametrize("name", [*modules()])
def test_examples(name, tmp_path):
    found = doctest.testmod(
        importlib.import_module(name), extraglobs={"folder": tmp_path}, verbose=False
    )
    assert found.attempted
    assert found.failed == 0
