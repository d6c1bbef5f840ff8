"""The outputs of a layer beside predictions."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
import naive
from mapreduce.errors import OutputError, UsageError
from mapreduce.inference.predictor import layer_of
from programs import fails, gradreduce, succeed
from wide_tables import table_of

SPEC = "conv:4x3:padding=1,relu,pool:2,residual(conv:4x3:padding=1,relu),dense:7,tanh"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs on images and on a table, and rows of both."""
    folder = tmp_path_factory.mktemp("layers")
    options = {"rounds": 3, "progress": False, "executor": "here"}
    chance = np.random.default_rng(0)
    images, labels = chance.normal(size=(90, 6, 6)).astype(np.float32), np.arange(90) % 3
    mapreduce.train((images, labels), SPEC, run=folder / "images", **options)
    mapreduce.train(
        table_of(200, 0, False), "mlp:9,5", label="label", run=folder / "run", **options
    )
    mapreduce.train((images, labels), "softmax", run=folder / "flat", **options)
    pyarrow.csv.write_csv(table_of(700, 1, False), folder / "new.csv")
    np.save(folder / "images.npy", images)
    return folder


def outputs_by_layer(images, parameters):
    """Of the network of ``SPEC``, by loops."""
    first, second = (parameters[f"{name}.weight"] for name in ("0", "3.0"))
    convolved = naive.convolve(images[..., None], first, padding=1) + parameters["0.bias"]
    passed = naive.relu(convolved)
    pooled = naive.max_pool(passed, 2, 2)[0]
    inner = naive.convolve(pooled, second, padding=1) + parameters["3.0.bias"]
    block = pooled + naive.relu(inner)
    dense = block.reshape(len(images), -1) @ parameters["4.weight"] + parameters["4.bias"]
    logits = np.tanh(dense) @ parameters["6.weight"] + parameters["6.bias"]
    names = ["0", "1", "2", "3", "3.0", "3.1", "4", "5", "6"]
    found = [convolved, passed, pooled, block, inner, naive.relu(inner), dense, np.tanh(dense)]
    return dict(zip(names, [*found, logits], strict=True))


def test_outputs_are_those_of_loops(trained):
    run, images = mapreduce.open_run(trained / "images"), np.load(trained / "images.npy")[:20]
    expected = outputs_by_layer(images, run.parameters)
    assert [*run.plan.create_model().named_layers()] == [*expected]
    for layer, outputs in expected.items():
        found = run.predict(images, layer=layer)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, outputs.reshape(20, -1), rtol=1e-4, atol=1e-5)
    # From the end, without those in the block.
    for place, layer in ((-1, "6"), (-3, "4"), (-4, "3"), ("-7", "0")):
        assert (run.predict(images, layer=place) == run.predict(images, layer=layer)).all()
    assert (run.predict(images, layer=6).argmax(axis=1) == run.predict(images)).all()


def test_outputs_of_an_mlp(trained):
    run, table = mapreduce.open_run(trained / "run"), table_of(40, 2, False)
    parameters = run.parameters
    # Of the layer below, since the model alone knows how a table becomes features.
    for at, below in ((1, "layers.0"), (2, "layers.1")):
        rows, found = (
            np.array(run.predict(table, layer=layer)["features"].to_pylist())
            for layer in (below, f"layers.{at}")
        )
        weight, bias = (parameters[f"layers.{at}.{kind}"] for kind in ("weight", "bias"))
        expected = naive.affine(rows, weight, bias, relu_after=at < 2)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert rows.min() == 0


def test_a_column_of_every_kind_of_data(trained, tmp_path):
    run, new = trained / "run", trained / "new.csv"
    succeed("predict", run, new, tmp_path / "plain.parquet")
    plain = pq.read_table(tmp_path / "plain.parquet")
    succeed("predict", run, new, tmp_path / "file.parquet", "--layer", -2, "--keep", "town")
    table = pq.read_table(tmp_path / "file.parquet")
    assert table.column_names == ["row", "town", *plain.column_names[1:], "features"]
    assert table.select(plain.column_names).equals(plain)
    assert table["features"].type == pa.list_(pa.float32(), 5)
    like = mapreduce.open_run(run)._run.config.data
    succeed("data", "import", new, tmp_path / "data", "--like", like)
    command = ["predict", run, tmp_path / "data", tmp_path / "out", "--layer", "layers.1"]
    succeed(*command, "-r", "parallel", "--workers", 2)
    found = pq.read_table(tmp_path / "out")
    assert found["features"].equals(table["features"])
    assert found.column_names == ["row", "label", *plain.column_names[1:], "features"]
    # Of no row.
    nothing = mapreduce.open_run(run).predict(table_of(5, 0, False), layer=0 - 2)
    assert nothing.slice(0, 0)["features"].type == table["features"].type


def test_a_swarm_and_one_command_write_the_same(trained, tmp_path):
    command = [trained / "run", trained / "new.csv"]
    succeed("predict", *command, tmp_path / "one", "--layer", "-1")
    succeed("swarm", *command, tmp_path / "both", "--layer", "layers.2", "--workers", 1)
    one, both = (
        {p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "both")
    )
    assert one == both


@pytest.mark.parametrize("kind", ["file", "dataset"])
def test_another_layer_is_other_predictions(trained, tmp_path, kind):
    run = trained / "run"
    data = trained / "new.csv" if kind == "file" else mapreduce.open_run(run)._run.config.data
    out = tmp_path / "out"
    succeed("predict", run, data, out, "--layer", "layers.1")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for other in (["--layer", "layers.0"], []):
        said = fails(OutputError.exit_code, "predict", run, data, out, *other)
        assert "with the outputs of another layer or of none" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    # By its place it is the same layer, whose parts are kept.
    (out / "_SUCCESS").unlink()
    succeed("predict", run, data, out, "--layer", "-2")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("command", ["predict", "swarm"])
def test_layers_that_there_are_not(trained, tmp_path, command):
    table = [command, trained / "run", trained / "new.csv", tmp_path / "out", "--layer"]
    for layer, expected in (
        ("layers.3", "It has layers.0 (9 with ReLU), layers.1 (5 with ReLU), layers.2 (2 logits)"),
        ("-4", "-1 is the last"),
        ("layer.1", "Did you mean layers.1?"),
        ("", "no such layer"),
    ):
        done = gradreduce(*table, layer)
        assert (done.returncode, done.stdout) == (UsageError.exit_code, "")
        assert expected in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_had(trained, tmp_path):
    flat, images = mapreduce.open_run(trained / "flat"), np.load(trained / "images.npy")
    with pytest.raises(UsageError, match=r"softmax has no layers with names\. Expected a run of"):
        flat.predict(images, layer=0)
    run = mapreduce.open_run(trained / "images")
    for asked, meant in (("conv:4x3", "0 (conv:4x3:padding=1)"), ("dense-2", "4 (dense:7)")):
        with pytest.raises(UsageError, match=re.escape(f"-1 is the last. Did you mean {meant}?")):
            layer_of(run._fitted, asked)
    with pytest.raises(UsageError, match="Ask for one of them"):
        run.predict(images, layer=0, probabilities=True)
    text = [trained / "run", trained / "new.csv", tmp_path / "out.csv"]
    said = fails(UsageError.exit_code, "predict", *text, "--layer", "-1")
    assert "which has no columns of lists. Name a file that ends in .parquet" in said
    assert not [*tmp_path.iterdir()]


def test_a_column_of_the_data_called_features(trained, tmp_path):
    ids = [f"row {at}" for at in range(40)]
    table = table_of(40, 3, False).append_column("features", pa.array(ids))
    path = tmp_path / "new.parquet"
    pq.write_table(table, path)
    run = mapreduce.open_run(trained / "run")
    assert run.predict(path, keep="features")["features"].to_pylist() == ids
    assert run.predict(path, id="features")["features"].to_pylist() == ids
    with pytest.raises(
        UsageError, match=r"keep=\[\"features\"\]: predictions have a column of this name"
    ):
        run.predict(path, keep="features", layer=-1)
    found = run.predict(path, id="features", layer=-1)
    assert found["id"].to_pylist() == ids
    assert found["features"].type == pa.list_(pa.float32(), 2)
