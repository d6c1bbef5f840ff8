"""From a raw table to predictions in five commands, as good as scikit-learn's on the same split."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raw_tables
from programs import succeed
from quick import each

TABLES = {"penguins": raw_tables.PENGUINS, "masses": raw_tables.MASSES, **raw_tables.GENERATED}
#: What scikit-learn reaches at least.
REACHED = {"penguins": 0.97, "masses": 0.8, "classification": 0.74, "regression": 0.88}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "table"), each(2, TABLES.items()), ids=TABLES)
def test_five_commands(name, table, tmp_path):
    from sklearn.metrics import accuracy_score, r2_score

    if name in raw_tables.GENERATED:
        source = raw_tables.write_generated(tmp_path / f"{name}.csv", 6000, name)
    else:
        source = raw_tables.write(table, tmp_path)
    parts, data, run = (str(tmp_path / folder) for folder in ("parts", "data", "run"))
    train, test = f"{parts}/train.csv", f"{parts}/test.csv"
    predicted = str(tmp_path / "predicted.parquet")
    is_class = table.task == "classification"
    by_class = ["--stratify", table.label] if is_class else []
    succeed("data", "split", str(source), parts, "--id", "id", *by_class)
    # Whole numbers may be classes.
    labels = ["--label", table.label, "--id", "id", *["--task", table.task] * (name == "masses")]
    succeed("data", "import", train, data, *labels)
    succeed("train", data, "--run", run, "-q")
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
    assert theirs > REACHED[name]
    # Half a point, or one row where there are fewer than 200.
    assert found >= theirs - max(0.005, 1 / len(expected))
