"""Searches with folds: each part of the data evaluates models of the others; the mean decides."""

import csv
import json
import os
import shlex
import signal
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest

from mapreduce.data import order
from mapreduce.data.shards import Dataset
from mapreduce.errors import NonFiniteError
from mapreduce.runs.directory import RunDir
from mapreduce.searching.directory import SearchDir
from mapreduce.searching.page import page_of
from mapreduce.training import driver as training
from quick import cases

SPACE = "--model", "mlp:4..16|softmax", "--learning-rate", "log:0.01..1", "--epochs", 2
#: What holds out slices draws from this stream.
HELD_OUT = 1 << 61


@pytest.fixture
def folds(search):
    """Searches with folds; the summary and the rows of both tables."""

    def run(*options, count=3, **more):
        found = search(*options, "--folds", count, evaluated=False, **more)
        if isinstance(found, str):
            return found
        rows = csv.DictReader(Path(found["folds"]).read_text().splitlines())
        return {**found, "parts": [*rows]}

    return run


def tables(found):
    """The bytes of both tables."""
    return [Path(found[name]).read_bytes() for name in ("table", "folds")]


def slices_of(dataset, rows):
    """The features and labels of all slices, in order."""
    for shard in range(len(dataset.manifest.shards)):
        last = dataset.manifest.shards[shard].rows
        for start in range(0, last, rows):
            batch = dataset.shard(shard).rows(start, min(start + rows, last))
            yield batch.features.astype(float), batch.labels


def descended(x, y, rate, steps):
    """Softmax regression by full gradient descent, from zeros."""
    weights, bias, wanted = np.zeros((x.shape[1], 3)), np.zeros(3), np.eye(3)[y]
    for _ in range(steps):
        error = (probabilities(x, weights, bias) - wanted) / len(x)
        weights, bias = weights - rate * x.T @ error, bias - rate * error.sum(0)
    return weights, bias


def probabilities(x, weights, bias):
    logits = x @ weights + bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def test_a_plain_loop(folds, data):
    """Trains on all parts but one and evaluates on this one, for each part."""
    options = "--model", "softmax", "--batch-size", 0, "--slice-rows", 20, "--epochs", 4
    found = folds(*options, "--learning-rate", "0.1|0.5", "--sampler", "grid", count=5)
    slices = [*slices_of(Dataset(data / "train"), 20)]
    drawn = order.permutation(0, HELD_OUT, len(slices))
    cuts = [part * len(slices) // 5 for part in range(6)]
    for row in found["rows"]:
        losses, accuracies = [], []
        for number in range(5):
            part = {*drawn[cuts[number] : cuts[number + 1]].tolist()}
            held = [each for at, each in enumerate(slices) if at in part]
            others = [each for at, each in enumerate(slices) if at not in part]
            x, y = map(np.concatenate, zip(*others, strict=True))
            model = descended(x, y, float(row["learning_rate"]), 4)
            x, y = map(np.concatenate, zip(*held, strict=True))
            chances = probabilities(x, *model)
            losses.append(-np.log(chances[np.arange(len(y)), y]).mean())
            accuracies.append((chances.argmax(1) == y).mean())
        np.testing.assert_allclose(float(row["loss"]), np.mean(losses), rtol=1e-5)
        np.testing.assert_allclose(float(row["loss_std"]), np.std(losses), rtol=1e-3)
        np.testing.assert_allclose(float(row["accuracy"]), np.mean(accuracies), rtol=1e-12)
        np.testing.assert_allclose(float(row["accuracy_std"]), np.std(accuracies), rtol=1e-12)
    best = min(found["rows"], key=lambda row: float(row["loss"]))
    assert str(found["best"]) == best["trial"]


@cases(
    "options",
    SPACE,
    ("--optimizer", "lbfgs", "--l2", "log:0.01..1", "--epochs", 5),
    ("--patience", 1, "--learning-rate", "3|0.1", "--epochs", 5),
    ids=["sgd", "lbfgs", "patience"],
)
def test_each_row_is_its_command(options, folds, answer, tmp_path, monkeypatch):
    found = folds(*options, "--trials", 2)
    monkeypatch.chdir(tmp_path)
    assert [(row["trial"], row["fold"]) for row in found["parts"]] == [
        (trial, fold) for trial in "01" for fold in "123"
    ]
    for row in found["parts"]:
        command = shlex.split(row["command"])[1:]
        assert command[command.index("--fold") + 1] == f"{row['fold']}/3"
        run = json.loads(answer(0, *command, "--executor", "here", "--json", "-q").out)
        told = run["model_sha256"], str(run["model_rounds"]), run["eval_loss"], run["accuracy"]
        scores = float(row["loss"]), float(row["accuracy"])
        assert told == (row["model_sha256"], row["rounds"], *scores)
    for row in found["rows"]:
        parts = [part for part in found["parts"] if part["trial"] == row["trial"]]
        for name in ("command", "model_sha256", "rounds"):
            assert row[name] == parts[0][name]
        for name in ("loss", "accuracy"):
            scores = [float(part[name]) for part in parts]
            assert (row[name], row[f"{name}_std"]) == (str(fmean(scores)), str(pstdev(scores)))


def test_one_table_for_any_execution_after_kills_and_an_extension(folds, tmp_path, monkeypatch):
    options = *SPACE[:4], "--rungs", "1,2", "--trials"
    expected = folds(*options, 4)
    inline = folds(*options, 4, "-r", "inline", name="inline", executor="")
    part = folds(*options, 3, name="part")
    whole = folds(*options, 4, name="part")
    assert tables(expected) == tables(inline) == tables(whole)
    assert part["table_sha256"] != expected["table_sha256"]
    train, killed = training.train, tmp_path / "killed"

    def die(run, *more, **how):
        mark = killed / run.path.name
        if mark.name in ("00001-2", "00002-3") and not mark.exists():
            mark.mkdir(parents=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return train(run, *more, **how)

    monkeypatch.setattr(training, "train", die)
    again = folds(*options, 4, "--workers", 2, name="again", executor="")
    assert len([*killed.iterdir()]) == 2 and tables(again) == tables(expected)
    for name in ("search", "inline", "part", "again"):
        best = RunDir(tmp_path / name / "best")
        assert best.config.plan.fold is None and best.config.plan.held_out_slices == 0
        assert (
            best.config.plan.model
            == RunDir(tmp_path / "search/trials" / f"{expected['best']:05d}-1").config.plan.model
        )
    digests = {RunDir(tmp_path / n / "best").summary()["model_sha256"] for n in ("part", "again")}
    assert len(digests) == 1 and expected["model_sha256"] not in digests


def test_the_mean_of_the_folds_decides_which_trials_go_on(folds, tmp_path):
    found = folds("--learning-rate", "log:0.001..1", "--rungs", "1,3", "--trials", 6, count=2)
    results = tmp_path / "search/results"

    def mean(number):
        names = [f"{number:05d}-{fold}.0.json" for fold in (1, 2)]
        return fmean(json.loads((results / name).read_text())["loss"] for name in names)

    ended = [int(row["trial"]) for row in found["rows"] if row["state"] == "ended"]
    assert sorted(ended) == sorted(sorted(range(6), key=mean)[:2])
    assert len([*results.iterdir()]) == 2 * (6 + 2)
    assert (found["ended"], found["cut"]) == (2, 4)
    cut = next(row for row in found["rows"] if row["state"] == "cut")
    np.testing.assert_allclose(float(cut["loss"]), mean(int(cut["trial"])), rtol=1e-15)


def test_a_fold_that_fails_and_equal_plans(folds, monkeypatch):
    train = training.train

    def fail(run, *more, **how):
        if run.path.name == "00001-2":
            raise NonFiniteError(f"{run.path}: the loss is NaN")
        return train(run, *more, **how)

    monkeypatch.setattr(training, "train", fail)
    options = "--learning-rate", "0.1|1e-1|0.2|2e-1", "--sampler", "grid", "--epochs", 1
    found = folds(*options, count=2)
    assert (found["equal"], found["ended"] + found["failed"]) == (2, 4)
    bad = [row for row in found["rows"] if row["state"] == "failed"]
    assert {row["reason"] for row in bad} == {"fold 2: trial 1: the loss is NaN"}
    assert "1" in {row["trial"] for row in bad} and not bad[0]["loss"]
    parts = [row["state"] for row in found["parts"] if row["trial"] == bad[0]["trial"]]
    assert parts == ["ended", "failed"]
    same = next(row for row in found["rows"] if row["same_as"])
    first = found["rows"][int(same["same_as"])]
    for name in ("loss", "loss_std", "accuracy_std", "model_sha256", "reason"):
        assert same[name] == first[name]


def test_with_patience_the_best_is_the_first_folds(folds, tmp_path):
    found = folds("--patience", 1, "--learning-rate", "3|0.1", "--epochs", 5, "--trials", 2)
    assert RunDir(tmp_path / "search/best").summary()["model_sha256"] == found["model_sha256"]


@cases(
    "options, message",
    (("--folds", 1), "--folds: expected a number from 2 to 1,000, found 1"),
    (("--folds", 3, "--eval", "test"), "--eval has other rows for that. Leave out one of them"),
    (("--folds", 3, "--held-out", 9), "--held-out has other rows for that"),
    (("--folds", 3, "--fold", "1/2"), "--fold has other rows for that"),
    (("--folds", 3, "--strategy", "averaging"), "--fold: expected the default, since --strategy"),
    (("--folds", 10, "--slice-rows", 64), "--fold 1/10: expected at most 9 parts"),
)
def test_what_is_refused(options, message, search, data, tmp_path):
    options = [data / "test" if each == "test" else each for each in options]
    assert message in search(*options, "--epochs", 1, code=2, evaluated=False)
    assert not (tmp_path / "search").exists()


def test_folds_are_of_the_search(folds, search):
    folds(*SPACE, "--trials", 1)
    assert "folds was 3, now 2" in folds(*SPACE, "--trials", 1, count=2, code=73)
    assert "folds was 3, now 0" in search(*SPACE, "--trials", 1, evaluated=False, code=73)


def test_the_command_and_the_page_say_the_spread(folds, data, tmp_path, answer):
    found = folds(*SPACE, "--trials", 2)
    folder = tmp_path / "search"
    options = *SPACE, "--trials", 2, "--folds", 3, "--executor", "here"
    printed = answer(0, "search", data / "train", "--run", folder, *options)
    score = f"loss {found['loss']:.4g} ± {found['loss_std']:.2g}"
    assert printed.out.startswith(f"best: trial {found['best']} of 2, {score}: ")
    page = page_of(SearchDir(folder))
    assert f"{found['loss']:.4g} ± {found['loss_std']:.2g}" in page
    assert "each of 3 folds" in page and ">loss std<" in page
