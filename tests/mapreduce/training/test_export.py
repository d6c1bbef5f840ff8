"""scikit-learn's estimators with exported parameters predict what the run predicts."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from safetensors import safe_open

import mapreduce
from datasets import blobs
from mapreduce.training.export import fold
from programs import fails, gradreduce, succeed
from quick import cases
from services import drawn


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(name, names=None, *options):
    """The raw features, and their names."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    columns = [name.replace(" ", "_") for name in bunch.feature_names]
    labels = bunch.target if names is None else np.array(names)[bunch.target]
    table = dict(zip([*columns, "label"], [*bunch.data.T, labels], strict=True))
    csv.write_csv(pa.table(table), "table.csv")
    succeed("data", "import", "--dtype", "float64", *options, "table.csv", "data")
    return bunch.data, columns


def predictions(run="run"):
    table = mapreduce.open_run(run).predict("data", runner="inline")
    return table["prediction"].to_numpy(zero_copy_only=False)


TRAIN = ["train", "data", "--run", "run", "--optimizer", "lbfgs", "--l2", "0.01", "-r", "inline"]


@pytest.mark.slow
@cases(
    "name, names, model, estimator",
    ("breast_cancer", None, "logistic", "LogisticRegression"),
    ("breast_cancer", ["bad", "good"], "svm", "LinearSVC"),
    ("wine", ["x", "y", "z"], "softmax", "LogisticRegression"),
    ("diabetes", None, "linear", "LinearRegression"),
)
def test_raw_features_have_the_same_predictions(name, names, model, estimator):
    from sklearn import linear_model, svm

    options = ["--task", "regression"] if model == "linear" else []
    x, columns = imported(name, names, *options)
    succeed(*TRAIN, "-q", "--model", model)
    succeed("export", "run", "--to", "weights.npz")
    found = dict(np.load("weights.npz"))
    other = (svm if model == "svm" else linear_model).__dict__[estimator]()
    other.coef_, other.intercept_ = found["coef_"], found["intercept_"]
    if model == "linear":
        assert "classes_" not in found
        np.testing.assert_allclose(other.predict(x), predictions(), rtol=1e-9)
    else:
        other.classes_ = found["classes_"]
        assert (other.predict(x) == predictions()).all()
    assert found["feature_names"].tolist() == columns
    np.testing.assert_allclose(found["mean_"], x.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found["scale_"], x.std(axis=0))


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_fold(outputs):
    generator = np.random.default_rng(0)
    x, weights = generator.normal(size=(9, 4)), generator.normal(size=(4, *outputs))
    mean, scale, bias = generator.normal(size=4), generator.uniform(1, 9, 4), np.ones(outputs)
    raw, intercept = fold(weights, bias, mean, scale)
    np.testing.assert_allclose(x @ raw + intercept, (x - mean) / scale @ weights + bias)


@pytest.mark.slow
def test_safetensors_have_texts_in_their_metadata():
    imported("wine", ["x", "y", "z"])
    succeed(*TRAIN, "-q", "--model", "softmax")
    run = mapreduce.open_run("run")
    arrays = run.export("weights.safetensors")
    with safe_open("weights.safetensors", "numpy") as file:
        for name in ("coef_", "intercept_", "weight", "mean_"):
            np.testing.assert_array_equal(file.get_tensor(name), arrays[name])
        metadata = {name: json.loads(text) for name, text in file.metadata().items()}
    assert metadata["classes_"] == ["x", "y", "z"]
    assert metadata["feature_names"] == arrays["feature_names"].tolist()


def test_bytes_are_scaled(folder):
    data = blobs(folder / "data", dtype="uint8")
    succeed("train", "data", "--run", "run", "--rounds", 3, "-r", "inline", "-q")
    found = mapreduce.open_run("run").export("weights.npz")
    x = data.shard(0).rows(0, 200).features
    scores = x @ found["coef_"].T + found["intercept_"]
    assert (scores.argmax(axis=1) == predictions()[:200]).all()
    assert {"mean_", "feature_names"}.isdisjoint(found)


def test_a_network_needs_no_data(folder):
    blobs(folder / "data")
    succeed("train", "data", "--run", "run", "--model", "mlp:3", "--rounds", 2, "-q")
    succeed("train", "data", "--run", "linear", "--rounds", 2, "-q")
    (folder / "data").rename(folder / "moved")
    shapes = json.loads(succeed("export", "run", "--to", "a.npz", "--json"))["shapes"]
    assert {"layers.0.weight", "layers.0.bias", "classes_"} < shapes.keys()
    assert "coef_" not in shapes
    assert "name their folder by --data" in fails(66, "export", "linear", "--to", "b.npz")
    assert "coef_ [3, 12]" in succeed("export", "linear", "--to", "b.npz", "--data", "moved")


@pytest.mark.slow
def test_bad_names(folder):
    blobs(folder / "data")
    succeed("train", "data", "--run", "run", "--rounds", 1, "-q")
    said = fails(2, "export", "run", "--to", "weights.csv")
    assert "ends with .npz, .safetensors or .onnx" in said
    (folder / "a.npz").write_text("mine")
    assert gradreduce("export", "run", "--to", "a.npz").returncode == 73
    assert (folder / "a.npz").read_text() == "mine"
    succeed("export", "run", "--to", "b.npz")
    succeed("export", "run", "--to", "b.npz")
    assert gradreduce("export", "data", "--to", "c.npz").returncode == 66


def test_a_graph_without_the_package(folder, refused, monkeypatch):
    """What there is with it, test_onnx.py shows."""
    drawn(folder / "model.safetensors", "softmax", (4,), (0, 1), 0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in ("encoding", "graph", "layers", "recipe"):
        monkeypatch.delitem(sys.modules, f"mapreduce.training.onnx.{name}", raising=False)
    said = refused(2, "export", "model.safetensors", "--to", "model.onnx")
    assert "model.onnx: a graph of ONNX needs the package onnx" in said
    assert "pip install 'gradreduce[onnx]'" in said
    assert not (folder / "model.onnx").exists()
