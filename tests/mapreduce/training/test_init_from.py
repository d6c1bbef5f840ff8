"""Trainings that start from parameters that there are already."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mapreduce
from datasets import blobs
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from programs import gradreduce, succeed

HERE = Execution("inline", executor="here")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blobs(tmp_path / "data")
    return tmp_path


def train(path, data, **settings):
    run = creating.create(path, Settings("mlp:3", **settings), data, None)
    return run, driver.train(run, HERE, 3, Events())


def params(run):
    model = run.config.plan.create_model()
    return model.named(checkpoint.load(run, model, checkpoint.latest(run)).params)


def test_a_step_of_sgd_starts_where_the_other_run_ended(folder):
    whole = {"batch_size": 0, "slice_rows": 64}
    first, _ = train(folder / "first", folder / "data", rounds=3, **whole)
    # Every round takes all rows, and sgd has no memory: three rounds and two are five.
    second, ended = train(folder / "second", folder / "data", rounds=2, init_from="first", **whole)
    _, five = train(folder / "five", folder / "data", rounds=5, **whole)
    assert ended.model_sha256 == five.model_sha256
    assert second.config.plan.initial_sha256 == first.result().model_sha256
    file = str(folder / "first/checkpoints/00000003/model.safetensors")
    other, again = train(folder / "other", folder / "data", rounds=2, init_from=file, **whole)
    assert again == ended
    assert other.config.plan.sha256 == second.config.plan.sha256


def test_resume_and_explain_need_the_run_alone(folder):
    train(folder / "first", folder / "data", rounds=3)
    run, ended = train(folder / "run", folder / "data", rounds=4, init_from="first")
    (folder / "first").rename(folder / "gone")
    for path in (*run.rounds.folder.iterdir(), run.path / "result.json"):
        path.unlink()
    for path in run.checkpoints.iterdir():
        checkpoint.remove(run, int(path.name))
    succeed("resume", "run", "-q")
    assert run.result() == ended
    assert succeed("explain", "run", "--round", 1, "--json")
    (folder / "run/initial.safetensors").write_bytes((folder / "gone/run.json").read_bytes())
    assert gradreduce("explain", "run", "--round", 1).returncode == 65


def test_another_dtype(folder):
    train(folder / "first", folder / "data", rounds=3)
    run, _ = train(folder / "run", folder / "data", rounds=1, init_from="first", dtype="float64")
    before = load_file(folder / "first/checkpoints/00000003/model.safetensors")
    start = run.config.plan.create_model().named(checkpoint.first(run).params)
    for name, array in start.items():
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, before[name])


def test_what_does_not_fit_is_refused_and_nothing_is_made(folder):
    train(folder / "first", folder / "data", rounds=1)
    blobs(folder / "wider", features=13)
    blobs(folder / "more", classes=4)
    named = load_file(folder / "first/checkpoints/00000001/model.safetensors")
    first = next(iter(named))
    save_file({**named, first: named[first] * np.nan}, folder / "nan.safetensors")
    save_file({"other": named[first]}, folder / "names.safetensors")
    (folder / "text.safetensors").write_text("no")
    for source, data, error, says in [
        ("first", "wider", DataError, r"expected \{'layers.0.weight': \(13, 3\)"),
        ("first", "more", DataError, "another meaning for these data: classes"),
        ("nan.safetensors", "data", DataError, "not finite as float32"),
        ("names.safetensors", "data", DataError, "found {'other'"),
        ("text.safetensors", "data", DataError, "is no safetensors file"),
        ("nowhere", "data", MissingInputError, "nowhere does not exist"),
        ("data", "data", MissingInputError, "is not a run"),
    ]:
        with pytest.raises(error, match=says):
            train(folder / "run", folder / data, init_from=source)
        assert not (folder / "run").exists()


def test_a_changed_file_is_found(folder):
    train(folder / "first", folder / "data", rounds=1)
    run = creating.create(
        folder / "run", Settings("mlp:3", rounds=2, init_from="first"), folder / "data", None
    )
    path = run.path / "initial.safetensors"
    named = {name: array + 1 for name, array in load_file(path).items()}
    save_file(named, path)
    with pytest.raises(DataError, match=r"initial.safetensors is damaged: .* the plan says"):
        driver.train(run, HERE, 3, Events())


@pytest.mark.slow
def test_the_command_and_python(folder):
    command = ["train", "data", "--model", "softmax", "--rounds", 2, "-r", "inline", "-q"]
    succeed(*command, "--run", "a")
    found = json.loads(succeed(*command, "--run", "b", "--init-from", "a", "--json"))
    options = {"rounds": 2, "executor": "here", "progress": False}
    first = mapreduce.open_run("a")
    for source in (first, folder / "a", "a"):
        run = mapreduce.train(folder / "data", init_from=source, **options)
        assert run.model_sha256 == found["model_sha256"] != first.model_sha256
    plan = json.loads(succeed(*command, "--run", "c", "--init-from", "a", "--dry-run", "--json"))
    assert plan["plan"]["initial_sha256"] == first.model_sha256
    with pytest.raises(UsageError, match="init_from"):
        mapreduce.train(folder / "data", init_from=3.5, **options)
