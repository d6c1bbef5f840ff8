"""Each wrong job runs, and is wrong as its docstring says; the right one beside it is not."""

import ast
import os
import re
import sys
from collections import Counter

import pytest
import single_process
from ladder import JOBS, ROOT, comparable

import programs
from mapreduce import run
from mapreduce.launch.run import load_job

WRONG = sorted(path.stem for path in (JOBS / "wrong").glob("[a-z]*.py"))
PACKAGES, RELEASES = JOBS / "data/packages.tsv", JOBS / "data/releases.tsv"
THREE_MAPPERS = ["-D", "mapreduce.job.maps=3", "-D", "mapreduce.job.reduces=2"]


def pairs(job, *inputs, runner="parallel", arguments=THREE_MAPPERS):
    """What a job yields, in an order of its own."""
    job_class = load_job(str(JOBS / job))
    return comparable(run(job_class, inputs, runner=runner, arguments=arguments).pairs)


def alone(name, *inputs):
    lines = [line for path in inputs for line in path.read_text().splitlines()]
    return comparable(getattr(single_process, name)(lines))


@pytest.mark.parametrize("name", WRONG)
def test_the_docstring_can_be_read_by_programs(name):
    text = ast.get_docstring(ast.parse((JOBS / "wrong" / f"{name}.py").read_text()))
    found = dict(re.findall(r"^(wrong because|right|shown by|run me): (.+)$", text, re.M))
    assert len(found) == 4
    assert (ROOT / found["right"]).is_file()
    assert found["run me"].startswith(f"python jobs/wrong/{name}.py ")
    assert len(text.splitlines()[0]) < 80


def means(job, **options):
    return {key: value["mean"] for key, value in pairs(job, PACKAGES, **options)}


def test_mean_of_means():
    right = means("mean_variance.py")
    wrong = means("wrong/mean_of_means.py")
    assert wrong.keys() == right.keys()
    assert max(abs(wrong[section] / right[section] - 1) for section in right) > 0.1
    # A section with one package has one mean.
    assert wrong["database"] == right["database"]


def test_one_mapper():
    right = alone("distinct", PACKAGES)
    assert pairs("distinct.py", PACKAGES) == right
    assert pairs("wrong/one_mapper.py", PACKAGES, arguments=["-D", "mapreduce.job.maps=1"]) == right
    wrong = pairs("wrong/one_mapper.py", PACKAGES)
    assert {need for _, need in wrong} == {need for _, need in right}
    assert len(wrong) > len(right)


@pytest.mark.slow
def test_order_of_values():
    one = ["-D", "mapreduce.job.maps=1"]
    right = alone("reduce_join", PACKAGES, RELEASES)
    for files in ((PACKAGES, RELEASES), (RELEASES, PACKAGES)):
        assert pairs("reduce_join.py", *files, arguments=one) == right
    # Each package with its row first: then, and only then, nothing is wrong but lone packages.
    wrong = pairs("wrong/order_of_values.py", PACKAGES, RELEASES, arguments=one)
    assert wrong == right
    wrong = pairs("wrong/order_of_values.py", RELEASES, PACKAGES, arguments=one)
    assert len(wrong) == len(right)
    assert not any(pair in right for pair in wrong)


def test_ten_before_nine():
    right = alone("secondary_sort", PACKAGES)
    assert pairs("secondary_sort.py", PACKAGES) == right
    wrong = pairs("wrong/ten_before_nine.py", PACKAGES)
    assert len(wrong) == len(right)
    assert wrong != right
    assert ["admin", [1, "sysvinit-utils", 100]] in wrong
    assert ["admin", [1, "hostname", 46]] in right


def test_hash_seed():
    def chosen(job, seed):
        return programs.ran(
            sys.executable,
            JOBS / job,
            "--no-conf",
            "-q",
            "--fraction",
            "0.3",
            ROOT / "LICENSE",
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout

    assert chosen("wrong/hash_seed.py", 1) == chosen("wrong/hash_seed.py", 1)
    assert chosen("wrong/hash_seed.py", 1) != chosen("wrong/hash_seed.py", 2)
    assert chosen("sample.py", 1) == chosen("sample.py", 2) != ""


@pytest.mark.slow
def test_values_twice():
    assert means("wrong/values_twice.py") == means("mean_variance.py")
    wrong = [pair[1] for pair in pairs("wrong/values_twice.py", PACKAGES)]
    assert {value["variance"] for value in wrong} == {0.0}
    assert pairs("mean_variance.py", PACKAGES) == alone("mean_variance", PACKAGES)


@pytest.mark.slow
def test_skewed_key():
    def hottest_share(job):
        instance = load_job(str(JOBS / job))([])
        keys = Counter(
            str(key)
            for line in PACKAGES.read_text().splitlines()
            for key, (tag, _) in instance.mapper(None, line)
            if tag == "B"
        )
        return max(keys.values()) / keys.total()

    assert hottest_share("wrong/skewed_key.py") > 0.25
    assert hottest_share("salted_join.py") < 0.1
    right = alone("salted_join", PACKAGES)
    assert pairs("wrong/skewed_key.py", PACKAGES) == pairs("salted_join.py", PACKAGES) == right


@pytest.mark.slow
def test_arrival_order_sums():
    flowers = JOBS / "data/flowers.tsv"

    def by_cut(job):
        cuts = [["-D", f"mapreduce.job.maps={maps}"] for maps in (1, 2, 3)]
        return [pairs(job, flowers, arguments=cut) for cut in cuts]

    one, two, three = by_cut("wrong/arrival_order_sums.py")
    assert one != two or one != three
    for first, other in zip(one, three, strict=True):
        assert first[0] == other[0]
        assert first[1] == pytest.approx(other[1], rel=1e-12)
    assert by_cut("exact_sum.py") == [alone("exact_sum", flowers)] * 3


@pytest.mark.slow
def test_split_edge():
    text = ROOT / "LICENSE"
    right = alone("split_reader", text)
    for maps in (1, 2, 5):
        arguments = ["-D", f"mapreduce.job.maps={maps}"]
        assert pairs("split_reader.py", text, arguments=arguments) == right

        def lines(found):
            return sum(count for _, count in found)

        wrong = lines(pairs("wrong/split_edge.py", text, arguments=arguments))
        # An edge that happens to be between two lines is the worst: the second one is lost whole.
        assert wrong == lines(right) - (maps - 1)


@pytest.mark.slow
def test_tuple_comes_back():
    assert pairs("wrong/tuple_comes_back.py", PACKAGES, RELEASES) == []
    assert pairs("reduce_join.py", PACKAGES, RELEASES) != []
    # By hand it works, which is why it is believed.
    job = load_job(str(JOBS / "wrong/tuple_comes_back.py"))([])
    ((name, row),) = job.mapper(None, "bash\t5.2-1\t2022-12-01")
    assert list(job.reducer(name, iter(["shells", row]))) == [
        ("bash", ["shells", "5.2-1", "2022-12-01"])
    ]
