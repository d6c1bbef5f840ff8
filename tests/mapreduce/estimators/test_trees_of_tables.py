"""Boosted trees of tables with categories and missing fields, by each door."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor as Twin

import mapreduce
from mapreduce.estimators import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from mapreduce.estimators.base import FitError, ParameterError
from mapreduce.models.fitted import FittedModel
from quick import cases

ROWS = 900
MODEL = "boosting:trees=4,leaves=8"


def table(rows=ROWS, seed=0):
    """A raw table: names of 300 towns, dates, booleans and numbers, some of them missing."""
    random, effects = np.random.default_rng(seed), np.random.default_rng(7).normal(size=300)
    town = (300 * random.random(rows) ** 2).astype(int)
    day = random.integers(0, 900, rows)
    number = random.normal(size=rows)
    score = effects[town] + number + (day % 7 > 4) + 0.3 * random.normal(size=rows)
    columns = {
        "town": [f"town {i}" for i in town],
        "day": [*np.datetime_as_string(np.datetime64("2020-01-01") + day).tolist()],
        "number": number.round(3).tolist(),
        "flag": ["yes" if one else "no" for one in random.random(rows) < 0.5],
        "nothing": [None] * rows,
    }
    for name, column in columns.items():
        gaps = random.random(rows) < 0.05
        columns[name] = [None if gap else one for gap, one in zip(gaps, column, strict=True)]
    columns["nothing"] = pa.nulls(rows, pa.string())
    return pa.table(columns), np.where(score > 0, "high", "low")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "rows.csv"
    rows, labels = table()
    pyarrow.csv.write_csv(rows.append_column("y", pa.array(labels)), path)
    return path


@pytest.fixture(scope="module")
def fitted():
    """The model that the estimator makes of the table in memory."""
    rows, labels = table()
    return HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=8).fit(rows, labels)


def test_the_file_of_a_table_is_trained_on_at_once(file, fitted, tmp_path, answer):
    options = "--model", MODEL, "--label", "y", "--json"
    found = json.loads(answer(0, "train", file, "--run", tmp_path / "run", *options).out)
    assert found["model_sha256"] == fitted.fitted_.model_sha256
    assert len([*(tmp_path / ".imported").iterdir()]) == 1
    chain = "-r", "inline", "--workers", "2", "--blocks", "3"
    again = answer(0, "train", file, "--run", tmp_path / "chain", *options, *chain)
    assert json.loads(again.out)["model_sha256"] == found["model_sha256"]
    data = tmp_path / "data"
    answer(0, "data", "import", file, data, "--label", "y", "--trees", "--seed", "3")
    gang = "--executor", "gang", "-r", "parallel", "--workers", "2"
    again = answer(0, "train", data, "--run", tmp_path / "gang", *options[:2], "--json", *gang)
    assert json.loads(again.out)["model_sha256"] == found["model_sha256"]


def test_one_prediction_by_each_door(file, fitted, tmp_path, answer):
    rows, _ = table(50, 1)
    rows = rows.set_column(0, "town", pa.array(["nowhere", *rows["town"].to_pylist()[1:]]))
    with pytest.warns(UserWarning, match="count as missing"):
        expected = fitted.predict_proba(rows)
    fitted.save(tmp_path / "model.safetensors")
    model = mapreduce.load(tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="count as missing"):
        found = model.predict(rows, probability_of=["high", "low"])
    columns = [found[f"probability of {one}"].to_numpy() for one in ("high", "low")]
    np.testing.assert_array_equal(np.stack(columns, axis=1), expected)
    answer(0, "train", file, "--run", tmp_path / "run", "--model", MODEL, "--label", "y")
    pyarrow.csv.write_csv(rows, tmp_path / "later.csv")
    out = tmp_path / "out.parquet"
    answer(0, "predict", tmp_path / "run", tmp_path / "later.csv", out, "--probability-of", "high")
    found = pa.parquet.read_table(out)["probability of high"].to_numpy()
    np.testing.assert_array_equal(found, expected[:, 0])
    assert FittedModel.load(tmp_path / "run" / "model.safetensors").recipe.recipe.trees


def test_a_score_is_that_of_evaluate(fitted, tmp_path, answer):
    rows, labels = table()
    fitted.save(tmp_path / "model.safetensors")
    file = tmp_path / "rows.csv"
    pyarrow.csv.write_csv(rows.append_column("label", pa.array(labels)), file)
    found = json.loads(answer(0, "evaluate", tmp_path / "model.safetensors", file, "--json").out)
    assert found["accuracy"] == fitted.score(rows, labels) > 0.7


@cases("shuffled", False, True)
def test_codes_in_arrays_are_as_good_as_scikit_learns(shuffled):
    random = np.random.default_rng(0)
    x, later = random.integers(0, 40, (2, 2000, 2)).astype(float)
    effects = random.normal(size=40)
    y, labels = (effects[each[:, 0].astype(int)] + each[:, 1] / 40 for each in (x, later))
    x[::17, 0] = np.nan
    options = {"max_iter": 12, "categorical_features": [True, False], "early_stopping": False}
    order = random.permutation(2000) if shuffled else slice(None)
    found = HistGradientBoostingRegressor(**options).fit(x[order], y[order])
    assert found.score(later, labels) == pytest.approx(
        Twin(**options).fit(x, y).score(later, labels), abs=0.015
    )
    plain = HistGradientBoostingRegressor(**(options | {"categorical_features": None})).fit(x, y)
    assert plain.score(later, labels) < found.score(later, labels)


@cases("has_classes", True, False)
def test_arrays_with_missing_numbers_are_fitted_by_jobs(has_classes):
    random = np.random.default_rng(3)
    x = np.stack([random.integers(0, 9, 200), random.normal(size=200)], axis=1)
    y, weights = x[:, 0] % 3 + x[:, 1], random.random(200)
    x[random.random(x.shape) < 0.1] = np.nan
    kind = HistGradientBoostingClassifier if has_classes else HistGradientBoostingRegressor
    labels = np.where(y > 1, "yes", "no") if has_classes else y
    options = {"max_iter": 3, "categorical_features": [0]}
    here = kind(**options).fit(x, labels, weights)
    jobs = kind(**options, runner="inline").fit(x, labels, weights)
    assert jobs.fitted_.model_sha256 == here.fitted_.model_sha256
    assert jobs.score(x, labels) == here.score(x, labels) > 0.1


def test_categories_are_named_or_declared():
    random = np.random.default_rng(0)
    codes, numbers = random.integers(0, 30, 400), random.normal(size=400)
    y = random.normal(size=30)[codes] + numbers
    plain = pa.table({"code": codes, "number": numbers})
    declared = plain.set_column(0, "code", plain["code"].cast(pa.string()).dictionary_encode())
    model = HistGradientBoostingRegressor(max_iter=3)
    by_type = model.fit(declared, y).fitted_.arrays
    for wanted in (["code"], [0], [True, False], [-2]):
        found = HistGradientBoostingRegressor(max_iter=3, categorical_features=wanted)
        arrays = found.fit(plain, y).fitted_.arrays
        assert all((arrays[name] == by_type[name]).all() for name in by_type)
    assert "subsets" in by_type and "subsets" not in model.fit(plain, y).fitted_.arrays


@cases(
    "wanted, message",
    (["nobody"], "X has no column 'nobody'"),
    ([2], "expected 'from_dtype', None, a mask of 2 columns"),
    ([True], "expected 'from_dtype', None, a mask of 2 columns"),
    ("other", "expected 'from_dtype', None, a mask of 2 columns"),
)
def test_categories_that_x_has_not(wanted, message):
    rows = pa.table({"a": np.arange(30.0), "b": np.arange(30.0)})
    model = HistGradientBoostingRegressor(categorical_features=wanted)
    with pytest.raises(ParameterError, match=message):
        model.fit(rows, np.arange(30.0))


@cases("code", 2.5, 4096.0)
def test_numbers_that_are_no_codes(code):
    x = np.zeros((30, 1))
    x[3] = code
    with pytest.raises(FitError, match="column 0: expected codes of a category"):
        HistGradientBoostingRegressor(categorical_features=[0]).fit(x, np.arange(30.0))


def test_labels_of_another_length():
    rows, labels = table(30)
    with pytest.raises(FitError, match=r"label: expected 30 values, as X has rows, found \(29,\)"):
        HistGradientBoostingClassifier().fit(rows, labels[:29])


def test_other_models_of_data_for_trees(file, tmp_path, answer, refused):
    answer(0, "data", "import", file, tmp_path / "data", "--label", "y", "--trees")
    start = "train", tmp_path / "data", "--run", tmp_path / "run", "--model"
    assert "were imported with --trees" in refused(65, *start, "logistic")
    assert "was imported with --trees" in refused(65, *start, "k-means:2")
    assert not (tmp_path / "run").exists()
    assert "--label y: it is for the file of a table" in refused(2, *start, MODEL, "--label", "y")
    said = refused(2, "train", file, "--run", tmp_path / "run", "--model", "bosting", "--id", "a")
    assert "unknown model 'bosting'" in said and "Did you mean boosting?" in said


def test_infinite_numbers(tmp_path, refused):
    (tmp_path / "rows.csv").write_text("a,y\n" + "1,2.5\n" * 5 + "inf,3.5\n")
    start = "train", tmp_path / "rows.csv", "--run", tmp_path / "run", "--model", MODEL
    said = refused(65, *start, "--label", "y")
    assert "row 6, column a: expected a finite number, found inf" in said


def test_clusters_of_the_file_of_a_table(file, tmp_path, answer):
    answer(0, "train", file, "--run", tmp_path / "run", "--model", "k-means:2")
    model = FittedModel.load(tmp_path / "run" / "model.safetensors")
    assert all(np.isfinite(one).all() for one in model.arrays.values())
    assert not model.recipe.recipe.trees
