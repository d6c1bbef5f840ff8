"""Check finds the mistake that each job of ``jobs/wrong`` makes, and none in the right one."""

import re
from pathlib import Path

import pytest

from mapreduce.checking.checker import Checker
from mapreduce.explaining.engine import tracing
from mapreduce.launch.load import load_job
from quick import each

JOBS = Path(__file__).parents[3] / "jobs"
WRONG = sorted(path for path in (JOBS / "wrong").glob("*.py") if path.stem != "__init__")

#: Faults that do not change what comes out, or its last digits only.
WARNINGS = {"arrival_order_sums", "skewed_key"}


def told(path, name):
    return re.search(rf"^{name}: (.*)$", path.read_text(), re.M)[1]


def inputs(path):
    """The samples that lie beside the jobs, in the place of what a machine has."""
    found = re.findall(r"jobs\.inputs ([a-z ]+)\)", path.read_text())
    names = found[-1].split() if found else []
    samples = [JOBS / "data" / f"{name}.tsv" for name in names]
    return [str(one) for one in samples if one.exists()] or [str(JOBS / "data" / "README.md")]


def states(path, given, *laws, lines=1000):
    with tracing(load_job(str(path)), given, 60, lines) as runner:
        return [one.state for one in Checker(runner, str(path), given, 0).findings(laws)]


@pytest.mark.slow
@pytest.mark.parametrize("path", each(2, WRONG), ids=lambda path: path.stem)
def test_the_fault_is_found_and_the_right_job_passes(path):
    law, given = told(path, "shown by"), inputs(path)
    expected = "warning" if path.stem in WARNINGS else "broken"
    assert states(path, given, law) == [expected]
    right = JOBS.parent / told(path, "right")
    assert {*states(right, given, law)} <= {"obeyed", "skipped"}


def test_there_are_pairs():
    assert len(WRONG) == 10


#: Of a job of the ladder: what its command needs beside the samples.
ARGUMENTS = {
    "grep": ["-e", "a"],
    "frequent_itemsets": ["--size", "2", "--support", "5"],
    "breadth_first": ["--start", "json"],
    "top_k": ["-k", "3"],
    "matrix_product": ["--rows", "4", "--columns", "4", "--block", "2"],
    "replicated_join": ["--countries", str(JOBS / "data" / "countries.tsv")],
    "bloom_join": ["--section", "shells", "--packages", str(JOBS / "data" / "packages.tsv")],
    "total_sort": ["--sample", str(JOBS / "data" / "releases.tsv")],
    "k_means": ["--centres", str(JOBS / "data" / "flowers.tsv")],
}
#: Few of whose lines give no output, or are links to pages that they do not have.
WHOLE = ("bloom_join", "frequent_itemsets", "matrix_product", "page_rank")
OTHERS = ("__init__", "inputs", "train", "predict")
RUNGS = [path for path in sorted(JOBS.glob("*.py")) if path.stem not in OTHERS]


@pytest.mark.slow
@pytest.mark.parametrize("path", each(8, RUNGS), ids=lambda path: path.stem)
def test_every_rung_obeys_the_laws_of_values_and_keys(path):
    given = [*ARGUMENTS.get(path.stem, []), *inputs(path)]
    found = states(
        path, given, "iteration", "values", "state", lines=1000 if path.stem in WHOLE else 40
    )
    assert len(found) == 3
    assert {*found} <= {"obeyed", "skipped"}


def test_there_are_rungs():
    assert len(RUNGS) == 35
