"""Modules of PyTorch as models: torch's own results, in our vectors, and what no module may do."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import datasets
import mapreduce
from builders import HERE
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.errors import GradreduceError, MemberError, UntrustedError, UsageError
from mapreduce.models.context import Context, Key, Workspace
from mapreduce.plan.settings import Settings
from mapreduce.reduction.aggregator import merge_moments
from mapreduce.runs.events import Events
from mapreduce.support import trust
from mapreduce.testing import check_model
from mapreduce.training import creating, driver
from programs import PATIENCE, succeed
from quick import cases

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'gradreduce[torch]'")

import torch_networks  # noqa: E402
from mapreduce.models.torch_network import network  # noqa: E402

FUNCTIONAL = torch.nn.functional
FLAT, IMAGES = (6,), (8, 8)


@pytest.fixture(autouse=True)
def _trusted(forgotten):
    trust.trust(*(f"torch_networks:{name}" for name in vars(torch_networks)))
    # Each test has the first round of its networks.
    network.cache_clear()


def make(name, shape=FLAT, classes=3, dtype="float32"):
    return models.create(f"torch:torch_networks:{name}", shape, classes, dtype)


def random_batch(model, rows=7, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, model.features)).astype(model.dtype)
    return Batch(x, generator.integers(0, model.classes, rows).astype(np.int32))


def gradient_of(model, params, batch, key=None, training=True):
    context = Context(Workspace(), 1.0, key or Key(5, 0, shard=1), training)
    out = np.full(model.size, np.nan, model.dtype)
    loss = model.gradient(params, batch, out, context)
    return loss, out, context.extras


def torch_gradient(module, batch, shape):
    """Loss and the gradients by name, as a program of torch computes them."""
    output = module(torch.tensor(batch.features).view(-1, *shape))
    labels = torch.tensor(batch.labels, dtype=torch.int64)
    loss = FUNCTIONAL.cross_entropy(output, labels, reduction="sum")
    loss.backward()
    return loss.item(), {name: one.grad.numpy() for name, one in module.named_parameters()}


@cases(
    "name, shape, classes",
    ("plain", FLAT, 3),
    ("Tied", FLAT, 3),
    ("small_cnn", IMAGES, 3),
    ("one_number", FLAT, 0),
)
def test_the_contract(name, shape, classes):
    check_model(lambda dtype: make(name, shape, classes, dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
@pytest.mark.parametrize("rows", [2, 7, 32])
def test_a_gradient_is_that_of_torch(dtype, tolerance, rows):
    model = make("small_cnn", IMAGES, dtype=dtype)
    batch, params = random_batch(model, rows), model.init(3)
    loss, out, _ = gradient_of(model, params, batch, training=False)
    torch.manual_seed(3)
    module = torch_networks.small_cnn().to(getattr(torch, dtype)).eval()
    expected = torch_gradient(module, batch, (1, *IMAGES))
    assert loss == pytest.approx(expected[0], rel=tolerance)
    found = model.named(out)
    for name, array in expected[1].items():
        np.testing.assert_allclose(found.pop(name), array, rtol=0, atol=30 * tolerance)
    assert not any(array.any() for array in found.values())


class TestRandomNumbers:
    def test_the_initial_parameters_are_those_after_torch_was_seeded(self):
        model = make("small_cnn", IMAGES)
        torch.manual_seed(11)
        expected = torch_networks.small_cnn().state_dict()
        for name, array in model.named(model.init(11)).items():
            assert array.tobytes() == expected[name].numpy().tobytes()

    def test_a_key_decides_what_dropout_leaves_out(self):
        model = make("small_cnn", IMAGES)
        batch, params = random_batch(model), model.init(0)
        keys = [Key(5, 1), Key(5, 2), Key(6, 1), Key(5, 1, row=32), Key(5, 1, replica=1), Key(5, 1)]
        losses = [gradient_of(model, params, batch, key)[0] for key in keys]
        assert losses[0] == losses[-1]
        assert len(set(losses)) == len(keys) - 1

    def test_those_of_others_go_on_as_if_nothing_had_been_drawn(self):
        model = make("small_cnn", IMAGES)
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        gradient_of(model, model.init(0), random_batch(model))
        assert torch.equal(torch.rand(3), expected)


class TestMemory:
    def test_gradients_are_added_up_in_the_memory_of_the_slice(self, monkeypatch):
        model, seen = make("plain"), []
        own = network(*_identity(model))
        batch, out = random_batch(model), np.empty(model.size, np.float32)
        weight = own._tensors["0.weight"]
        weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad.data_ptr()))
        model.gradient(model.init(0), batch, out, Context(key=Key(1, 1), training=True))
        assert seen == [out.ctypes.data]
        # Nobody holds memory that the caller may free.
        assert weight.grad is None

    def test_parameters_are_copied_once_a_round(self):
        model = make("plain")
        own, batch = network(*_identity(model)), random_batch(model)
        params = model.init(0)
        params.flags.writeable = False
        places = [own._tensors[name].data_ptr() for name in ("0.weight", "2.bias")]
        expected = gradient_of(model, params, batch, Key(1, 1))
        own.flat[:] = 0
        assert gradient_of(model, params, batch, Key(1, 1, row=8))[0] == pytest.approx(
            len(batch.features) * math.log(3)
        )
        assert gradient_of(model, params, batch, Key(1, 2))[0] == expected[0]
        # Other parameters, and arrays that somebody may have changed, are always copied.
        assert gradient_of(model, 2 * params, batch, Key(1, 2))[0] != expected[0]
        params = params.copy()
        losses = []
        for factor in (1, 2):
            params *= factor
            losses.append(model.score(params, batch, Context())[0])
        assert losses[0] == pytest.approx(expected[0]) != losses[1]
        assert [own._tensors[name].data_ptr() for name in ("0.weight", "2.bias")] == places
        assert own.flat.ctypes.data % 64 == 0


def _identity(model):
    name = model._factory
    made = getattr(torch_networks, name.partition(":")[2])
    return name, made, model.shape, model.classes, model.dtype.name


class TestState:
    def test_what_is_tied_or_constant(self):
        model = make("Tied")
        roles = {one.name: one.role for one in model.parameters}
        assert roles == {
            "shift": "buffer",
            "first.weight": "weight",
            "first.bias": "bias",
            "second.bias": "bias",
            "last.weight": "weight",
            "last.bias": "bias",
        }
        state = model.state(model.init(4))
        assert state["second.weight"].tobytes() == state["first.weight"].tobytes()
        fresh = torch_networks.Tied()
        fresh.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
        batch = random_batch(model)
        expected = fresh(torch.tensor(batch.features)).detach().numpy()
        found = model.logits(model.init(4), batch, Context())
        np.testing.assert_array_equal(found, expected)
        assert model.of_state(state).keys() == roles.keys()
        # A name that the module has not is for whoever reads it to refuse.
        assert "other" in model.of_state({"other": np.zeros(1)})

    def test_what_load_state_dict_takes(self):
        model = make("small_cnn", IMAGES)
        state = model.state(model.init(4))
        assert state["1.num_batches_tracked"].shape == ()
        module = torch_networks.small_cnn()
        module.load_state_dict({name: torch.tensor(array) for name, array in state.items()})


class TestBatchNorm:
    def test_running_moments_follow_all_rows_of_a_round(self):
        model = make("small_cnn", IMAGES, dtype="float64")
        batch, params = random_batch(model, 11), model.init(0)
        total = None
        for start, stop in ((0, 4), (4, 10), (10, 11)):
            _, _, extras = gradient_of(model, params, batch[start:stop], Key(1, 1, row=start))
            assert extras.keys() == {*model.extras(1)}
            (part,) = extras.values()
            total = part if total is None else merge_moments(total, part)
        torch.manual_seed(0)
        first = torch_networks.small_cnn().double()[0]
        x = first(torch.tensor(batch.features).view(-1, 1, *IMAGES)).detach().numpy()
        means, variances = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
        assert total[0] == 11 * 36
        for name, start, new in (("mean", 0.0, means), ("var", 1.0, variances)):
            found = model.update_buffer(
                f"1.running_{name}", slice(1, 3), np.full(2, start), {"moments.1": total}
            )
            expected = start + 0.1 * (new[1:3] - start)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)

    def test_a_slice_is_normalised_by_its_own_moments(self):
        model = make("small_cnn", IMAGES)
        batch, params = random_batch(model), model.init(0)
        model.named(params)["1.running_var"][:] = 100
        torch.manual_seed(0)
        module = torch_networks.small_cnn().train()
        # Of equal probabilities to stay, without drawing numbers.
        module[5] = torch.nn.Identity()
        expected = torch_gradient(module, batch, (1, *IMAGES))
        own = network(*_identity(model))._module
        own[5].p = 0.0
        loss, out, _ = gradient_of(model, params, batch)
        assert loss == pytest.approx(expected[0], rel=1e-5)
        weight = model.named(out)["0.weight"]
        np.testing.assert_allclose(weight, expected[1]["0.weight"], atol=1e-3)

    def test_a_single_row_takes_the_running_moments(self):
        model = make("coloured_cnn", (3, 8, 8), 4)
        batch, params = random_batch(model, 1), model.init(0)
        own = network(*_identity(model))._module
        for at, values in ((1, 64), (7, 1)):
            assert gradient_of(model, params, batch)[2][f"moments.{at}"][0] == values
        own[4].p = own[9].p = 0.0
        loss, _, _ = gradient_of(model, params, batch)
        assert loss == pytest.approx(model.score(params, batch, Context())[0], rel=1e-6)

    def test_one_that_is_not_called_has_no_values(self):
        model = make("WithoutItsNorm")
        _, _, extras = gradient_of(model, model.init(0), random_batch(model))
        assert not extras["moments.norm"].any()
        assert not merge_moments(*[extras["moments.norm"]] * 2).any()
        values = np.ones(6, "f4")
        found = model.update_buffer("norm.running_var", slice(0, 6), values, extras)
        assert found.tolist() == [1] * 6

    def test_a_single_value_has_no_variance(self):
        model = make("WithoutItsNorm")
        channels = model.named(model.init(0))["norm.running_var"].size
        single = {"moments.norm": np.array([1.0, *[5.0] * channels, *[0.0] * channels])}
        values = np.ones(channels, "f4")
        found = [
            model.update_buffer(f"norm.running_{name}", slice(0, channels), values, single)
            for name in ("var", "mean")
        ]
        np.testing.assert_allclose(found, [[1.0] * channels, [1.4] * channels], rtol=1e-6)


@cases(
    "name, expected",
    ("takes_arguments", r"without arguments .*raised TypeError: .*'width'"),
    ("no_module", r"expected a torch.nn.Module, found \{'weight': 1\}"),
    ("NOT_CALLABLE", r"raised TypeError: 'int' object is not callable"),
    ("missing", r"cannot be imported: AttributeError"),
    ("too_wide", r"expected an output \(2, 3\) of float32 .* \(2, 6\), found \(2, 4\)"),
    ("two_outputs", r"expected a tensor \(2, 3\) for rows \(2, 6\), found \("),
    ("Fails", r"output \(2, 3\) for rows \(2, 6\) of float32, .* KeyError: 'nothing here'"),
    ("lazy", r"weight has no shape before the first forward pass"),
    ("no_momentum", r"the batch norm 0 has momentum=None"),
    ("no_running_moments", r"the batch norm 0 has track_running_stats=False"),
    ("nothing_to_train", r"no parameter to train"),
    ("on_meta", r"expected real numbers on the CPU, found weight of torch.float32 on meta"),
    ("of_complex_numbers", r"expected real numbers on the CPU, found 0.weight of .*complex64"),
    ("CountsInABuffer", r"calls changes in a forward pass"),
    ("Replaces", r"calls changes in a forward pass"),
)
def test_what_cannot_be_used(name, expected):
    trust.trust(f"torch_networks:{name}")
    with pytest.raises(MemberError, match=expected) as caught:
        make(name)
    assert f"torch_networks:{name}" in str(caught.value)


@cases(
    "name, expected",
    ("Clips", r"linear.weight changes in a forward pass"),
    ("Counts", r"the same slice gave the loss [\d.]+ and then [\d.]+, .* of linear.weight"),
    ("DrawsElsewhere", r"random numbers that are not torch's"),
    ("NotDeterministic", r"put_.* has no form that gives the same bits"),
    ("Detaches", r"its output does not depend on its parameters"),
    ("ReplacesGradients", r"replaces the gradient of linear.weight"),
    ("TwiceNormalised", r"the batch norm norm is called twice"),
)
def test_what_no_module_may_do_in_training(name, expected):
    model = make(name)
    with pytest.raises(MemberError, match=expected):
        gradient_of(model, model.init(0), random_batch(model))


@pytest.mark.parametrize("shape", [(2, 3), (1, 6)])
def test_one_that_wants_flat_rows_is_told_what_to_write(shape):
    """Where it fails, and where its output has another shape."""
    with pytest.raises(MemberError, match=r"put torch\.nn\.Flatten\(\) before its first layer"):
        make("plain", shape)


def test_outputs_of_a_module_within_it():
    model = make("small_cnn", IMAGES)
    batch, params = random_batch(model), model.init(3)
    module = torch_networks.small_cnn()
    module.load_state_dict({n: torch.tensor(a) for n, a in model.state(params).items()})
    rows = torch.tensor(batch.features).view(-1, 1, *IMAGES)
    assert model.named_layers()["3"] == "MaxPool2d"
    # The ReLU after the batch norm writes over its output.
    for place, name in enumerate(model.named_layers(), 1):
        with torch.no_grad():
            expected = module.eval()[:place](rows).reshape(len(rows), -1).numpy()
        found = model.layer_outputs(params, batch, Context(), name)
        np.testing.assert_array_equal(found, expected)
    assert not any(one._forward_hooks for one in model._network._module.modules())


@cases(
    "layer, expected",
    ("twice", "twice is called 2 times"),
    ("never", "never is called 0 times"),
    ("pair", "pair g"),
)
def test_modules_whose_outputs_cannot_be_had(layer, expected):
    model = make("Odd")
    with pytest.raises(MemberError, match=f"torch_networks:Odd: {expected}"):
        model.layer_outputs(model.init(0), random_batch(model), Context(), layer)


def test_a_module_that_is_another_each_time():
    model = make("other_each_time")
    with pytest.raises(MemberError, match="other parameters each time"):
        model.init(0)


def test_the_device_is_the_cpu():
    with pytest.raises(UsageError, match=r"--device cuda: .*Take --device cpu"):
        models.create("torch:torch_networks:plain", 6, 3, "float32", "cuda")


@cases("spec", "torch", "torch:", "torch:networks", "torch:a:b:3", "torch:a b:c")
def test_malformed_specifications(spec):
    with pytest.raises(UsageError, match=re.escape(f"{spec}: expected torch:MODULE:NAME")):
        models.create(spec, 6, 3, "float32")


def test_code_is_imported_only_if_it_is_named(monkeypatch):
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    with pytest.raises(UntrustedError, match="--trust torch_networks:plain"):
        make("plain")


def test_a_file_of_a_module_predicts_without_the_run(data, tmp_path, monkeypatch, answer):
    options = {"rounds": 2, "progress": False, "runner": "inline", "run": tmp_path / "run"}
    run = mapreduce.train(data, "torch:torch_networks:Tied", **options)
    run.export(tmp_path / "a.safetensors")
    expected, digest = run.predict(data), run.model_sha256
    report = run.evaluate(data)
    trusted = "--trust", "torch_networks:Tied", "-q"
    answer(0, "predict", tmp_path / "run", data, tmp_path / "by_run", "-r", "inline", *trusted)
    shutil.rmtree(tmp_path / "run")
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    with pytest.raises(UntrustedError, match=r"trust=\[.torch_networks:Tied"):
        mapreduce.load(tmp_path / "a.safetensors")
    model = mapreduce.load(tmp_path / "a.safetensors", trust=["torch_networks:Tied"])
    assert model.model_sha256 == digest
    assert model.predict(data).equals(expected)
    assert model.evaluate(data) == report
    # The second names of tied parameters go along.
    model.export(tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()
    part, file = "part-00000.parquet", tmp_path / "a.safetensors"
    answer(0, "predict", file, data, tmp_path / "predict", "-r", "inline", *trusted)
    succeed("swarm", file, data, tmp_path / "swarm", "--workers", 1, *trusted)
    for out in ("predict", "swarm"):
        assert (tmp_path / out / part).read_bytes() == (tmp_path / "by_run" / part).read_bytes()
    printed = answer(0, "evaluate", file, data, "--json", "-r", "inline", *trusted).out
    assert json.loads(printed)["accuracy"] == report.accuracy


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch") / "data"
    datasets.blobs(folder, (40, 30), features=6)
    return folder


def train(data, path, name, execution=None, **changes):
    settings = Settings(f"torch:torch_networks:{name}", batch_size=32, rounds=3, **changes)
    run = creating.create(path, settings, data, None)
    return run, driver.train(run, execution or HERE, 3, Events())


class TestTraining:
    def test_the_plan_has_the_digest_of_the_code(self, data, tmp_path):
        run, _ = train(data, tmp_path / "run", "plain")
        (source,) = run.config.plan.sources
        assert re.fullmatch("torch_networks:plain=[0-9a-f]{64}", source)
        profile = run.read_json("profile.json")
        assert profile["torch"] == torch.__version__
        assert profile["torch_cpu"]

    def test_what_is_not_finite_is_named(self, data, tmp_path):
        with pytest.raises(GradreduceError, match=r"gradient of parameter linear\.weight is nan"):
            train(data, tmp_path / "run", "NotFinite")

    def test_a_row_that_the_module_fails_for_is_named(self, tmp_path):
        x = np.random.default_rng(0).uniform(-2, 2, (70, 6)).astype(np.float32)
        (y := np.arange(70) % 3).sort()
        options = {"progress": False, "executor": "here"}
        model = "torch:torch_networks:LooksUp"
        run = mapreduce.train((x, y), model, run=tmp_path / "run", rounds=1, **options)
        x[50, 0] = 3
        expected = f'model="{model}": it raised IndexError: .*, for row 51 of the data'
        for use in (
            lambda: run.predict(x, runner="inline"),
            lambda: run.predict(x, runner="parallel", workers=1),
            lambda: run.evaluate((x, y), runner="inline"),
            lambda: mapreduce.train((x, y), model, run=tmp_path / "other", rounds=3, **options),
        ):
            with pytest.raises(GradreduceError, match=expected):
                use()

    def test_mixed_precision_is_refused(self, data, tmp_path):
        with pytest.raises(UsageError, match="Take --precision full"):
            train(data, tmp_path / "run", "plain", precision="mixed")

    def test_penalties_and_decay_leave_frozen_parameters_alone(self, data, tmp_path):
        run, _ = train(data, tmp_path / "run", "Tied", l2=0.1, weight_decay=0.1)
        params = run.latest_round().params
        assert run.config.plan.create_model().named(params)["shift"].tolist() == [*range(6)]

    def test_a_list_of_runs_does_not_load_torch(self, data, tmp_path):
        train(data, tmp_path / "run", "plain")
        done = python(
            "import sys; from pathlib import Path; from mapreduce.runs.directory import RunDir; "
            f"print(RunDir(Path({str(tmp_path / 'run')!r})).config.plan.model, "
            "'torch' in sys.modules)"
        )
        assert done.stdout == "torch:torch_networks:plain False\n", done.stderr


def python(program, **env):
    """Run a program with the modules of this one, which trusts nothing."""
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)


def test_without_torch():
    done = python(
        "import sys; sys.modules['torch'] = None\n"
        "from mapreduce import models\n"
        "from mapreduce.support import trust\n"
        "trust.trust('networks:net')\n"
        "models.create('torch:networks:net', 3, 2, 'float32')"
    )
    assert "UsageError: --model torch needs PyTorch" in done.stderr
    assert "pip install 'gradreduce[torch]'" in done.stderr


FORKS = """\
import torch
import mapreduce
import torch_networks

# A pool of threads, which forks of this process lack.
torch.set_num_threads(2)
torch.nn.functional.conv2d(torch.ones(8, 4, 64, 64), torch.ones(8, 4, 5, 5)).sum()
for runner in ("inline", "parallel"):
    run = mapreduce.train(
        {data!r}, torch_networks.plain, rounds=3, batch_size=32, runner=runner, progress=False,
        workers=2, executor="chain", run={folder!r} + runner,
    )
    print(run.model_sha256)
"""


def test_processes_are_forked_after_torch_has_computed(data, tmp_path):
    """With threads of torch's they would wait for ever."""
    done = python(FORKS.format(data=str(data), folder=f"{tmp_path}/"), **os.environ)
    hashes = done.stdout.split()
    assert len(hashes) == 2, done.stderr
    assert hashes[0] == hashes[1]
