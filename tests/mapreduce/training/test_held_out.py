"""A synchronous training holds rows out, and evaluates the model on them."""

import json

import numpy as np
import pytest

from datasets import blobs
from mapreduce.data.shards import Dataset
from mapreduce.models.context import Context
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.training import creating
from quick import cases

SIZES = "--batch-size", 64, "--slice-rows", 16, "--epochs", 2
OPTIONS = "--held-out", 70, *SIZES


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held-out")
    blobs(folder / "train")
    blobs(folder / "test", (100,), seed=1)
    return folder


@pytest.fixture
def train(data, tmp_path, answer):
    def run(*options, name="run", code=0, executor=("--executor", "here")):
        start = "train", data / "train", "--run", tmp_path / name
        printed = answer(code, *start, *executor, *options, "--json", "-q")
        return printed.err if code else json.loads(printed.out)

    return run


@cases("options, count", (OPTIONS, 5), (("--fold", "3/4", *SIZES), 8))
def test_the_model_is_evaluated_on_rows_that_it_never_sees(options, count, train, tmp_path, data):
    found = train(*options)
    run = RunDir(tmp_path / "run")
    plan, dataset = run.config.plan, Dataset(data / "train")
    trained_on = {each for at in range(plan.rounds) for each in plan.slices(at)}
    held_out = [*plan.held_out_for(0, plan.held_out_slices)]
    assert len(held_out) == count and not trained_on & {*held_out}
    assert sum(each.stop - each.start for each in {*held_out} | trained_on) == plan.rows
    # Their loss, by the model itself.
    model, loss, correct, rows = plan.create_model(), 0.0, 0, 0
    params = checkpoint.load(run, model, plan.rounds).params
    for shard, start, stop in held_out:
        batch = dataset.shard(shard).rows(start, stop)
        one, right = model.score(params, batch, Context())
        loss, correct, rows = loss + one, correct + right, rows + batch.rows
    assert found["accuracy"] == correct / rows
    np.testing.assert_allclose(found["eval_loss"], loss / rows, rtol=1e-12)


def test_each_slice_is_in_one_fold(data):
    options = {"batch_size": 64, "slice_rows": 16, "epochs": 1}

    def held_out(**more):
        plan = creating.plan(Settings(**options, **more), data / "train", None)
        trained_on = {each for at in range(plan.rounds) for each in plan.slices(at)}
        chosen = [*plan.held_out_for(0, plan.held_out_slices)]
        assert len(trained_on) + len(chosen) == 31 and not trained_on & {*chosen}
        return chosen

    folds = [held_out(fold=f"{number}/4") for number in (1, 2, 3, 4)]
    assert [*map(len, folds)] == [7, 8, 8, 8]
    assert len({each for fold in folds for each in fold}) == 31
    # The first has the slices that as many rows would take.
    assert folds[0] == held_out(held_out=7 * 16) != held_out(held_out=7 * 16, seed=1)


@cases(
    "executor",
    ("-r", "inline", "--workers", 3),
    ("--executor", "chain", "-r", "inline", "--workers", 2, "--blocks", 2),
    ("--executor", "gang", "--workers", 2, "--blocks", 2),
)
def test_any_execution_has_the_same_bits(executor, train):
    expected = train(*OPTIONS, "--patience", 1, "--learning-rate", 3)
    found = train(*OPTIONS, "--patience", 1, "--learning-rate", 3, name="o", executor=executor)
    for name in ("model_sha256", "model_rounds", "completed", "accuracy", "eval_loss"):
        assert found[name] == expected[name], name


def test_patience_and_evaluations_in_between(train, tmp_path):
    found = train(*OPTIONS, "--patience", 1, "--eval-every", 2, "--learning-rate", 9)
    losses = RunDir(tmp_path / "run").evaluation_losses()
    assert found["model_rounds"] == min(losses, key=losses.__getitem__)
    assert len(losses) > 1


def test_without_held_out_rows_nothing_is_evaluated(train):
    found = train("--epochs", 1)
    assert found["eval_loss"] is None and found["rounds"] == 5


@cases(
    "options, message",
    (("--held-out", 70, "--eval", "test"), "the model is evaluated on the data of --eval"),
    (("--held-out", 460), "--held-out 460: 15 of 17 slices"),
    (("--patience", 1), "--patience 1: nothing is evaluated"),
    (("--held-out", 0, "--patience", 1), "--patience 1: nothing is evaluated"),
    (("--eval-every", 2), "--eval-every needs data to evaluate on"),
    (("--held-out", 70, "--strategy", "averaging"), "--held-out: expected the default"),
    (("--fold", "1/2", "--eval", "test"), "--fold 1/2: the model is evaluated on the data of"),
    (("--fold", "1/2", "--held-out", 70), "--held-out and --fold: expected only one of them"),
    (("--fold", "1/10", "--slice-rows", 64), "--fold 1/10: expected at most 9 parts"),
    (("--fold", "1/2", "--slice-rows", 64, "--batch-size", 384), "--fold 1/2: 4 of 9 slices"),
    (("--fold", "3/2"), "--fold: expected K/N with N from 2 to 1,000, and K from 1 to N, found"),
    (("--fold", "1/2", "--strategy", "averaging"), "--fold: expected the default"),
)
def test_options_that_do_not_fit(options, message, train, data):
    given = [data / "test" if each == "test" else each for each in options]
    assert message in train(*given, code=2)
