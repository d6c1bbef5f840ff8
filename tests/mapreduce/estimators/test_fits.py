"""``gradreduce train`` of models that are fitted without gradients, and what its run serves for."""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import mapreduce
from mapreduce.algorithms import gram, k_means
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.errors import Interrupted, UsageError
from mapreduce.estimators import PCA, HistGradientBoostingRegressor, KMeans, Ridge, specs
from mapreduce.executors import here
from mapreduce.models import FITS
from mapreduce.models.fitted import FittedModel
from mapreduce.runs import events, lease
from mapreduce.runs.fits import FitDir
from mapreduce.serving.model import load
from mapreduce.training import console
from quick import cases

MODELS = {
    "k-means:3": KMeans(3),
    "pca:2": PCA(2),
    "ridge:alpha=0.1": Ridge(0.1),
    "boosting:trees=3,leaves=4": HistGradientBoostingRegressor(max_iter=3, max_leaf_nodes=4),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    random = np.random.default_rng(0)
    x = 5 * random.integers(0, 3, (5000, 1)) + random.normal(size=(5000, 4)) * [1, 2, 3, 4]
    y = x[:, 0] - x[:, 3]
    folder = tmp_path_factory.mktemp("fits") / "data"
    import_rows(Source([Rows(x, y)], (4,), 1.0, x.nbytes, {"format": "test"}), folder, 4)
    return folder


@pytest.fixture
def run(tmp_path, data, answer):
    """The run of a fit that has ended."""
    answer(0, "train", data, "--run", tmp_path / "run", "--model", "ridge:0.1")
    return tmp_path / "run"


def fit(answer, data, run, model, *options):
    """The summary of a new run."""
    printed = answer(0, "train", data, "--run", run, "--model", model, "--json", *options)
    return json.loads(printed.out)


@cases("model", *MODELS)
def test_one_model_for_any_execution(model, data, tmp_path, answer):
    expected = MODELS[model].fit(data).fitted_.model_sha256
    here = fit(answer, data, tmp_path / "here", model)
    assert here["state"] == "ended" and here["model_sha256"] == expected
    assert here["completed"] >= 2
    chain = fit(answer, data, tmp_path / "chain", model, "-r", "inline", "--workers", "2")
    assert (chain["model_sha256"], chain["completed"]) == (expected, here["completed"])
    names = {path.name for path in (tmp_path / "chain").iterdir()}
    assert names == {
        "fit.json",
        "execution.json",
        "events.jsonl",
        "model.safetensors",
        "lease.lock",
    }


def test_a_gang_of_two_with_a_trace(data, tmp_path, answer):
    options = "--executor", "gang", "-r", "parallel", "--workers", "2", "--blocks", "2", "--trace"
    found = fit(answer, data, tmp_path / "run", "k-means:3", *options)
    assert found["model_sha256"] == KMeans(3).fit(data).fitted_.model_sha256
    report = json.loads(answer(0, "report", tmp_path / "run", "--json").out)
    assert sum(one["rounds"] for one in report["segments"]) >= found["completed"] - 1
    # What to try would be for a training by gradients.
    assert report["next"] is None


@cases("model, options, seed", ("boosting:2", "--seed 3", 3), ("boosting:trees=2", "", 0))
def test_options_of_the_model_and_a_seed(model, options, seed, data, tmp_path, answer):
    model = f"{model},early_stopping=true,held_out=0.5"
    found = fit(answer, data, tmp_path / "run", model, *options.split())
    expected = HistGradientBoostingRegressor(
        max_iter=2, early_stopping=True, validation_fraction=0.5, random_state=seed
    )
    assert found["model_sha256"] == expected.fit(data).fitted_.model_sha256


@cases(
    "program, model, options, calls",
    (k_means.KMeans, "k-means:3", "", 5),
    (k_means.KMeans, "k-means:3", "-r inline --executor chain --rounds-per-job 2", 5),
    (gram.Gram, "pca:2", "", 5),
)
def test_an_interrupted_fit_goes_on(
    program, model, options, calls, data, tmp_path, answer, refused, monkeypatch
):
    expected = fit(answer, data, tmp_path / "whole", model)
    run, lift, done = tmp_path / "run", program.lift, []

    def interrupted(self, now, unit):
        done.append(unit)
        if len(done) == calls:
            raise Interrupted(2)
        return lift(self, now, unit)

    with monkeypatch.context() as patch:
        patch.setattr(program, "lift", interrupted)
        said = refused(130, "train", data, "--run", run, "--model", model, *options.split())
    assert f"Continue with: gradreduce resume {run}" in said
    assert "stopped" in answer(0, "runs", "list", tmp_path).out
    assert "has no model yet. Continue with" in refused(66, "predict", run, data, tmp_path / "out")
    printed = answer(0, "resume", run, "--json")
    assert "going on after" in printed.err
    found = json.loads(printed.out)
    for name in ("model_sha256", "completed"):
        assert found[name] == expected[name]
    # It has ended.
    assert expected["model_sha256"] in answer(0, "resume", run).out


def test_a_run_on_another_filesystem(data, root, tmp_path, answer):
    answer(0, "train", data, "--run", root / "run", "--model", "ridge:0.1")
    assert not (root / "run" / "rounds").exists()
    model = FittedModel.load(root / "run" / "model.safetensors")
    assert model.model_sha256 == Ridge(0.1).fit(data).fitted_.model_sha256
    assert model.model_sha256[:12] in answer(0, "runs", "list", root).out
    answer(0, "predict", root / "run", data, tmp_path / "predicted.csv", "-r", "inline")


def test_data_that_have_moved(data, tmp_path, answer, refused, monkeypatch):
    place, run = tmp_path / "place", tmp_path / "run"
    shutil.copytree(data, place)
    with monkeypatch.context() as patch:
        patch.setattr(gram.Gram, "outcome", lambda *_: (_ for _ in ()).throw(Interrupted(2)))
        refused(130, "train", place, "--run", run, "--model", "pca:2")
    place.rename(tmp_path / "elsewhere")
    assert "name their folder by --data" in refused(66, "resume", run)
    other = tmp_path / "other"
    import_rows(Source([Rows(np.eye(4), None)], (4,), 1.0, 128, {"format": "test"}), other, 0)
    refused(65, "resume", run, "--data", other)
    answer(0, "resume", run, "--data", tmp_path / "elsewhere")
    assert FitDir(run).config.data == str(tmp_path / "elsewhere")
    assert FitDir(run).model.model_sha256 == PCA(2).fit(data).fitted_.model_sha256


def test_a_driver_on_another_host(data, tmp_path, answer, refused, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(gram.Gram, "outcome", lambda *_: (_ for _ in ()).throw(Interrupted(2)))
        refused(130, "train", data, "--run", run, "--model", "pca")
    other = b'{"host": "elsewhere", "pid": 7, "start_time": 7}'
    for folder in (run, run / "rounds"):
        (folder / "lease.json").write_bytes(other)
    assert "running" in answer(0, "runs", "list", tmp_path).out
    assert f"gradreduce resume {run} --take-over" in refused(75, "resume", run)
    answer(0, "resume", run, "--take-over")
    assert lease.holder(run) is None


def test_what_the_run_serves_for(run, data, tmp_path, answer, refused):
    model = run / "model.safetensors"
    assert answer(0, "evaluate", run, data).out == answer(0, "evaluate", model, data).out
    assert "name DATA to report on" in refused(2, "evaluate", run)
    for command in ("predict", "swarm"):
        answer(0, command, run, data, tmp_path / command)
        for part in (tmp_path / command).glob("*.parquet"):
            assert part.read_bytes() == (tmp_path / "predict" / part.name).read_bytes()
    answer(0, "export", run, "--to", tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == model.read_bytes()
    sha256 = FitDir(run).model.model_sha256
    assert load(run).sha256 == sha256 and load(run).name == "run"
    assert mapreduce.load(run).model_sha256 == sha256
    rows = np.eye(4)
    assert (mapreduce.predict(run, rows) == Ridge(0.1).fit(data).predict(rows)).all()
    shown = json.loads(answer(0, "runs", "show", run, "--json").out)
    assert (shown["model"], shown["data"], shown["seed"]) == ("ridge:0.1", str(data), 0)
    assert shown["execution"]["executor"] == "here"
    assert sha256[:12] in answer(0, "runs", "list", tmp_path).out


def test_a_model_that_is_gone_is_fitted_again(run, answer, refused):
    model = run / "model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1])
    assert "is damaged" in refused(65, "resume", run)
    model.unlink()
    answer(0, "resume", run)
    assert model.read_bytes() == content


@cases(
    "command",
    *("replay RUN", "explain RUN", "logs RUN", "runs plot RUN"),
    "train DATA --run OUT --init-from RUN",
)
def test_commands_for_trainings_are_refused(command, run, data, tmp_path, refused):
    places = {"RUN": run, "DATA": data, "OUT": tmp_path / "out"}
    said = refused(2, *[places.get(word, word) for word in command.split()])
    assert f"{run} is the run of a fit" in said and "this is for trainings" in said


@cases(
    "option",
    *("--epochs 3", "--learning-rate 0.1", "--optimizer sgd", "--batch-size 0", "--eval x"),
    *(
        "--keep 3",
        "--dry-run",
        "--patience 0",
        "--class-weight balanced",
        "--dtype float64",
        "--rounds 1",
    ),
)
def test_options_of_trainings_are_refused(option, data, tmp_path, refused):
    run = tmp_path / "run"
    said = refused(2, "train", data, "--run", run, "--model", "pca:2", *option.split())
    assert f"{option.split()[0]} is for trainings by gradients, and pca:2 is fitted" in said
    assert not run.exists()


@cases(
    "model, code, message",
    ("k-means:0", 2, "--model k-means, option clusters: expected a positive number"),
    ("k-means:two", 2, "option clusters: expected a positive number .* found 'two'"),
    ("k-means:2,moves=x", 2, "option moves: expected"),
    ("k-means:2,size=3", 2, "it has no option 'size': expected one of clusters, moves"),
    ("kmeans:2", 2, "unknown model 'kmeans:2'.* Did you mean k-means"),
    ("ridge:-1", 2, "option alpha: expected a finite, non-negative number, found '-1'"),
    ("boosting:early_stopping=no", 2, "early_stopping: expected one of auto, true, false"),
    ("pca:2 --seed 3", 2, "--seed: pca:2 draws nothing"),
    ("pca:5", 65, "the rows have only 4 directions"),
    ("k-means:5001", 65, "expected at least 5001 different rows.* found 5000"),
    ("ridge -r nobody", 2, "'nobody' is not one of"),
    ("ridge --stages 2 --workers 2", 2, "--stages: expected 1, since a fit has no layers"),
    ("ridge --executor here --workers 2", 2, "--executor here: expected no option"),
)
def test_models_that_make_no_sense(model, code, message, data, tmp_path, refused):
    run = tmp_path / "run"
    assert re.search(message, refused(code, "train", data, "--run", run, "--model", *model.split()))
    # The same folder serves once the model is mended.
    assert not run.exists()


def told(run):
    return [event["event"] for event in events.read(run / "events.jsonl")]


def test_a_fit_is_told_of(data, tmp_path, answer, refused, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(gram.Gram, "outcome", lambda *_: (_ for _ in ()).throw(Interrupted(2)))
        said = refused(130, "train", data, "--run", run, "--model", "pca:2")
    assert "pca:2: fits 5,000 rows, in this process\n" in said
    assert told(run) == ["RunStarted"]
    assert ", in this process, going on after 1\n" in answer(0, "resume", run).err
    assert told(run) == ["RunStarted", "RunStarted", "RunEnded"]
    assert events.read(run / "events.jsonl")[-1]["model_sha256"] == FitDir(run).model.model_sha256


def test_rounds_of_a_fit_are_told_of(data, tmp_path, monkeypatch, answer):
    for module in (here, console):
        for name in ("PUBLISH_SECONDS", "PUBLISH_SHARE", "_LINE_SECONDS"):
            monkeypatch.setattr(module, name, 0.0, raising=False)
    said = answer(0, "train", data, "--run", tmp_path / "run", "--model", "k-means:3").err
    assert "RoundPublished" in told(tmp_path / "run") and "\n2 rounds\n" in said


def test_fits_beside_trainings(run, data, tmp_path, answer):
    answer(0, "train", data, "--run", tmp_path / "linear", "--model", "linear", "--rounds", "2")
    found = json.loads(answer(0, "runs", "table", tmp_path, "--json").out)["runs"]
    fit, training = sorted(found, key=lambda each: each["plan"]["model"], reverse=True)
    assert (fit["plan"]["model"], training["plan"]["model"]) == ("ridge:0.1", "linear")
    assert fit["results"]["loss"] is None and fit["results"]["seconds"] > 0
    other = tmp_path / "other"
    answer(0, "train", data, "--run", other, "--model", "k-means:2", "--seed", "1")
    differs = json.loads(answer(0, "runs", "compare", run, other, "--json").out)
    assert differs["plan"] == {"model": ["ridge:0.1", "k-means:2"], "seed": [0, 1]}
    assert not differs["data"]


def test_runs_of_fits_are_pruned(run, data, tmp_path, answer, refused, monkeypatch):
    # As a driver leaves it that was killed just after it has published the model.
    (run / "rounds").mkdir()
    failed, stopped = tmp_path / "failed", tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(gram.Gram, "outcome", lambda *_: (_ for _ in ()).throw(Interrupted(2)))
        refused(130, "train", data, "--run", stopped, "--model", "pca")
    shutil.copytree(stopped, failed)
    for block in (failed / "rounds").glob("*.block"):
        block.unlink()
    asked = answer(0, "runs", "prune", tmp_path, "--failed", "--json").out
    assert json.loads(asked)["paths"] == [str(failed), str(run / "rounds")]
    answer(0, "runs", "prune", tmp_path, "--failed", "--yes")
    assert not failed.exists() and not (run / "rounds").exists()
    assert FitDir(run).model is not None
    answer(0, "resume", stopped)


def test_folders_that_are_taken(run, data, tmp_path, refused):
    for model in ("ridge", "linear"):
        said = refused(73, "train", data, "--run", run, "--model", model)
        assert f"already contains a run. Continue it with 'gradreduce resume {run}'" in said
    assert "--eval is for trainings" in refused(2, "resume", run, "--eval", data)


@cases("content", b"{}", b"[", b'{"format": "gradreduce-fit", "format_version": 1}')
def test_damaged_runs(content, run, tmp_path, answer, refused):
    (run / "model.safetensors").unlink()
    (run / "fit.json").write_bytes(content)
    assert f"{run / 'fit.json'} is damaged" in refused(65, "resume", run)
    assert "damaged" in answer(0, "runs", "list", tmp_path).out


@cases("model", *MODELS)
def test_python_fits_the_same(model, data, tmp_path):
    seen = []
    run = mapreduce.train(
        data, model=model, run=tmp_path / "run", workers=2, runner="inline", callbacks=[seen.append]
    )
    assert run.model_sha256 == MODELS[model].fit(data).fitted_.model_sha256
    assert type(seen[0]).__name__ == "RunStarted" and type(seen[-1]).__name__ == "RunEnded"
    again = mapreduce.open_run(run.path)
    assert again.resume(progress=False).model_sha256 == run.model_sha256
    assert repr(again) == repr(run) and f"{model}, ended after" in repr(run)
    with pytest.raises(UsageError, match="is the run of a fit"):
        _ = run.history
    run.export(tmp_path / "model.safetensors")
    assert mapreduce.load(tmp_path / "model.safetensors").model_sha256 == run.model_sha256


def test_python_fits_rows_in_memory(tmp_path, capsys):
    random = np.random.default_rng(1)
    x, y = random.normal(size=(300, 3)), random.integers(0, 2, 300)
    for at, (model, given) in enumerate((("k-means:2", x), ("k-means:2", (x, y)))):
        run = mapreduce.train(given, model, run=tmp_path / str(at), seed=3)
        assert (run.predict(x) == KMeans(2, random_state=3).fit(x).predict(x)).all()
        assert f"run {run.path}" in capsys.readouterr().err
    frame = pa.table({"a": x[:, 0], "b": [*"uvw"] * 100, "kind": [*"no"] * 150})
    trees = mapreduce.train(frame, "boosting:2", label="kind", run=tmp_path / "t", progress=False)
    assert trees.classes == ("n", "o") and trees.evaluate(frame, label="kind").rows == 300
    csv.write_csv(frame, tmp_path / "table.csv")
    for at, table in enumerate((frame, tmp_path / "table.csv")):
        run = mapreduce.train(table, "k-means:2", run=tmp_path / f"c{at}", progress=False)
        assert len(run.predict(table)) == 300
    slope = mapreduce.train((x, y), "ridge", run=tmp_path / "r", progress=False)
    assert slope.predict(x).dtype == np.float64 and slope.evaluate((x, 1.0 * y)).rmse < 0.6


@cases(
    "options, message",
    ({"epochs": 3}, "^epochs is for trainings by gradients, and ridge is fitted without any"),
    ({"evaluation": "x"}, "^evaluation is for trainings by gradients"),
    ({"eval": "x"}, "^evaluation is for trainings by gradients"),
    ({"init_from": "x"}, "^init_from is for trainings by gradients"),
    ({"seed": 3}, "^seed: ridge draws nothing"),
    ({"epoch": 3}, "epoch"),
    ({"executor": "here", "workers": 2}, '^executor="here": expected no option'),
)
def test_python_refuses_options_of_trainings(options, message, data, tmp_path):
    with pytest.raises(UsageError, match=message):
        mapreduce.train(data, "ridge", run=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_models_are_listed_with_their_options(answer):
    printed = answer(0, "models", "list").out
    for line in ("k-means:CLUSTERS", "clusters=8", "boosting[:TREES]", "alpha=1.0"):
        assert line in printed
    assert FITS.parse("k-means:4") == FITS.parse("k-means:clusters=4")
    assert FITS.parse("pca") == specs.PCA()
