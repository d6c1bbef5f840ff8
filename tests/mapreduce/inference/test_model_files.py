"""Files of models: they predict as their run does, to the byte, where the run is gone."""

import contextlib
import io
import json
import pickle
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from safetensors.numpy import load as load_tensors, save as save_tensors

import mapreduce
from datasets import blobs
from mapreduce.cli.main import main
from mapreduce.errors import (
    DataError,
    GradreduceError,
    MissingInputError,
    OutputError,
    UntrustedError,
    UsageError,
)
from mapreduce.inference import near
from mapreduce.models.fitted import FittedModel
from mapreduce.runs.models import place_of
from mapreduce.support import numeric, tensorfiles
from quick import cases

QUIET = {"progress": False, "runner": "inline", "rounds": 3}
CNN = "conv:4x3:padding=1,batchnorm,relu,pool:2,dense:8,relu,dropout:0.5"


def command(*arguments, code=0):
    """What a command of this process writes to its standard output, or error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = main([str(one) for one in arguments])
    assert found == code, err.getvalue()
    return out.getvalue() if code == 0 else err.getvalue()


def table_of(rows, seed):
    chance = np.random.default_rng(seed)
    towns = np.array(["Ulm", "Bern", "Graz"])[chance.integers(0, 3, rows)]
    columns = {f"x{number}": chance.normal(size=rows) for number in range(4)}
    label = np.where(columns["x0"] + (towns == "Ulm") > 0.3, "yes", "no")
    return pa.table({"key": [f"k{row}" for row in range(rows)], **columns, "town": towns}), label


def content(path):
    files = [path] if path.is_file() else sorted(path.glob("part-*"))
    assert files
    return [file.read_bytes() for file in files]


@pytest.fixture(scope="module", autouse=True)
def pinned_profile():
    """Else a command starts this process anew."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in numeric.environment("native").items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of models, data, and what the runs have said of them, which are gone."""
    folder = tmp_path_factory.mktemp("models")
    table, labels = table_of(200, 0)
    labelled = table.append_column("label", pa.array(labels))
    mapreduce.train(labelled, "mlp:9", id="key", run=folder / "table", **QUIET)
    new, labels = table_of(600, 1)
    pyarrow.csv.write_csv(new, folder / "table-data.csv")
    pyarrow.csv.write_csv(
        new.append_column("label", pa.array(labels)), folder / "table-labelled.csv"
    )
    for seed, rows in enumerate(((60, 40), (50, 30))):
        options = {"shape": (3, 8, 8), "classes": 4, "dtype": "uint8", "seed": seed}
        blobs(folder / f"images-{seed}", rows, **options)
    mapreduce.train(folder / "images-0", CNN, run=folder / "cnn", **QUIET)
    fed = {**QUIET, "features_from": f"{folder / 'cnn'}:5"}
    mapreduce.train(folder / "images-0", "softmax", run=folder / "fed", **fed)
    for name in ("cnn", "fed"):
        shutil.copytree(folder / "images-1", folder / f"{name}-data.csv")
        shutil.copytree(folder / "images-1", folder / f"{name}-labelled.csv")
    for name in ("table", "cnn", "fed"):
        run, data = folder / name, folder / f"{name}-data.csv"
        command("export", run, "--to", folder / f"{name}.safetensors")
        command("predict", run, data, folder / f"{name}-out", "-r", "inline", "-q")
        command("predict", run, data, folder / f"{name}-out.csv", "-r", "inline", "-q")
        report = command("evaluate", run, folder / f"{name}-labelled.csv", "--json", "-r", "inline")
        (folder / f"{name}.json").write_text(report)
    for gone in ("table", "cnn", "fed", "images-0", "images-1", ".imported"):
        shutil.rmtree(folder / gone)
    return folder


@pytest.mark.parametrize("name", ["table", "cnn", "fed"])
def test_commands_give_the_bytes_of_the_run(folder, tmp_path, name):
    model, data = folder / f"{name}.safetensors", folder / f"{name}-data.csv"
    for out, ending in (("out", ""), ("out.csv", ".csv")):
        command("predict", model, data, tmp_path / out, "-r", "inline", "-q")
        assert content(tmp_path / out) == content(folder / f"{name}-out{ending}")
    made_from = json.loads((folder / f"{name}-out" / "_prediction.json").read_text())
    assert json.loads((tmp_path / "out" / "_prediction.json").read_text()) == made_from
    report = command("evaluate", model, folder / f"{name}-labelled.csv", "--json", "-r", "inline")
    assert report == (folder / f"{name}.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "cnn"])
def test_tasks_and_swarms_give_them_too(folder, tmp_path, name):
    model, data = folder / f"{name}.safetensors", folder / f"{name}-data.csv"
    command("predict", model, data, tmp_path / "out", "-r", "parallel", "--workers", 2, "-q")
    command("swarm", model, data, tmp_path / "swarm", "--workers", 2, "-q")
    for out in ("out", "swarm"):
        assert content(tmp_path / out) == content(folder / f"{name}-out")


def test_python_gives_them_too(folder, tmp_path):
    model = mapreduce.load(folder / "table.safetensors")
    table, labels = table_of(600, 1)
    expected = pyarrow.csv.read_csv(folder / "table-out.csv")
    for rows in (table, table.slice(0, 9), table.slice(70, 1)):
        found = model.predict(rows)
        assert found["key"].equals(rows["key"])
        at = expected.filter(pa.compute.is_in(expected["key"], rows["key"]))
        assert found["prediction"].equals(at["prediction"])
        assert found["probability"].cast("float32").equals(at["probability"].cast("float32"))
    assert model.classes == ("no", "yes")
    assert [column.name for column in model.recipe.columns] == ["x0", "x1", "x2", "x3", "town"]
    labelled = table.append_column("label", pa.array(labels))
    report = json.loads((folder / "table.json").read_text())
    assert model.evaluate(labelled).to_dict() == report
    assert mapreduce.evaluate(folder / "table.safetensors", labelled).to_dict() == report
    assert len(mapreduce.predict(folder / "table.safetensors", table)) == 600
    assert model.model_sha256[:12] in repr(model)
    assert "mlp:9" in repr(model)


def test_a_file_is_the_same_each_time(folder, tmp_path):
    run = mapreduce.train(table_of(50, 3)[0], "linear", label="x0", run=tmp_path / "run", **QUIET)
    run.export(tmp_path / "a.safetensors")
    run.export(tmp_path / "a.safetensors")
    model = mapreduce.load(tmp_path / "a.safetensors")
    model.export(tmp_path / "b.safetensors")
    written = (tmp_path / "a.safetensors").read_bytes()
    assert (tmp_path / "b.safetensors").read_bytes() == written
    # Other programs read it as before.
    arrays, of_npz = load_tensors(written), run.export(tmp_path / "a.npz")
    assert set(arrays) == {"weight", "bias", "mean_", "scale_", "coef_", "intercept_"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, of_npz[name])
    assert model.export(tmp_path / "b.npz").keys() == of_npz.keys()
    assert model._fitted.sha256 == run._fitted.sha256
    (tmp_path / "other.npz").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        mapreduce.load(tmp_path / "a.safetensors").export(tmp_path / "other.npz")


def test_a_model_goes_to_other_machines_as_bytes(folder):
    model = mapreduce.load(folder / "table.safetensors")
    again = pickle.loads(pickle.dumps(model))
    table, _ = table_of(20, 5)
    assert again.predict(table).equals(model.predict(table))


def test_threads_share_a_model(folder, monkeypatch):
    model, table = mapreduce.load(folder / "table.safetensors"), table_of(30, 4)[0]
    expected, made, make = model.predict(table), [], near.Predictor
    monkeypatch.setattr(
        near, "Predictor", lambda *given: made.append(threading.get_ident()) or make(*given)
    )
    with ThreadPoolExecutor(3) as pool:
        found = [*pool.map(lambda _: model.predict(table), range(12))]
    assert all(one.equals(expected) for one in found)
    assert len(made) == len({*made}) <= 3


def mixed(rows):
    """A table of all types that recipes read, in chunks."""
    days = [date(2024, 1, 1) + timedelta(days=7 * row) for row in range(rows)]
    times = [datetime(2024, 1, 1) + timedelta(hours=row) for row in range(rows)]
    table = pa.table(
        {
            "size": pa.array([None if row % 9 == 4 else row * 1.5 for row in range(rows)]),
            "small": pa.array([row % 7 for row in range(rows)], pa.int16()),
            "open": pa.array([row % 3 == 0 for row in range(rows)]),
            "day": pa.array(days),
            "time": pa.array(times, pa.timestamp("s")),
            "town": pa.array([("Ulm", "Bern", None)[row % 3] for row in range(rows)]),
            "kind": pa.array([("a", "b")[row % 2] for row in range(rows)]).dictionary_encode(),
            "note": pa.array([f"note {row}" for row in range(rows)], pa.large_string()),
            "__index_level_0__": pa.array(range(rows)),
        }
    )
    return pa.concat_tables([table.slice(0, 5), table.slice(5)])


def test_a_table_in_memory_becomes_no_file(tmp_path, monkeypatch):
    table = mixed(60)
    labels = pa.array([("no", "yes")[row % 4 > 1] for row in range(60)])
    options = {**QUIET, "run": tmp_path / "run", "drop": ["note"], "missing": "mean"}
    run = mapreduce.train(table.append_column("label", labels), "mlp:7", **options)
    run.export(tmp_path / "a.safetensors")
    new = mixed(700).slice(40)
    odd = new.set_column(5, "town", pa.array(["Graz"] * 660))
    with pytest.warns(UserWarning, match="none of the names in the training data") as expected:
        through_a_file = [run.predict(one, keep="note", workers=1) for one in (new, odd)]
    model = mapreduce.load(tmp_path / "a.safetensors")

    def refused(*_, **__):
        raise AssertionError("a folder was made")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.warns(UserWarning, match="none of the names in the training data") as found:
        here = [model.predict(one, keep="note", here=True) for one in (new, odd)]
    for one, other in zip(here, through_a_file, strict=True):
        assert one.drop_columns(["note"]).equals(other.drop_columns(["note"]))
        assert one["note"].to_pylist() == other["note"].to_pylist()
        assert one.schema.metadata == other.schema.metadata
    said, before = ([str(one.message) for one in some] for some in (found, expected))
    assert said == before
    assert {one.filename for one in found} == {__file__}
    assert model.predict(new.slice(0, 3)).equals(here[0].drop_columns(["note"]).slice(0, 3))


def test_warnings_and_errors_name_the_table(tmp_path):
    table = mixed(30).drop_columns(["town"])
    options = {**QUIET, "run": tmp_path / "run", "drop": ["note"], "missing": "error"}
    whole = table.set_column(0, "size", pa.array([row % 8 for row in range(30)]))
    labelled = whole.append_column("label", pa.array(["a", "b"] * 15))
    model = mapreduce.train(labelled, "logistic", **options)
    for change, message in (
        (lambda rows: rows, r"^the table, row 5, column size: "),
        (lambda rows: rows.drop_columns(["day"]), r"^the table: the columns .* missing: day"),
        (lambda rows: rows.slice(0, 0), r"^the table: expected at least one row, found none"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(change(table))
    twice = table.append_column("day", table["day"])
    with pytest.raises(DataError, match=r"^the table: two columns have the same name"):
        model.predict(twice)


def test_every_flipped_bit_and_every_cut_is_refused(folder, tmp_path):
    whole = (folder / "table.safetensors").read_bytes()
    header, chance = 8 + int.from_bytes(whole[:8], "little"), Random(0)
    places = [*range(8), *range(8, header, 11), *chance.sample(range(header, len(whole)), 60)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        with pytest.raises(DataError, match=r"model\.safetensors"):
            FittedModel.from_bytes(bytes(damaged), tmp_path / "model.safetensors")
    for length in (0, 7, 8, 9, header - 1, header, len(whole) - 1):
        with pytest.raises(DataError, match=r"model\.safetensors"):
            FittedModel.from_bytes(whole[:length], tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors"):
        FittedModel.from_bytes(whole + b"\0", tmp_path / "model.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(whole[:-1])
    said = command("predict", tmp_path / "cut.safetensors", "x.csv", "out", code=65)
    assert "cut.safetensors is damaged, or was changed by another program" in said
    assert "Traceback" not in said


def changed(folder, change):
    """The file of the table's model, written by somebody who has changed what it says."""
    arrays, texts = tensorfiles.decode((folder / "table.safetensors").read_bytes(), folder)
    said = {name: json.loads(text) for name, text in texts.items()}
    change(said, arrays)
    return tensorfiles.encode(arrays, {name: json.dumps(value) for name, value in said.items()})


WRONG = {
    "another version": (
        lambda said, _: said["gradreduce.model"].update(format_version=2),
        "has format version 2; this program reads version 1. Use the program that wrote it",
    ),
    "no version": (lambda said, _: said["gradreduce.model"].pop("format_version"), "version none"),
    "an unknown kind": (
        lambda said, _: said["gradreduce.model"].update(kind="forest"),
        "unknown model 'forest': expected one of gradient",
    ),
    "a recipe of other columns": (
        lambda said, _: said["gradreduce.recipe"]["columns"].pop(),
        "expected recipe: of the features",
    ),
    "another recipe": (
        lambda said, _: said["gradreduce.recipe"]["columns"][0].update(mean=3.5),
        "expected recipe_sha256: that of the recipe",
    ),
    "no recipe": (lambda said, _: said.pop("gradreduce.recipe"), "recipe_sha256"),
    "another shape": (lambda said, _: said["gradreduce.model"].update(shape=[7]), "shape: that"),
    "features of another number": (
        lambda said, _: said["gradreduce.model"]["options"].update(shape=[3]),
        "its model takes 3 features",
    ),
    "classes in another order": (lambda said, _: said["classes_"].reverse(), "classes_: in order"),
    "classes of two types": (lambda said, _: said.update(classes_=["a", 1]), "TypeError"),
    "no classes": (lambda said, _: said.pop("classes_"), "for 2 classes"),
    "another profile": (
        lambda said, _: said["gradreduce.model"].update(numeric_profile="fast"),
        "expected numeric_profile",
    ),
    "a field more": (
        lambda said, _: said["gradreduce.model"].update(more=1),
        "the field 'more' is unknown",
    ),
    "an option more": (
        lambda said, _: said["gradreduce.model"]["options"].update(more=1),
        "the field 'more' is unknown",
    ),
    "an array less": (lambda _, arrays: arrays.pop("layers.0.bias"), "KeyError"),
    "a huge model": (
        lambda said, _: said["gradreduce.model"]["options"].update(model="mlp:999999999999"),
        "does not fit into",
    ),
    "a model that is none": (
        lambda said, _: said["gradreduce.model"]["options"].update(model="mlp:x"),
        "mlp",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_files_that_say_what_cannot_be(folder, tmp_path, wrong):
    change, message = WRONG[wrong]
    with pytest.raises(DataError, match=message):
        FittedModel.from_bytes(changed(folder, change), tmp_path / "model.safetensors")


def test_parameters_that_are_not_those_of_the_model(folder, tmp_path):
    rows = table_of(3, 0)[0]
    for change, message in (
        (lambda said, arrays: arrays.update({"layers.0.bias": arrays["layers.0.bias"] + 1}), "is"),
        (lambda said, arrays: arrays.update({"layers.0.bias": np.ones(3, "f4")}), "does not hold"),
    ):
        (path := tmp_path / "a.safetensors").write_bytes(changed(folder, change))
        with pytest.raises(DataError, match=f"a.safetensors {message}"):
            mapreduce.load(path).predict(rows)


@cases(
    "kind, named",
    ("gradient", "stranger:Model"),
    ("gradient", "torch:stranger:Module"),
    ("stranger:Own", None),
)
def test_nothing_of_a_stranger_is_imported(folder, tmp_path, monkeypatch, kind, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    (tmp_path / "stranger.py").write_text("open('imported', 'w')\n")

    def change(said, _):
        said["gradreduce.model"]["kind"] = kind
        if named:
            said["gradreduce.model"]["options"]["model"] = named

    (path := tmp_path / "a.safetensors").write_bytes(changed(folder, change))
    with pytest.raises(UntrustedError, match=r"trust=\[.*'stranger:"):
        mapreduce.load(path)
    (tmp_path / "rows.csv").write_text("x\n1\n")
    assert "add --trust stranger:" in command("predict", path, "rows.csv", "out", code=2)
    assert not (tmp_path / "imported").exists()


def test_files_that_hold_no_model(folder, tmp_path):
    arrays = {"weight": np.ones((2, 2), np.float32)}
    (old := tmp_path / "old.safetensors").write_bytes(
        save_tensors(arrays, {"classes_": '["a", "b"]'})
    )
    with pytest.raises(DataError, match=r"lacks what predicts by them.*classes_.*export"):
        mapreduce.load(old)
    assert "Write it anew" in command("evaluate", old, "x.csv", code=65)
    (tmp_path / "text.safetensors").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="is no safetensors file"):
        mapreduce.load(tmp_path / "text.safetensors")
    np.savez(tmp_path / "old.npz", **arrays)
    with pytest.raises(
        DataError, match=r"\.npz files are, which hold arrays alone. Export the run"
    ):
        mapreduce.load(tmp_path / "old.npz")
    with pytest.raises(MissingInputError, match="does not exist: expected the file of a model"):
        mapreduce.load(tmp_path / "none.safetensors")
    assert "does not exist" in command("predict", tmp_path / "b.safetensors", "x", "y", code=66)
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(DataError, match="is a folder: expected a file"):
        mapreduce.load(tmp_path / "folder.safetensors")
    assert "is not a run" in command("predict", tmp_path / "folder.safetensors", "x", "y", code=66)
    (tmp_path / "folder.safetensors" / "run.json").write_text("{}")
    with pytest.raises(UsageError, match=r"is the folder of a run.*mapreduce.open_run"):
        mapreduce.load(tmp_path / "folder.safetensors")


@cases(
    "change, error, message",
    (lambda table: table.drop_columns(["x1"]), DataError, "missing: x1"),
    (lambda table: table.append_column("y", table["x1"]), DataError, "extra: y"),
    (lambda table: table.set_column(1, "x0", table["town"]), DataError, "column x0"),
    (lambda table: table.slice(0, 0), DataError, "at least one row|no rows"),
    (lambda table: np.ones((3, 4)), UsageError, "was trained on a table: expected a table"),
)
def test_rows_that_do_not_fit(folder, change, error, message):
    model = mapreduce.load(folder / "table.safetensors")
    with pytest.raises(error, match=message) as caught:
        model.predict(change(table_of(5, 0)[0]))
    assert tempfile.gettempdir() not in str(caught.value)


def test_data_of_others_are_compared_with_those_of_the_training(folder, tmp_path):
    blobs(tmp_path / "data", (30,), shape=(3, 8, 8), classes=5)
    said = command("evaluate", folder / "cnn.safetensors", tmp_path / "data", code=65)
    assert f"expected classes of the training data of {folder / 'cnn.safetensors'}" in said
    said = command("evaluate", folder / "table.safetensors", tmp_path / "data", code=65)
    assert "Name the file of a table with the same columns" in said
    assert "is the file of a model, without data: name DATA" in command(
        "evaluate", folder / "table.safetensors", code=2
    )
    said = command("export", folder / "table.safetensors", "--to", "a.npz", "--data", "b", code=2)
    assert "which needs no data" in said


def test_another_model_in_its_place(folder, tmp_path):
    shutil.copy(folder / "table.safetensors", path := tmp_path / "a.safetensors")
    place = place_of(mapreduce.load(path)._fitted)
    assert place.open().model_sha256 == mapreduce.load(path).model_sha256
    shutil.copy(folder / "cnn.safetensors", path)
    with pytest.raises(DataError, match="holds another model than before"):
        place.open()


def test_a_run_that_goes_on_leaves_its_file_alone(tmp_path):
    rows, labels = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    options = {**QUIET, "rounds": 4, "checkpoint_every": 2, "run": tmp_path / "run"}
    run = mapreduce.train((rows, labels), "mlp:5", **options)
    from mapreduce.runs import checkpoint
    from mapreduce.runs.directory import RunDir

    earlier = checkpoint.fitted(RunDir(tmp_path / "run"), 2)
    earlier.save(tmp_path / "a.safetensors")
    model = mapreduce.load(tmp_path / "a.safetensors")
    assert model._fitted.completed == 2
    assert model.model_sha256 == earlier.model_sha256 != run.model_sha256
    place = place_of(earlier)
    assert place.open().sha256 == earlier.sha256
    with pytest.raises(GradreduceError):
        replace(earlier, completed=3) and place._replace(completed=3).open()


def test_files_on_s3(folder, s3, tmp_path):
    from hdfs_utils.paths import path_of

    place = path_of(f"{s3}/models")
    there = place / "table.safetensors"
    FittedModel.load(folder / "table.safetensors").save(there)
    table, _ = table_of(40, 8)
    expected = mapreduce.load(folder / "table.safetensors").predict(table)
    assert mapreduce.load(str(there)).predict(table).equals(expected)
    with pytest.raises(MissingInputError, match="does not exist"):
        mapreduce.load(str(place / "none.safetensors"))


def test_who_changes_the_parameters_does_not_change_the_model(folder):
    model = mapreduce.load(folder / "cnn.safetensors")
    rows = np.random.default_rng(0).random((3, 3, 8, 8)).astype(np.float32)
    before = model.predict(rows, probabilities=True)
    for array in model.parameters.values():
        array[...] = 0
    assert (model.predict(rows, probabilities=True) == before).all()
    loaded = mapreduce.load(folder / "cnn.safetensors")
    for array in loaded.parameters.values():
        array[...] = 0
    assert (loaded.predict(rows, probabilities=True) == before).all()
