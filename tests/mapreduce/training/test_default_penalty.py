"""The models that tables get by default; oracle: scikit-learn's, with its defaults."""

import numpy as np
import pyarrow as pa
import pytest

import mapreduce
from mapreduce.training import doubts
from quick import cases

HERE = {"executor": "here", "progress": False}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def columns(kind, rows=150):
    """Numbers of other scales, of which two are nearly the same; a category; labels; weights."""
    random = np.random.default_rng(4)
    x = random.normal(size=(rows, 4)) * [1, 50, 3, 1] + [0, 900, 1, 0]
    x[:, 3] = x[:, 0] + random.normal(size=rows) * 1e-3
    town = random.choice(["Rome", "Oslo", "Bern"], rows)
    score = x[:, 0] + (x[:, 1] - 900) / 50 + (town == "Oslo") + random.normal(size=rows)
    labels = {
        "numbers": 1e3 + 20 * score,
        "two": np.where(score > 0, "up", "down"),
        "three": np.array(["low", "mid", "top"])[np.digitize(score, [-0.5, 1.0])],
    }[kind]
    return x, town, labels, random.integers(1, 4, rows)


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@cases(
    "kind, model",
    ("numbers", None),
    ("two", None),
    ("three", None),
    ("two", "logistic"),
    ("two", "svm"),
)
def test_the_model_is_that_of_scikit_learn(kind, model, is_weighted):
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import LinearSVC

    x, town, labels, weights = columns(kind)
    weights = weights if is_weighted else np.ones_like(weights)
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "d": x[:, 3], "town": town})
    table = table.append_column("label", pa.array(labels))
    options = {"tol": 1e-9, "recipe": {"dtype": "float64"}, **HERE}
    if is_weighted:
        table = table.append_column("w", pa.array(weights))
        options["weights"] = "w"
    run = mapreduce.train(table, *([model] if model else []), label="label", **options)
    scaled = StandardScaler().fit(x, sample_weight=weights).transform(x)
    features = np.hstack([scaled, OneHotEncoder(sparse_output=False).fit_transform(town[:, None])])
    if model == "svm":
        # Whose intercept is penalised, too, unless it is large.
        theirs = LinearSVC(intercept_scaling=1e3, tol=1e-9, max_iter=10**6, dual=False)
    else:
        theirs = Ridge() if kind == "numbers" else LogisticRegression(tol=1e-9, max_iter=9999)
    theirs = make_pipeline(theirs)
    theirs.fit(features, labels, **{f"{theirs.steps[0][0]}__sample_weight": weights})
    if kind == "numbers":
        found, expected = run.predict(table), theirs.predict(features)
    elif model == "svm":
        weight = run.parameters["weight"].reshape(-1)
        places = [0, 1, 2, 3, 4, 5, 6]
        found, expected = weight[places], theirs.steps[0][1].coef_[0]
        sign = np.sign(found @ expected)
        found = sign * found
    else:
        found = np.stack(run.predict(table)["probabilities"].to_pylist())
        expected = theirs.predict_proba(features)
    if kind == "numbers":
        found = found["prediction"].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_without_a_penalty():
    x, _, labels, _ = columns("numbers")
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "label": labels})
    run = mapreduce.train(table, l2=0, recipe={"dtype": "float64"}, **HERE)
    assert run.plan.l2 == 0
    design = np.column_stack([x[:, :2], np.ones(len(x))])
    expected = design @ np.linalg.lstsq(design, labels, rcond=None)[0]
    found = run.predict(table)["prediction"].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@cases("count, options, advice",
    (60, {}, r"62 features for 60 rows; 61 are those of 'name'\..*--l2 0\.17;"),
    (60, {"l2": 0}, r"62 features for 60 rows.*--l2 0\.017;"),
    (30, {}, None),
)  # fmt: skip
def test_more_features_than_rows_are_told_of(count, options, advice):
    rows = {"name": [f"n{i % count}" for i in range(60)], "x": np.arange(60) / 7}
    table = pa.table({**rows, "label": np.arange(60) % 7 / 3})
    run = mapreduce.train(table, recipe={"category": ["name"]}, rounds=None, **options, **HERE)
    found = [one for one in run._run.summary()["warnings"] if "features for" in one]
    assert len(found) == (advice is not None)
    if advice:
        import re

        assert re.search(advice, found[0])
    assert doubts.width(run._run) == (found[0] if found else None)
