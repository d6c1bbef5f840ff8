"""Estimators in scikit-learn's shape, beside their twins."""

import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model
from pyarrow import csv
from sklearn.utils.estimator_checks import check_estimator

import mapreduce
from mapreduce import estimators
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from mapreduce.estimators import (
    PCA,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    KMeans,
    Ridge,
)
from quick import cases


def sample(rows=600):
    random = np.random.default_rng(0)
    x = 5 * random.integers(0, 3, (rows, 1)) + random.normal(size=(rows, 4)) * [1, 2, 3, 4]
    return x, x[:, 0] - x[:, 3] + random.normal(size=rows) / 9, random.random(rows) + 0.1


def stored(folder, seed=4, *, labelled=True):
    x, y, _ = sample()
    source = Source([Rows(x, y if labelled else None)], (4,), 1.0, x.nbytes, {"format": "test"})
    import_rows(source, folder, seed)
    return folder


def state(model):
    return {name: array.tobytes() for name, array in model.fitted_.arrays.items()}


@cases(
    "model, least",
    (KMeans(3), 55),
    (PCA(), 46),
    (Ridge(), 55),
    (HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5), 57),
    (HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5), 54),
)
def test_scikit_learns_contract(model, least):
    """As many checks as those of the twin, without sparse rows and several targets."""
    # Cuts and the rows of a leaf do not depend on weights: the twin fails, too.
    left = (
        {"check_sample_weight_equivalence_on_dense_data"}
        if hasattr(model, "max_leaf_nodes")
        else {}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = check_estimator(model, on_skip=None, on_fail=None)
    assert [
        (one["check_name"], one["exception"])
        for one in done
        if one["status"] == "failed" and one["check_name"] not in left
    ] == []
    assert sum(one["status"] == "passed" for one in done) >= least


def test_k_means_is_as_its_twin():
    x, _, weights = sample()
    model = KMeans(3, random_state=5).fit(x, sample_weight=weights)
    twin = sklearn.cluster.KMeans(3, init=model.cluster_centers_, n_init=1)
    twin.fit(x, sample_weight=weights)
    np.testing.assert_allclose(twin.cluster_centers_, model.cluster_centers_, rtol=1e-2)
    assert model.inertia_ <= twin.inertia_ * 1.001
    assert (twin.labels_ == model.labels_).mean() > 0.99
    assert (model.predict(x) == model.labels_).all()
    assert (model.transform(x).argmin(axis=1) == model.labels_).all()
    assert model.score(x, sample_weight=weights) == pytest.approx(-model.inertia_)
    assert (KMeans(3, random_state=5).fit_predict(x, sample_weight=weights) == model.labels_).all()


def test_several_seeds_and_the_best_of_them():
    x = np.random.default_rng(1).random((300, 2))
    best = KMeans(8, n_init=4, random_state=2).fit(x)
    alone = [KMeans(8, random_state=seed).fit(x).inertia_ for seed in range(2, 6)]
    assert best.inertia_ == min(alone) < max(alone)


@cases("n_components, whiten", (None, False), (2, True), (0.9, False), (0.5, True))
def test_pca_is_as_its_twin(n_components, whiten):
    x, _, _ = sample()
    model = PCA(n_components, whiten=whiten).fit(x)
    twin = sklearn.decomposition.PCA(n_components, whiten=whiten).fit(x)
    for name in (
        *("components_", "explained_variance_", "explained_variance_ratio_", "mean_"),
        *("singular_values_", "n_components_", "n_samples_", "noise_variance_"),
    ):
        np.testing.assert_allclose(getattr(model, name), getattr(twin, name), atol=1e-8)
    np.testing.assert_allclose(model.transform(x), twin.transform(x), atol=1e-8)
    scores = model.transform(x)
    expected = twin.inverse_transform(twin.transform(x))
    np.testing.assert_allclose(model.inverse_transform(scores), expected, atol=1e-8)


@cases("alpha, fit_intercept", (1.0, True), (0, False))
def test_ridge_is_as_its_twin(alpha, fit_intercept):
    x, y, weights = sample()
    model = Ridge(alpha, fit_intercept=fit_intercept).fit(x, y, weights)
    twin = sklearn.linear_model.Ridge(alpha, fit_intercept=fit_intercept).fit(x, y, weights)
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, twin.intercept_, atol=1e-9)
    np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
    assert model.score(x, y) == pytest.approx(twin.score(x, y))


@cases("model", KMeans(3), PCA(2), Ridge())
def test_a_folder_and_jobs_give_the_bits_of_arrays(model, tmp_path):
    x, y, _ = sample()
    target = (y,) if isinstance(model, Ridge) else ()
    expected = state(model.fit(x, *target))
    assert state(model.set_params(runner="inline", workers=2).fit(x, *target)) == expected
    folder = stored(tmp_path / "data")
    assert state(model.fit(folder)) == expected
    assert state(model.set_params(runner=None, workers=None).fit(str(folder))) == expected
    model.set_params(run=tmp_path / "run").fit(folder)
    assert state(model) == expected
    # Its rounds are there already.
    assert state(model.fit(folder)) == expected
    with pytest.raises(UsageError, match="rounds of another program"):
        model.fit(stored(tmp_path / "other", seed=5))


@cases("model", KMeans(3), PCA(2), Ridge())
def test_its_file_predicts_without_it(model, tmp_path, answer):
    x, y, _ = sample()
    model.fit(x, y)
    model.save(tmp_path / "model.safetensors")
    loaded = mapreduce.load(tmp_path / "model.safetensors")
    if not isinstance(model, PCA):
        assert (loaded.predict(x) == model.predict(x)).all()
    layer = {KMeans: "distances", PCA: "components"}.get(type(model))
    if layer:
        assert (loaded.predict(x, layer=layer) == model.transform(x)).all()
    with pytest.raises(OutputError, match="exists already"):
        PCA(1).fit(x).save(tmp_path / "model.safetensors")
    folder, out = stored(tmp_path / "data", labelled=False), tmp_path / "out.csv"
    answer(0, "predict", tmp_path / "model.safetensors", folder, out)
    predicted = np.genfromtxt(out, delimiter=",", names=True)["prediction"]
    if isinstance(model, PCA):
        missed = x - model.inverse_transform(model.transform(x))
        np.testing.assert_allclose(predicted, np.sqrt((missed**2).sum(axis=1)), rtol=1e-6)
    else:
        np.testing.assert_allclose(predicted, model.predict(x), rtol=1e-6)


@cases("kind", KMeans, PCA)
def test_labels_are_not_read_where_none_were_learned(kind, tmp_path, answer, refused):
    model, x = kind(2), sample()[0]
    model.fit(x).save(tmp_path / "model.safetensors")
    labels = np.array(list("abc"))[np.arange(len(x)) % 3]
    source = Source([Rows(x, labels)], (4,), 1.0, x.nbytes, {"format": "test"})
    import_rows(source, tmp_path / "classes", 0)
    stored(tmp_path / "numbers", labelled=True)
    for data in ("classes", "numbers"):
        out = tmp_path / f"{data}.csv"
        answer(0, "predict", tmp_path / "model.safetensors", tmp_path / data, out)
        table = np.genfromtxt(out, delimiter=",", names=True)
        assert len(table) == len(x) and "label" not in table.dtype.names
    said = refused(2, "evaluate", tmp_path / "model.safetensors", tmp_path / "classes")
    assert f"{model.kind} has learned without labels" in said


def test_a_fit_of_rows_in_memory_writes_no_file(tmp_path, monkeypatch):
    x, y, _ = sample()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for model in (KMeans(3), PCA(), Ridge()):
        model.fit(x, y)
    assert [*tmp_path.iterdir()] == []


def test_tables():
    x, y, _ = sample()
    table = pa.table({name: x[:, at] for at, name in enumerate("abcd")})
    assert state(Ridge().fit(table, y)) == state(Ridge().fit(x, y))
    table = pa.table({"a": x[:, 0], "kind": ["x"] * len(x)})
    with pytest.raises(DataError, match="column 'kind': expected numbers, found string"):
        PCA().fit(table)


@cases(
    "model, error, message",
    (KMeans(0), UsageError, "n_clusters: expected 1 or more, found 0"),
    (KMeans(2.5), UsageError, "n_clusters: expected 1 or more, found 2.5"),
    (KMeans(601), DataError, "expected at least 601 different rows, .* found 600. Take at most"),
    (KMeans(2, n_init=2, run="r"), UsageError, "run: expected n_init=1"),
    (KMeans(2, run="r"), UsageError, "run: expected the folder of a dataset, or a runner"),
    (KMeans(2, runner="nobody"), UsageError, "expected one of .*, found 'nobody'"),
    (PCA(0), UsageError, "n_components: expected 1 or more, a share"),
    (PCA("all"), UsageError, "n_components: expected 1 or more, a share"),
    (PCA(5), DataError, "n_components=5: the rows have only 4 directions. Take at most 4, or"),
    (Ridge(-1), UsageError, "alpha: expected 0 or more, found -1"),
    (Ridge(float("nan")), UsageError, "alpha: expected 0 or more, found nan"),
)
def test_parameters_that_make_no_sense(model, error, message):
    x, y, _ = sample()
    with pytest.raises(error, match=message):
        model.fit(x, y)


def test_rows_that_make_no_sense(tmp_path):
    x, y, _ = sample()
    with pytest.raises(UsageError, match="y, sample_weight: the dataset has its own"):
        Ridge().fit(stored(tmp_path / "data"), y)
    with pytest.raises(MissingInputError):
        KMeans().fit(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="eights"):
        KMeans().fit(x, sample_weight=np.zeros(len(x)))
    with pytest.raises(DataError, match="column 1: it is a combination"):
        Ridge(0).fit(np.c_[x[:, 0], 2 * x[:, 0]], y)
    with pytest.raises(ImportError, match="has no attribute 'KMean'"):
        _ = estimators.KMean


ALONE = """
import sys
sys.modules["sklearn"] = None
import numpy as np
from mapreduce.errors import GradreduceError
from mapreduce.estimators import (
    PCA,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    KMeans,
    LogisticRegression,
    Ridge,
)
x = np.random.default_rng(0).normal(size=(90, 3))
y = x @ [1, 2, 3]
print(Ridge(1e-9).fit(x, y).score(x, y) > 0.99, PCA(2).fit_transform(x).shape)
print(LogisticRegression().fit(x, y > 0).score(x, y > 0) > 0.9)
print(KMeans(2).set_params(n_clusters=3).fit(x).labels_.max(), KMeans(4).get_params()["n_clusters"])
for wrong in (lambda: Ridge().fit(x, y[1:]), lambda: PCA().fit(x).transform(y[:, None]),
              lambda: PCA().transform(x), lambda: KMeans().fit(x * np.nan),
              lambda: KMeans().fit(x, sample_weight=y[1:]), lambda: PCA().set_params(k=1)):
    try:
        wrong()
    except GradreduceError as error:
        print(error)
"""


def test_without_scikit_learn():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    found = done.stdout.splitlines()
    assert found[:3] == ["True (90, 2)", "True", "2 4"]
    expected = (
        *("y is an array (89,)", "X has 1 features, expected 3", "this PCA is not fitted yet"),
        *("X[0, 0] is nan", "sample_weight has shape (89,)", "PCA has no parameter 'k'"),
    )
    assert [line[: len(start)] for line, start in zip(found[3:], expected, strict=True)] == [
        *expected
    ]


# Boosting


def with_missing(rows=600, kind="class"):
    x, y, weights = sample(rows)
    x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    return x, np.array(["no", "yes"])[(y > 0).astype(int)] if kind == "class" else y, weights


@pytest.mark.parametrize("kind", ["class", "number"])
def test_trees_are_the_same_in_any_order(kind):
    x, y, weights = with_missing(kind=kind)
    make = HistGradientBoostingClassifier if kind == "class" else HistGradientBoostingRegressor
    one = make(max_iter=4, early_stopping=True).fit(x, y, weights)
    order = np.random.default_rng(2).permutation(len(x))
    other = make(max_iter=4, early_stopping=True).fit(x[order], y[order], weights[order])
    assert state(one) == state(other)
    assert one.score(x, y) > 0.4
    assert one.n_iter_ == 4


def test_boosting_of_a_folder_and_by_jobs(tmp_path):
    x, y, _ = sample()
    here = HistGradientBoostingRegressor(max_iter=3).fit(x, y)
    folder = HistGradientBoostingRegressor(max_iter=3).fit(stored(tmp_path / "data"))
    jobs = HistGradientBoostingRegressor(max_iter=3, runner="inline").fit(x, y)
    assert state(here) == state(folder) == state(jobs)


def test_predictions_of_the_file_of_trees(tmp_path):
    x, y, _ = sample(60)
    x[::5, 2] = np.nan
    names = np.where(y > 5, "high", "low")
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5).fit(x, names)
    model.save(tmp_path / "model.safetensors")
    loaded = mapreduce.load(tmp_path / "model.safetensors")
    assert loaded.predict(x).tolist() == model.predict(x).tolist()
    np.testing.assert_array_equal(loaded.predict(x, probabilities=True), model.predict_proba(x))
    assert loaded.predict(x[5:6]).tolist() == model.predict(x[5:6]).tolist()
    many = np.tile(x, (20, 1))
    np.testing.assert_array_equal(loaded.predict(many), model.predict(many))
    x[0, 0] = np.inf
    with pytest.raises(DataError, match=r"X\[0, 0\] is inf: expected finite numbers"):
        loaded.predict(x)


@cases("rows", 60, 1200)
def test_a_file_of_trees_predicts_a_table_with_missing_numbers(rows, tmp_path):
    x, y, _ = sample(rows)
    x[::5, 2] = np.nan
    table = pa.table({f"x{number}": column for number, column in enumerate(x.T)})
    model = HistGradientBoostingClassifier(max_iter=3).fit(table, np.where(y > 5, "high", "low"))
    model.save(tmp_path / "model.safetensors")
    loaded = mapreduce.load(tmp_path / "model.safetensors")
    probabilities = model.predict_proba(table)
    np.testing.assert_array_equal(loaded.predict(table, probabilities=True), probabilities)
    found = loaded.predict(table)
    assert found["row"].to_pylist() == [*range(rows)]
    assert found["prediction"].to_pylist() == model.predict(table).tolist()
    assert found["probability"].to_pylist() == probabilities.max(axis=1).tolist()
    # As a job writes it.
    whole = pa.table(
        {name: pc.if_else(pc.is_nan(table[name]), 0, table[name]) for name in table.column_names}
    )
    by_job = loaded.predict(whole, workers=1)
    assert loaded.predict(whole, here=True).equals(by_job, check_metadata=True)


@cases(
    "name, value, message",
    ("max_iter", 0, "max_iter: expected 1 or more, found 0"),
    ("max_leaf_nodes", 1, "max_leaf_nodes: expected 2 or more"),
    ("learning_rate", 0, "learning_rate: expected a number above 0"),
    ("validation_fraction", 1.0, "validation_fraction: expected a number above 0 and below 1"),
    ("early_stopping", "yes", "early_stopping: expected 'auto', True or False"),
)
def test_options_of_boosting(name, value, message):
    x, y, _ = sample(40)
    with pytest.raises(UsageError, match=message):
        HistGradientBoostingRegressor(**{name: value}).fit(x, y)


def test_rows_that_trees_cannot_be_grown_for(tmp_path):
    x, y, _ = sample(40)
    with pytest.raises(ValueError, match="expected at least two classes"):
        HistGradientBoostingClassifier().fit(x, np.zeros(40, int))
    with pytest.raises(ValueError, match="at least one non-zero number"):
        HistGradientBoostingRegressor().fit(x, y, np.zeros(40))
    with pytest.raises(UsageError, match="expected a dataset whose labels are classes"):
        HistGradientBoostingClassifier().fit(stored(tmp_path / "data"))
    with pytest.raises(DataError, match="expected labels, found none"):
        HistGradientBoostingRegressor().fit(stored(tmp_path / "rows", labelled=False))


# What people met


def test_a_model_of_an_import_takes_no_rows_in_memory(tmp_path, answer):
    """Its features are standardised, those of the rows are not: predictions were garbage."""
    x, y, _ = sample(200)
    table = pa.table({**{f"x{at}": x[:, at] for at in range(4)}, "y": np.where(y > 5, "a", "b")})
    csv.write_csv(table, tmp_path / "table.csv")
    answer(0, "data", "import", tmp_path / "table.csv", tmp_path / "data", "--label", "y")
    model = HistGradientBoostingClassifier(max_iter=5).fit(tmp_path / "data")
    with pytest.raises(ValueError, match=r"whose import has converted .* mapreduce.load\(FILE\)"):
        model.predict(x)
    model.save(tmp_path / "model.safetensors")
    loaded = mapreduce.load(tmp_path / "model.safetensors")
    assert loaded.evaluate(table).accuracy > 0.9
    # A model of no labels predicts data with any.
    clusters = KMeans(2).fit(tmp_path / "data")
    clusters.save(tmp_path / "clusters.safetensors")
    out = tmp_path / "out.parquet"
    answer(0, "predict", tmp_path / "clusters.safetensors", tmp_path / "data", out)
    said = answer(2, "evaluate", tmp_path / "clusters.safetensors", tmp_path / "data")
    assert "k-means has learned without labels" in str(said)
    with pytest.raises(UsageError, match="expected a dataset whose labels are numbers"):
        HistGradientBoostingRegressor().fit(tmp_path / "data")


def test_columns_in_another_order_are_refused():
    x, y, _ = sample(100)
    table = pa.table(dict(zip("abcd", x.T, strict=True)))
    model = Ridge().fit(table, y)
    assert [*model.feature_names_in_] == [*"abcd"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(table), Ridge().fit(x, y).predict(x))
    with pytest.raises(ValueError, match=r"names should match .* expected a, b, c, d, found d, c"):
        model.predict(table.select([*"dcba"]))


def test_the_file_of_a_model_of_a_frame_takes_frames_and_arrays(tmp_path):
    x, y, _ = sample(100)
    frame = pa.table(dict(zip("abcd", x.T, strict=True)))
    model = Ridge().fit(frame, y)
    model.save(tmp_path / "ridge.safetensors")
    loaded = mapreduce.load(tmp_path / "ridge.safetensors")
    expected = model.predict(frame)
    assert loaded.predict(x).tolist() == expected.tolist()
    # Columns are found by their names, others are left alone.
    other = frame.select([*"dcba"]).append_column("y", [y]).append_column("t", [["x"] * 100])
    assert loaded.predict(other)["prediction"].to_pylist() == expected.tolist()
    row = {name: frame[name][7].as_py() for name in "abcd"}
    assert loaded.predict(row)["prediction"].to_pylist() == [expected[7]]
    report = loaded.evaluate(other, label="y")
    assert report.r2 == pytest.approx(model.score(frame, y))
    assert report.to_dict() == loaded.evaluate((x, y)).to_dict()
    with pytest.raises(DataError, match="the table has no column 'b': expected a, b, c, d"):
        loaded.predict(frame.drop_columns(["b"]))
    with pytest.raises(DataError, match="the table has no column 'label'"):
        loaded.evaluate(frame)
    with pytest.raises(DataError, match="column 'a': expected numbers, found string"):
        loaded.predict(frame.set_column(0, "a", [["x"] * 100]))


@cases("model, names", (PCA(2), ["pca0", "pca1"]), (KMeans(3), ["kmeans0", "kmeans1", "kmeans2"]))
def test_names_of_what_is_transformed(model, names):
    x, _, _ = sample(50)
    assert model.fit(x).get_feature_names_out().tolist() == names
    polars = pytest.importorskip("polars")
    found = model.set_output(transform="polars").fit(x).transform(x)
    assert isinstance(found, polars.DataFrame) and found.columns == names
    model.set_output(transform="default")
    np.testing.assert_array_equal(found.to_numpy(), model.transform(x))


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_the_inertia_beside_an_outlier(far):
    random = np.random.default_rng(0)
    near = np.concatenate([random.normal(at, 0.02, (60, 2)) for at in (0, 0.2, 0.4)])
    x = np.concatenate([near, [[far, far]]])
    model = KMeans(4).fit(x)
    assert model.inertia_ == pytest.approx(-model.score(x), rel=1e-12)
    groups = near.reshape(3, 60, 2)
    within = ((groups - groups.mean(axis=1, keepdims=True)) ** 2).sum()
    assert model.inertia_ == pytest.approx(within, rel=0.05)


def test_numbers_that_float32_does_not_tell_apart():
    x = 1.7e9 + np.arange(300.0)[:, None]
    y = np.sin(x[:, 0])
    with pytest.warns(UserWarning, match="column 0: its numbers are between 1700000000.0 and"):
        HistGradientBoostingRegressor(max_iter=1).fit(x, y)
    with pytest.raises(ValueError, match="column 0: expected numbers of float32, found up to"):
        HistGradientBoostingRegressor(max_iter=1).fit(x * 1e40, y)


def test_names_of_files_and_values_of_parameters(tmp_path):
    x, y, _ = sample(40)
    model = Ridge().fit(x, y)
    with pytest.raises(ValueError, match=r"expected a name that ends with .safetensors"):
        model.save(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="alpha: expected 0 or more"):
        Ridge(alpha=-1).fit(x, y)
    with pytest.raises(ValueError, match="expected rows, found a path"):
        model.predict(str(tmp_path))
