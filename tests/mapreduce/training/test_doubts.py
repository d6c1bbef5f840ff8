"""Scales that are too far apart, and classes that are never predicted: of data that have them."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import mapreduce
from mapreduce.cli.main import main
from mapreduce.data import importer
from mapreduce.runs import outcome
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import RunEnded
from mapreduce.training import doubts
from programs import gradreduce, succeed
from quick import cases

HERE = {"progress": False, "executor": "here"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.toml").write_text("standardise = false\n")
    return tmp_path


def table(x, y):
    return pa.table({f"x{i}": column for i, column in enumerate(x.T)} | {"label": y})


def warnings(x, y, *, evaluation=None, model="softmax", **options):
    options = {"rounds": 2, **HERE, **options}
    if evaluation is not None:
        evaluation = table(*evaluation)
    options["recipe"] = "raw.toml"
    run = mapreduce.train(table(x, y), model, evaluation=evaluation, **options)
    return RunDir(run.path).summary()["warnings"]


def scaled(*scales, rows=200):
    generator = np.random.default_rng(0)
    return generator.normal(size=(rows, len(scales))) * scales, generator.integers(0, 2, rows)


def test_scales_are_compared_before_the_first_round(capsys):
    (found,) = warnings(*scaled(1, 1000, 0.5), learning_rate=1e-9)
    x, _ = scaled(1, 1000, 0.5)
    most, least = abs(x[:, 1]).mean(), abs(x[:, 2]).mean()
    assert f"differ by {most / least:,.3g} times" in found
    assert f"'x1' is {most:.3g} and 'x2' is {least:.3g}" in found
    assert "gradreduce data standardise" in found
    # It is shown once.
    assert capsys.readouterr().err.count("the scales of the features differ") == 1


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "digits"])
def test_known_data(name):
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    found = [one for one in warnings(x, y) if one.startswith("the scales")]
    assert len(found) == (name != "digits")
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    standard = (x - x.mean(axis=0)) / scale
    assert not any(one.startswith("the scales") for one in warnings(standard, y))


def test_no_false_alarms():
    x, y = scaled(1, 90)
    assert warnings(x, y, learning_rate=1e-6) == []
    rare = np.zeros((200, 1))
    rare[3] = 1
    assert warnings(np.hstack([x[:, :1], rare, rare * 1e9, rare * 0]), y) == []
    # A search scales by curvature, and says itself whether it has converged.
    assert warnings(*scaled(1, 1000), model="logistic", optimizer="lbfgs", rounds=50) == []


@cases(
    "model, shift, scale, is_told",
    ("dense:4,relu", 0, 1, False),
    ("dense:4,relu", 20, 10, False),
    ("dense:4,relu", 1e6, 2e5, True),
    ("dense:4,relu", -900, 1, True),
    ("dense:4,relu", 0, 400, True),
    # Whose loss has one best point for any labels.
    ("linear", 1e6, 2e5, False),
)
def test_labels_that_are_far_from_one(model, shift, scale, is_told):
    x = scaled(1, 1)[0]
    y = shift + scale * x[:, 0]
    found = [
        one
        for one in warnings(x, y, model=model, learning_rate=1e-12)
        if one.startswith("the labels have the mean")
    ]
    assert len(found) == is_told
    if found:
        deviation = f"standard deviation {y.std():.3g}"
        assert f"mean {y.mean():.3g} and the {deviation}, and steps of sgd" in found[0]


def test_the_advice_for_large_labels_helps():
    x = scaled(1, 1)[0]
    y = 1e6 + 2e5 * x[:, 0]
    (advice,) = warnings(x, y, model="dense:4,relu", learning_rate=1e-12)
    mean, deviation = re.search(r"\(label - (\S+)\) / (\S+) as", advice).groups()
    data = table(x, (y - float(mean)) / float(deviation))
    run = mapreduce.train(data, "dense:4,relu", label="label", rounds=40, batch_size=0, **HERE)
    assert run.evaluate(data, runner="inline").r2 > 0.8
    assert not any("labels" in one for one in run._run.summary()["warnings"])


@pytest.mark.slow
def test_sparse_rows(folder):
    lines = [f"{i % 2} {1 + i % 3}:1 4:{1000 if i % 5 else 0} 5:0.001\n" for i in range(300)]
    (folder / "rows.svm").write_text("".join(lines))
    succeed("data", "import", "--format", "libsvm", "rows.svm", "data", cwd=folder)
    train = ["train", "data", "--model", "logistic", "--rounds", 1, "-q", "--run"]
    assert "differ by 1e+06 times: on average feature 3" in gradreduce(*train, "a").stderr
    succeed("data", "standardise", "data", "standard", cwd=folder)
    train[1] = "standard"
    assert gradreduce(*train, "b", cwd=folder).stderr == ""


def test_classes_that_are_never_predicted(folder):
    generator = np.random.default_rng(0)
    y = np.array(["no"] * 380 + ["yes"] * 20)
    x = generator.normal(size=(400, 3)) + (y == "yes")[:, None] * 0.3
    (found,) = warnings(x, y, evaluation=(x, y), epochs=2, rounds=None)
    assert found.startswith("1 of 2 classes are never predicted in the first 400 rows")
    assert "'yes' (20 rows)" in found
    assert "--class-weight balanced" in found
    balanced = {"class_weight": "balanced", "epochs": 5, "rounds": None}
    assert warnings(x, y, evaluation=(x, y), **balanced) == []
    # A class that is not among the rows cannot be missed.
    assert warnings(x, y, evaluation=(x[:380], y[:380])) == []


def test_only_so_many_rows_are_predicted(monkeypatch):
    monkeypatch.setattr(doubts, "_SLICES", 1)
    y = np.array(["no"] * 1000 + ["yes"] * 100)
    x = np.zeros((1100, 1))
    (found,) = warnings(x, y, evaluation=(x, y))
    assert "in the first 512 rows" in found


def test_the_exit_line_and_the_list_show_all_warnings(folder):
    from sklearn import datasets

    x, y = datasets.load_wine(return_X_y=True)
    csv.write_csv(table(x, y), folder / "wine.csv")
    succeed("data", "import", "--no-standardise", "wine.csv", "data", cwd=folder)
    command = ["train", "data", "--run", "run", "--eval", "data", "--epochs", 1]
    done = gradreduce(*command, cwd=folder)
    last = [line for line in done.stderr.splitlines() if line.startswith("warning: ")][-3:]
    starts = ["the training diverged", "the scales of the features", "2 of 3 classes are never"]
    # Scales are told of before the first round, too.
    counts = [done.stderr.count(f"warning: {start}") for start in starts]
    assert counts == [1, 2, 1]
    assert [line[9 : 9 + len(start)] for line, start in zip(last, starts, strict=True)] == starts
    assert [line.strip() for line in succeed("runs", "list", cwd=folder).splitlines()[1:]] == last


@pytest.mark.parametrize(
    ("losses", "expected"),
    {
        "one pass": ([0.7, 0.69, 0.66, 0.62], True),
        "a line": (np.linspace(2, 1, 40), True),
        "an exponential": (0.3 + 2 * np.exp(-np.arange(60) / 8), False),
        "a slow one": (0.3 + 2 * np.exp(-np.arange(60) / 80), True),
        "noise": (np.random.default_rng(0).normal(1, 0.1, 40), False),
        "no fall": (np.full(20, 0.5), False),
        "risen": (np.linspace(1, 2, 20), False),
        "too few": ([0.7, 0.6, 0.5], False),
        "lost": ([0.7, 0.6, None, 0.4], False),
    }.values(),
)
def test_losses_that_fell_until_the_end(losses, expected):
    found = {at: (9.0, loss) for at, loss in enumerate(losses, 1)}
    ended = RunEnded(len(found), "0" * 64, stopped_early=False)
    assert bool(outcome.hardly_trained(ended, found)) == expected
    for other in (None, replace(ended, stopped_early=True), replace(ended, search="converged")):
        assert outcome.hardly_trained(other, found) is None


def test_what_always_guessing_would_score(capsys):
    x = np.arange(20.0).reshape(10, 2)
    own, other = np.array([*"aabbbbbbcc"]), np.array([*"aaab"])
    run = mapreduce.train(table(x, own), evaluation=table(x[:4], other), rounds=1, **HERE)
    said = "always guessing 'b', the commonest class, would have accuracy 0.2500"
    assert doubts.guessing(RunDir(run.path).config) == said
    numbers = mapreduce.train(table(x, x[:, 0] + 0.5), rounds=1, **HERE)
    loss = x[:, 0].var() / 2
    said = f"always guessing the mean would have loss {loss:.4f} on the training data"
    assert doubts.guessing(RunDir(numbers.path).config) == said
    assert numbers.plan.model == "linear"


def test_what_guessing_the_mean_scores_is_of_all_rows_or_says_of_which(tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "rows_per_shard", lambda row_bytes: 30)
    x = np.random.default_rng(1).lognormal(0, 2, (100, 2))
    run = mapreduce.train((x, x[:, 0]), run=tmp_path / "run", rounds=1, **HERE)
    loss = x[:, 0].var() / 2
    said = f"always guessing the mean would have loss {loss:.4f} on the training data"
    assert doubts.guessing(RunDir(run.path).config) == said
    monkeypatch.setattr(doubts, "_SHARDS", 2)
    said = doubts.guessing(RunDir(run.path).config)
    assert "the mean would have loss about " in said
    assert ", by the first 60 of 100 rows of /" in said


def test_a_search_that_ends_at_the_guess_has_learned_nothing(tmp_path, capsys):
    """Whole numbers from 2**24 on, as seconds since 1970 are, of which float32 makes one."""
    rows = [(2**24 + i % 2, "ab"[i % 2]) for i in range(60)]
    (tmp_path / "t.csv").write_text("v,label\n" + "".join(f"{x},{y}\n" for x, y in rows))
    for more, remark in ((["--dtype", "float64"], False), ([], True)):
        out = str(tmp_path / f"data{len(more)}")
        options = ["--no-standardise", *more]
        assert main(["data", "import", str(tmp_path / "t.csv"), out, *options]) == 0
        said = "the first 60 rows have 2 different numbers, of which float32 makes 1"
        assert (said in capsys.readouterr().err) == remark
    assert main(["data", "import", str(tmp_path / "t.csv"), str(tmp_path / "scaled")]) == 0
    assert "float32" not in capsys.readouterr().err
    run = mapreduce.train(tmp_path / "data0", "logistic", run=tmp_path / "run", **HERE)
    (warning,) = RunDir(run.path).summary()["warnings"]
    assert warning.startswith("nothing was learned: the search ended where it began")
    again = mapreduce.train(tmp_path / "scaled", "logistic", run=tmp_path / "scaled-run", **HERE)
    assert not [w for w in RunDir(again.path).summary()["warnings"] if "nothing" in w]
