"""Rungs: the best third goes on, by the plan of the longest training, to its bits."""

import json
import shlex

import pytest

from mapreduce.errors import Interrupted
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.training import driver as training
from quick import cases

#: Options of plans of which a schedule, or a state, would tell if they were not the longest.
PLANS = {
    "cosine": "--schedule cosine --learning-rate log:0.01..1",
    "adam": "--optimizer adam:beta1=0.8..0.99 --model dense:6..9,relu,dropout:0.1..0.5,dense:3",
    "averaging": "--strategy averaging --replicas 2 --replica-state keep --optimizer momentum "
    "--local-steps 1..3",
    "patience": "--patience 1 --learning-rate log:0.01..9",
    "lbfgs": "--optimizer lbfgs --l2 log:0.01..1 --tol 1e-3",
}


@cases("options", *PLANS.values(), ids=[*PLANS])
def test_each_row_is_its_command_or_a_checkpoint_of_it(
    options,
    search,
    answer,
    tmp_path,
    monkeypatch,
):
    found = search(*options.split(), "--rungs", "1,2,4", "--trials", 6)
    assert found["ended"] + found["cut"] == 6
    monkeypatch.chdir(tmp_path)
    states = set()
    for row in found["rows"]:
        _, *command = shlex.split(row["command"])
        run = json.loads(answer(0, *command, "-r", "inline", "--keep", 0, "--json", "-q").out)
        states.add(row["state"])
        if row["state"] == "ended":
            assert (run["model_sha256"], str(run["model_rounds"])) == (
                row["model_sha256"],
                row["rounds"],
            )
            continue
        folder = RunDir(tmp_path / command[command.index("--run") + 1])
        at = int(row["rounds"])
        assert at < run["rounds"]
        assert checkpoint.fitted(folder, at).model_sha256 == row["model_sha256"]
        assert folder.evaluation_losses()[at] == float(row["loss"])
    assert "ended" in states


def test_the_best_third_goes_on(search, tmp_path):
    options = "--learning-rate", "log:0.001..1", "--model", "mlp:4..16", "--rungs", "1,2,4"
    found = search(*options, "--trials", 9)
    table = found["rows"]
    per_epoch = max(int(row["rounds"]) for row in table) // 4
    reached = sorted(int(row["rounds"]) // per_epoch for row in table)
    assert reached == [1] * 6 + [2] * 2 + [4]
    results = tmp_path / "search/results"
    first = {
        number: json.loads((results / f"{number:05d}.0.json").read_text())["loss"]
        for number in range(9)
    }
    kept = {int(row["trial"]) for row in table if int(row["rounds"]) > per_epoch}
    assert kept == {*sorted(first, key=first.__getitem__)[:3]}
    (ended,) = (row for row in table if row["state"] == "ended")
    assert found["best"] == int(ended["trial"]) and (found["cut"], found["ended"]) == (8, 1)
    # All of it by workers, and in two parts: fewer trials cut others.
    again = search(*options, "--trials", 9, "--workers", 2, name="again", executor="")
    part = search(*options, "--trials", 4, name="part")
    whole = search(*options, "--trials", 9, name="part")
    assert part["table_sha256"] != found["table_sha256"]
    assert {each["table_sha256"] for each in (again, whole)} == {found["table_sha256"]}


def test_a_stopped_rung_goes_on(search, answer, tmp_path, monkeypatch):
    options = *PLANS["adam"].split(), "--rungs", "1,2", "--trials", 6
    expected = search(*options)
    advance, done = training.Driver.advance, []

    def stop(self, position):
        done.append(position.completed)
        if len(done) == 8:
            raise Interrupted(2)
        return advance(self, position)

    monkeypatch.setattr(training.Driver, "advance", stop)
    search(*options, name="stopped", code=130)
    shown = json.loads(answer(0, "runs", "show", tmp_path / "stopped", "--json").out)
    assert (shown["state"], shown["ended"]) == ("stopped", 1)
    again = json.loads(answer(0, "resume", tmp_path / "stopped", "--json").out)
    assert again["table_sha256"] == expected["table_sha256"]
    # Eight in all, of which one was begun twice, on six trials and then two.
    assert len(done) == 9


@cases(
    "options, message",
    ("--rungs 3,1", "--rungs: expected numbers of epochs that grow, such as 1,3,9, found 3,1"),
    ("--rungs 0,1", "expected numbers of epochs that grow"),
    ("--rungs 1,1", "expected numbers of epochs that grow"),
    ("--rungs 1,x", "expected numbers of epochs that grow, such as 1,3,9, found 1,x"),
    ("--rungs 1,2 --epochs 3", "--epochs is for searches without --rungs 1,2"),
    ("--rungs 1,2 --rounds 5|6", "--rounds is for searches without --rungs 1,2"),
    ("--rungs 1,2 --eval-every 3", "--eval-every 3: expected a divisor of 5"),
)
def test_bad_rungs_begin_nothing(options, message, search, tmp_path):
    assert message in search(*options.split(), code=2)
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize("failing", [{0}, {0, 1}])
def test_failed_trials_do_not_go_on(failing, search):
    rates = [f"{at + 1}e38" if at in failing else f"0.{at}" for at in range(6)]
    options = "--learning-rate", "|".join(rates), "--sampler", "grid", "--rungs", "1,2"
    found = search(*options)
    assert (found["failed"], found["cut"], found["ended"]) == (len(failing), 4 - len(failing), 2)
