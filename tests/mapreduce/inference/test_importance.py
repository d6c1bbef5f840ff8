"""Permutation importance is that of a naive loop, and close to scikit-learn's."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv

import mapreduce
from mapreduce.data import csr, order
from mapreduce.data.batch import Csr
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, UsageError
from mapreduce.inference import base
from mapreduce.inference.importance import exchanged
from programs import fails, succeed

ROWS = 300


def table(seed, task="classification"):
    """Rows whose label follows from town most, from size less, from day hardly, from noise not."""
    chance = np.random.default_rng(seed)
    towns, size = chance.integers(0, 3, ROWS), chance.normal(size=ROWS)
    days = chance.integers(0, 365, ROWS)
    value = 3.0 * (towns == 1) + size + 0.002 * days + chance.normal(size=ROWS) / 4
    return pa.table(
        {
            "noise": chance.normal(size=ROWS),
            "size": np.where(chance.random(ROWS) < 0.1, np.nan, size),
            "town": np.array(["a", "b", "c"])[towns],
            "day": np.datetime64("2024-01-01") + days,
            "label": value if task == "regression" else np.where(value > 1.4, "high", "low"),
        }
    )


@pytest.fixture(scope="module", params=["classification", "regression"])
def trained(request, tmp_path_factory):
    return mapreduce.train(
        table(0, request.param),
        "linear" if request.param == "regression" else "softmax",
        run=tmp_path_factory.mktemp("importance") / "run",
        optimizer="lbfgs",
        progress=False,
        executor="here",
    )


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(base, "SLICE_ROWS", 128)


def measured(run, x, y):
    """Accuracy or R², and loss, of features and labels in the order of the dataset."""
    weight, bias = (run.parameters[name] for name in ("weight", "bias"))
    scores = x @ weight + bias
    if run.classes:
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return (scores.argmax(axis=1) == y).mean(), -np.log(chances[range(len(y)), y]).mean()
    errors = (y - scores.ravel()) ** 2
    return 1 - errors.mean() / y.var(), errors.mean() / 2


def test_a_naive_loop(trained, tmp_path):
    data = table(1, trained._run.recipe.recipe.task)
    found = trained.evaluate(data, importance=True, repeats=3, seed=7, runner="inline")
    # The features as the model has them, in the order of the dataset.
    write_csv(data, tmp_path / "data.csv")
    options = ("--like", trained._run.config.data)
    succeed("data", "import", tmp_path / "data.csv", tmp_path / "data", *options)
    batch = Dataset(tmp_path / "data").shard(0).rows(0, ROWS)
    x, y = batch.features.astype(np.float64), np.asarray(batch.labels)
    ranges = trained.recipe.ranges
    assert {name: stop - start for name, (start, stop) in ranges.items()} == {
        "noise": 1,
        "size": 2,
        "town": 4,
        "day": 20,
    }
    measure, loss = measured(trained, x, y)
    columns = {one.pop("column"): one for one in found.importance["columns"]}
    for number, (name, (start, stop)) in enumerate(ranges.items()):
        results = []
        for repeat in range(3):
            permuted = x.copy()
            for unit, first in enumerate(range(0, ROWS, 128)):
                count = min(128, ROWS - first)
                stream = (unit * len(ranges) + number) * 100 + repeat
                for row, partner in enumerate(order.permutation(7, stream, count)):
                    permuted[first + row, start:stop] = x[first + partner, start:stop]
            results.append(measured(trained, permuted, y))
        results = np.array(results) - (measure, loss)
        expected = {
            "importances_mean": -results[:, 0].mean(),
            "importances_std": results[:, 0].std(),
            "loss_mean": results[:, 1].mean(),
            "loss_std": results[:, 1].std(),
        }
        assert columns[name] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_close_to_scikit_learn(trained):
    from sklearn.inspection import permutation_importance

    data = table(2, trained._run.recipe.recipe.task)
    names = data.column_names[:-1]

    class Model:
        """Takes rows by their numbers, in each column."""

        def fit(self):
            raise NotImplementedError

        def score(self, places, labels):
            columns = {name: data[name].take(places[:, at]) for at, name in enumerate(names)}
            found = trained.evaluate(pa.table(columns | {"label": data["label"]}))
            return found.r2 if found.accuracy is None else found.accuracy

    places = np.arange(ROWS)[:, None].repeat(len(names), axis=1)
    theirs = permutation_importance(Model(), places, places[:, 0], n_repeats=8, random_state=0)
    means, deviations = (
        dict(zip(names, theirs[f"importances_{what}"], strict=True)) for what in ("mean", "std")
    )
    found = trained.evaluate(data, importance=True, repeats=40, runner="inline").importance
    assert found["measure"] == ("accuracy" if trained.classes else "r2")
    for one in found["columns"]:
        name = one["column"]
        noise = 4 * max(deviations[name], one["importances_std"]) / np.sqrt(8)
        assert abs(one["importances_mean"] - means[name]) <= noise + 1e-12
    means = [one["importances_mean"] for one in found["columns"]]
    assert (means, found["columns"][0]["column"]) == (sorted(means, reverse=True), "town")


def test_sparse_rows(tmp_path):
    generator = np.random.default_rng(0)
    dense = generator.random((50, 9)) * (generator.random((50, 9)) < 0.4)
    rows, places = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(51)).astype(np.int32)
    sparse = Csr(indptr, places.astype(np.int32), dense[rows, places], 9)
    partners = generator.permutation(20)
    found = exchanged(sparse[10:30], partners, 3, 6)
    assert csr.check(found) is None
    np.testing.assert_array_equal(found.to_dense(), exchanged(dense[10:30], partners, 3, 6))


def test_workers_layouts_and_weights(tmp_path):
    data = table(3).append_column("share", pa.array([1.0, 2.0, 0.0] * (ROWS // 3)))
    write_csv(data, tmp_path / "data.csv")
    texts = {}
    for layout in ("dense", "sparse"):
        folder, run = tmp_path / layout, tmp_path / f"run-{layout}"
        how = ("--weights", "share", "--dtype", "float64")
        succeed("data", "import", tmp_path / "data.csv", folder, "--layout", layout, *how)
        succeed("train", folder, "--run", run, "--model", "logistic", "--rounds", 9)
        command = ("evaluate", run, folder, "--importance", "--seed", 3)
        texts[layout] = {
            succeed(*command, "--json", "-r", runner, "--workers", workers)
            for runner, workers in (("inline", 1), ("parallel", 3))
        }
        assert len(texts[layout]) == 1
    dense, sparse = (json.loads(texts[layout].pop()) for layout in ("dense", "sparse"))
    assert (dense["importance"]["n_repeats"], dense["importance"]["seed"]) == (5, 3)
    for one, other in zip(*(r["importance"]["columns"] for r in (dense, sparse)), strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    lines = succeed(*command).splitlines()
    assert lines[-6:-4] == [
        "drop in accuracy and rise of the loss where a column is permuted, mean and standard "
        "deviation of 5:",
        "       accuracy       ±    loss       ±",
    ]
    assert lines[-4].startswith("town     0.")


def test_bad_input(trained, tmp_path):
    data = table(0, trained._run.recipe.recipe.task)
    with pytest.raises(UsageError, match="repeats and seed have no effect without"):
        trained.evaluate(data, seed=1)
    for name, value in (("repeats", 0), ("repeats", 101), ("seed", -1)):
        with pytest.raises(UsageError, match=f"{name}: expected .* found {value}"):
            trained.evaluate(data, importance=True, **{name: value})
    x = np.random.default_rng(0).normal(size=(40, 3))
    arrays = mapreduce.train((x, x[:, 0] > 0), run=tmp_path / "a", rounds=1, progress=False)
    with pytest.raises(UsageError, match=r"from a table.*the features of these have no columns"):
        arrays.evaluate((x, x[:, 0] > 0), importance=True)
    if trained.classes:
        write_csv(data, tmp_path / "data.csv")
        for option, text in (("--hash-bits=8", "together"), ("--split-by=label", "order by")):
            folder, run = tmp_path / option[2:6], tmp_path / f"run{option[2:6]}"
            succeed("data", "import", tmp_path / "data.csv", folder, option)
            succeed("train", folder, "--run", run, "--rounds", 1, "--model", "logistic")
            assert text in fails(2, "evaluate", run, folder, "--importance")
    else:
        equal = data.set_column(data.column_names.index("label"), "label", pa.array([1.0] * ROWS))
        with pytest.raises(DataError, match="importance=True: expected labels that differ"):
            trained.evaluate(equal, importance=True)
