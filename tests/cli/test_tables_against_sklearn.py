"""From a raw table to predictions in five commands, as good as scikit-learn's on the same split."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, r2_score

import raw_tables
from mapreduce.data.splitting import split
from programs import succeed

TABLES = {
    "penguins": raw_tables.PENGUINS,
    "cars": raw_tables.CARS,
    "fair": raw_tables.FAIR,
    **raw_tables.GENERATED,
}
#: What scikit-learn reaches at least.
REACHED = {"penguins": 0.97, "cars": 0.75, "fair": 0.70, "classification": 0.74, "regression": 0.88}


@pytest.fixture(params=TABLES)
def name(request):
    return request.param


@pytest.fixture
def source(name, tmp_path):
    if name in raw_tables.GENERATED:
        return raw_tables.write_generated(tmp_path / f"{name}.csv", 6000, name)
    return raw_tables.write(name, tmp_path)


def test_sklearn(name, source, tmp_path):
    """The reference itself is as good as it is known to be."""
    split([source], tmp_path / "parts", id="id")
    parts = [tmp_path / "parts" / f"{part}.csv" for part in ("train", "test")]
    assert raw_tables.sklearn_score(TABLES[name], *parts) > REACHED[name]


@pytest.mark.slow
def test_five_commands(name, source, tmp_path):
    table = TABLES[name]
    parts, data, run = (str(tmp_path / folder) for folder in ("parts", "data", "run"))
    train, test = f"{parts}/train.csv", f"{parts}/test.csv"
    predicted = str(tmp_path / "predicted.parquet")
    is_class = table.task == "classification"
    by_class = ["--stratify", table.label] if is_class else []
    model = ["--model", "softmax" if is_class else "linear"]
    # scikit-learn's penalty of 1, which it adds to a sum over the rows.
    penalty = ["--optimizer", "lbfgs", "--l2", str(1 / len(raw_tables.columns(source)["id"]))]

    succeed("data", "split", str(source), parts, "--id", "id", *by_class)
    labels = ["--label", table.label, "--id", "id"]
    succeed("data", "import", train, data, *labels)
    succeed("train", data, "--run", run, *model, *penalty, "-q")
    evaluated = json.loads(succeed("evaluate", run, test, "--json"))
    succeed("predict", run, test, predicted)

    # Predictions are joined to the rows by the IDs.
    expected = pa.table(raw_tables.columns(Path(test)))
    joined = expected.select(["id", table.label]).join(
        pq.read_table(predicted, columns=["id", "prediction"]), "id", join_type="full outer"
    )
    assert len(joined) == len(expected)
    truth, prediction = (joined[column].to_numpy() for column in (table.label, "prediction"))
    if is_class:
        found = accuracy_score(truth, prediction)
        assert found == pytest.approx(evaluated["accuracy"], abs=1e-9)
    else:
        found = r2_score(truth.astype(np.float64), prediction)
    theirs = raw_tables.sklearn_score(table, Path(train), Path(test))
    # Half a point, or one row where there are fewer than 200.
    assert found >= theirs - max(0.005, 1 / len(expected))


@pytest.mark.parametrize("task", raw_tables.GENERATED)
def test_the_generated_table_has_every_kind_of_column(tmp_path, task):
    short, long = (
        raw_tables.write_generated(tmp_path / f"{rows}.csv", rows, task)
        for rows in (500, raw_tables.PIECE + 500)
    )
    lines = long.read_text().splitlines()
    assert short.read_text().splitlines() == lines[:501]
    assert len(lines) == raw_tables.PIECE + 501
    found = raw_tables.columns(long)
    missing = {name: np.mean(fields == None) for name, fields in found.items()}  # noqa: E711
    assert missing == pytest.approx(
        dict.fromkeys(found, 0) | {"number": 0.1, "large": 0.02, "colour": 0.05, "nothing": 1},
        abs=0.01,
    )
    different = {name: len({*fields} - {None}) for name, fields in found.items()}
    assert different["id"] == len(lines) - 1
    assert (different["colour"], different["member"], different["constant"]) == (4, 2, 1)
    assert 150 < different["town"] <= 200 and different["nothing"] == 0
    if task == "classification":
        assert 0.3 < np.mean(found["label"] == "leave") < 0.7
