"""Runs at one path in one process: what is kept from task to task belongs to one of them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import datasets
from builders import blobs_in
from mapreduce.engine.program import _cache
from mapreduce.inference.request import Request
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Evaluated, Events
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import Position
from mapreduce.training import creating, driver

EXECUTIONS = [Execution("inline"), Execution("parallel", 2), Execution("inline", executor="gang")]

data = blobs_in(train=(200, 170, 97), test=(90,))


def trained(data, path, execution, **settings):
    """A run's digest and the losses of its evaluations."""
    chosen = Settings("softmax", **{"rounds": 6, "eval_every": 2, "patience": 2, **settings})
    run = creating.create(path, chosen, data / "train", data / "test")
    # A filesystem may give a removed file's inode to the next one: here it always does.
    kept = path.with_name(f"{path.name}.json")
    if kept.exists():
        kept.write_bytes((path / "run.json").read_bytes())
        kept.replace(path / "run.json")
    seen = []
    ended = driver.train(run, execution, 0, Events(seen.append))
    return ended.model_sha256, [event.loss for event in seen if isinstance(event, Evaluated)]


def remove(path):
    (path / "run.json").rename(path.with_name(f"{path.name}.json"))
    shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS, ids=lambda one: f"{one.runner}-{one.executor}")
def test_a_run_that_is_made_again_with_other_settings(data, tmp_path, execution):
    expected = {
        rate: trained(data, tmp_path / str(rate), execution, learning_rate=rate)
        for rate in (0.1, 0.9)
    }
    for rate in (0.1, 0.9, 0.1):
        assert trained(data, tmp_path / "run", execution, learning_rate=rate) == expected[rate]
        remove(tmp_path / "run")


def test_a_run_of_the_same_plan_from_elsewhere(data, tmp_path):
    """Made on another processor, say: its parameters are others after as many rounds."""
    plan = {"rounds": 6, "checkpoint_every": 3}
    ends = []
    for name in ("fresh", "used"):
        run = creating.create(tmp_path / name, Settings("softmax", **plan), data / "train", None)
        if name == "used":
            driver.train(run, Execution("inline"), 0, Events())
        model = run.config.plan.create_model()
        for path in (run.rounds.folder, run.checkpoints, run.path / "result.json"):
            if path.is_file():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
                path.mkdir()
        position = Position.first(run.config.plan)
        position.completed, position.params = 5, np.full(model.size, 0.25, model.dtype)
        run.publish_round(position, 1)
        ends.append(driver.train(run, Execution("inline"), 0, Events()).model_sha256)
    assert ends[0] == ends[1]


def test_an_evaluation_is_of_the_data_and_the_parameters_that_are_there(data, tmp_path):
    from mapreduce.inference.report import report

    run = creating.create(tmp_path / "run", Settings("softmax", rounds=2), data / "train", None)
    driver.train(run, Execution("inline"), 0, Events())
    copy, fitted = tmp_path / "copy", checkpoint.fitted(run, 2)
    shutil.copytree(data / "test", copy)
    request = Request(fitted, copy, Execution("inline"))
    before = report(request)
    misses = _cache.cache_info().misses
    assert report(request) == before
    assert _cache.cache_info().misses == misses
    shutil.rmtree(copy)
    datasets.blobs(copy, (90,), seed=2)
    other = report(request)
    datasets.blobs(tmp_path / "other", (90,), seed=2)
    assert other == report(replace(request, data=tmp_path / "other")) != before


def test_a_run_directory_that_is_kept_sees_the_new_run(data, tmp_path):
    path = tmp_path / "run"
    first = creating.create(path, Settings("softmax", rounds=2), data / "train", None)
    driver.train(first, Execution("inline"), 0, Events())
    shutil.rmtree(path)
    creating.create(path, Settings("softmax", rounds=4), data / "train", None)
    assert driver.train(first, Execution("inline"), 0, Events()).completed == 4
    assert checkpoint.saved_rounds(RunDir(path)) == [4]
