"""A report by the values of a column is that of each value's rows alone."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv

import mapreduce
from mapreduce.errors import DataError, UsageError
from mapreduce.inference import base, groups, metrics, raw, report
from mapreduce.inference.request import Request
from mapreduce.runs import checkpoint
from mapreduce.runs.execution import Execution
from programs import fails, succeed


def table(count, seed=0):
    """Rows whose label follows from size and town; the model knows neither plan nor note."""
    chance = random.Random(seed)
    sizes = [chance.gauss(0, 3) for _ in range(count)]
    towns = [chance.choice("abc") for _ in range(count)]
    right = [
        size + 4 * (town == "a") + chance.gauss(0, 2) > 1
        for size, town in zip(sizes, towns, strict=True)
    ]
    return {
        "size": sizes,
        "town": towns,
        "plan": [chance.choice(["Öl", "gas, new", "", "NA"]) for _ in range(count)],
        "note": [float(n % 4) if n % 5 else None for n in range(count)],
        "share": [chance.uniform(0, 3) for _ in range(count)],
        "label": ["high" if one else "low" for one in right],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def trained(folder):
    """By the kind of labels: a run on size and town."""
    rows = pa.table(table(400)).drop(["plan", "note", "share"])
    numbers = rows.set_column(2, "label", pa.array(np.array(rows["size"]) * 2.0 + 1))
    how = {"optimizer": "lbfgs", "progress": False, "executor": "here"}
    return {
        "classes": mapreduce.train(rows, "softmax", run=folder / "classes", **how),
        "numbers": mapreduce.train(numbers, "linear", run=folder / "numbers", **how),
    }


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(base, "SLICE_ROWS", 37)
    monkeypatch.setattr(groups, "SLICE_ROWS", 19)
    monkeypatch.setattr(groups, "_UNIT_ROWS", 47)


def alone(run, rows, column, value, **options):
    """The report on the rows that have this value, which a user would ask for."""
    fields = [field or None for field in rows[column].to_pylist()]
    part = rows.filter(pa.array([field == value for field in fields]))
    return run.evaluate(without_plan(part), runner="inline", **options)


def without_plan(rows):
    return rows.drop([name for name in ("plan",) if name in rows.column_names])


def same(found, expected):
    assert found.rows == expected.rows
    assert found.accuracy == expected.accuracy
    for name in ("loss", "weight", "log_loss", "roc_auc", "brier_score", "r2", "rmse", "mae"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name
    np.testing.assert_allclose(found.confusion, expected.confusion)


@pytest.mark.parametrize("weights", [None, "share"])
@pytest.mark.parametrize("kind", ["classes", "numbers"])
@pytest.mark.parametrize("column", ["town", "plan"])
def test_each_group_is_as_if_it_were_alone(trained, column, kind, weights):
    rows = pa.table(table(300, 1)).drop(["note"] if column == "plan" else ["note", "plan"])
    if weights is None:
        rows = rows.drop(["share"])
    if kind == "numbers":
        rows = rows.set_column(rows.column_names.index("label"), "label", rows["size"])
    run, how = trained[kind], {"weights": weights}
    found = run.evaluate(rows, by=column, runner="inline", **how)
    values = ["a", "b", "c"] if column == "town" else [None, "NA", "gas, new", "Öl"]
    assert {*found.groups} == {*values}
    for value in values:
        same(found.groups[value], alone(run, rows, column, value, **how))
    amounts = [one.weight for one in found.groups.values()]
    assert amounts == sorted(amounts, reverse=True)
    whole = run.evaluate(without_plan(rows), runner="inline", **how).to_dict()
    assert {name: one for name, one in found.to_dict().items() if name != "by"} == whole


def test_files_and_runners_give_the_same(trained, folder):
    rows = pa.table(table(200, 2)).drop(["share"])
    pq.write_table(rows, folder / "a.parquet", row_group_size=64)
    write_csv(rows, folder / "a.csv")
    how = ("--by", "note", "--drop", "plan")
    run = trained["classes"].path
    texts = [
        succeed("evaluate", run, folder / name, *how, "--json", "-r", *runner)
        for name, *runner in (
            ("a.parquet", "inline"),
            ("a.csv", "inline"),
            ("a.csv", "parallel", "--workers", 3),
        )
    ]
    assert len({*texts}) == 1
    found = json.loads(texts[0])["by"]
    assert found["column"] == "note"
    assert {group["value"] for group in found["groups"]} == {None, "0", "1", "2", "3"}
    lines = succeed("evaluate", run, folder / "a.csv", *how).splitlines()
    start = lines.index("by note, 5 values:")
    heads = ["rows", "accuracy", "loss", "precision", "recall", "f1", "ROC", "AUC"]
    assert lines[start + 1].split() == heads
    assert lines[start + 2].split()[:2] == ["all", "200"]
    assert {line.split()[0] for line in lines[start + 3 :]} == {*"0123", "(missing)"}


def test_words_that_stand_for_nothing_are_one_group(trained, folder):
    write_csv(pa.table(table(50, 3)).drop(["share", "note"]), folder / "na.csv")
    options = ("--by", "plan", "--na", "NA", "--json")
    found = json.loads(succeed("evaluate", trained["classes"].path, folder / "na.csv", *options))
    assert {group["value"] for group in found["by"]["groups"]} == {None, "Öl", "gas, new"}


def test_of_many_groups_those_of_most_rows_are_shown(trained, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_LINES", 2)
    rows = pa.table(table(60, 4)).drop(["plan", "note", "share"])
    lines = str(trained["classes"].evaluate(rows, by="town")).splitlines()
    assert lines[-5] == "by town, 3 values; those of most weight, --json has 1 more:"


def test_all_curves_together_are_bounded(trained, monkeypatch):
    rows = pa.table(table(300, 5)).drop(["plan", "note", "share"])
    exact = trained["classes"].evaluate(rows, by="town", runner="inline").groups
    # More than one of the three groups has.
    monkeypatch.setattr(report, "MOST_BINS", 200)
    found = trained["classes"].evaluate(rows, by="town", runner="inline").groups
    for value, one in found.items():
        assert abs(one.roc_auc - exact[value].roc_auc) <= one.roc_auc_error
        assert one.accuracy == exact[value].accuracy
    assert 0 < max(one.roc_auc_error for one in found.values()) < 0.1


def test_by_the_label_and_with_importance(trained, folder):
    rows = pa.table(table(80, 8)).drop(["plan", "note", "share"])
    write_csv(rows, folder / "label.csv")
    for data in (rows, folder / "label.csv"):
        found = trained["classes"].evaluate(data, by="label", importance=True)
        assert {value: one.rows for value, one in found.groups.items()} == {
            label: rows["label"].to_pylist().count(label) for label in ("high", "low")
        }
        assert len(found.importance["columns"]) == 2
        assert "by label, 2 values:" in str(found)


def test_rows_without_weight_are_no_group(trained):
    columns = table(90, 6)
    columns["share"] = [0.0 if town == "b" else 1.0 for town in columns["town"]]
    rows = pa.table(columns).drop(["plan", "note"])
    assert {*trained["classes"].evaluate(rows, by="town", weights="share").groups} == {"a", "c"}


def test_bad_input(trained, folder):
    run, columns = trained["classes"], table(150, 7)
    rows = pa.table(columns).drop(["plan", "note", "share"])
    with pytest.raises(UsageError, match=r"by=\"twn\": the table has no such.*Did you mean town\?"):
        run.evaluate(rows, by="twn")
    with pytest.raises(UsageError, match=r"by=\"size\": expected at most 100 different values"):
        run.evaluate(rows, by="size")
    with pytest.raises(UsageError, match=r"by='town': expected a table"):
        run.evaluate((np.ones((2, 2)), ["low", "high"]), by="town")
    lists = rows.append_column("lists", pa.array([[1.0]] * len(rows)))
    with pytest.raises(UsageError, match=r"by=\"lists\": expected a column of texts"):
        run.evaluate(lists, by="lists")
    write_csv(rows, folder / "b.csv")
    succeed("data", "import", folder / "b.csv", folder / "data", "--like", run._run.config.data)
    for data, code, text in (
        (folder / "data", 2, "expected the file of a table"),
        (folder / "none.csv", 66, "does not exist"),
    ):
        assert text in fails(code, "evaluate", run.path, data, "--by", "town")
    request = Request(checkpoint.fitted(run._run), folder / "b.csv", Execution("inline"))
    with (
        groups.of_file(request, "town") as found,
        raw.imported(request, labelled=True) as dataset,
    ):
        whole = report.report(dataset)
        write_csv(rows.slice(1), folder / "b.csv")
        with pytest.raises(DataError, match="changed while it was read"):
            found.add_to(whole, dataset)
