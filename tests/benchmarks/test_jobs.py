"""The benchmark of stock jobs: both runners must agree, and are timed."""

import pytest

import mapreduce
from benchmarks import jobs
from benchmarks.common import case
from benchmarks.stock.most_used_word import MostUsedWord
from benchmarks.stock.orders_join import OrdersJoin
from benchmarks.stock.word_places import WordPlaces


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The cat, the hat\nand THE rat\n\nthe end\n" * 5)
    return path


@pytest.mark.parametrize("job", [MostUsedWord, WordPlaces, OrdersJoin])
def test_each_job_runs_as_on_mrjobs_own_runner(text, tmp_path, job):
    path = jobs.write_orders(tmp_path / "orders.csv", 400) if job is OrdersJoin else text
    runs = (mapreduce.run(job, path, runner=runner).pairs for runner in ("inline", "parallel"))
    expected, found = (sorted(pairs, key=repr) for pairs in runs)
    assert found == expected != []


@pytest.mark.slow
def test_both_runners_are_compared_and_timed(text):
    measure = case("Words", limits=jobs.LIMITS)(
        lambda bench: jobs.compare(bench, "word_places", text, "Few.")
    )
    result = measure(quick=True)
    assert len(result.ours) == len(result.peers[jobs.LOCAL]) == 1
    assert result.verdict() == "no limit"
