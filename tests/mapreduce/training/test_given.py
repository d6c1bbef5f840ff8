"""Models that Python hands over as objects."""

import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mapreduce
from mapreduce.errors import DataError, UsageError
from mapreduce.models.softmax import Softmax
from mapreduce.training.given import specification
from quick import cases

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'gradreduce[torch]'")

import torch_networks  # noqa: E402

ROWS = np.random.default_rng(0).standard_normal((60, 6)).astype("f4")
LABELS = np.arange(60) % 3
OPTIONS = {"rounds": 2, "batch_size": 32, "executor": "here", "progress": False}


@pytest.fixture(autouse=True)
def _here(forgotten, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def train(model, **more):
    return mapreduce.train((ROWS, LABELS), model, **OPTIONS, **more)


def test_specifications():
    assert specification("mlp:3") == ("mlp:3", None)
    assert specification(Softmax) == ("mapreduce.models.softmax:Softmax", None)
    assert specification(torch_networks.plain) == ("torch:torch_networks:plain", None)
    spec, parameters = specification(torch_networks.Tied())
    assert spec == "torch:torch_networks:Tied"
    assert {one.dtype.name for one in parameters.values()} == {"float64"}


def test_a_module_gives_the_parameters_to_start_from():
    module = torch_networks.Tied()
    with torch.no_grad():
        module.first.weight.fill_(0.125)
        module.shift.fill_(3)
    found = train(module, learning_rate=1e-12).parameters
    assert (found["first.weight"] == 0.125).all()
    assert (found["shift"] == 3).all()
    np.testing.assert_allclose(found["last.bias"], module.last.bias.detach().numpy(), atol=1e-9)


def test_a_training_starts_from_what_another_exported(tmp_path):
    first = train(torch_networks.Tied)
    first.export(tmp_path / "all.safetensors")
    state = load_file(tmp_path / "all.safetensors")
    assert {"second.weight", "factor"} <= state.keys()
    torch_networks.Tied().load_state_dict({name: torch.tensor(one) for name, one in state.items()})
    saved = {}
    for name, source in (("run", first), ("file", tmp_path / "all.safetensors")):
        saved[name] = train(torch_networks.Tied, init_from=source).model_sha256
    assert saved["run"] == saved["file"] != first.model_sha256
    save_file({**state, "strange": np.zeros(1)}, tmp_path / "more.safetensors")
    with pytest.raises(DataError, match=r"found \{.strange."):
        train(torch_networks.Tied, init_from=tmp_path / "more.safetensors")


def test_rows_keep_their_shape_and_floats_are_numbers():
    images = np.random.default_rng(0).random((40, 8, 8))
    run = mapreduce.train((images, np.arange(40) % 3), torch_networks.small_cnn, **OPTIONS)
    assert run.plan.data.shape == (8, 8)
    assert run.predict(images).shape == (40,)
    assert run.evaluate((images, np.arange(40) % 3)).rows == 40
    numbers = mapreduce.train((ROWS, LABELS + 0.5), torch_networks.one_number, **OPTIONS)
    assert numbers.plan.data.classes == 0
    assert numbers.predict(ROWS).dtype.kind == "f"
    # Whole numbers are as good as others for a model that has learned numbers.
    assert numbers.evaluate((ROWS, LABELS)).rows == 60


def local():
    return torch_networks.plain()


@cases(
    "model, expected",
    (3, "expected a specification, a function, a class or a torch.nn.Module, found 3"),
    (lambda: None, r"has no <lambda> that is the model given\. Define the model at the top"),
    (torch.nn.Linear(6, 3), r"Linear\(\) raised TypeError: .*Pass a function"),
    (torch_networks.plain(), r"Sequential\(\) has other parameters: 0\.\w+ is missing"),
)
def test_what_tasks_could_not_import(model, expected):
    with pytest.raises(UsageError, match=expected):
        train(model)


def test_what_is_in_the_script_itself(monkeypatch):
    monkeypatch.setattr(local, "__module__", "__main__")
    with pytest.raises(UsageError, match="local is defined in the script or notebook itself"):
        train(local)
    monkeypatch.setattr(local, "__module__", "nowhere")
    with pytest.raises(UsageError, match="nowhere has no local"):
        train(local)
    assert "nowhere" not in sys.modules


def test_two_sets_of_parameters(tmp_path):
    with pytest.raises(UsageError, match=r"has parameters to start from\. Pass"):
        train(torch_networks.Tied(), init_from=tmp_path)
