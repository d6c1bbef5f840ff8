"""The processor time of each test, with that of all processes that it starts.

Each process that runs tests lives in a control group (cgroup v2) of its own, together with all that
it starts: so commands count that are forked from a process of an earlier test (tests/warm.py), and
daemons, which ``RUSAGE_CHILDREN`` does not see. Where no control group can be made, only children
that were waited for count, and the report says so.

The dearest tests are printed at the end; ``--costs=FILE`` writes those of all tests.
"""

import atexit
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

#: So many tests are printed.
DEAREST = 25

_PREFIX = "gradreduce-tests-"
_PROPERTY = "processor seconds"


def pytest_addoption(parser):
    parser.addoption("--costs", metavar="FILE", help="write the processor time of each test")


class _Group:
    """A control group for this process and all that it starts from here on."""

    def __init__(self) -> None:
        self._before = _own_group()
        self._folder = None
        if self._before is None:
            return
        # Those of earlier sessions, if nothing lives there any more.
        for left in self._before.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                left.rmdir()
        folder = self._before / f"{_PREFIX}{os.getpid()}"
        with suppress(OSError):
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            self._folder = folder
            atexit.register(self._close)

    @property
    def counts_all(self) -> bool:
        """Whether processes count that nobody has waited for."""
        return self._folder is not None

    def seconds(self) -> float:
        """Processor time so far, of this process and of all that it has started."""
        if self._folder is not None:
            name, usage = (self._folder / "cpu.stat").read_text().split(maxsplit=2)[:2]
            assert name == "usage_usec"
            return int(usage) / 1e6
        who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
        return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, who))

    def _close(self) -> None:
        with suppress(OSError):
            (self._before / "cgroup.procs").write_text(str(os.getpid()))
            self._folder.rmdir()


def _own_group():
    """The folder of this process's control group; None where there is no cgroup v2."""
    with suppress(OSError):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        places = [mount[1] for mount in mounts if mount[2] == "cgroup2"]
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if places and line.startswith("0::/"):
                return Path(places[0]) / line.removeprefix("0::/")
    return None


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    stash = item.config.stash
    if _GROUP not in stash:
        stash[_GROUP] = _Group()
    item.stash[_BEGIN] = stash[_GROUP].seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        cost = item.config.stash[_GROUP].seconds() - item.stash[_BEGIN]
        counts_all = item.config.stash[_GROUP].counts_all
        report.user_properties.append((_PROPERTY, (round(cost, 4), counts_all)))
    return report


class _Collector:
    """What is written and printed, where the reports of all processes arrive."""

    def __init__(self, config) -> None:
        self._config = config
        self._costs: dict[str, float] = {}
        self._counts_all = True

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            cost, counts_all = dict(report.user_properties)[_PROPERTY]
            self._costs[report.nodeid] = cost
            self._counts_all &= counts_all

    def pytest_terminal_summary(self, terminalreporter):
        costs = sorted(self._costs.items(), key=lambda cost: -cost[1])
        if path := self._config.getoption("costs"):
            lines = (f"{seconds:.4f}\t{test}\n" for test, seconds in costs)
            Path(path).write_text("".join(lines))
        if len(costs) < DEAREST:
            return
        counted = "" if self._counts_all else ", without daemons"
        total = sum(self._costs.values())
        terminalreporter.section(f"processor time: {total:.0f} s of {len(costs)} tests{counted}")
        for test, seconds in costs[:DEAREST]:
            terminalreporter.line(f"{seconds:8.2f}s {test}")


_GROUP = pytest.StashKey[_Group]()
_BEGIN = pytest.StashKey[float]()
