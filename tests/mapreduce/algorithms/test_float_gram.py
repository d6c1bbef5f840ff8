"""Moments as sums of floats along the tree: the bits of any workers, near those of exact sums."""

import json

import numpy as np
import pytest

from mapreduce.algorithms.gram import FloatGram, Gram, float_moments, moments
from mapreduce.data.batch import Batch
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, UsageError
from mapreduce.estimators import PCA, Ridge
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.runs.execution import Execution
from mapreduce.testing import check_program
from quick import cases


def table(rows=9000):
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 5)) * [1, 10, 1e3, 1, 1e-2] + [0, 0, 1e6, 1, -1]
    return x, x[:, 0] - 2 * x[:, 1] + random.normal(size=rows), random.random(rows) + 0.1


def stored(x, y, weights, folder):
    import_rows(Source([Rows(x, y, weights)], (5,), 1.0, x.nbytes, {"format": "test"}), folder, 0)
    return Dataset(folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return stored(*table(), tmp_path_factory.mktemp("rows") / "data")


def found(rows, executor=None):
    blocks = (executor or Here()).advance(FloatGram.over(rows, target=True)).blocks
    return float_moments(blocks)


@cases("is_weighted", True, False)
def test_near_exact_sums(is_weighted):
    x, y, weights = table()
    rows = Batch(x, y, weights=weights if is_weighted else None)
    near, exact = found(rows), moments(Here().advance(Gram.over(rows, target=True)).blocks)
    np.testing.assert_allclose(near.mean, exact.mean, rtol=1e-9)
    spread = np.sqrt(exact.products.diagonal())
    assert abs((near.products - exact.products) / spread / spread[:, None]).max() < 1e-12
    assert (near.weight, near.rows) == (pytest.approx(exact.weight), exact.rows)


@cases(
    "execution",
    Execution("inline", workers=3),
    Execution("inline", executor="here"),
    Execution("parallel", workers=2, start_method="fork"),
    Execution("parallel", workers=2, start_method="fork", executor="gang"),
)
def test_executors_do_not_matter(execution, place, tmp_path, monkeypatch):
    monkeypatch.setattr(FloatGram, "unit_rows", 1000)
    here, other = found(place), found(place, Resumable.of(execution, place=tmp_path))
    assert here.products.tobytes() == other.products.tobytes()
    assert here.mean.tobytes() == other.mean.tobytes()


def test_the_order_of_the_rows_matters():
    """What is lost."""
    x = table()[0]
    order = np.random.default_rng(1).permutation(len(x))
    models = PCA(sums="float").fit(x), PCA(sums="float").fit(x[order])
    assert (models[0].components_ != models[1].components_).any()
    np.testing.assert_allclose(models[0].transform(x), models[1].transform(x), atol=1e-6)


def test_the_contract_of_programs(tmp_path):
    x, y, weights = table(300)
    check_program(FloatGram.over(stored(x, y, weights, tmp_path / "few"), target=True))


@cases(
    "model, spec",
    (PCA(2, sums="float"), "pca:2,sums=float"),
    (Ridge(sums="float"), "ridge:sums=float"),
)
def test_the_command_fits_the_same_model(model, spec, place, tmp_path, answer):
    model.fit(place.folder)
    said = answer(0, "train", place.folder, "--run", tmp_path / "run", "--model", spec, "--json")
    assert json.loads(said.out)["model_sha256"] == model.fitted_.model_sha256


def test_rows_that_have_no_sums():
    x, y, weights = table(20)
    with pytest.raises(UsageError, match="sums: expected 'exact' or 'float', found 'fast'"):
        PCA(sums="fast").fit(x)
    x[3, 1] = np.nan
    with pytest.raises(DataError, match="the data, row 3, column 1: expected finite numbers"):
        found(Batch(x, y))
    # It weighs nothing.
    weights[3] = 0
    assert np.isfinite(found(Batch(x, y, weights=weights)).products).all()
    with pytest.raises(DataError, match="all weights are 0"):
        found(Batch(x, y, weights=0 * weights))
    with pytest.raises(DataError, match="finite weights of 0 or more"):
        found(Batch(x, y, weights=-weights))
    with pytest.raises(DataError, match="squares of its numbers are no float64"):
        found(Batch(np.linspace(0, 1e200, 20)[:, None], y))
