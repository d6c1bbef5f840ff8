"""``gradreduce compare`` and ``mapreduce.compare``: scores by an oracle, and equal to the bit."""

import csv
import gzip
import json
import random
import re
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from hdfs_utils.paths import path_of
from mapreduce.comparing import datasets, driver, models
from mapreduce.data.manifest import load
from mapreduce.errors import DataError, Interrupted, UsageError
from quick import cases
from raw_tables import PENGUINS, write

MODELS = "softmax,boosting:trees=3,leaves=4"


@pytest.fixture(scope="module")
def penguins(tmp_path_factory):
    return write(PENGUINS, tmp_path_factory.mktemp("penguins"))


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A table with dates, texts, a category of many values and missing fields."""
    draw = random.Random(5)
    path = tmp_path_factory.mktemp("raw") / "raw.csv"
    with path.open("x", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["when", "size", "town", "note", "kind"])
        for _ in range(300):
            size, word = draw.gauss(0, 1), draw.choice(["red", "green", "blue"])
            day = f"202{draw.randrange(4)}-0{draw.randrange(1, 9)}-11"
            town, note = f"town {draw.randrange(1000)}", f"some {word} words, of no use"
            fields = [day, f"{size:.3f}", town, note]
            fields = [field if draw.random() > 0.05 else "" for field in fields]
            rows.writerow([*fields, "yes" if size + (word == "red") > 0.3 else "no"])
    return path


def shuffled(table, folder):
    head, *rows = table.read_text().splitlines(keepends=True)
    random.Random(1).shuffle(rows)
    path = folder / "shuffled.csv"
    path.write_text(head + "".join(rows))
    return path


def scores_of(run):
    return [*csv.DictReader((run / "scores.csv").read_text().splitlines())]


def compared(answer, table, run, *options, label="species", chosen=MODELS, folds=3):
    """What a comparison prints as JSON, with all scores by model and fold."""
    given = "--label", label, "--run", run, "--folds", folds, "--models", chosen, "--json"
    printed = answer(0, "compare", table, *given, *options).out
    return json.loads(printed), scores_of(run)


@pytest.fixture(scope="module")
def done(tmp_path_factory, penguins):
    """The folder of a comparison of penguins."""
    run = tmp_path_factory.mktemp("done") / "run"
    mapreduce.compare(
        penguins, label="species", id="id", models=[MODELS], folds=3, run=run, progress=False
    )
    return run


def test_scores_are_those_of_evaluate(done, penguins, tmp_path, answer):
    scores = scores_of(done)
    assert [(score["model"], score["fold"]) for score in scores] == [
        (model, fold) for fold in "123" for model in models.split([MODELS])
    ]
    for score in scores:
        fold = score["fold"]
        place = {"softmax": "float64"}.get(score["model"], "trees")
        for data in (f"folds/fold-{fold}.csv", f"data/fold-{fold}/{place}/test"):
            printed = answer(0, "evaluate", done / score["run"], done / data, "--json").out
            report = json.loads(printed)
            for name in ("rows", "accuracy", "roc_auc", "loss"):
                assert report[name] == float(score[name])
        shown = json.loads(answer(0, "runs", "show", done / score["run"], "--json").out)
        assert shown["model_sha256"] == score["model_sha256"]
    # The recipe is that of the other folds alone.
    others = [done / "folds" / f"fold-{fold}.csv" for fold in (2, 3)]
    options = "--label", "species", "--id", "id", "--task", "classification", "--layout", "dense"
    for place, more in (("float64", ("--dtype", "float64")), ("trees", ("--trees",))):
        answer(0, "data", "import", *others, tmp_path / place, *options, *more)
        assert load(done / f"data/fold-1/{place}/train").sha256 == load(tmp_path / place).sha256
    # Each row is in one fold, and classes are shared out.
    rows = [(done / f"folds/fold-{fold}.csv").read_text().splitlines()[1:] for fold in (1, 2, 3)]
    assert sorted(chain.from_iterable(rows)) == sorted(penguins.read_text().splitlines()[1:])
    for name in ("Adelie", "Gentoo", "Chinstrap"):
        counts = [sum(name in row for row in fold) for fold in rows]
        assert max(counts) - min(counts) <= 2


@cases(
    "options",
    *("", "-r inline --executor chain --workers 3", "-r parallel --executor gang --workers 2"),
)
def test_one_result_for_any_execution_and_order(options, done, penguins, tmp_path, answer):
    run, other = tmp_path / "run", shuffled(penguins, tmp_path)
    compared(answer, other, run, "--id", "id", *options.split())
    for name in ("scores.csv", "folds/fold-1.csv", "comparison.json"):
        assert (run / name).read_bytes() == (done / name).read_bytes()


@cases("options", {}, {"layout": "sparse"})
def test_trees_have_missing_numbers_and_codes_of_categories(options, raw, tmp_path):
    """As where the model is trained on the file of a table."""
    model = "boosting:trees=3"
    run, how = tmp_path / "run", {"label": "kind", "progress": False}
    models = [model, "logistic"]
    mapreduce.compare(raw, models=models, folds=2, run=run, **how, **options)
    fit = mapreduce.train(run / "folds/fold-2.csv", model=model, run=tmp_path / "one/run", **how)
    shas = {(s["model"], s["fold"]): s["model_sha256"] for s in scores_of(run)}
    assert shas[model, "1"] == fit.model_sha256 and len(shas) == 4
    assert load(run / "data/fold-1/trees/train").is_for_trees
    assert not load(run / "data/fold-1/float64/train").is_for_trees


@cases("model", "ridge", "linear")
def test_a_model_computes_in_its_own_dtype(model, tmp_path):
    """As where the model is trained on the file of a table."""
    draw, table = random.Random(3), tmp_path / "table.csv"
    rows = [(draw.gauss(0, 1), draw.gauss(5, 2)) for _ in range(60)]
    lines = [f"{a!r},{b!r},{a - b / 3 + draw.gauss(0, 1)!r}" for a, b in rows]
    table.write_text("\n".join(["a,b,y", *lines]) + "\n")
    run, how = tmp_path / "run", {"label": "y", "progress": False}
    mapreduce.compare(table, models=[model], folds=2, run=run, **how)
    alone = mapreduce.train(run / "folds/fold-2.csv", model=model, run=tmp_path / "one/run", **how)
    assert scores_of(run)[0]["model_sha256"] == alone.model_sha256


def test_rows_of_a_group_are_in_one_fold(tmp_path, answer):
    """Also where they are of several classes."""
    draw = random.Random(2)
    rows = (f"p{draw.randrange(30)},{draw.random()},{draw.choice('ab')}" for _ in range(200))
    table = of_rows(tmp_path, *rows, names="x,z,y")
    run = tmp_path / "run"
    compared(answer, table, run, "--group", "x", label="y", chosen="softmax", folds=4)
    folds = [(run / f"folds/fold-{n}.csv").read_text().splitlines()[1:] for n in (1, 2, 3, 4)]
    groups = [{row.partition(",")[0] for row in fold} for fold in folds]
    assert sum(map(len, groups)) == len(set.union(*groups)) and all(groups)
    assert max(map(len, folds)) - min(map(len, folds)) < 40


def test_a_raw_table(raw, tmp_path, answer):
    first = compared(answer, raw, tmp_path / "first", label="kind", folds=2)
    again = shuffled(raw, tmp_path)
    assert compared(answer, again, tmp_path / "again", label="kind", folds=2)[1] == first[1]
    accuracy = {row["model"]: row["accuracy"] for row in first[0]["models"]}
    assert accuracy["boosting:trees=3,leaves=4"] > 0.7 < accuracy["softmax"]


def test_the_table_of_results(done, penguins, answer):
    found = mapreduce.compare(
        penguins, label="species", id="id", models=MODELS, folds=3, run=done, progress=False
    )
    scores = found.folds.to_pylist()
    for row in found.table.to_pylist():
        own = [score["accuracy"] for score in scores if score["model"] == row["model"]]
        assert row["accuracy"] == pytest.approx(np.mean(own), rel=1e-15)
        assert row["accuracy_std"] == pytest.approx(np.std(own), rel=1e-12)
        assert row["seconds"] > 0 < row["bytes"] and row["error"] is None
    best = max(found.table.to_pylist(), key=lambda row: row["accuracy"])
    assert found.best == best["model"] == found.table["model"][0].as_py()
    text = answer(
        *(0, "compare", penguins, "--label", "species", "--id", "id", "--run", done),
        *("--folds", 3, "--models", MODELS),
    ).out
    assert text == f"{found}\n" and re.search(rf"{best['accuracy']:.4g} ± ", text)
    assert len(json.loads(answer(0, "runs", "table", done, "--json").out)["runs"]) == 6


@pytest.mark.parametrize("stops_at", [1, 2, 5])
def test_a_comparison_goes_on_at_a_fold(
    stops_at, done, penguins, tmp_path, answer, refused, monkeypatch
):
    run, begun = tmp_path / "run", []
    options = "--label", "species", "--id", "id", "--run", run, "--folds", 3, "--models", MODELS
    scored = driver.Driver._scored

    def stopped(self, score, place):
        begun.append(score.run)
        if len(begun) == stops_at:
            # Half a run, as a killed driver leaves it.
            place.mkdir(parents=True)
            (place / "run.json").write_text("{")
            raise Interrupted(2)
        return scored(self, score, place)

    monkeypatch.setattr(driver.Driver, "_scored", stopped)
    assert "Go on by the same command" in refused(130, "compare", penguins, *options)
    answer(0, "compare", penguins, *options)
    assert len(begun) == len({*begun}) + 1 == 7
    assert (run / "scores.csv").read_bytes() == (done / "scores.csv").read_bytes()


def test_a_model_that_fails_is_a_row(penguins, tmp_path, answer):
    chosen = "ridge,k-means:3,softmax"
    found, scores = compared(answer, penguins, tmp_path / "run", chosen=chosen, folds=2)
    assert found["best"] == found["models"][0]["model"] == "softmax"
    errors = {row["model"]: row["error"] for row in found["models"]}
    assert re.match("fold 1: .*expected labels that are numbers", errors["ridge"])
    assert re.match("fold 1: k-means:3 has learned without labels", errors["k-means:3"])
    # Where the folder is makes no difference.
    assert str(tmp_path) not in (tmp_path / "run" / "scores.csv").read_text()
    assert [score["fold"] for score in scores if score["model"] == "ridge"] == ["1"]
    text = answer(
        *(0, "compare", penguins, "--label", "species", "--run", tmp_path / "run"),
        *("--folds", 2, "--models", chosen),
    ).out
    assert "ridge failed, fold 1: " in text


def test_a_comparison_on_another_filesystem(s3, penguins, tmp_path, answer):
    root = path_of(f"{s3}/compared")
    packed = tmp_path / "penguins.csv.gz"
    packed.write_bytes(gzip.compress(penguins.read_bytes()))
    for table, run in ((packed, root / "run"), (penguins, tmp_path / "run")):
        options = "--label", "year", "--task", "regression", "--folds", 2, "--models", "ridge,pca"
        answer(0, "compare", table, *options, "--run", run)
    assert (root / "run/scores.csv").read_bytes() == (tmp_path / "run/scores.csv").read_bytes()


def test_numbers_are_predicted(penguins, tmp_path):
    frame = pa.csv.read_csv(penguins)
    pq.write_table(frame, tmp_path / "penguins.parquet")
    chosen = ["ridge", "boosting:2", "softmax"]
    results = [
        mapreduce.compare(
            *(data,),
            **{"label": "body_mass_g", "task": "regression", "models": chosen, "folds": 2},
            **{"run": tmp_path / name, "na": ("NA",), "missing_label": "drop", "progress": False},
        )
        for name, data in (("a", frame), ("b", tmp_path / "penguins.parquet"), ("c", frame[::-1]))
    ]
    first = results[0]
    assert first.best == "ridge" and first.table["rmse"][0].as_py() < 400
    assert first.table["error"][2].as_py().startswith("fold 1: ")
    for other in results[1:]:
        content = (other.path / "scores.csv").read_bytes()
        assert content == (first.path / "scores.csv").read_bytes()


def test_all_models_fail(penguins, tmp_path, answer):
    found = answer(
        *(1, "compare", penguins, "--label", "species", "--run", tmp_path / "run"),
        *("--models", "ridge", "--folds", 2),
    )
    assert "ridge failed, fold 1: " in found.out and "ridge: " in found.err


def test_models_of_a_fold_read_its_rows_once(penguins, tmp_path, monkeypatch):
    files, table = [], datasets.opening.table
    monkeypatch.setattr(
        datasets.opening, "table", lambda *what: files.append(what[0]) or table(*what)
    )
    chosen = ["softmax", "mlp:2", "boosting:trees=1,leaves=3"]
    options = {"label": "species", "id": "id", "folds": 2, "progress": False}
    mapreduce.compare(penguins, models=chosen, run=tmp_path / "penguins", **options)
    assert [[path.stem for path in each] for each in files] == [
        [f"fold-{fold}"] for fold in (2, 1, 1, 2)
    ]


@cases(
    "text, expected",
    ("softmax,mlp:64,32,boosting", ["softmax", "mlp:64,32", "boosting"]),
    ("boosting:trees=2,rate=0.2,ridge", ["boosting:trees=2,rate=0.2", "ridge"]),
    ("conv:6x5,relu,dense:9,softmax", ["conv:6x5,relu,dense:9", "softmax"]),
    ("softmax,dense:9,relu,k-means:3", ["softmax", "dense:9,relu", "k-means:3"]),
    ("boosting:trees=2,softmx", ["boosting:trees=2", "softmx"]),
    ("softmax,boosing,mlp:64,bosting", ["softmax", "boosing", "mlp:64", "bosting"]),
    ("mine:Model,torch:nets:Net,svm", ["mine:Model", "torch:nets:Net", "svm"]),
)
def test_lists_of_models(text, expected):
    assert models.split([text]) == tuple(expected)
    assert models.split(expected) == tuple(expected)


def of_rows(folder, *rows, names="x,y"):
    path = folder / "table.csv"
    path.write_text(f"{names}\n" + "".join(f"{row}\n" for row in rows))
    return path


GOOD = [f"{i},{'ab'[i % 2]}" for i in range(10)]


@cases(
    "rows, options, code, message",
    (GOOD, "--label z", 2, "--label z: .*table.csv has no such column; it has x, y"),
    (GOOD, "", 2, "--label label: .*table.csv has no such column"),
    (["1,a", "2,a"], "--label y", 65, "expected two classes or more in column y, found .'a'."),
    (
        [*GOOD, "7,c"],
        "--label y",
        65,
        "class 'c' would be in one fold alone: .* found 1 row. Leave",
    ),
    ([*GOOD, "7,c", "7,c"], "--label y", 65, "class 'c' .* found 2 rows of one content"),
    (["1,a", "2,b", "3,a", "4,b"], "--label y", 65, "expected rows for each of 5 folds, found 4"),
    ([*GOOD, "7,"], "--label y", 65, "row 11, column y: expected a value, found nothing"),
    (GOOD, "--label y --models softmx", 2, "unknown model 'softmx'"),
    (GOOD, "--label y --models boosting,softmx", 2, "unknown model 'softmx'"),
    (GOOD, "--label y --models boosting:tree=2", 2, "it has no option 'tree'"),
    (GOOD, "--label y --models softmax,softmax", 2, "--models: expected each model once"),
    (GOOD, "--label y --models softmax,", 2, "unknown model|expected each model"),
    (GOOD, "--label y --folds 1", 2, "1 is not in the range"),
    (GOOD, "--label y --id z", 2, "--id z: .*has no such column"),
    (GOOD, "--label y --group z", 2, "--group z: .*has no such column"),
    ([*GOOD, "3,a"], "--label y --id x", 65, "rows 4 and 11 have one id .* say --group x"),
    (["1,a", "1,b"], "--label y --group x", 65, "class 'a' would be in one fold alone"),
    ([f"{i},{i}" for i in range(30)], "--label y", 2, "say --task regression"),
    (GOOD, "--label y --executor here --workers 2", 2, "--executor here: expected no option"),
)
def test_comparisons_that_make_no_sense(rows, options, code, message, tmp_path, refused):
    run = tmp_path / "run"
    said = refused(code, "compare", of_rows(tmp_path, *rows), "--run", run, *options.split())
    assert re.search(message, said)
    assert not run.exists()


def test_folders_that_hold_something_else(done, penguins, tmp_path, refused):
    def said(code, run, *options):
        return refused(code, "compare", *options, "--run", run, "--models", MODELS)

    mine = penguins, "--label", "species", "--id", "id"
    differs = f"{done} is another comparison: "
    assert f"{differs}folds is 3 there, and 5 now" in said(73, done, *mine)
    assert f"{differs}seed is 0 there, and 1 now" in said(
        73, done, *mine, "--folds", 3, "--seed", 1
    )
    for option, name in (("--missing=mean", "missing"), ("--drop=year", "drop")):
        assert f"{differs}{name} is" in said(73, done, *mine, "--folds", 3, option)
    other = of_rows(tmp_path, *GOOD)
    assert f"{differs}label is 'species' there, and 'y' now" in said(73, done, other, "--label=y")
    (tmp_path / "file").write_text("mine")
    assert "is not a comparison" in said(73, tmp_path, *mine)
    assert "is a dataset, whose recipe" in said(2, tmp_path, done / "data/fold-1/trees/test")
    assert (tmp_path / "file").read_text() == "mine"


def test_two_drivers(done, penguins, tmp_path, refused, answer):
    (done / "lease.json").write_bytes(b'{"host": "elsewhere", "pid": 7, "start_time": 7}')
    options = "--label", "species", "--id", "id", "--run", done, "--folds", 3, "--models", MODELS
    said = refused(75, "compare", penguins, *options)
    assert "is in use by" in said and f"remove {done / 'lease.json'}, then start it again" in said
    (done / "lease.json").unlink()
    answer(0, "compare", penguins, *options)


@cases(
    "data, options, error, message",
    (np.eye(3), {}, UsageError, "^data: expected a table, .* found ndarray"),
    (pa.table({"x": [1], "y": ["a"]}), {}, DataError, "the table: expected two classes"),
    (pa.table({"x": [1]}), {}, UsageError, '^label="y": the table has no such column'),
    (pa.table({"x": [1], "y": ["a"]}), {"folds": 1}, UsageError, "^folds: expected a whole"),
    (pa.table({"x": [1], "y": ["a"]}), {"epochs": 1}, UsageError, "epochs"),
    (pa.table({"x": [1], "y": ["a"]}), {"models": ["no"]}, UsageError, "unknown model 'no'"),
)
def test_python_refuses(data, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        mapreduce.compare(data, label="y", run=tmp_path / "run", progress=False, **options)
    assert not (tmp_path / "run").exists()
