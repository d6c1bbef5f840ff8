"""Every metric of an evaluation is scikit-learn's, whatever the slices, tasks and runners."""

import json
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest

import mapreduce
from builders import trained
from datasets import blobs
from mapreduce.errors import DataError
from mapreduce.inference import base, metrics, report
from mapreduce.inference.base import Inference
from mapreduce.inference.evaluate import Score
from mapreduce.inference.request import Request
from mapreduce.plan.settings import Settings
from mapreduce.reduction.message import Message
from mapreduce.runs import checkpoint
from mapreduce.runs.execution import Execution
from mapreduce.training import creating
from programs import gradreduce, succeed

HERE = {"progress": False, "executor": "here"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "SLICE_ROWS", 37)
    return tmp_path


@pytest.fixture
def oracle():
    """What scikit-learn measures."""
    from sklearn import metrics

    return metrics


def rows(classes, count=300, seed=0):
    generator = np.random.default_rng(seed)
    y = generator.integers(0, classes, count)
    centres = np.random.default_rng(9).normal(size=(classes, 4))
    return centres[y] + generator.normal(size=(count, 4)), y, generator.uniform(0, 3, count)


def classifier(model, classes, weighted):
    """A run, its report on the rows that it learned from, their labels, weights and chances."""
    x, y, weights = rows(classes)
    run = mapreduce.train((x, y), model, epochs=3, dtype="float64", **HERE)
    given = weights if weighted else None
    found = run.evaluate((x, y), weights=given, runner="inline")
    return run, found, x, y, given, run.predict(x, probabilities=True, runner="inline")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("model", "classes"), [("softmax", 4), ("logistic", 2), ("mlp:3", 2)])
def test_classifiers(model, classes, weighted, oracle):
    _, found, _, y, given, chances = classifier(model, classes, weighted)
    predicted = chances.argmax(axis=1)
    how = {"sample_weight": given}
    assert found.accuracy == (predicted == y).mean()
    assert found.weighted_accuracy == pytest.approx(oracle.accuracy_score(y, predicted, **how))
    assert found.log_loss == found.loss == pytest.approx(oracle.log_loss(y, chances, **how))
    np.testing.assert_allclose(found.confusion, oracle.confusion_matrix(y, predicted, **how))
    expected = oracle.classification_report(y, predicted, output_dict=True, **how)
    names = {"f1": "f1-score"}
    for entry in found.by_class:
        theirs = expected[str(entry.pop("class"))]
        assert entry == pytest.approx({name: theirs[names.get(name, name)] for name in entry})
    for kind, rates in found.averages.items():
        theirs = expected[f"{kind} avg"]
        assert rates == pytest.approx({name: theirs[names.get(name, name)] for name in rates})
    scores = chances[:, 1] if classes == 2 else chances
    # scikit-learn takes no weights for more classes.
    areas = [oracle.roc_auc_score(y == k, chances[:, k], **how) for k in range(classes)]
    area = oracle.roc_auc_score(y, scores, **how) if classes == 2 else np.mean(areas)
    assert abs(found.roc_auc - area) <= found.roc_auc_error + 1e-12
    assert found.roc_auc_error < 0.01
    json.dumps(found.to_dict(), allow_nan=False)


def calibration(y, predicted, chances, weights):
    """Expected calibration error of 15 bins, row by row."""
    bins = {}
    for right, row, weight in zip(y == predicted, chances, weights, strict=True):
        at = next(i for i in range(15) if max(row) <= (i + 1) / 15)
        sums = bins.setdefault(at, [0, 0, 0])
        for place, value in enumerate((1, max(row), right)):
            sums[place] += weight * value
    error = sum(abs(right - confidence) for _, confidence, right in bins.values())
    return error / sum(weights), bins


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("model", "classes"), [("softmax", 4), ("logistic", 2), ("mlp:3", 70)])
def test_calibration(model, classes, weighted, oracle):
    run, found, x, y, given, chances = classifier(model, classes, weighted)
    scores = chances[:, 1] if classes == 2 else chances
    how = {"sample_weight": given, "labels": run.classes}
    assert found.brier_score == pytest.approx(oracle.brier_score_loss(y, scores, **how))
    predicted = run.predict(x, runner="inline")
    error, bins = calibration(y, predicted, chances, given if weighted else np.ones(len(y)))
    assert found.expected_calibration_error == pytest.approx(error)
    assert [entry["bin"] for entry in found.reliability] == sorted(bins)
    for entry in found.reliability:
        weight, confidence, right = bins[entry.pop("bin")]
        expected = {"confidence": confidence / weight, "accuracy": right / weight, "weight": weight}
        assert entry == pytest.approx(expected)
    shown = f"Brier score {found.brier_score:.4f}, expected calibration error {error:.4f}"
    assert shown in str(found).splitlines()


@pytest.mark.parametrize("weighted", [False, True])
def test_regression(weighted, oracle):
    x, _, weights = rows(2)
    # Far from 0, where sums of squares would lose all digits.
    y = x @ [1.0, -2.0, 0.5, 3.0] + np.random.default_rng(1).normal(size=len(x)) + 1e6
    run = mapreduce.train((x, y), "linear", optimizer="lbfgs", dtype="float64", **HERE)
    given = weights if weighted else None
    found = run.evaluate((x, y), weights=given, runner="inline")
    predicted = run.predict(x, runner="inline")
    how = {"sample_weight": given}
    assert found.accuracy is None
    assert found.r2 == pytest.approx(oracle.r2_score(y, predicted, **how), abs=1e-8)
    assert found.rmse == pytest.approx(oracle.root_mean_squared_error(y, predicted, **how))
    assert found.mae == pytest.approx(oracle.mean_absolute_error(y, predicted, **how))
    assert found.rmse**2 / 2 == pytest.approx(found.loss)
    assert f"R² {found.r2:.4f}, RMSE" in str(found)
    assert (found.expected_calibration_error, found.reliability) == (None, [])


def test_of_equal_numbers_there_is_no_r2():
    x, *_ = rows(2, 20)
    run = mapreduce.train((x, np.ones(20)), "linear", **HERE)
    found = run.evaluate((x, np.ones(20)), runner="inline")
    assert found.r2 is None
    assert "R² –" in str(found)


def test_scores_of_an_svm_are_its_margins_and_it_has_no_log_loss(oracle):
    x, y, _ = rows(2)
    # Probabilities are rounded to 0 and 1 here.
    run = mapreduce.train((x * 100, y), "hinge-svm", epochs=5, **HERE)
    found = run.evaluate((x * 100, y), runner="inline")
    parameters = run.parameters
    margins = x * 100 @ parameters["weight"] + parameters["bias"]
    assert abs(found.roc_auc - oracle.roc_auc_score(y, margins)) <= found.roc_auc_error + 1e-4
    assert found.log_loss is None
    assert "log loss" not in str(found)


def test_classes_that_do_not_occur(oracle):
    x, y, _ = rows(4)
    run = mapreduce.train((x, y), "softmax", epochs=3, **HERE)
    part = y < 2
    found = run.evaluate((x[part], y[part]), runner="inline")
    predicted = run.predict(x[part], runner="inline")
    expected = oracle.precision_recall_fscore_support(
        y[part], predicted, average="macro", zero_division=0
    )
    assert [*found.averages["macro"].values()] == pytest.approx(expected[:3])
    one = run.evaluate((x[y == 1], y[y == 1]), runner="inline")
    assert one.roc_auc is None
    assert "ROC" not in str(one)


def test_many_classes_are_told_by_the_worst(oracle):
    x, y, _ = rows(80, 800)
    run = mapreduce.train((x, y), "softmax", epochs=3, **HERE)
    found = run.evaluate((x, y), runner="inline")
    predicted = run.predict(x, runner="inline")
    matrix = oracle.confusion_matrix(y, predicted)
    np.testing.assert_array_equal(found.confusion, matrix)
    np.fill_diagonal(matrix, 0)
    pairs = found.most_confused()
    assert [pair["weight"] for pair in pairs] == sorted(matrix.ravel())[:-11:-1]
    assert all(matrix[pair["label"], pair["prediction"]] == pair["weight"] for pair in pairs)
    text = str(found)
    assert "the 10 of 80 classes with the lowest F1" in text
    assert "most confused" in text
    assert len(text.splitlines()) < 40
    assert (found.roc_auc, found.to_dict()["confusion"]) == (None, None)


@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_off_by_no_more_than_it_says(seed, oracle):
    generator = np.random.default_rng(seed)
    y = generator.random(500) < 0.3
    scores = (generator.normal(size=500) + y) * 10.0 ** generator.integers(-3, 4)
    scores[::7] = 0.0
    scores[1::7] = -0.0
    exact = oracle.roc_auc_score(y, scores.astype(np.float32))
    found = report._curves(scores[:, None], y.astype(int), np.ones(500), 1)
    for bits in (6, 12, 20, 32):
        coarse = report._cells(found.keys, found.sums, bits)
        area, error = metrics.area(coarse.keys, coarse.sums)
        assert abs(area - exact) <= error + 1e-12
    assert area == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_area_of_equal_scores_is_exact(dtype, classes, oracle):
    # A third of the rows share one score, so that their pairs would be a large error.
    chance = np.random.default_rng(3)
    x = np.where(chance.random(400) < 0.3, 0.0, chance.integers(0, 6, 400) / 7)[:, None]
    y = chance.integers(0, classes, 400)
    run = mapreduce.train((x, y), "softmax", epochs=2, dtype=dtype, **HERE)
    chances = run.predict(x, probabilities=True, runner="inline")
    areas = [oracle.roc_auc_score(y == k, chances[:, k]) for k in range(classes)]
    found = run.evaluate((x, y), runner="inline")
    assert found.roc_auc == pytest.approx(np.mean(areas[classes == 2 :]), abs=1e-12)
    assert found.roc_auc_error == 0.0
    assert "off by" not in str(found)


@pytest.mark.parametrize("seed", range(4))
def test_only_different_scores_in_a_cell_are_a_doubt_in_any_order(seed, oracle):
    chance = np.random.default_rng(seed)
    scores = np.round(chance.normal(size=600), 1)
    # Some differ as float64 alone, and some are equal.
    scores[::5] += 1e-12 * (seed % 2)
    y, weights = chance.integers(0, 2, 600), chance.uniform(0, 2, 600)
    exact = oracle.roc_auc_score(y, scores, sample_weight=weights)
    nothing = report.Histogram(np.empty(0, np.int64), np.empty((0, 2)))
    score = Score(0, 0, 0.0, 0.0)
    for _ in range(3):
        tallies = [
            report.Tally(
                score,
                nothing,
                report._curves(scores[part, None], y[part], weights[part], 1),
                nothing,
                32,
                np.zeros(5),
            )
            for part in np.array_split(chance.permutation(600), 7)
        ]
        for number in range(seed):
            tallies[number] = tallies[number].coarser()
        # As tasks hand them over.
        tallies = [report.from_message(report.to_message(tally)) for tally in tallies]
        whole = reduce(add, tallies)
        area, error = metrics.area(whole.curves.keys, whole.curves.sums)
        assert abs(area - exact) <= error + 1e-12
        assert (error == 0) == (seed % 2 == 0)
        assert area == pytest.approx(exact, abs=1e-12 if error == 0 else 1e-2)


def test_cells_of_an_earlier_version_may_hold_any_scores():
    found = report._curves(np.array([[0.5], [0.5]]), np.array([0, 1]), np.ones(2), 1)
    tally = report.Tally(Score(0, 0, 0.0, 0.0), found, found, found, 32, np.zeros(5))
    message = report.to_message(tally)
    old = Message(message.meta, {**message.arrays, "curves_sums": found.sums[:, :2]})
    for one, other, error in ((old, old, 0.5), (old, message, 0.5), (message, message, 0.0)):
        whole = report.from_message(one) + report.from_message(other)
        assert metrics.area(whole.curves.keys, whole.curves.sums) == (0.5, error)


def test_more_scores_than_bins_are_counted_by_their_leading_bits(monkeypatch):
    x, y, _ = rows(2, 2000)
    run = mapreduce.train((x, y), "logistic", epochs=2, **HERE)
    exact = run.evaluate((x, y), runner="inline")
    monkeypatch.setattr(report, "MOST_BINS", 300)
    found = run.evaluate((x, y), runner="inline")
    assert exact.roc_auc_error == 0.0
    assert 0 < abs(found.roc_auc - exact.roc_auc) <= found.roc_auc_error < 0.01
    assert replace(found, roc_auc=0, roc_auc_error=0) == replace(exact, roc_auc=0, roc_auc_error=0)


def test_tasks_and_runners_give_the_same_bits(folder):
    data = blobs(folder / "data")
    run = creating.create(folder / "run", Settings("softmax"), data.folder, None)
    params = np.random.default_rng(0).normal(size=39).astype(np.float32)
    inference = Inference(checkpoint.fitted_with(run, params), data.folder)
    leaves, bits = inference.leaves, []
    for cuts in ([0, leaves], [0, 1, 5, leaves], range(leaves + 1)):
        fold = report.TALLIES.fold(leaves)
        for start, stop in pairwise(cuts):
            part = report.TALLIES.nodes(
                leaves, range(start, stop), lambda n: report.tally_of(inference, inference.leaf(n))
            )
            for node, tally in part:
                fold.add(node, report.from_message(report.to_message(tally)))
        message = report.to_message(fold.result())
        bits.append([message.meta, *(array.tobytes() for array in message.arrays.values())])
    assert bits[0] == bits[1] == bits[2]


@pytest.mark.slow
def test_the_command_on_every_runner(folder):
    blobs(folder / "data", (900, 700))
    succeed("train", "data", "--run", "run", "--rounds", 3, cwd=folder)
    texts = [
        succeed("evaluate", "run", "data", "--json", "-r", runner, "--workers", workers, cwd=folder)
        for runner, workers in (("inline", 1), ("parallel", 1), ("parallel", 3), ("local", 2))
    ]
    assert len({*texts}) == 1
    content = json.loads(texts[0])
    shown = succeed("evaluate", "run", "data", cwd=folder)
    assert shown.startswith(
        f"accuracy {content['accuracy']:.4f}, loss {content['loss']:.4f} on 1,600"
    )
    assert f"ROC AUC {content['roc_auc']:.4f} (macro" in shown
    assert "confusion matrix" in shown


def test_without_labels(folder):
    data = blobs(folder / "data")
    run = trained(folder / "run", data.folder, Settings("softmax", rounds=1))
    manifest = replace(data.manifest, target=None, classes=None, class_rows=None)
    (folder / "data" / "manifest.json").write_text(manifest.to_json())
    with pytest.raises(DataError, match="expected labels to compare"):
        request = Request(checkpoint.fitted(run), data.folder, Execution("inline"))
        request.of_dataset(data.folder, labelled=True)
    assert gradreduce("evaluate", "run", "data", cwd=folder).returncode == 65
