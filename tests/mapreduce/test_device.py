"""Training on a CUDA device, as far as Numba's simulator of one goes."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import datasets
from kernels import dispatch
from test_readme import shell


def train(folder, name, *options, simulated=True):
    plan = "--rounds 2 --batch-size 8 --slice-rows 4 -r inline -q"
    variables = "NUMBA_ENABLE_CUDASIM=1 " if simulated else ""
    command = f"{variables}gradreduce train data --run {name} {plan} {' '.join(options)}"
    shell(command, folder)
    return load_file(folder / name / "checkpoints" / "00000002" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp:3", "logistic"])
def test_the_parameters_are_those_of_the_cpu(tmp_path, model):
    datasets.blobs(tmp_path / "data", (40,), 5, 2)
    expected = train(tmp_path, "host", f"--model {model}", simulated=False)
    for device in ("cuda", "auto"):
        found = train(tmp_path, device, f"--model {model} --device {device}")
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)


def test_no_device(tmp_path):
    if dispatch.choose("auto") == "cuda":
        pytest.skip("there is a device")
    datasets.blobs(tmp_path / "data", (4,), 2, 2)
    with pytest.raises(AssertionError, match="can be used"):
        train(tmp_path, "run", "--device cuda", simulated=False)
