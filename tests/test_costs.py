"""What a test may cost."""

import json
from pathlib import Path

import costs
from quick import cases

TESTS = Path(__file__).parent


@cases(
    "seconds, slowness, is_over",
    (7.4, 1, False),
    (7.6, 1, True),
    (14, 2, False),
    (16, 2, True),
    (7.6, 0.2, True),
)
def test_a_slower_machine_has_more_time(seconds, slowness, is_over):
    why = costs.over("tests/a.py::test_b[c]", seconds, slowness)
    assert bool(why) == is_over
    if why:
        assert why.startswith(f"tests/a.py::test_b[c] took {seconds:.1f} s of processor time")


def test_what_is_slow_anyway_has_more():
    assert not costs.over("tests/a.py::test_b", 29, 1, costs.SLOW_LIMIT)
    assert costs.over("tests/a.py::test_b", 31, 1, costs.SLOW_LIMIT)


def test_exempt_tests_are_there_and_may_take_any_time():
    for test, law in costs.EXEMPT.items():
        file, _, name = test.partition("::")
        function = name.rpartition("::")[2]
        assert f"def {function}(" in (TESTS.parent / file).read_text()
        assert law
        assert not costs.over(f"{test}[case]", 1000, 1)


SESSION = """\
import time
import pytest


@pytest.fixture(scope="module")
def shared():
    busy()


def busy():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass


def test_cheap(shared):
    pass


def test_dear():
    busy()


@pytest.mark.long
def test_long():
    busy()
"""


def test_a_dear_test_fails_and_what_is_shared_counts_apart(pytester, monkeypatch):
    """In a process of its own, with a limit of a few milliseconds."""
    pytester.makeini("[pytest]\nmarkers =\n    long\n    cluster\n")
    pytester.makeconftest(
        f"import sys\nsys.path.append({str(TESTS)!r})\nimport costs\n"
        "costs.LIMIT, costs.ROOM, costs.DEAREST = 0.04, 1.0, 1\n"
        "costs._loop = lambda: costs.REFERENCE\n"
        "pytest_plugins = ['costs']\n"
    )
    pytester.makepyfile(test_one=SESSION)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(pytester.path / "none"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    (table := pytester.path / "costs.json").write_text('{"before": {}}')
    arguments = ["-p", "no:cacheprovider", "-p", "no:xdist", f"--costs-by-file={table}"]
    done = pytester.runpytest_subprocess(*arguments)
    done.assert_outcomes(passed=3, errors=1)
    done.stdout.fnmatch_lines(["*test_one.py::test_dear took 0.* s of processor time*"])
    done.stdout.fnmatch_lines(["*s of what they share*"])
    before, (session, lanes) = json.loads(table.read_text()).items()
    assert before == ("before", {})
    assert session.endswith(" ".join(arguments))
    ((lane, files),) = lanes.items()
    assert (lane, [*files]) == ("unit", ["test_one.py"])
    # The dear test, and the long one; what they share counts apart.
    assert files["test_one.py"] >= 0.1
