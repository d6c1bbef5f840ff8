"""A run that learns from what a layer of another run's model gives."""

import shutil

import numpy as np
import pyarrow.csv
import pytest
from safetensors.numpy import load_file

import mapreduce
import naive
from datasets import blobs
from mapreduce import models
from mapreduce.errors import DataError, GradreduceError, MissingInputError, UsageError
from mapreduce.models.fed import Fed
from mapreduce.runs import checkpoint
from mapreduce.runs.comparing import facts
from mapreduce.testing import check_model
from programs import fails, succeed
from quick import cases
from wide_tables import table_of

#: A trunk with moments and with dropout, in which LAYER is a ReLU.
SPEC, LAYER = "conv:4x3:padding=1,batchnorm,relu,pool:2,dropout:0.5,dense:7,relu", "6"
HEAD = {"model": "dense:5,batchnorm,tanh", "rounds": 9, "batch_size": 64, "l2": 0.01}
KEPT = {"replicas": 3, "replica_state": "keep", "batch_size": 33}
QUIET = {"progress": False, "executor": "here"}
GANG = {"runner": "parallel", "executor": "gang"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs that may feed others, and data of other classes."""
    path = tmp_path_factory.mktemp("feeding")
    blobs(path / "known", shape=(6, 6), classes=2)
    blobs(path / "data", shape=(6, 6), classes=4, seed=1)
    blobs(path / "wider", features=37)
    mapreduce.train(path / "known", SPEC, rounds=20, run=path / "trunk", **QUIET)
    mapreduce.train(path / "known", "softmax", rounds=2, run=path / "flat", **QUIET)
    return path


def fed(folder, run, data="data", source="trunk", layer=LAYER, **options):
    given = {**HEAD, **QUIET, "features_from": f"{folder / source}:{layer}", **options}
    return mapreduce.train(folder / data, run=run, **given)


def features_of(run, images):
    """The features by loops, with the running moments and without dropout."""
    named = {name: array.astype(np.float64) for name, array in run.parameters.items()}
    x = naive.convolve(images.astype(np.float64)[..., None], named["0.weight"], padding=1)
    deviation = np.sqrt(named["1.running_var"] + 1e-5)
    x = (x - named["1.running_mean"]) / deviation * named["1.weight"] + named["1.bias"]
    x = naive.max_pool(naive.relu(x), 2, 2)[0].reshape(len(x), -1)
    return naive.relu(x @ named["5.weight"] + named["5.bias"])


@pytest.mark.parametrize("model", ["softmax", "mlp:4", HEAD["model"]])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_head_learns_what_it_would_of_a_dataset_of_features(folder, tmp_path, model, dtype):
    data, trunk = blobs(tmp_path / "data", shape=(6, 6), classes=4), folder / "trunk"
    rows = data.shard(0).rows(0, 200)
    images, labels = rows.features.reshape(-1, 6, 6), rows.labels
    features = features_of(mapreduce.open_run(trunk), images).astype(dtype)
    options = {**HEAD, **QUIET, "model": model, "dtype": dtype}
    plain = mapreduce.train((features, labels), run=tmp_path / "plain", **options)
    run = mapreduce.train(
        (images, labels), run=tmp_path / "fed", features_from=f"{trunk}:{LAYER}", **options
    )
    close = {"rtol": 2e-3, "atol": 2e-4} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-9}
    for name, array in plain.parameters.items():
        np.testing.assert_allclose(run.parameters[name], array, **close)
    found, expected = (
        one.predict(x, probabilities=True) for one, x in ((run, images), (plain, features))
    )
    np.testing.assert_allclose(found, expected, **close)
    # The trunk is that of the run before, to the bit.
    before = load_file(trunk / "checkpoints/00000020/model.safetensors")
    for name, array in before.items():
        np.testing.assert_array_equal(run.parameters[f"trunk.{name}"], array)


def test_the_file_of_a_model_feeds_as_its_run_does(folder, tmp_path):
    mapreduce.open_run(folder / "trunk").export(folder / "trunk.safetensors")
    runs = [fed(folder, tmp_path / name, source=name) for name in ("trunk", "trunk.safetensors")]
    assert runs[0].plan == runs[1].plan
    assert runs[0].model_sha256 == runs[1].model_sha256


def test_one_hash_for_any_way_of_running(folder, tmp_path):
    ways = [
        {},
        {"runner": "parallel", "workers": 2, "threads": 2, "executor": "chain", "blocks": 1},
        {"runner": "parallel", "workers": 2, "executor": "gang"},
    ]
    # Of a small head, gradients are sparse; of a large one, they are not.
    for number, model in enumerate(("softmax", "mlp:300")):
        found = {
            fed(folder, tmp_path / f"{number}{at}", model=model, **way).model_sha256
            for at, way in enumerate(ways)
        }
        assert len(found) == 1


@cases(
    "options",
    {"optimizer": "lbfgs", "model": "softmax", "batch_size": None},
    {"optimizer": "adamw", "weight_decay": 0.1},
    {"strategy": "averaging", "replicas": 3, "local_steps": 2, "batch_size": 33},
    {"strategy": "averaging", "elastic": 0.3, **KEPT},
    {"strategy": "averaging", "replicas": 3, "compress": "onebit", "batch_size": 33},
    {"strategy": "averaging", "replicas": 3, "combine": "adasum", "batch_size": 33},
    {"strategy": "tournament", "replicas": 3, "batch_size": 33},
    {"strategy": "downpour", "replicas": 2},
    {"strategy": "downpour", "replicas": 2, "asynchronous": True, **GANG},
    {"optimizer": "momentum", "l1": 0.1, "augment": "flip"},
)
def test_the_trunk_never_changes(folder, tmp_path, options):
    run = fed(folder, tmp_path / "run", **options)
    before = mapreduce.open_run(folder / "trunk").parameters
    for name, array in before.items():
        np.testing.assert_array_equal(run.parameters[f"trunk.{name}"], array)
    assert run.model_sha256 != run.plan.initial_sha256


def test_the_run_needs_nobody(folder, tmp_path):
    shutil.copytree(folder / "trunk", tmp_path / "trunk")
    run = fed(tmp_path, tmp_path / "run", folder / "data")
    shutil.rmtree(tmp_path / "trunk")
    ended = run.model_sha256
    for number in checkpoint.saved_rounds(run._run):
        checkpoint.remove(run._run, number)
    (run.path / "result.json").unlink()
    for path in [*(run.path / "rounds").iterdir()][-2:]:
        path.unlink()
    succeed("resume", run.path, "-q")
    assert mapreduce.open_run(run.path).model_sha256 == ended
    succeed("evaluate", run.path, folder / "data", "--json")


def test_layers_of_both(folder, tmp_path):
    run = fed(folder, tmp_path / "run")
    images = np.random.default_rng(0).normal(size=(70, 6, 6)).astype(np.float32)
    found = run.predict(images, layer=f"trunk.{LAYER}")
    trunk = mapreduce.open_run(folder / "trunk")
    np.testing.assert_array_equal(found, trunk.predict(images, layer=LAYER))
    named = run.parameters
    dense = found @ named["0.weight"]
    np.testing.assert_allclose(run.predict(images, layer="0"), dense, rtol=1e-4, atol=1e-5)
    assert facts(run._run)["plan"]["trunk.model_sha256"] == trunk.model_sha256
    assert "trunk.7" not in run.plan.create_model().named_layers()


def test_a_table(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("known", 0), ("new", 1)):
        pyarrow.csv.write_csv(table_of(300, seed, False), f"{name}.csv")
    succeed("data", "import", "known.csv", "known", "--label", "label")
    succeed("data", "import", "new.csv", "other", "--label", "label")
    succeed("data", "import", "new.csv", "new", "--like", "known")
    trained = ["-r", "inline", "-q", "--rounds", 3, "--run"]
    succeed("train", "known", "--model", "mlp:9,5", *trained, "trunk")
    options = ["--features-from", "trunk:layers.0", *trained]
    succeed("train", "new", *options, "run")
    succeed("predict", "run", "new.csv", "file.csv")
    said = fails(65, "train", "other", *options, "no")
    assert "--features-from trunk:layers.0: expected the features of the" in said
    assert "--like" in said


@cases(
    "source, options, error, says",
    ("trunk", {}, UsageError, "expected RUN:LAYER.* such as .*trunk:-2 for the last"),
    ("trunk:", {}, UsageError, "expected RUN:LAYER"),
    ("nowhere:1", {}, MissingInputError, "nowhere"),
    ("data:1", {}, MissingInputError, "is not a run"),
    ("trunk:dense-1", {}, UsageError, r"features_from=.*no such layer.* Did you mean 5 "),
    ("flat:1", {}, UsageError, "softmax has no layers with names"),
    ("trunk:6", {"data": "wider"}, DataError, "expected 36 features.* found 37"),
    ("trunk:6", {"init_from": "flat"}, UsageError, "does not go with init_from"),
    ("trunk:6", {"precision": "mixed", "model": "softmax"}, UsageError, "precision=.full"),
    ("trunk:6", {"model": "torch:some:net"}, UsageError, "with model=.torch:some:net., a PyT"),
    ("trunk:6", {"model": "linear"}, DataError, "linear predicts a number"),
)
def test_what_does_not_fit_is_refused(folder, tmp_path, source, options, error, says):
    options = {"data": "data", **HEAD, **QUIET, **options}
    if "init_from" in options:
        options["init_from"] = folder / options["init_from"]
    data = folder / options.pop("data")
    with pytest.raises(error, match=says):
        mapreduce.train(data, run=tmp_path / "run", features_from=f"{folder}/{source}", **options)
    assert not (tmp_path / "run").exists()


def test_chains_stages_and_devices_are_refused(folder, tmp_path):
    run = fed(folder, tmp_path / "run")
    with pytest.raises(UsageError, match="only one may feed one"):
        fed(folder, tmp_path / "no", source=run.path, layer="0")
    with pytest.raises(GradreduceError, match="stages=2: expected a model that is a list"):
        fed(folder, tmp_path / "no", runner="parallel", executor="gang", workers=2, stages=2)
    with pytest.raises(UsageError, match="Take --device cpu"):
        run.plan.create_model("cuda")


def test_it_is_a_model():
    def make(dtype):
        trunk = models.create("dense:6,batchnorm,tanh,dense:5", 4, 3, dtype)
        return Fed(trunk, "2", models.create("dense:4,batchnorm,tanh", 6, 3, dtype))

    check_model(make)
    model = make("float32")
    assert [one.name for one in model.parameters if one.name.startswith("trunk.")] == [
        f"trunk.{one.name}" for one in model.trunk.parameters
    ]
