"""Lanes of tests, by what they need and cost; ``pytest --lane process`` takes one of them.

Every test is in one lane. `docs/` has pages whose commands are run, `cuda` what Numba's simulator
computes, `cluster` what needs a real Hadoop, and `process` what is about processes: commands,
runners, executors, faults. The others, `unit`, compute in the process of pytest, most of them by
the executor `here`; but a few start a process where their subject does.
"""

import pytest

#: Folders and files of lanes, below ``tests/``.
LANES = {
    "docs": ("docs/",),
    "cuda": (
        "benchmarks/test_cuda.py",
        "kernels/test_cuda.py",
        "kernels/test_cuda_simulator.py",
        "mapreduce/models/test_networks_on_cuda.py",
        "mapreduce/strategies/test_device.py",
    ),
    "process": (
        "benchmarks/",
        "cli/",
        "faults/",
        "jobs/",
        "mapreduce/cli/",
        "mapreduce/executors/",
        "mapreduce/exercises/",
        "mapreduce/launch/",
        "mapreduce/runners/",
        "mapreduce/serving/",
        "test_bits.py",
        "test_mnist.py",
        "test_startup.py",
    ),
}
NAMES = ("unit", "process", "cluster", "docs", "cuda")


def lane_of(test: str, needs_cluster: bool) -> str:
    """The lane of a test, by its path below the clone."""
    if needs_cluster:
        return "cluster"
    path = test.removeprefix("tests/")
    return next((lane for lane, places in LANES.items() if path.startswith(places)), "unit")


def pytest_addoption(parser):
    parser.addoption("--lane", choices=NAMES, help="the tests of one lane alone")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Chooses once it is known which tests need a real Hadoop (tests/hadoop.py)."""
    if not (lane := config.getoption("lane")):
        return
    taken, others = [], []
    for item in items:
        is_taken = lane_of(item.nodeid, bool(item.get_closest_marker("cluster"))) == lane
        (taken if is_taken else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = taken
