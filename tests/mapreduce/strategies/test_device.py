"""Training on a CUDA device, as far as Numba's simulator of one goes."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from test_readme import shell

import datasets
from devices import DEVICES
from kernels import dispatch
from mapreduce.errors import DeviceError
from mapreduce.models.base import device_errors
from mapreduce.plan.settings import Settings
from mapreduce.runners.parallel.runner import TaskFailedException
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from quick import each

TESTS = Path(__file__).parents[2]
NETWORK = "conv:2x2,batchnorm,relu,pool:2,dense:3,relu,dropout:0.3"


def command(words, folder, simulated):
    """What a command prints, in the simulator of CUDA or without a device."""
    if not simulated:
        return shell(f"gradreduce {words}", folder)
    variables = f"NUMBA_ENABLE_CUDASIM=1 PYTHONPATH={TESTS.parent}:{TESTS}"
    return shell(f"{variables} {sys.executable} -m simulator {words}", folder)


def train(folder, name, *options, simulated=True):
    plan = "--rounds 2 --batch-size 8 --slice-rows 4 -r inline -q"
    command(f"train data --run {name} {plan} {' '.join(options)}", folder, simulated)
    return load_file(folder / name / "checkpoints" / "00000002" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("model", each(3, [NETWORK, "mlp:3", "logistic"]))
def test_the_parameters_are_those_of_the_cpu(tmp_path, model):
    datasets.blobs(tmp_path / "data", (40,), classes=2, shape=(4, 3))
    expected = train(tmp_path, "host", f"--model {model}", simulated=False)
    for device in ("cuda", "auto") if model == "logistic" else ("cuda",):
        found = train(tmp_path, device, f"--model {model} --device {device}")
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("model", each(3, [NETWORK, "dense:3,tanh", "logistic"]))
def test_a_model_is_used_on_the_device_and_elsewhere(tmp_path, model):
    """Trained in the simulator, with evaluations; then used in it, and without."""
    datasets.blobs(tmp_path / "data", (40,), classes=2, shape=(4, 3))
    train(tmp_path, "run", f"--model {model} --device cuda --eval data --eval-every 1")
    found = {}
    for device, simulated in (("cpu", False), ("cuda", True)):
        options = f"--device {device} -r inline"
        report = json.loads(command(f"evaluate run data --json {options}", tmp_path, simulated))
        command(f"predict run data {device}.parquet {options} -q", tmp_path, simulated)
        rows = pq.read_table(tmp_path / f"{device}.parquet")
        values = [report["loss"], report["roc_auc"], *rows["probability"].to_pylist()]
        found[device] = values, report["confusion"], rows["prediction"].to_pylist()
    (values, *classes), (others, *same) = found.values()
    assert same == classes
    assert others == pytest.approx(values, rel=1e-5)


def test_no_device(tmp_path):
    if dispatch.choose("auto") == "cuda":
        pytest.skip("there is a device")
    datasets.blobs(tmp_path / "data", (4,), 2, 2)
    with pytest.raises(AssertionError, match="can be used: expected an NVIDIA GPU"):
        train(tmp_path, "run", "--device cuda", simulated=False)


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a device")
@pytest.mark.parametrize("runner", ["inline", "parallel"])
@pytest.mark.parametrize("model", ["mlp:3", "logistic"])
def test_a_device_that_is_gone_in_the_tasks(tmp_path, monkeypatch, model, runner):
    """One message of what is missing and what to do, and not the driver's traceback."""
    monkeypatch.setattr(dispatch, "lacking", lambda: None)
    datasets.blobs(tmp_path / "data", (40,), 5, 2)
    chosen = Settings(model=model, device="cuda", rounds=1)
    run = creating.create(tmp_path / "run", chosen, tmp_path / "data", None)
    failures = (DeviceError, TaskFailedException)
    with pytest.raises(failures, match=r"^--device cuda: .*expected an NVIDIA GPU"):
        driver.train(run, Execution(runner), 0, Events())


def test_memory_that_is_not_there():
    from kernels.cuda.errors import OutOfDeviceMemoryError

    expected = "^--device cuda: an array: no room"
    with pytest.raises(DeviceError, match=expected), device_errors("cuda"):
        raise OutOfDeviceMemoryError("an array: no room")
    with pytest.raises(ValueError, match="other"), device_errors("cuda"):
        raise ValueError("other")
