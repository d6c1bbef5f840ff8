"""Files of tables for a trained model: evaluated and predicted by the recipe of its run."""

import csv
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import read_csv

import mapreduce
from builders import keywords
from mapreduce.errors import DataError, UsageError
from mapreduce.inference.outputs import is_file
from programs import fails, gradreduce, succeed

NAMES = ("key", "size", "town", "seen", "label")


def rows(count, seed=0):
    """Rows of a table whose label follows from all columns."""
    chance = random.Random(seed)
    for i in range(count):
        size, town = chance.gauss(0, 3), chance.choice("abc")
        month = chance.randrange(1, 13)
        label = "high" if size + 2 * (town == "a") + (month > 6) > 1 else "low"
        shown = "" if chance.random() < 0.1 else f"{size:.3f}"
        yield {
            "key": str(1000 + i),
            "size": shown,
            "town": town,
            "seen": f"2024-{month:02}-01",
            "label": label,
        }


def write(path, table, names=NAMES):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    path = write(folder / "train.csv", rows(400))
    return mapreduce.train(
        path,
        "logistic",
        run=folder / "run",
        **keywords("id=key optimizer=lbfgs progress=False executor=here"),
    )


def test_tables_in_memory_and_parquet_give_the_same(trained, tmp_path):
    table = [*rows(60, 1)]
    path = write(tmp_path / "a.csv", table)
    typed = pa.table(
        {
            "key": [int(row["key"]) for row in table],
            "size": [float(row["size"] or "nan") if row["size"] else None for row in table],
            "town": [row["town"] for row in table],
            "seen": pa.array([row["seen"] for row in table]).cast(pa.date32()),
        }
    )
    pq.write_table(typed, tmp_path / "a.parquet")
    expected = trained.predict(path)
    assert trained.predict(typed) == expected
    assert trained.predict(tmp_path / "a.parquet") == expected


@pytest.mark.parametrize("name", ["--id", 'größe, "x"', "row", "prediction"])
def test_ids_are_called_as_their_column_if_no_other_column_is(trained, name):
    columns = {name: ["u", "v"], "size": [1.0, 2.0], "town": ["a", "b"], "seen": ["2024-01-01"] * 2}
    found = trained.predict(pa.table(columns), id=name)
    expected = "id" if name in ("row", "prediction") else name
    assert found.column_names == ["row", expected, "prediction", "probability", "probabilities"]
    assert found[expected].to_pylist() == ["u", "v"]


def test_ids_that_are_not_there_or_not_wanted(trained, tmp_path):
    table = [*rows(6, 5)]
    for row in table:
        row["key"] = "same"
    path = write(tmp_path / "same.csv", table)
    for data in (path, pa.Table.from_pylist(table)):
        with pytest.raises(DataError, match=r"Name another column with id, or id=.. for none") as e:
            trained.predict(data)
        assert str(e.value).startswith("same.csv: the id" if data is path else "the table: the id")
        assert trained.predict(data, id="").column_names[:2] == ["row", "prediction"]
        with pytest.raises(UsageError, match=r"id=.kez.: .* no such column; .* Did you mean key\?"):
            trained.predict(data, id="kez")
        # No report has ids.
        assert trained.evaluate(data).rows == 6
        with pytest.raises(UsageError, match=r"weights=.sise.: .* Did you mean size"):
            trained.evaluate(data, weights="sise")
    assert "on 6 rows" in succeed("evaluate", trained.path, path, "--by", "town", cwd=tmp_path)
    for command in ("predict", "swarm"):
        assert "no such column" in fails(
            2, command, trained.path, path, "out", "--id", "kez", cwd=tmp_path
        )
        succeed(command, trained.path, path, command, "--id", "", cwd=tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_prediction_of_a_row_does_not_depend_on_the_label(trained, tmp_path):
    table = [*rows(30, 2)]
    with_label = write(tmp_path / "a.csv", table)
    without = write(tmp_path / "b.csv", table, NAMES[:-1])
    assert trained.predict(with_label) == trained.predict(without)
    with pytest.raises(DataError, match="no column label, the labels of the training data"):
        trained.evaluate(without)


def test_a_new_class_is_an_error_where_labels_are_needed(trained, tmp_path):
    table = [*rows(5)]
    table[4]["label"] = "middle"
    path = write(tmp_path / "new.csv", table)
    with pytest.raises(
        DataError, match=r"'middle'\. These have 'high', 'low'\. Leave the rows of "
    ):
        trained.evaluate(path)
    assert len(trained.predict(path)) == 5


def test_commands(trained, tmp_path):
    table = [*rows(20, 3)]
    table[1]["town"] = "z"
    path = write(tmp_path / "new.csv", table, [*NAMES, "more"])
    done = gradreduce("predict", trained.path, path, "out.csv", "--drop", "more", cwd=tmp_path)
    assert done.returncode == 0
    assert "column town: 1 of the fields are none of the names in the training data" in done.stderr
    with (tmp_path / "out.csv").open(newline="") as file:
        found = [*csv.DictReader(file)]
    assert [row["key"] for row in found] == [row["key"] for row in table]
    assert "exists already" in fails(
        73, "predict", trained.path, path, "out.csv", "--drop", "more", cwd=tmp_path
    )
    assert "extra: more" in fails(65, "predict", trained.path, path, "odd.csv", cwd=tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"new.csv", "out.csv"}
    assert "on 20 rows" in succeed("evaluate", trained.path, path, "--drop", "more", cwd=tmp_path)
    refused = gradreduce("predict", trained.path, trained.path, "out", "--id", "key", cwd=tmp_path)
    assert refused.returncode != 0 and "--id is for files of tables" in refused.stderr


def test_files_of_other_formats_are_no_tables(trained, tmp_path):
    path = tmp_path / "new.svm"
    path.write_text("1 1:2\n0 2:3\n")
    for command in (("evaluate", trained.path, path), ("data", "describe", path)):
        done = gradreduce(*command)
        assert done.returncode == 2
        assert f"{path}: expected a table, csv or parquet, found libsvm" in done.stderr
    done = gradreduce("data", "describe", write(tmp_path / "new.csv", rows(3)), "--format", "idx")
    assert (done.returncode, "expected a table, csv or parquet, found idx" in done.stderr) == (
        2,
        True,
    )


def test_options_of_csv_are_not_for_parquet(trained, tmp_path):
    table = read_csv(write(tmp_path / "new.csv", rows(20, 3)))
    pq.write_table(table, path := tmp_path / "new.parquet")
    out = tmp_path / "out"
    for command, option in (
        (("evaluate", trained.path, path), "--delimiter"),
        (("evaluate", trained.path, path, "--by", "town"), "--quote"),
        (("predict", trained.path, path, out), "--decimal"),
        (("swarm", trained.path, path, out), "--thousands"),
        (("data", "describe", path), "--encoding"),
        (("data", "split", path, out), "--delimiter"),
        (("data", "import", path, out), "--quote"),
    ):
        assert f"error: {option} is for csv, not for parquet" in fails(2, *command, option, ",")
    assert not out.exists()


def test_columns_that_cannot_be_dropped(trained, tmp_path):
    path = write(tmp_path / "new.csv", rows(5))
    for name, expected in (("town", "the model was trained on this"), ("twon", "no such column")):
        for use in (trained.predict, trained.evaluate):
            with pytest.raises(UsageError, match=rf"drop=..{name}..: .*{expected}"):
                use(path, drop=name)
        for command in ("predict", "swarm"):
            assert expected in fails(
                2, command, trained.path, path, "no", "--drop", name, cwd=tmp_path
            )
    assert len(trained.predict(path, drop="label")) == 5


def test_options_of_files_in_python(trained, tmp_path):
    table = [*rows(30, 4)]
    path, other = write(tmp_path / "a.csv", table), tmp_path / "b.csv"
    for row in table[:3]:
        row["label"] = ""
    partly = write(tmp_path / "c.csv", table)
    text = path.read_text().replace(",", ";").replace("label", "label;more").replace("low", "low;1")
    other.write_text(text.replace("high", "high;2"))
    with pytest.raises(DataError, match="extra: more"):
        trained.predict(other, delimiter=";")
    how = {"delimiter": ";", "drop": "more"}
    assert trained.predict(other, **how) == trained.predict(path)
    assert trained.evaluate(other, by="town", **how) == trained.evaluate(path, by="town")
    found = trained.predict(pa.Table.from_pylist([{**table[0], "more": 1}]), drop=["more"])
    assert found.to_pylist() == trained.predict(path).to_pylist()[:1]
    with pytest.raises(UsageError, match="delimiter"):
        trained.predict(path, delimiter=5)
    with pytest.raises(UsageError, match="drop: it is for tables"):
        trained.predict(np.eye(3), drop="more")
    # Rows without a label are left out where that is said, and their groups are those of the rest.
    with pytest.raises(DataError, match=r"row 1, column label: .* Say missing_label=.drop"):
        trained.evaluate(partly)
    rest = write(tmp_path / "d.csv", table[3:])
    with pytest.warns(UserWarning, match="rows left out, since labels or fields are missing: 3"):
        found = trained.evaluate(partly, by="town", missing_label="drop")
    assert str(found) == str(trained.evaluate(rest, by="town"))
    shown = [
        succeed("evaluate", trained.path, one, "--by", "town", "--missing-label", "drop")
        for one in (partly, rest)
    ]
    assert shown[0] == shown[1]


def test_a_run_of_arrays_takes_no_files(tmp_path):
    x = np.eye(4)
    run = mapreduce.train((x, [0, 1, 0, 1]), rounds=1, run=tmp_path / "run", progress=False)
    with pytest.raises(UsageError, match="not trained on a table"):
        run.predict(write(tmp_path / "new.csv", rows(3)))


def test_the_recipe_of_a_run_is_compared_with_its_digest(trained, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(trained.path, copied)
    recipe = copied / "recipe.json"
    recipe.write_text(recipe.read_text().replace("2024", "2023") + " ")
    with pytest.raises(DataError, match=r"recipe\.json is damaged"):
        mapreduce.open_run(copied).predict(write(tmp_path / "new.csv", rows(3)))


def test_a_name_that_shows_no_format(trained, tmp_path):
    path = write(tmp_path / "new.txt", rows(4))
    for command in (["evaluate"], ["predict", tmp_path / "out.csv"], ["swarm", tmp_path / "out"]):
        done = gradreduce(command[0], trained.path, path, *command[1:])
        assert "new.txt: the name does not show the format. Give it a name" in done.stderr
    assert "Say which: --format" in gradreduce("data", "describe", path).stderr


def test_python_warns_and_says_what_is_wrong(trained, tmp_path):
    table = [*rows(4)]
    table[1]["town"] = "z"
    with pytest.warns(UserWarning, match="column town: 1 of the fields are none of the names"):
        trained.predict(write(tmp_path / "new.csv", table))
    with pytest.raises(DataError, match="missing: size"):
        trained.predict(write(tmp_path / "bad.csv", table, ["key", "town", "seen", "label"]))
    with pytest.raises(UsageError, match=r"ends in \.parquet, \.arrow, .*, or that of a folder"):
        is_file(tmp_path / "out.csv.gz")
    for name in ("out.CSV", "out.xlsx", "out.Parquet", "out.pq"):
        with pytest.raises(UsageError, match=rf"{name}: expected a name that ends in \.parquet"):
            is_file(tmp_path / name)
    assert is_file(tmp_path / "out.csv") and not is_file(tmp_path / "out.v2")


def test_a_recipe_may_be_a_dictionary(tmp_path):
    path = write(tmp_path / "a.csv", rows(40))
    run = mapreduce.train(
        path,
        "logistic",
        recipe={"missing": "mean", "drop": "key"},
        run=tmp_path / "run",
        rounds=1,
        progress=False,
        executor="here",
    )
    assert [column.name for column in run.recipe.columns] == ["size", "town", "seen"]
    assert "size (missing)" not in run.recipe.features
