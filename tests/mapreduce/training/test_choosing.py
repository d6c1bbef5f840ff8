"""A training that chooses how it is run, from the command line and from Python."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import mapreduce
from builders import blobs_in
from mapreduce.engine.executor import Limit
from mapreduce.errors import UsageError
from mapreduce.executors.chain import ChainJob
from mapreduce.executors.gang.errors import TooSmallError
from mapreduce.executors.gang.job import Gang
from mapreduce.plan.settings import Settings
from mapreduce.runs import flags
from mapreduce.runs.events import Events, ExecutionChosen, ExecutionTried, Warned
from mapreduce.runs.execution import Execution
from mapreduce.support import cores, traits
from mapreduce.training import choosing, creating, driver
from programs import fails, succeed

SETTINGS = Settings(model="mlp:9", batch_size=96, slice_rows=12, rounds=8)

data = blobs_in(train=(200, 170, 97))


@pytest.fixture(autouse=True)
def _steady(monkeypatch):
    """A gradient takes a millisecond, whatever else this machine does."""
    ticks = itertools.count()
    monkeypatch.setattr(choosing, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 1e3))


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    run = creating.create(tmp_path_factory.mktemp("reference") / "run", SETTINGS, data, None)
    return driver.train(run, Execution("inline", executor="here"), 3, Events()).model_sha256


def train(data, path, execution):
    seen = []
    run = creating.create(path, SETTINGS, data, None)
    return seen, driver.train(run, execution, 3, Events(seen.append)).model_sha256


def test_a_gang_is_chosen_and_told_once(data, expected, tmp_path):
    seen, found = train(data, tmp_path / "run", flags.execution({"runner": "parallel"}))
    assert found == expected
    (chosen,) = [event for event in seen if isinstance(event, ExecutionChosen)]
    assert chosen.way.startswith("gang of ")
    tried = [event for event in seen if isinstance(event, ExecutionTried)]
    assert tried[-1].completed == 8
    assert all(event.seconds > 0 for event in tried)


def test_one_that_switches_ends_with_the_same_bits(data, expected, tmp_path, monkeypatch):
    """In the same workers, of the same number, with as many blocks."""

    def choose(self, completed, left):
        executor = ("gang", "chain")[completed // 2 % 2]
        execution = replace(self._given, executor=executor, workers=2, blocks=2, auto=())
        return execution.with_blocks_for(self._context.model), Limit(until=completed + 2)

    monkeypatch.setattr(choosing.Chooser, "next", choose)
    how = Execution("parallel", 2, blocks=2, start_method="fork")
    assert train(data, tmp_path / "run", how)[1] == expected


@pytest.mark.parametrize("runner", ["inline", "local"])
def test_other_runners_have_chains(runner):
    found = flags.execution({"runner": runner})
    assert found.executor == "chain"
    assert found.traits.costs is None


def test_somebodys_own_steps_are_a_chain(data, expected, tmp_path):
    class Mine(ChainJob):
        def end_round(self, *arguments):
            yield from super().end_round(*arguments)

    run = creating.create(tmp_path / "run", SETTINGS, data, None)
    seen, execution = [], flags.execution({"runner": "parallel", "workers": 1})
    events = Events(seen.append)
    assert driver.train(run, execution, 3, events, job_class=Mine).model_sha256 == expected
    ways = {event.way for event in seen if isinstance(event, ExecutionTried)}
    assert all(way.startswith("chain") for way in ways)


def test_a_gang_that_the_driver_chose_falls_back_by_itself(data, expected, tmp_path, monkeypatch):
    def too_small(*_, **__):
        raise TooSmallError("1 of 2 tasks of the gang came within 60 s")

    monkeypatch.setattr(Gang, "_run", too_small)
    seen, found = train(data, tmp_path / "run", flags.execution({"runner": "parallel"}))
    assert found == expected
    (warned,) = [event.message for event in seen if isinstance(event, Warned)]
    assert warned.endswith("The rounds are run as a chain")
    ways = [event.way for event in seen if isinstance(event, ExecutionChosen | ExecutionTried)]
    assert ways[-1].startswith("chain")
    # Whoever asks for a gang gets an error.
    pinned = flags.execution({"runner": "parallel", "executor": "gang"})
    with pytest.raises(TooSmallError):
        train(data, tmp_path / "pinned", pinned)


def test_no_room_for_a_gang_is_a_chain(data, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(traits.Traits, "tasks_at_once", lambda self: 0)
    seen, found = train(data, tmp_path / "run", flags.execution({"runner": "parallel"}))
    assert found == expected
    (chosen,) = [event for event in seen if isinstance(event, ExecutionChosen)]
    assert chosen.way == "chain of 1 worker"


@pytest.mark.parametrize(
    ("options", "is_here"),
    [({}, True), ({"threads": 2}, True), ({"workers": 1}, False), ({"executor": "chain"}, False)],
)
def test_a_small_fit_in_python_takes_this_process(data, expected, tmp_path, options, is_here):
    how = {"batch_size": 96, "slice_rows": 12, "rounds": 8, "progress": False, **options}
    run = mapreduce.train(data, "mlp:9", run=tmp_path / "run", **how)
    assert run.model_sha256 == expected
    told = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    ways = [event["way"] for event in told if event["event"] == "ExecutionChosen"]
    assert (ways == ["this process"]) == is_here
    # Whoever resumes it is as free as before.
    recorded = json.loads((tmp_path / "run" / "execution.json").read_text())
    assert {"executor": "auto", "workers": "auto", **options}.items() <= recorded.items()


def test_what_a_gradient_takes_is_not_asked_of_a_broken_model(data, tmp_path, monkeypatch):
    run = creating.create(tmp_path / "run", SETTINGS, data, None)
    context = driver.Training.from_cache(run, "test").context
    assert context.plan.leaves(0) == 8
    assert choosing.work_of(context).gradients == pytest.approx(8e-3)

    def broken(*_):
        raise ValueError("this model is broken")

    monkeypatch.setattr(context.model, "init", broken)
    assert choosing.work_of(context).gradients == 0


class TestOptions:
    def test_auto_is_a_number_too(self, data, tmp_path):
        run = tmp_path / "run"
        options = ["--rounds", 2, "--workers", "auto", "--threads", "auto", "--blocks", 1]
        succeed("train", data, "--run", run, *options)
        recorded = json.loads((run / "execution.json").read_text())
        assert [recorded[name] for name in flags.AUTO] == ["auto", "auto", "auto", 1]
        # What is resumed chooses anew, where the user had not chosen.
        assert flags.recorded(driver.RunDir(run))[0].get("workers") is None
        succeed("resume", run, "--workers", 2)

    def test_other_words_are_refused(self, data, tmp_path):
        said = fails(2, "train", data, "--run", tmp_path / "run", "--workers", "many")
        assert "'many' is neither an integer nor auto" in said
        assert "auto" in fails(2, "train", data, "--run", tmp_path / "run", "--executor", "quick")

    def test_python_takes_the_same(self, data, tmp_path):
        run = mapreduce.train(data, "softmax", run=tmp_path / "run", rounds=2, workers="auto")
        assert run.model_sha256
        with pytest.raises(UsageError, match="expected int or auto, found 'many'"):
            mapreduce.train(data, "softmax", run=tmp_path / "other", rounds=2, workers="many")

    def test_pinned_parts_stay(self):
        found = flags.execution({"executor": "gang", "workers": 3, "threads": None})
        assert (found.executor, found.workers, found.auto) == ("gang", 3, ("threads", "blocks"))
        assert flags.execution({"fan_in": 4}).executor == "chain"


def test_cores_are_those_of_the_container(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "_QUOTAS", (tmp_path,))
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)))
    cases = [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("nonsense", 8)]
    for text, number in cases:
        (tmp_path / "cpu.max").write_text(text)
        assert cores.available_cores() == number
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu.cfs_quota_us").write_text("-1")
    (tmp_path / "cpu.cfs_period_us").write_text("100000")
    assert cores.available_cores() == 8
    (tmp_path / "cpu.cfs_quota_us").write_text("300000")
    assert cores.available_cores() == 3
