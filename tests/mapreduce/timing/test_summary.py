"""A report of a made trace: its sentence, its advice, and its tables."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from browser import WIDTHS, browser, check_accessible, opened

import made_traces
import mapreduce
from mapreduce.cli.main import cli
from mapreduce.report import page, terminal
from mapreduce.runs.directory import RunDir
from mapreduce.support.phases import EVENT, PHASES
from mapreduce.timing.advice import advise, training
from mapreduce.timing.cause import Cause
from mapreduce.timing.sections import page as page_of, view
from mapreduce.timing.summary import summarise

_MARKUP = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two rounds, with an evaluation."""
    folder = tmp_path_factory.mktemp("run")
    random = np.random.default_rng(1)
    rows, labels = random.random((64, 4)), random.integers(0, 2, 64)
    mapreduce.train(
        (rows, labels),
        eval=(rows[:8], labels[:8]),
        run=folder / "a run",
        model="mlp:4",
        batch_size=32,
        slice_rows=16,
        rounds=8,
        executor="here",
    )
    return RunDir(folder / "a run")


def test_the_sentence_says_cause_seconds_and_rank():
    summary = summarise(made_traces.gang(slow=((1, 4.0),)), None)
    assert summary["sentence"] == (
        "Slow worker, 4.57 of 12.1 s (38%): rank 1 takes 3.9 times as long for a unit as the "
        "others, and has 20% of the units."
    )
    assert [one["kind"] for one in summary["causes"] if one["is_named"]] == ["slow worker"]


def test_nothing_stands_out_of_a_clean_run():
    summary = summarise(made_traces.gang(), None)
    assert summary["sentence"] == "Nothing stands out: of 7.58 s no cause took 10%."
    assert summary["next"] is None


KINDS = (
    *("slow worker", "slow reads", "uneven shares", "exchange by bytes", "exchange by delay"),
    *("sums and updates", "tiny slices", "fixed cost of a round", "publishing", "evaluation"),
    *("start and many jobs", "gaps of the driver", "slow task", "tiny tasks"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_try_is_a_command_that_the_program_takes(kind, run):
    text, line = advise(Cause(kind, 1.0, "", (1,)), run, 4)
    words = shlex.split(line)
    if words[0] == "cp":
        return
    assert words[:3] == ["gradreduce", "train", run.config.data]
    values = cli.get_command(None, "train").make_context("train", words[2:]).params
    plan = run.config.plan
    assert values["model"] == "mlp:4"
    assert values["batch_size"] % values["slice_rows"] == 0
    changed = {
        "batch_size": values["batch_size"] != plan.batch_size,
        "slice_rows": values["slice_rows"] != plan.slice_rows,
        "workers": values["workers"] == 3,
        "executor": values["executor"] != "here",
        # The run had no jobs.
        "rounds": values["rounds"] > plan.rounds,
        "eval_every": values["eval_every"] != plan.eval_every,
        "run": not str(values["run"]).startswith(str(run.path)),
    }
    assert sum(changed.values()) == 1, (text, changed)


def test_where_slices_cannot_be_larger_batches_are(tmp_path, answer):
    """Each replica needs a slice."""
    random = np.random.default_rng(1)
    made = mapreduce.train(
        (random.random((128, 4)), random.integers(0, 2, 128)),
        run=tmp_path / "run",
        model="softmax",
        strategy="averaging",
        replicas=2,
        batch_size=32,
        slice_rows=16,
        rounds=4,
        executor="here",
    )
    text, line = advise(Cause("tiny slices", 1.0, ""), RunDir(made.path), 2)
    words = shlex.split(line)
    assert text == "take larger batches"
    for flag, value in (("--batch-size", "128"), ("--slice-rows", "64"), ("--rounds", "1")):
        assert words[words.index(flag) + 1] == value
    answer(0, *words[1:], "--dry-run")


def test_a_training_is_repeated_by_its_command(run):
    """Its plan is that of the run."""
    words = shlex.split(training(run, {}))
    values = cli.get_command(None, "train").make_context("train", words[2:]).params
    assert (values["rounds"], values["seed"]) == (8, 0)
    assert str(values["run"]) == f"{run.path}-2"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trace": True}, "--executor gang --workers 4 --stages 2 --trace"),
        ({"batch_size": 64}, "--executor gang --workers 4 --stages 2"),
        ({"workers": 1}, "--executor gang --workers 1"),
        ({"executor": "gang"}, "--executor gang --workers 4 --stages 2"),
        ({"executor": "here"}, "--executor here"),
    ],
)
def test_a_training_is_executed_as_the_run_was(run, tmp_path, changes, expected):
    """But for what is an experiment, and what would not go with the other options."""
    again = RunDir(tmp_path / "run")
    shutil.copytree(run.path, again.path)
    how = {"executor": "gang", "workers": 4, "stages": 2, "slow_worker": "1:4", "trace": True}
    (again.path / "execution.json").write_text(json.dumps(how))
    options = cli.get_command(None, "train").make_context
    words = shlex.split(training(again, changes))[2:]
    names = "executor", "workers", "stages", "slow_worker", "trace"
    expected = options("train", [*words[:3], *expected.split()]).params
    found = options("train", words).params
    assert [found[name] for name in names] == [expected[name] for name in names]
    (again.path / "execution.json").write_text('{"workers": "many"}')
    assert "--workers many" not in training(again, changes)


def test_of_a_chain_all_tasks_are_looked_at_a_few_times_and_not_for_each_job():
    looked = []

    class Counted(np.ndarray):
        def __getitem__(self, at):
            if isinstance(at, np.ndarray) and at.dtype == bool:
                looked.append(len(self))
            return super().__getitem__(at)

    trace = made_traces.jobs(maps=4)
    jobs = [trace.tasks.copy() for _ in range(50)]
    for number, tasks in enumerate(jobs):
        tasks["job"] = number
    many = replace(trace, tasks=np.concatenate(jobs).view(Counted))
    assert len(summarise(many, None)["tasks"]) == 50 * len(summarise(trace, None)["tasks"])
    assert len(looked) < 10


@pytest.mark.parametrize("kind", ["hot key", "large split", "slow task", "tiny tasks", "else"])
def test_jobs_have_advice_too(kind):
    assert all(advise(Cause(kind, 1.0, ""), None, 4))


def texts(made):
    return " ".join(
        cell.text
        for one in (*made.first, *made.sections)
        for block in one.blocks
        if hasattr(block, "cells")
        for row in block.cells
        for cell in row
    )


def test_every_phase_and_rank_is_in_the_tables(run, capsys):
    summary = summarise(made_traces.gang(ranks=3, busy=((1, 0.5),)), run)
    json.dumps(summary, allow_nan=False)
    made = view(summary, "gradreduce report a", "a", is_page=True)
    for name, seconds in summary["segments"][0]["by_rank"].items():
        assert (name in texts(made)) == (max(seconds) > 0)
    assert run.summary()["model_sha256"] in texts(made)
    terminal.show(terminal.new_console(), [*made.first, *made.sections])
    printed = capsys.readouterr().out
    assert "rank 2" in printed
    assert "busy processors" in printed


def test_one_rank_and_tasks_without_times_have_a_report():
    for trace in (made_traces.gang(ranks=1, rounds=3), made_traces.jobs(maps=1, reduces=0)):
        made = view(summarise(trace, None), "gradreduce report a", "a")
        assert texts(made)
    tasks = trace.tasks.copy()
    for name in ("cpu", "read", "written", "records"):
        tasks[name] = -1
    assert summarise(replace(trace, tasks=tasks), None)["tasks"][0]["bytes"] == 0


def test_names_of_strangers_are_text():
    (segment,) = made_traces.gang(rounds=5).segments
    trace = replace(made_traces.gang(rounds=5), segments=(replace(segment, name=_MARKUP),) * 2)
    made = view(summarise(trace, None), f"gradreduce report {_MARKUP}", _MARKUP)
    drawn = page.page(made)
    assert "<script>alert" not in drawn
    assert drawn.count("&lt;script&gt;") >= 3


def test_the_page_is_the_reports_own():
    made = view(summarise(made_traces.gang(rounds=5), None), "gradreduce report a", "a", True)
    drawn = page.page(made)
    assert "<title>a, where the time went</title>" in drawn
    assert "Made by <code>gradreduce report</code>" in drawn
    assert "mapper" not in drawn


def long_run(rounds=100_000, **faults):
    """What is said of many rounds, of which a few were simulated."""
    summary = summarise(made_traces.gang(ranks=4, rounds=100, **faults), None)
    (segment,) = summary["segments"]
    segment["load"] = [one * (rounds // 100) for one in segment["load"]]
    segment["numbers"] = [*range(1, rounds + 1)]
    return summary


def test_a_page_of_many_rounds_is_small_and_fetches_nothing():
    pytest.importorskip("matplotlib")
    drawn = page_of(long_run(slow=((1, 4.0),)), "gradreduce report a", "a", None)
    assert drawn.count("<svg") >= 3
    assert len(drawn.encode()) < 500_000
    # Names of formats are no addresses that a browser asks.
    assert {*re.findall(r"https?://[^\s\"]+", drawn)} <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.findall(r"#0000\d\d|#000000|<style type", drawn)


def test_a_page_without_matplotlib_has_tables(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    drawn = page_of(summarise(made_traces.gang(rounds=5), None), "gradreduce report a", "a", None)
    assert "Time by phase and rank" in drawn
    assert "<figure" not in drawn


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(scheme, tmp_path):
    drawn = page_of(long_run(1000), "gradreduce report a", "a", None)
    with browser() as chromium:
        for width in WIDTHS:
            with opened(chromium, drawn, tmp_path, width, scheme) as shown:
                check_accessible(shown)


def stranger(seed):
    """A segment of events that hold what a reader checks, and nothing else."""
    random = np.random.default_rng(seed)
    ranks = []
    for _ in range(random.integers(1, 5)):
        events = np.zeros(random.integers(0, 40), EVENT)
        size = len(events)
        events["code"], events["depth"] = random.integers(0, 13, size), random.integers(0, 4, size)
        events["thread"], events["round"] = random.integers(0, 3, size), random.integers(0, 4, size)
        events["start"] = np.sort(random.integers(0, 10 ** random.integers(1, 17), size))
        events["stop"] = events["start"] + random.integers(0, 10 ** random.integers(1, 17), size)
        events["bytes"], events["units"] = random.integers(0, 1 << 56, (2, size))
        ranks.append(events)
    return made_traces.segment("a", tuple(ranks), phases=(*PHASES, _MARKUP))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(150))
def test_events_without_sense_have_a_report_of_numbers(seed):
    segment = stranger(seed)
    stop = max((int(one["stop"].max()) for one in segment.ranks if len(one)), default=0)
    trace = replace(made_traces.jobs(), segments=(segment,), start=0, stop=stop)
    summary = summarise(trace, None)
    json.dumps(summary, allow_nan=False)
    assert all(one["seconds"] >= 0 for one in summary["causes"])
    assert texts(view(summary, "a", "a"))


def test_many_ranks_are_told_by_the_shortest_and_the_longest():
    summary = summarise(made_traces.gang(ranks=20, rounds=20, slow=((13, 3.0),)), None)
    made = view(summary, "gradreduce report a", "a")
    time = next(one for one in made.sections if one.name.startswith("time"))
    assert time.blocks[0].head == ["phase", "shortest", "mean", "longest", "that of rank"]
    rows = {row[0].text: row for row in time.blocks[0].cells}
    assert rows["map"][4].text == "13"
    balance = next(one for one in made.sections if one.name.startswith("balance"))
    assert balance.blocks[0].note == "4 ranks more"
