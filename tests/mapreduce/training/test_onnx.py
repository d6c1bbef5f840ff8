"""onnxruntime predicts by a graph what the model predicts."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import mapreduce
from builders import imported
from hdfs_utils.paths import path_of
from mapreduce.data.batch import Batch
from mapreduce.errors import LeftOutWarning, UsageError
from mapreduce.models import LAYERS, MODELS
from mapreduce.models.fitted import FittedModel, TrainedOn
from mapreduce.serving.model import ServedModel
from mapreduce.serving.tables import features_of
from quick import cases
from services import drawn, kinds_of

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install 'gradreduce[onnx]'")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime")

#: Models with all layers, and the shapes of their rows.
ARRAYS = [
    ("conv:6x5:padding=2,batchnorm,relu,pool:2,dropout:0.5,conv:9x3:stride=2,dense:9", (2, 8, 8)),
    ("softmax", (20,)),
    ("mlp:13,9", (5, 4)),
    ("dense:16,batchnorm,tanh,dense:9,layernorm,gelu", (12,)),
    (
        "residual(conv:4x3:padding=1:stride=2,leaky-relu:slope=0.3,residual(conv:4x1)),layernorm,"
        "average-pool:2:stride=1,relu,residual(conv:6x1,batchnorm),pool:2,global-average-pool",
        (3, 8, 8),
    ),
    ("lstm:7,batchnorm,dense:6,last,dense:8,sigmoid", (6, 5)),
    ("gru:8,last", (3, 5, 4)),
    ("rnn:6,layernorm,last", (7, 4)),
    ("embedding:6:words=4,rnn:9", (5,)),
    *((name, (9,)) for name in ("logistic", "svm", "hinge-svm")),
]
QUIET = {"progress": False, "executor": "here", "rounds": 4}
ROWS = 10_000


def session_of(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options)


def computed(session, inputs):
    """The outputs of a graph by name."""
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def graph_of(path):
    """The graph of a file's model, checked by ONNX's own rules."""
    out = path.with_suffix(".onnx")
    mapreduce.load(path).export(out)
    onnx.checker.check_model(out, full_check=True)
    return session_of(out)


def logits_of(fitted, rows):
    """What the model computes."""
    return fitted.about.logits(Batch(rows.reshape(len(rows), -1), None)).copy()


def balance(path, rows):
    """Change the last bias of a file's model so that rows have different labels."""
    fitted = FittedModel.load(path)
    *_, name = fitted.arrays
    logits = logits_of(fitted, rows)
    bias = fitted.arrays[name]
    changed = bias - np.median(logits, axis=0)[-bias.size :]
    path.unlink()
    replace(fitted, arrays={**fitted.arrays, name: changed}, model_sha256="").save(path)


def on_boundaries(label, rows):
    """Rows between two of the rows with different labels, as near to where the label changes as
    numbers are.
    """
    labels = label(rows)
    chance = np.random.default_rng(1)
    first, second = chance.integers(0, len(rows), (2, 40 * len(rows)))
    differ = np.flatnonzero(labels[first] != labels[second])[: len(rows)]
    assert len(differ) == len(rows)
    left, right = rows[first[differ]], rows[second[differ]]
    before = labels[first[differ]]
    for _ in range(30):
        middle = (left + right) / 2
        is_left = (label(middle) == before).reshape(-1, *[1] * (rows.ndim - 1))
        left, right = np.where(is_left, middle, left), np.where(is_left, right, middle)
    return left


class TestArrays:
    @pytest.mark.every_case
    @cases(
        "spec, shape, dtype",
        *((*model, "float32") for model in ARRAYS),
        *((*model, "float64") for model in ARRAYS if len(model[0]) > 40),
    )
    def test_rows_on_boundaries(self, tmp_path, spec, shape, dtype):
        classes = ("a", "b") if MODELS.find(MODELS.split(spec)[0]).binary else (-3, 5, 9, 10)
        path = drawn(
            tmp_path / "model.safetensors", spec, shape, classes, len(spec), dtype, scale=1.0
        )
        chance = np.random.default_rng(0)
        rows = chance.normal(size=(ROWS, *shape)).astype(dtype)
        if "embedding" in spec:
            rows = chance.integers(0, 4, (ROWS, *shape)).astype(dtype)
        balance(path, rows[:500])
        session, model, fitted = graph_of(path), mapreduce.load(path), FittedModel.load(path)
        bound = 1e-5 * np.abs(logits_of(fitted, rows)).max()
        if "embedding" not in spec:
            rows = on_boundaries(lambda x: session.run(["prediction"], {"input": x})[0], rows)
        outputs = computed(session, {"input": rows})
        logits = logits_of(fitted, rows)
        assert np.abs(outputs["logits"] - logits).max() <= bound
        expected = model.predict(rows, probabilities=True)
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
        assert outputs["logits"].dtype == outputs["probabilities"].dtype == dtype
        least, most = np.sort(logits, axis=1)[:, -2:].T
        differ = outputs["prediction"] != model.predict(rows)
        assert (most - least)[differ].max(initial=0) <= 2 * bound
        if "embedding" not in spec:
            # So near are they to a boundary.
            assert np.median(most - least) <= bound
        assert {*outputs["prediction"].tolist()} <= {*classes}

    def test_the_specifications_have_all_layers_and_models(self):
        specs = ",".join(spec for spec, _ in ARRAYS)
        assert [name for name in LAYERS if name not in specs] == []
        names = {MODELS.split(spec)[0] for spec, _ in ARRAYS}
        assert {*MODELS} - names == {"torch", "linear"}

    @cases("spec", "linear", "dense:7,relu", "residual(dense:12,tanh)")
    def test_numbers(self, tmp_path, spec):
        path = drawn(tmp_path / "model.safetensors", spec, (12,), (), 0, scale=1.0)
        rows = np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32)
        outputs = computed(graph_of(path), {"input": rows})
        assert [*outputs] == ["prediction"]
        expected = mapreduce.load(path).predict(rows)
        np.testing.assert_allclose(outputs["prediction"], expected, rtol=1e-5, atol=1e-5)

    @cases("trunk, layer", ("mlp:7,6", "layers.0"), ("dense:9,residual(dense:9,relu)", "1.0"))
    def test_a_run_that_another_feeds(self, tmp_path, trunk, layer):
        chance = np.random.default_rng(0)
        rows = chance.normal(size=(60, 5)).astype(np.float32)
        labels = (rows[:, 0] > rows[:, 1]).astype(int)
        mapreduce.train((rows, labels), trunk, run=tmp_path / "trunk", **QUIET)
        fed = {**QUIET, "features_from": f"{tmp_path / 'trunk'}:{layer}", "run": tmp_path / "run"}
        run = mapreduce.train((rows, labels), "mlp:4", **fed)
        run.export(tmp_path / "run.onnx")
        outputs = computed(session_of(tmp_path / "run.onnx"), {"input": rows})
        expected = run.predict(rows, probabilities=True)
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)

    def test_a_program_without_the_toolkit(self, tmp_path):
        path = drawn(tmp_path / "model.safetensors", "mlp:6", (4,), ("Straße", "no"), 0, scale=1.0)
        graph_of(path)
        program = (
            "import sys; sys.modules['mapreduce'] = None\n"
            "import numpy, onnxruntime\n"
            "session = onnxruntime.InferenceSession('model.onnx')\n"
            "rows = numpy.arange(12, dtype='float32').reshape(3, 4)\n"
            "print(*session.run(['prediction'], {'input': rows})[0])\n"
            "import mapreduce\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
        rows = np.arange(12, dtype=np.float32).reshape(3, 4)
        assert done.stdout.split() == mapreduce.load(path).predict(rows).tolist()
        assert done.stderr.endswith("import of mapreduce halted; None in sys.modules\n")

    def test_what_it_says_of_the_model(self, tmp_path):
        path = drawn(
            tmp_path / "model.safetensors", "softmax", (4,), ("Straße", "no"), 0, scale=1.0
        )
        about = graph_of(path).get_modelmeta().custom_metadata_map
        assert json.loads(about["gradreduce.classes"]) == ["Straße", "no"]
        assert about["model_sha256"] == mapreduce.load(path).model_sha256
        assert about["completed_rounds"] == "0"


class TestScales:
    def test_stored_bytes_are_scaled(self, tmp_path, answer):
        chance = np.random.default_rng(0)
        stored = chance.integers(0, 256, (80, 4, 4)).astype(np.uint8)
        labels = (stored[:, 0, 0] > 99).astype(np.int64)
        data = tmp_path / "data"
        imported(data, stored, labels, scale=1 / 255)
        run = mapreduce.train(data, "conv:3x3,relu", run=tmp_path / "run", **QUIET)
        expected = run.predict(stored.astype(np.float32) / np.float32(255), probabilities=True)
        rows = stored.astype(np.float32)
        said = answer(0, "export", run.path, "--to", tmp_path / "a.onnx")
        assert said.out == (
            f"{tmp_path}/a.onnx: graph (float[rows,4,4] input) => (int64[rows] prediction, "
            f"float[rows,2] probabilities, float[rows,2] logits)\n"
        )
        assert "scale" not in said.err
        outputs = computed(session_of(tmp_path / "a.onnx"), {"input": rows})
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
        data.rename(tmp_path / "moved")
        run.export(tmp_path / "b.onnx", data=tmp_path / "moved")
        assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()
        said = answer(0, "export", run.path, "--to", tmp_path / "c.onnx", "--json")
        assert "shapes" in json.loads(said.out)
        assert "c.onnx: the scale of the training data is not known here" in said.err
        with pytest.warns(LeftOutWarning, match=r"d\.onnx: the scale"):
            run.export(tmp_path / "d.onnx")
        scaled = computed(session_of(tmp_path / "c.onnx"), {"input": rows / np.float32(255)})
        np.testing.assert_allclose(scaled["probabilities"], expected, atol=1e-5)

    def test_standardised_features_are_raw_ones(self, tmp_path, answer):
        chance = np.random.default_rng(0)
        raw = chance.normal(1e5, 3, (80, 6))
        imported(tmp_path / "raw", raw, (raw[:, 0] > 1e5).astype(np.int64))
        answer(0, "data", "standardise", tmp_path / "raw", tmp_path / "data", "-r", "inline")
        run = mapreduce.train(tmp_path / "data", "mlp:5", run=tmp_path / "run", **QUIET)
        run.export(tmp_path / "a.onnx")
        run.export(tmp_path / "a.safetensors")
        mapreduce.load(tmp_path / "a.safetensors").export(tmp_path / "b.onnx")
        assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()
        outputs = computed(session_of(tmp_path / "a.onnx"), {"input": raw})
        expected = run.predict(tmp_path / "data", runner="inline")["probabilities"].to_pylist()
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)


def table_with_holes(rows, seed):
    """A table of numbers, booleans and texts, some of which are missing."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=rows)
    columns = {
        "plain": x * 1e4,
        "holes": np.where(chance.random(rows) < 0.2, np.nan, x + 7),
        "code": chance.choice([-999.0, 1.5, 2.25], rows),
        "more": np.where(chance.random(rows) < 0.2, np.nan, x - 7),
        "weight": chance.integers(0, 1000, rows),
    }
    towns = ["Ulm", "NA", "Bad Urach", "größer", "none"] + ["elsewhere"] * (seed > 0)
    texts = {name: chance.choice(towns, rows).tolist() for name in ("town", "place")}
    for values in texts.values():
        values[::7] = [None] * len(values[::7])
    # Only new rows have missing fields here.
    texts["member"] = [None if seed and row % 5 == 0 else "ab"[row % 2] for row in range(rows)]
    columns["count"] = np.where(seed and np.arange(rows) % 5 == 0, np.nan, x + 3)
    truth = pa.array([None if row % 9 == 0 else bool(v > 0) for row, v in enumerate(x)])
    label = np.where(x > 0, "yes", "no")
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    return pa.table({**arrays, **texts, "truth": truth, "label": label})


def columns_of(table, recipe):
    """What a graph takes: a table's columns by name, NaN or "" where a field is missing."""
    outputs = {}
    for column in recipe.columns:
        values = table[column.name].to_pylist()
        if column.is_text:
            outputs[column.name] = np.array(["" if v is None else v for v in values], object)
        else:
            numbers = [np.nan if v is None else float(v) for v in values]
            outputs[column.name] = np.array(numbers)
    return outputs


CONSTANTS = {
    "more": {"missing": "constant", "constant": 1.25},
    "place": {"missing": "constant", "constant": "Ulm"},
}


class TestTables:
    @cases(
        "model, dtype, recipe",
        ("softmax", "float32", {"na": ["-999", "none"]}),
        ("mlp:8", "float64", {"missing": "median", "columns": CONSTANTS}),
        ("dense:6,relu", "float64", {"missing": "mean", "na": ["-999"], "standardise": False}),
        ("logistic", "float32", {"layout": "sparse", "columns": {"place": {"kind": "category"}}}),
    )
    @pytest.mark.every_case
    def test_features_have_the_same_bits(self, tmp_path, model, dtype, recipe):
        table = table_with_holes(300, 0)
        options = {"label": "label", "recipe": recipe, "dtype": dtype, "run": tmp_path / "run"}
        run = mapreduce.train(table, model, **QUIET, **options)
        run.export(tmp_path / "run.onnx")
        onnx.checker.check_model(tmp_path / "run.onnx", full_check=True)
        session = session_of(tmp_path / "run.onnx")
        new = table_with_holes(ROWS, 1).drop_columns("label")
        inputs = columns_of(new, run.recipe)
        assert [value.name for value in session.get_inputs()] == [*inputs]
        outputs = computed(session, inputs)
        run.export(tmp_path / "run.safetensors")
        fitted = FittedModel.load(tmp_path / "run.safetensors")
        features = features_of(ServedModel("run", fitted), new)[0].array
        if recipe.get("layout") == "sparse":
            assert (outputs["features"] == features.to_dense()).all()
        else:
            assert outputs["features"].tobytes() == features.tobytes()
        assert outputs["features"].dtype == run.recipe.recipe.dtype
        with pytest.warns(UserWarning, match="^column "):
            expected = run.predict(new)
        assert outputs["prediction"].tolist() == expected["prediction"].to_pylist()
        probabilities = np.array(expected["probabilities"].to_pylist())
        np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-5)
        mapreduce.load(tmp_path / "run.safetensors").export(tmp_path / "again.onnx")
        assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "run.onnx").read_bytes()

    def test_features_are_rounded_to_the_dtype_of_the_recipe(self, tmp_path, answer):
        """Which need not be the model's."""
        pyarrow.csv.write_csv(table_with_holes(200, 0), tmp_path / "table.csv")
        answer(0, "data", "import", tmp_path / "table.csv", tmp_path / "data", "-q")
        options = {**QUIET, "dtype": "float64", "run": tmp_path / "run"}
        run = mapreduce.train(tmp_path / "data", "softmax", **options)
        run.export(tmp_path / "run.onnx")
        new = table_with_holes(500, 1).drop_columns("label")
        outputs = computed(session_of(tmp_path / "run.onnx"), columns_of(new, run.recipe))
        with pytest.warns(UserWarning, match="^column "):
            expected = run.predict(new)["probabilities"].to_pylist()
        np.testing.assert_allclose(outputs["probabilities"], expected, rtol=0, atol=1e-14)

    @cases(
        "column, kind, message",
        ("day", {}, r'^column day: ONNX has no form of dates\. .* or say drop=\["day"\] when you'),
        ("town", {"kind": "text"}, r'^column town: .*words of texts\. Say category=\["town"\] or'),
        ("key", {"kind": "category"}, r'^column key: .*its texts\. Say category=\["key"\] or'),
        ("key", {"hash_bits": 5}, "hashing by which all columns .* without hash_bits"),
    )
    def test_columns_without_a_form(self, tmp_path, column, kind, message):
        table = kinds_of(200, 0).select(["x", column, "label"])
        recipe = {"columns": {column: kind}} if "kind" in kind else kind
        recipe |= {"max_categories": 20} if column == "key" else {}
        options = {**QUIET, "label": "label", "run": tmp_path / "run"}
        run = mapreduce.train(table, "logistic", recipe=recipe, **options)
        with pytest.raises(UsageError, match=f"{message}.* or take gradreduce serve"):
            run.export(tmp_path / "run.onnx")
        assert not (tmp_path / "run.onnx").exists()

    def test_a_column_with_the_name_of_an_output(self, tmp_path):
        x = np.random.default_rng(0).normal(size=40)
        table = pa.table({"logits": x, "label": np.where(x > 0, "a", "b")})
        options = {**QUIET, "label": "label", "run": tmp_path / "run"}
        run = mapreduce.train(table, "logistic", **options)
        with pytest.raises(UsageError, match=r"^column logits has the name of an output"):
            run.export(tmp_path / "run.onnx")

    def test_columns_of_any_other_name(self, tmp_path):
        x = np.random.default_rng(0).normal(size=40)
        names = ["constant:1", "Reshape:2", "Cast:3", "größe (cm)", "input"]
        columns = {name: x * at for at, name in enumerate(names, 1)}
        options = {**QUIET, "label": "label", "run": tmp_path / "run"}
        table = pa.table({**columns, "label": np.where(x > 0, "a", "b")})
        run = mapreduce.train(table, "logistic", **options)
        run.export(tmp_path / "run.onnx")
        outputs = computed(session_of(tmp_path / "run.onnx"), columns)
        assert outputs["prediction"].tolist() == run.predict(table)["prediction"].to_pylist()


@cases(
    "kind, options, message",
    ("k-means", {}, "^the model k-means has no form in ONNX.*gradreduce serve"),
    ("own:Estimator", {}, "^the model own:Estimator is code of your own.*gradreduce serve"),
    ("gradient", {"model": "own:Model"}, "^the model own:Model is code of your own"),
    ("gradient", {"model": "torch:nets:cnn"}, r"^the model torch:nets:cnn .* torch\.onnx\.export"),
    (
        "gradient",
        {"model": "softmax", "trunk": {"model": "torch:nets:cnn"}},
        "^the model torch:nets:cnn is code of your own",
    ),
)
def test_models_without_a_form(kind, options, message):
    from mapreduce.training.onnx.encoding import encode

    fitted = FittedModel(kind, options, {}, TrainedOn("drawn", None, 4, (4,), (0, 1)))
    with pytest.raises(UsageError, match=message):
        encode(fitted)


def test_far_files(tmp_path, s3, answer):
    path = drawn(tmp_path / "model.safetensors", "softmax", (4,), (0, 1), 0, scale=1.0)
    for _ in range(2):
        answer(0, "export", path, "--to", f"{s3}/graphs/model.onnx")
    mapreduce.load(path).export(tmp_path / "model.onnx")
    assert path_of(f"{s3}/graphs/model.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_bad_places(tmp_path, refused):
    path = drawn(tmp_path / "model.safetensors", "softmax", (4,), (0, 1), 0, scale=1.0)
    said = refused(74, "export", path, "--to", tmp_path / "nowhere" / "model.onnx")
    assert "cannot write" in said
    (mine := tmp_path / "mine.onnx").write_text("mine")
    assert "mine.onnx exists already" in refused(73, "export", path, "--to", mine)
    assert mine.read_text() == "mine"
