"""Trainings, predictions and imports on Spark: the bits of every other runner."""

import pytest
from sklearn.datasets import load_digits

import mapreduce
from mapreduce.engine.executor import UnfitError
from mapreduce.errors import UsageError
from mapreduce.runners.spark import contexts

# mrjob unpacks a folder for tasks as Python 3.14 will not by default.
pytestmark = pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")


@pytest.fixture(scope="module")
def digits():
    found = load_digits()
    return found.data[:600].reshape(-1, 8, 8) / 16, found.target[:600]


def trained(digits, folder, model, **options):
    options |= {"run": folder, "rounds": 6, "progress": False, "evaluation": digits}
    run = mapreduce.train(digits, model, **options)
    return run.model_sha256, run.evaluations.to_pydict()


@pytest.mark.parametrize("model", ["softmax", "conv:4x3,batchnorm,relu"])
def test_one_model(digits, model, tmp_path):
    expected = trained(digits, tmp_path / "here", model, executor="here")
    for executor in ("chain", "gang"):
        options = {"runner": "spark", "executor": executor, "workers": 2}
        assert trained(digits, tmp_path / executor, model, **options) == expected


def test_a_gang_of_more_ranks_than_slots(digits, tmp_path, monkeypatch, capfd):
    """Both numbers are named; a chain takes the place of the gang, where that is allowed."""
    # As a context of the user's is: it is not started anew.
    monkeypatch.setattr(contexts, "_known", [contexts.get(None, 2)._replace(is_ours=False)])
    options = {"runner": "spark", "executor": "gang", "workers": 3}
    with pytest.raises(UnfitError, match=r"expected at most 2, .* found 3"):
        trained(digits, tmp_path / "gang", "softmax", **options)
    options["gang_fallback"] = "chain"
    found = trained(digits, tmp_path / "chain", "softmax", **options)
    assert "found 3. The rounds are run as a chain" in capfd.readouterr().err
    assert found == trained(digits, tmp_path / "here", "softmax", executor="here")


def test_a_gang_where_spark_may_copy_a_rank(digits, tmp_path):
    conf = contexts.get(None, 2).spark._jsc.sc().conf()
    conf.set("spark.speculation", "true")
    options = {"runner": "spark", "workers": 2}
    try:
        with pytest.raises(UsageError, match="second copy of a rank"):
            trained(digits, tmp_path / "gang", "softmax", executor="gang", **options)
        chain = trained(digits, tmp_path / "chain", "softmax", executor="chain", **options)
    finally:
        conf.set("spark.speculation", "false")
    assert chain == trained(digits, tmp_path / "here", "softmax", executor="here")


def test_slots_are_those_of_cores(monkeypatch):
    """A context may have another number of partitions than of slots."""
    spark = contexts.get(None, 2).spark
    monkeypatch.setattr(type(spark), "defaultParallelism", 200)
    assert contexts._slots(spark, 3) == 2
