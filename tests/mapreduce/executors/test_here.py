"""Trainings in the calling process: what it refuses, and what goes on where another began."""

import json
import os
import signal

import pytest

import mapreduce
from builders import CHAIN, HERE, blobs_in, create, left_by, stopped, trained
from mapreduce.errors import Interrupted, UsageError
from mapreduce.executors import here
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint, flags
from mapreduce.runs.events import Evaluated, Events, RoundCompleted, read
from mapreduce.runs.execution import Execution
from mapreduce.support import phases
from mapreduce.timing import reading, summary
from mapreduce.timing.figures import rounds_of
from mapreduce.training import driver, start
from quick import cases

data = blobs_in(train=(200, 97), test=(60,))

#: With evaluations between rounds.
SETTLE = Settings(model="mlp:9", batch_size=96, slice_rows=24, rounds=40, eval_every=5)

SETTINGS = Settings(
    model="mlp:9", batch_size=96, rounds=9, checkpoint_every=4, eval_every=3, patience=2
)


@cases(
    "given, found",
    ({"runner": "parallel"}, "--runner parallel"),
    ({"runner": "hadoop"}, "--runner hadoop"),
    ({"workers": 2}, "--workers 2"),
    ({"start_method": "forkserver"}, "--start-method forkserver"),
    ({"fan_in": 2, "rounds_per_job": 7}, "--fan-in 2, --rounds-per-job 7"),
    ({"gang_wait": 3.0}, "--gang-wait 3.0"),
    ({"gang_fallback": "chain"}, "--gang-fallback chain"),
    ({"mrjob_arguments": ("--setup", "x")}, "-- --setup x"),
)
def test_options_of_others_are_refused(given, found):
    with pytest.raises(UsageError) as raised:
        flags.execution({"executor": "here", **given})
    assert str(raised.value) == (
        "--executor here: expected no option of jobs and workers, since this process computes "
        f"alone, found {found}"
    )


def test_its_own_options_are_taken():
    given = {"executor": "here", "runner": "inline", "workers": 1, "threads": 2, "blocks": 3}
    found = flags.execution(given)
    assert {name: getattr(found, name) for name in given} == given
    alone = flags.execution({"executor": "here", "threads": "auto", "blocks": "auto"})
    assert (alone.runner, alone.workers, alone.threads, alone.blocks) == ("inline", 1, 1, 1)
    assert alone.auto == ()


def test_a_trace_of_this_process(data, tmp_path):
    """No hash changes, and every moment is in a phase, or between two of them for a short time."""
    plain = create(tmp_path / "plain", data / "train", SETTLE, data / "test")
    how = flags.execution({"executor": "here", "threads": 2, "trace": True})
    traced = create(tmp_path / "traced", data / "train", SETTLE, data / "test")
    expected = driver.train(plain, HERE, 0, Events())
    assert driver.train(traced, how, 0, Events()) == expected
    trace = reading.read(traced.path)
    (segment,) = trace.segments
    found = rounds_of(segment)
    assert found.numbers.tolist() == [*range(1, SETTLE.rounds + 1)] and segment.rounds == 40
    # An epoch has 297 rows.
    assert found.units.tolist() == [[4, 4, 4, 2] * 10]
    by_name = dict(zip(segment.phases, segment.seconds[0], strict=True))
    assert min(by_name[name] for name in ("map", "read", "reduce", "publish", "evaluate")) > 0
    # Phases of one depth follow each other.
    (events,) = segment.ranks
    for depth in (0, 1):
        some = events[(events["depth"] == depth) & (events["thread"] == 0)]
        some = some[some["code"] != phases.SAMPLE]
        assert (some["start"][1:] >= some["stop"][:-1]).all()
    # With a driver that finds nothing to do, no cause comes from nowhere.
    driver.train(traced, how, 0, Events())
    assert len(reading.read(traced.path).segments) == 2
    content = summary.summarise(reading.read(traced.path), None)
    assert max(one["seconds"] for one in content["causes"]) <= content["seconds"]
    driver.train(plain, how, 0, Events())
    content = summary.summarise(reading.read(plain.path), None)
    assert content["sentence"].startswith("The trace has no rounds and no tasks, so nobody knows")
    assert content["causes"] == []


def test_rounds_of_a_trace_go_on_by_another_executor(data, tmp_path):
    made = create(tmp_path / "run", data / "train", SETTLE, data / "test")
    traced = {"trace": True}
    assert driver.train(made, Execution(**{**HERE.to_dict(), **traced}), 0, Events(), until=10)
    gang = flags.execution({"executor": "gang", "runner": "parallel", "workers": 2, **traced})
    driver.train(made, gang, 0, Events())
    first, second = reading.read(made.path).segments
    assert (len(first.ranks), len(second.ranks)) == (1, 2)
    assert rounds_of(first).numbers.tolist() == [*range(1, 11)]
    assert rounds_of(second).numbers.tolist() == [*range(11, 41)]


@cases(
    "options, message",
    ({"stages": 2}, "stages=2: expected executor=.gang., found executor=.here."),
    ({"strategy": "downpour", "asynchronous": True}, "asynchronous=True: .*found executor=.here."),
    ({"workers": 2}, "executor=.here.: expected no option .*, found workers=2"),
)
def test_python_refuses_in_its_own_words(data, tmp_path, options, message):
    run = tmp_path / "run"
    with pytest.raises(UsageError, match=message):
        mapreduce.train(data / "train", run=run, executor="here", progress=False, **options)
    assert not run.exists()


def test_a_command_says_that_it_computes_in_this_process(data, tmp_path, answer):
    run = tmp_path / "run"
    command = ["train", data / "train", "--run", run, "--model", "mlp:9", "--rounds", 3]
    assert "runner inline, in this process" in answer(0, *command, "--executor", "here").err
    recorded = json.loads((run / "execution.json").read_text())
    assert (recorded["executor"], recorded["runner"], recorded["workers"]) == ("here", "inline", 1)


def test_no_process_is_started(data, tmp_path, monkeypatch):
    def fork():
        raise AssertionError("a fork")

    monkeypatch.setattr(os, "fork", fork)
    seen = []
    run = trained(
        tmp_path / "run", data / "train", SETTINGS, HERE, seen.append, evaluation=data / "test"
    )
    rounds = [event.completed for event in seen if isinstance(event, RoundCompleted)]
    assert rounds == [*range(1, run.result().completed + 1)]
    assert sum(isinstance(event, Evaluated) for event in seen) >= 3


@cases("first, second", ({"executor": "here"}, CHAIN), (vars(CHAIN), {"executor": "here"}))
def test_resuming_takes_no_option_of_the_other_executor(data, tmp_path, first, second):
    """One was of this process alone, the other of processes and jobs."""
    expected = trained(tmp_path / "whole", data / "train", SETTINGS, evaluation=data / "test")
    run = create(tmp_path / "run", data / "train", SETTINGS, data / "test")
    begun = flags.execution({**first, "auto": None} if "auto" in first else first)
    stopped(run, begun, 4)
    given = {"executor": second.executor} if second is CHAIN else second
    start.resume(run, given, Events(), lambda message: None)
    assert left_by(run) == left_by(expected)
    recorded = run.read_json("execution.json")
    runner = "inline" if given["executor"] == "here" else "parallel"
    assert (recorded["executor"], recorded["runner"]) == (given["executor"], runner)
    # And as it was run last.
    driver.RunDir(run.path / "result.json").path.unlink()
    assert start.resume(run, {}, Events(), lambda message: None) == expected.result()


def test_resuming_by_workers_asks_for_another_executor(data, tmp_path):
    run = create(tmp_path / "run", data / "train", SETTINGS, data / "test")
    stopped(run, HERE, 4)
    with pytest.raises(UsageError, match="trained by the executor here: add --executor chain or"):
        start.resume(run, {"workers": 2}, Events(), lambda message: None)


def test_a_training_that_diverges_keeps_the_round_before(data, tmp_path):
    settings = Settings(model="mlp:9", batch_size=96, rounds=60, learning_rate=1e18)
    seen = []
    for executor in (CHAIN, HERE):
        run = create(tmp_path / executor.executor, data / "train", settings)
        with pytest.raises(Exception, match=r"diverged|not finite"):
            driver.train(run, executor, 0, Events())
        seen.append(run.latest_round().completed)
    assert seen[0] == seen[1] > 0


def test_an_interrupted_training_tells_of_all_rounds_of_its_checkpoint(data, tmp_path, monkeypatch):
    compute, rounds, events = here.run_round, [], Events()

    def interrupted(task, completed):
        if completed == 5:
            raise Interrupted(2)
        return compute(task, completed)

    events.subscribe(lambda event: rounds.append(getattr(event, "completed", None)))
    monkeypatch.setattr(here, "run_round", interrupted)
    run = create(tmp_path / "run", data / "train", Settings(model="mlp:9", rounds=9))
    with pytest.raises(Interrupted):
        driver.train(run, HERE, 0, events)
    assert checkpoint.saved_rounds(run) == [5]
    assert [*range(1, 6)] == sorted({*rounds} - {None, 0})


def test_a_signal_while_rounds_are_told_leaves_none_out(data, tmp_path):
    """The signal comes before the log of the run has the round."""
    rounds, events = [], Events()

    def listen(event):
        if isinstance(event, RoundCompleted):
            rounds.append(event.completed)
            if rounds == [1, 2]:
                signal.raise_signal(signal.SIGINT)

    events.subscribe(listen)
    run = create(tmp_path / "run", data / "train", Settings(model="mlp:9", rounds=9))
    with pytest.raises(Interrupted):
        driver.train(run, HERE, 0, events)
    told = [event["completed"] for event in read(run.path / "events.jsonl") if "rows" in event]
    assert told == rounds == [*range(1, 10)]
