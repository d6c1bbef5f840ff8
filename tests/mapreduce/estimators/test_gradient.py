"""Models that a gradient trains, as estimators: beside their twins, and the command's training."""

import warnings

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

import mapreduce
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.errors import UsageError
from mapreduce.estimators import LinearRegression, LogisticRegression, MLPClassifier, MLPRegressor
from quick import cases

QUICK_NETWORK = {"hidden_layer_sizes": (5,), "learning_rate_init": 0.05, "max_iter": 40}


def sample(classes=0, rows=200):
    random = np.random.default_rng(3)
    x = random.normal(size=(rows, 3)) * [1, 2, 0.5] + [0, 1, 4]
    score = x @ [1, -1, 2] + random.normal(size=rows)
    y = score if not classes else np.digitize(score, np.quantile(score, np.arange(1, classes) / 3))
    return x, y, random.integers(1, 4, rows).astype(float)


def stored(folder, classes=0):
    x, y, weights = sample(classes)
    source = Source([Rows(x, y, weights=weights)], (3,), 1.0, x.nbytes, {"format": "test"})
    import_rows(source, folder, 1)
    return folder


def sha256(model):
    return model.fitted_.model_sha256


@pytest.mark.slow
@cases(
    "model, least",
    (LogisticRegression(tol=1e-9), 60),
    (LinearRegression(tol=1e-9), 56),
    (MLPClassifier(**QUICK_NETWORK), 58),
    (MLPRegressor(**QUICK_NETWORK), 55),
)
def test_scikit_learns_contract(model, least):
    """All checks of the twins, but for sparse rows, several targets and class weights' mixins."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = check_estimator(model, on_skip=None, on_fail=None)
    assert [one["check_name"] for one in done if one["status"] == "failed"] == []
    assert sum(one["status"] == "passed" for one in done) >= least


@cases("classes, spec", (2, None), (3, None), (2, {0: 3, 1: 0.5}), (3, "balanced"))
def test_logistic_regression_is_as_its_twin(classes, spec):
    x, y, weights = sample(classes)
    model = LogisticRegression(C=0.3, tol=1e-9, class_weight=spec).fit(x, y, weights)
    twin = sklearn.linear_model.LogisticRegression(C=0.3, tol=1e-9, class_weight=spec)
    twin.fit(x, y, weights)
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, twin.intercept_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(x), twin.predict_proba(x), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(x), twin.decision_function(x), atol=1e-4)
    assert model.n_iter_.shape == twin.n_iter_.shape
    assert model.n_features_in_ == 3


def test_linear_regression_is_as_its_twin():
    x, y, weights = sample()
    model = LinearRegression(tol=1e-10).fit(x, y, weights)
    twin = sklearn.linear_model.LinearRegression().fit(x, y, weights)
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-6)
    assert model.intercept_ == pytest.approx(twin.intercept_, abs=1e-6)
    # One column twice: the exact ridge refuses it without an alpha.
    twice = np.c_[x, x[:, 0]]
    assert LinearRegression().fit(twice, y).score(twice, y) == pytest.approx(
        model.score(x, y), 1e-3
    )


def test_classes_have_their_names(tmp_path):
    x, y, _ = sample(2)
    names = np.array(["no", "yes, = it"])[y]
    weight = {"yes, = it": 2.0}
    model = LogisticRegression(class_weight=weight).fit(x, names)
    assert model.classes_.tolist() == ["no", "yes, = it"]
    assert (model.predict(x) == names).mean() > 0.8
    model.save(tmp_path / "model.safetensors")
    loaded = mapreduce.load(tmp_path / "model.safetensors")
    assert loaded.predict(x).tolist() == model.predict(x).tolist()
    np.testing.assert_array_equal(loaded.predict(x, probabilities=True), model.predict_proba(x))


@cases(
    "model, options",
    (LogisticRegression(C=0.5), "--model logistic --optimizer lbfgs --rounds 1000"),
    (LinearRegression(), "--model linear --optimizer lbfgs --rounds 1000 --l2 0"),
    (
        MLPClassifier((6, 4), "tanh", alpha=0, max_iter=2, batch_size=40, random_state=3),
        "--model dense:6,tanh,dense:4,tanh --optimizer adam --learning-rate 0.001 --epochs 2 "
        "--batch-size 40 --seed 3 --dtype float64",
    ),
)
def test_the_command_trains_the_same_model(model, options, tmp_path, answer):
    folder = stored(tmp_path / "data", 0 if isinstance(model, LinearRegression) else 2)
    model.fit(folder)
    here = sha256(model)
    words = options.split()
    if isinstance(model, LogisticRegression):
        words += ["--l2", str(1 / (0.5 * sample()[2].sum()))]
    answer(0, "train", folder, "--run", tmp_path / "run", *words, "-q")
    assert mapreduce.open_run(tmp_path / "run").model_sha256 == here
    model.set_params(run=tmp_path / "own", runner="inline", workers=2).fit(folder)
    assert sha256(model) == here
    assert mapreduce.open_run(tmp_path / "own").model_sha256 == here


def test_arrays_are_trained_as_by_the_function(tmp_path):
    x, y, _ = sample(3)
    model = LogisticRegression().fit(x, y)
    options = {"optimizer": "lbfgs", "l2": 1 / len(x), "rounds": 1000, "dtype": "float64"}
    run = mapreduce.train((x, y), "softmax", run=tmp_path / "run", progress=False, **options)
    assert run.model_sha256 == sha256(model)


def test_the_end_of_the_rounds_is_told():
    x, y, _ = sample(2)
    with pytest.warns(ConvergenceWarning, match="not converged after 2 rounds: .* larger max_iter"):
        LogisticRegression(max_iter=2).fit(x, y)


@cases(
    "model, message",
    (LogisticRegression(C=0), "C: expected a number above 0, found 0"),
    (LogisticRegression(tol="x"), "tol: expected 0 or more, found 'x'"),
    (LogisticRegression(class_weight="even"), "class_weight: expected 'balanced' or a dict"),
    (LogisticRegression(class_weight={7: 1}), "class_weight: expected classes of y, found 7"),
    (LogisticRegression(run="r"), "run: expected the folder of a dataset"),
    (
        MLPClassifier(activation="gelu"),
        "activation: expected relu, tanh, logistic, identity, found",
    ),
    (MLPClassifier((0,)), "dense"),
    (MLPClassifier(max_iter=0), "max_iter: expected 1 or more, found 0"),
)
def test_parameters_that_make_no_sense(model, message):
    x, y, _ = sample(2)
    with pytest.raises(UsageError, match=message):
        model.fit(x, y)


def test_rows_that_make_no_sense(tmp_path):
    x, y, _ = sample(2)
    with pytest.raises(ValueError, match="at least two classes, found one class alone, 1"):
        LogisticRegression().fit(x, np.ones(len(x), int))
    with pytest.raises(UsageError, match="expected a dataset whose labels are classes"):
        LogisticRegression().fit(stored(tmp_path / "numbers"))
    with pytest.raises(UsageError, match="expected a dataset whose labels are numbers"):
        LinearRegression().fit(stored(tmp_path / "classes", 2))
    with pytest.raises(ValueError, match="eight"):
        LinearRegression().fit(x, y, np.zeros(len(x)))
