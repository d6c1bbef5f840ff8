"""``pytest --quick 1``, which is ``make test``: a case of each test that is neither marked ``slow``
nor needs a real Hadoop.

Of a test with many cases it takes the first, and with ``--quick 2`` the last, too, unless the test
is marked ``every_case``; and for each property it draws a few examples, also where the property
names more. ``make test-all`` takes all but those marked ``long``, which ``make test-long`` takes.
"""

import itertools
import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

#: Examples for each property, unless it names fewer.
EXAMPLES = 10


def cases(names: str, *rows: Any, **options: Any) -> pytest.MarkDecorator:
    """Runs a test for each row: a value of the parameter, or a tuple of one for each of several.

    ``names`` are those of the parameters, with commas between them; ``options`` are those of
    pytest's ``parametrize``.
    """
    return pytest.mark.parametrize(names, rows, **options)


def first_of(*values: Any) -> list[Any]:
    """Values of a parameter, of which ``--quick`` takes the first alone.

    A tuple holds a value for each of several parameters.
    """
    rest = [value if isinstance(value, tuple) else (value,) for value in values[1:]]
    return [values[0], *(pytest.param(*value, marks=pytest.mark.slow) for value in rest)]


def each(number: int, values: Iterable[Any]) -> list[Any]:
    """Values of a parameter, of which ``make test-all`` takes the first and each ``number``-th from
    there, and ``make test-long`` the others.
    """
    found = []
    for at, value in enumerate(values):
        marks = [pytest.mark.long] * (at % number > 0)
        found.append(pytest.param(*value if isinstance(value, tuple) else (value,), marks=marks))
    return found


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases in which each value of a parameter meets each value of every other one.

    Each next case is the one that has most pairs which are in none yet.
    """
    columns = [[*axis] for axis in axes]
    cases = [*itertools.product(*map(range, map(len, columns)))]
    pairs = {case: {*itertools.combinations(enumerate(case), 2)} for case in cases}
    missing, chosen = set().union(*pairs.values()), []
    for least in range(len(columns) * (len(columns) - 1) // 2, 0, -1):
        for case in cases:
            if len(pairs[case] & missing) >= least:
                chosen.append(case)
                missing -= pairs[case]
    return [
        tuple(column[at] for column, at in zip(columns, case, strict=True))
        for case in sorted(chosen)
    ]


def pytest_addoption(parser):
    parser.addoption(
        "--quick", type=int, choices=[1, 2], help="so many cases of each test that is quick"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two more than the cores: workers wait for a real Hadoop, and for processes to end."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Chooses once it is known which tests need a real Hadoop (tests/hadoop.py)."""
    if not (number := config.getoption("quick")):
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("cluster"):
            continue
        if item.get_closest_marker("every_case"):
            tests[item.nodeid] = [item]
        else:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    taken = {item for cases in tests.values() for item in (cases[0], cases[-1])[:number]}
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = [item for item in items if item in taken]
    for item in items:
        if is_hypothesis_test(property_ := getattr(item, "obj", None)):
            function = getattr(property_, "__func__", property_)
            own = function._hypothesis_internal_use_settings
            function._hypothesis_internal_use_settings = settings(
                own, max_examples=min(own.max_examples, EXAMPLES)
            )
