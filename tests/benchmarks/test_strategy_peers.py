"""Peers of strategies: they get the rows and parameters of our plan, and learn the same."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import __main__ as command, strategies
from benchmarks.gang import answer
from benchmarks.networks import noise
from benchmarks.strategy_peers import command_of, compared, export, rows_of_steps
from mapreduce.data.shards import Dataset
from mapreduce.models.layers.stages import stages_of
from mapreduce.plan.settings import Settings, make
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver

ROWS, SYNC = 512, Settings("conv:4x5,relu,pool:2,dense:8,relu", batch_size=64, epochs=2)
AVERAGING = replace(SYNC, strategy="averaging", replicas=2, local_steps=4)
NONE = "names no interpreter with"


@pytest.fixture
def data(tmp_path):
    noise(tmp_path / "train", ROWS)
    return tmp_path / "train"


def plan_of(settings, data):
    return make(settings, Dataset(data).manifest)


@pytest.mark.parametrize(("settings", "parts"), [(SYNC, 2), (SYNC, 4), (AVERAGING, 2)])
def test_each_epoch_has_all_rows_once(data, settings, parts):
    rows = rows_of_steps(plan_of(settings, data), parts)
    assert rows.shape == (2 * ROWS // 64, parts, 64 // parts)
    for epoch in np.split(rows, 2):
        assert np.array_equal(np.sort(epoch.ravel()), np.arange(ROWS))
    assert not np.array_equal(*np.split(rows, 2))


def test_a_short_round_is_divided_evenly(data):
    rows = rows_of_steps(plan_of(replace(SYNC, limit_rows=480), data), 2)
    assert rows.shape == (16, 2, 32)
    taken = (rows >= 0).sum(axis=2)
    assert sorted(map(tuple, taken.tolist()))[:3] == [(16, 16), (16, 16), (32, 32)]
    assert np.array_equal(np.sort(rows[:8][rows[:8] >= 0]), np.arange(480))


def test_a_process_has_the_rows_of_its_replica(data):
    plan = plan_of(AVERAGING, data)
    rows = rows_of_steps(plan, 2)
    of_round = [[*range(one.start, one.stop)] for one in plan.slices(1)]
    half = len(of_round) // 2
    for replica, slices in enumerate((of_round[:half], of_round[half:])):
        assert np.array_equal(np.sort(rows[4:8, replica].ravel()), np.sort(np.ravel(slices)))


def test_the_pipeline_is_cut_where_ours_is(data, tmp_path):
    plan = plan_of(SYNC, data)
    export(tmp_path, plan, data, "stages")
    job = json.loads((tmp_path / "job.json").read_text())
    first, _ = stages_of(plan.create_model(), 2)
    kinds = [layer["kind"] for layer in job["layers"]]
    assert kinds[: job["cut"]] == ["conv", "relu", "pool"]
    assert kinds[job["cut"] :] == ["dense", "relu", "dense"]
    assert job["edge"] == [4, 12, 12]
    assert first.network.size == 4 * (5 * 5 + 1)


def test_a_peer_must_learn_what_we_do():
    mine, other = compared("it", [3, 1, 1, 1], [3, 1.02, 1, 1.02], 2)
    assert mine.tolist() == [2, 1]
    assert other.tolist() == [2.01, 1.01]
    with pytest.raises(RuntimeError, match=r"it: expected mean losses.*2\.0000, 1\.0000 and 2\.2"):
        compared("it", [3, 1, 1, 1], [3, 1.4, 1, 1], 2)
    with pytest.raises(RuntimeError, match="it: expected a loss that falls"):
        compared("it", [2, 2], [2, 2], 2)


@pytest.mark.parametrize("name", ["averaging", "stages", "horovod"])
def test_without_rows_there_are_no_figures(monkeypatch, tmp_path, name):
    monkeypatch.setenv("GRADREDUCE_DATA", str(tmp_path))
    assert command.selected([f"strategies.{name}"], False) == [f"strategies.{name}"]
    found = getattr(strategies, name)(quick=True)
    assert not found.measured
    assert list(found.skipped.values()) == ["GRADREDUCE_DATA names no folder with mnist/"]


@pytest.mark.parametrize("kind", ["averaging", "stages", "horovod"])
def test_a_peer_that_is_missing_says_so(monkeypatch, tmp_path, kind):
    for variable in ("GRADREDUCE_TORCH", "GRADREDUCE_HOROVOD"):
        monkeypatch.delenv(variable, raising=False)
    assert NONE in command_of(kind, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["averaging", "stages", "horovod"])
def test_a_peer_has_our_losses(data, tmp_path, kind):
    program = command_of(kind, tmp_path)
    if isinstance(program, str):
        pytest.skip(program)
    settings = AVERAGING if kind == "averaging" else SYNC
    run = creating.create(tmp_path / "run", settings, data, None)
    plan, losses = run.config.plan, []

    def note(event):
        if isinstance(event, RoundCompleted):
            losses.append(event.loss)

    driver.train(run, Execution("inline"), 1, Events(note))
    export(tmp_path, plan, data, kind)
    steps = np.array(answer(program)["losses"]).reshape(plan.rounds, -1).mean(axis=1)
    np.testing.assert_allclose(steps, losses, rtol=1e-3)
