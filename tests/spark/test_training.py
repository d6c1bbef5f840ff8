"""Trainings, predictions and imports on Spark: the bits of every other runner."""

import pytest
from sklearn.datasets import load_digits

import mapreduce

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
