"""Runs beside each other: what differs, curves, and what can go; on runs of known differences."""

import json
import shutil
import sys

import pytest

import mapreduce
from datasets import blobs
from mapreduce.errors import UsageError
from mapreduce.runs import checkpoint, comparing, lease
from mapreduce.runs.directory import RunDir
from programs import gradreduce, succeed


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparing")
    blobs(folder / "data")
    blobs(folder / "test", (60,), seed=1)
    common = ["--eval", "test", "-r", "inline", "-q"]
    for name, more in {
        "slow": ["--learning-rate", 0.001, "--epochs", 1],
        "fast": ["--learning-rate", 0.5, "--epochs", 1, "--threads", 2],
        "deep": ["--model", "mlp:4", "--epochs", 2],
    }.items():
        succeed("train", "data", "--run", f"runs/{name}", *common, *more, cwd=folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy, to be changed."""
    return shutil.copytree(made, tmp_path / "copy")


def rows(text):
    return [line.split() for line in text.splitlines()]


def test_the_table_shows_what_differs(made):
    head, *lines = rows(succeed("runs", "table", "runs", cwd=made))
    plan = ["model", "learning_rate", "rounds"]
    results = ["loss", "accuracy", "eval_loss", "seconds"]
    assert head == ["run", "|", *plan, "|", "threads", "|", *results]
    assert [line[0] for line in lines] == ["runs/deep", "runs/fast", "runs/slow"]
    assert lines[1][1:8] == ["|", "softmax", "0.5", "5", "|", "2", "|"]
    listed = json.loads(succeed("runs", "list", "runs", "--json", cwd=made))["runs"]
    for line, one in zip(lines, listed, strict=True):
        found = [f"{one[name]:.4g}" for name in ("pass_loss", "accuracy", "eval_loss")]
        assert line[-4:-1] == found


def test_the_table_is_sorted_from_the_best(made):
    for metric, sign in (("loss", 1), ("accuracy", -1), ("eval_loss", 1), ("seconds", 1)):
        found = json.loads(succeed("runs", "table", "runs", "--sort", metric, "--json", cwd=made))
        values = [sign * one["results"][metric] for one in found["runs"]]
        assert values == sorted(values)
        assert {*found["runs"][0]["plan"]} == {"model", "learning_rate", "rounds"}


def test_runs_of_one_plan_differ_in_nothing(folder):
    for name in ("deep", "slow"):
        shutil.rmtree(folder / "runs" / name)
    head, _ = rows(succeed("runs", "table", "runs", cwd=folder))
    assert head == ["run", "|", *comparing.METRICS]
    assert succeed("runs", "table", "data", cwd=folder) == "no runs in data\n"


def test_damaged_runs_are_named_and_left_out(folder):
    (folder / "runs/slow/run.json").write_text("{}")
    done = gradreduce("runs", "table", "runs", cwd=folder)
    assert len(done.stdout.splitlines()) == 3
    assert "runs/slow is left out: " in done.stderr
    assert gradreduce("runs", "table", "nowhere", cwd=folder).returncode == 66


def test_seconds_are_those_at_work(folder):
    event = {"event": "RunStarted", "run": "r", "completed": 0, "rounds": 3, "batch_size": 1}
    log = [
        {**event, "runner": "inline", "workers": 1, "time": 100.0},
        {"event": "RoundCompleted", "completed": 1, "rows": 1, "loss": 1.0, "time": 103.0},
        {**event, "completed": 1, "runner": "inline", "workers": 1, "time": 900.5},
        {"event": "RoundCompleted", "completed": 2, "rows": 1, "loss": 1.0, "time": 902.5},
    ]
    path = folder / "runs/slow"
    (path / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in log))
    assert comparing.facts(RunDir(path))["results"]["seconds"] == 5.0
    # A clock that was set back.
    for event, at in zip(log, (100.0, 40.0, 30.5, 20.0), strict=True):
        event["time"] = at
    (path / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in log))
    assert comparing.facts(RunDir(path))["results"]["seconds"] == 0.0


def test_compare(made):
    differences = json.loads(
        succeed("runs", "compare", "runs/slow", "runs/fast", "--json", cwd=made)
    )
    assert differences["plan"] == {"learning_rate": [0.001, 0.5]}
    assert differences["execution"] == {"threads": ["auto", 2]}
    assert differences["data"] == differences["environment"] == {}
    assert {"loss", "accuracy", "model_sha256"} <= differences["results"].keys()
    text = succeed("runs", "compare", "runs/slow", "runs/fast", cwd=made)
    assert "data: the same\n" in text
    assert ["learning_rate", "0.001", "0.5"] in rows(text)
    same = succeed("runs", "compare", "runs/slow", "runs/slow", cwd=made)
    assert same == "".join(f"{part}: the same\n" for part in differences)
    assert gradreduce("runs", "compare", "runs/slow", "data", cwd=made).returncode == 66


def test_compare_leaves_out_the_blocks_that_stages_have_chosen(made, tmp_path):
    """A run with stages can be resumed with what it has recorded."""
    layers = ["--model", "dense:8,relu,dense:6,relu", "--rounds", 4, "-q"]
    for name, more in {
        "plain": ["-r", "inline"],
        "stages": ["--stages", 2],
        "given": ["--stages", 2, "--blocks", 1],
    }.items():
        succeed("train", made / "data", "--run", tmp_path / name, *layers, *more)
    both = tmp_path / "plain", tmp_path / "stages"
    found = json.loads(succeed("runs", "compare", *both, "--json"))
    assert found["execution"]["stages"] == [1, 2]
    assert "blocks" not in found["execution"]
    both = tmp_path / "stages", tmp_path / "given"
    found = json.loads(succeed("runs", "compare", *both, "--json"))
    assert found["execution"] == {"blocks": ["auto", 1]}
    (tmp_path / "stages/result.json").unlink()
    again = json.loads(succeed("resume", tmp_path / "stages", "--json", "-q"))
    assert again["model_sha256"] == RunDir(tmp_path / "plain").result().model_sha256


def test_prune_keeps_the_result_and_asks_first(folder):
    files = {*folder.rglob("*")}
    before = succeed("evaluate", "runs/deep", "test", cwd=folder)
    assert "add --yes" in gradreduce("runs", "prune", "runs", cwd=folder).stderr
    assert {*folder.rglob("*")} == files
    listed = json.loads(succeed("runs", "prune", "runs", "--yes", "--json", cwd=folder))
    assert listed["removed"]
    assert {folder / path for path in listed["paths"]} <= files - {*folder.rglob("*")}
    for name in ("deep", "slow", "fast"):
        run = RunDir(folder / "runs" / name)
        assert checkpoint.saved_rounds(run) == [run.result().completed]
        assert not any(run.rounds.folder.iterdir())
    assert succeed("runs", "prune", "runs", "--yes", cwd=folder) == "nothing to remove\n"
    assert succeed("evaluate", "runs/deep", "test", cwd=folder) == before
    shown = succeed("runs", "show", "runs/deep", "--json", cwd=folder)
    again = json.loads(succeed("resume", "runs/deep", "--json", "-q", cwd=folder))
    assert again["model_sha256"] == json.loads(shown)["model_sha256"]


def test_prune_leaves_runs_alone_that_can_go_on(folder):
    run = RunDir(folder / "runs/deep")
    (run.path / "result.json").unlink()
    assert comparing.needless(run, failed=True) == []
    other = RunDir(folder / "runs/slow")
    assert comparing.needless(other, failed=False)
    with lease.hold(other.path):
        assert comparing.needless(other, failed=False) == []
    # Without its checkpoint, the result is made again from a round.
    shutil.rmtree(other.checkpoints)
    other.make_folders()
    assert comparing.needless(other, failed=False) == []


def test_failed_runs_go_as_a_whole_if_that_is_asked_for(folder):
    path = folder / "runs/failed"
    shutil.copytree(folder / "runs/slow", path)
    for name in ("rounds", "checkpoints", "evaluations"):
        shutil.rmtree(path / name)
    for name in ("result.json", "events.jsonl"):
        (path / name).unlink()
    RunDir(path).make_folders()
    assert comparing.needless(RunDir(path), failed=False) == []
    assert "runs/failed: the run\n" in succeed("runs", "prune", "runs", "--failed", cwd=folder)
    succeed("runs", "prune", "runs", "--failed", "--yes", cwd=folder)
    assert not path.exists()
    assert (folder / "runs/slow/run.json").exists()


def test_curves_are_those_of_the_history(made):
    runs = [mapreduce.open_run(made / "runs" / name) for name in ("deep", "slow")]
    losses, accuracies = runs[0].plot(runs[1]).axes
    history, evaluations = (table.to_pydict() for table in (runs[0].history, runs[0].evaluations))
    training, evaluation, *others = losses.lines
    assert training.get_xydata().tolist() == [
        [*pair] for pair in zip(history["round"], history["loss"], strict=True)
    ]
    assert [*evaluation.get_xdata()] == evaluations["round"]
    assert [*accuracies.lines[0].get_ydata()] == evaluations["accuracy"]
    assert others[0].get_label() == "slow, training"
    rows = runs[0].plot(against="rows").axes[0].lines[0].get_xdata()
    assert rows[-1] == sum(history["rows"])
    assert "<svg" in runs[0]._repr_html_()
    with pytest.raises(UsageError, match="against: expected rounds or rows"):
        runs[0].plot(against="days")


@pytest.mark.slow
def test_plot_writes_a_file(folder):
    plot = ["runs", "plot", "runs/slow", "runs/fast"]
    assert succeed(*plot, cwd=folder) == "plot.svg\n"
    assert (folder / "plot.svg").read_text().count("<svg") == 1
    assert gradreduce(*plot, "--out", "plot.tiff9", cwd=folder).returncode == 73
    assert gradreduce("runs", "plot", "data", cwd=folder).returncode == 66


def test_without_matplotlib(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run = mapreduce.open_run(made / "runs/slow")
    with pytest.raises(UsageError, match=r"pip install 'gradreduce\[plot\]'"):
        run.plot()
    assert run._repr_html_().startswith("<pre>&lt;Run ")
