"""The processor time of each test, with that of all processes that it starts.

Each process that runs tests lives in a control group (cgroup v2) of its own, together with all that
it starts: so commands count that are forked from a process of an earlier test (tests/warm.py), and
daemons, which ``RUSAGE_CHILDREN`` does not see. Where no control group can be made, only children
that were waited for count, and the report says so.

What several tests share is counted apart: fixtures of modules and sessions, and the start of the
process that commands are forked from.

The dearest tests are printed at the end; ``--costs=FILE`` writes those of all tests, and
``--costs-by-file=FILE`` adds this session to a JSON file of seconds by lane and file.

A test that takes over :data:`LIMIT` seconds fails, and one that is marked ``slow`` if it takes over
:data:`SLOW_LIMIT`, unless it is marked ``long`` or ``cluster``, or :data:`EXEMPT` says which law it
alone shows. These are seconds of the machine on which :data:`REFERENCE` was measured: a test over
the limit is judged by how long a fixed loop takes right after it, so that slower and busier
machines have more. A test during which a kernel was compiled is not judged: whichever comes first
pays for that.
"""

import atexit
import json
import os
import resource
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from lanes import lane_of

#: So many tests are printed.
DEAREST = 25

#: Seconds of processor time that a test may take.
LIMIT = 5.0
#: And one that ``make test`` leaves out anyway.
SLOW_LIMIT = 20.0
#: Seconds of processor time that :func:`_loop` takes on the machine of :data:`LIMIT`, at rest.
REFERENCE = 0.011
#: A machine may have been so many times busier during the test than after it.
ROOM = 1.5

#: Tests that may take more, each with the law that no other test shows.
EXEMPT = {
    "tests/kernels/test_cuda_simulator.py::test_suites_pass_in_the_simulator": (
        "the values of every CUDA kernel, where there is no GPU"
    ),
    "tests/mapreduce/exercises/test_grading.py::test_a_class": (
        "submissions that run until their time is over leave the others their grades"
    ),
    "tests/mapreduce/exercises/test_grading.py::test_every_hostile_kind": (
        "no hostile submission gets points, or leaves anything behind"
    ),
    "tests/faults/test_driver.py::test_killed_at_every_boundary": (
        "a driver may be killed before and after any call that changes the file system"
    ),
    "tests/docs/test_pages.py::TestExplain::test_commands": (
        "each command of the page obeys, and each law is asked for"
    ),
    "tests/docs/test_emr_page.py::test_commands_in_order": (
        "the page's commands lead from a first job to a cluster that has ended"
    ),
    "tests/docs/test_site.py::test_the_site": (
        "the site builds without a warning, and every link leads somewhere"
    ),
}

_PREFIX = "gradreduce-tests-"
_PROPERTY = "processor seconds"
#: The variable that names the test which runs.
_TEST = "PYTEST_CURRENT_TEST"


def pytest_addoption(parser):
    parser.addoption("--costs", metavar="FILE", help="write the processor time of each test")
    parser.addoption(
        "--costs-by-file", metavar="FILE", help="add this session's seconds by file to a JSON file"
    )


class _Group:
    """A control group for this process and all that it starts from here on."""

    def __init__(self) -> None:
        #: Seconds of the current test that count apart.
        self.apart, self.is_apart = 0.0, False
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


@contextmanager
def apart() -> Iterator[None]:
    """Leave what is done in the block out of the cost of the test that happens to come first."""
    if not _groups or _groups[0].is_apart:
        yield
        return
    (group,) = _groups
    begin, group.is_apart = group.seconds(), True
    try:
        yield
    finally:
        group.apart += group.seconds() - begin
        group.is_apart = False


def over(test: str, seconds: float, slowness: float, limit: float = LIMIT) -> str:
    """Why a test fails that took so much processor time; empty if it does not.

    ``slowness`` is how many times longer than on the machine of :data:`LIMIT` anything takes.
    """
    own, limit = limit, limit * ROOM * max(slowness, 1)
    if seconds <= limit or test.partition("[")[0] in EXEMPT:
        return ""
    return (
        f"{test} took {seconds:.1f} s of processor time, with all that it started: expected at "
        f"most {limit:.1f} (tests/costs.py, {own:g} on a machine {max(slowness, 1) * ROOM:.1f} "
        "times as fast). Share what it only reads, take less data or fewer rounds, run commands "
        "in this process; or mark it long"
    )


def _loop() -> float:
    """Seconds of processor time for a fixed amount of Python and NumPy."""
    begin = time.process_time()
    total = 0
    for number in range(150_000):
        total += number * number % 7
    square = np.sqrt(np.arange(160 * 160, dtype=np.float64).reshape(160, 160))
    for _ in range(10):
        square = np.sqrt(square @ square)
    np.sort(square.ravel() * 7919 % 1)
    return time.process_time() - begin


def _compiled_since(moment: float) -> bool:
    """Whether any process has compiled a kernel for Numba's cache since then."""
    place = os.environ.get("NUMBA_CACHE_DIR", Path(__file__).parents[1] / ".cache" / "numba")
    with suppress(OSError):
        return any(path.stat().st_mtime >= moment for path in Path(place).rglob("*.nb[ic]"))
    return True


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    stash = item.config.stash
    if _GROUP not in stash:
        stash[_GROUP] = _Group()
        _groups.append(stash[_GROUP])
    stash[_GROUP].apart = 0.0
    item.stash[_BEGIN] = stash[_GROUP].seconds(), time.time()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    if fixturedef.scope == "function":
        return (yield)
    with apart():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        group, (begin, moment) = item.config.stash[_GROUP], item.stash[_BEGIN]
        cost, shared = group.seconds() - begin - group.apart, group.apart
        told = round(cost, 4), round(shared, 4), group.counts_all
        report.user_properties.append((_PROPERTY, told))
        is_free = any(map(item.get_closest_marker, ("long", "cluster")))
        if report.passed and cost > LIMIT and not is_free and not _compiled_since(moment):
            slowness = statistics.median(_loop() for _ in range(5)) / REFERENCE
            limit = SLOW_LIMIT if item.get_closest_marker("slow") else LIMIT
            if why := over(item.nodeid, cost, slowness, limit):
                report.outcome, report.longrepr = "failed", why
    return report


class _Collector:
    """What is written and printed, where the reports of all processes arrive."""

    def __init__(self, config) -> None:
        self._config = config
        self._costs: dict[str, float] = {}
        self._lanes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._shared = 0.0
        self._counts_all = True

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            cost, shared, counts_all = dict(report.user_properties)[_PROPERTY]
            self._costs[report.nodeid] = cost
            lane = lane_of(report.nodeid, "cluster" in report.keywords)
            self._lanes[lane][report.nodeid.partition("::")[0]] += cost
            self._shared += shared
            self._counts_all &= counts_all

    def pytest_terminal_summary(self, terminalreporter):
        costs = sorted(self._costs.items(), key=lambda cost: -cost[1])
        if path := self._config.getoption("costs"):
            lines = (f"{seconds:.4f}\t{test}\n" for test, seconds in costs)
            Path(path).write_text("".join(lines))
        # Sessions within tests get the same variable PYTEST_ADDOPTS.
        if (path := self._config.getoption("costs_by_file")) and _TEST not in os.environ:
            self._add_to(Path(path))
        if len(costs) < DEAREST:
            return
        counted = "" if self._counts_all else ", without daemons"
        own = f"{sum(self._costs.values()):.0f} s of {len(costs)} tests{counted}"
        terminalreporter.section(f"processor time: {own}, {self._shared:.0f} s of what they share")
        for test, seconds in costs[:DEAREST]:
            terminalreporter.line(f"{seconds:8.2f}s {test}")

    def _add_to(self, path: Path) -> None:
        """Write the seconds of each file, by lanes, under the arguments of this session."""
        sessions = json.loads(path.read_text()) if path.exists() else {}
        lanes = {
            lane: {file: round(seconds, 2) for file, seconds in files.most_common()}
            for lane, files in sorted(self._lanes.items())
        }
        sessions[" ".join(map(str, self._config.invocation_params.args))] = lanes
        path.write_text(json.dumps(sessions, indent=1))


_GROUP = pytest.StashKey[_Group]()
_BEGIN = pytest.StashKey[tuple[float, float]]()
#: That of this process, for what is no hook.
_groups: list[_Group] = []
