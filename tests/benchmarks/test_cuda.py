"""The benchmarks on a GPU: what they call, on the CPU, and their arithmetic."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cuda_networks
from benchmarks.cuda_networks import cases, operands
from devices import DEVICES

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a CUDA device")
def test_without_a_device_there_are_no_figures():
    page = ROOT / "docs" / "benchmarks.md"
    before = page.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "cuda", "cuda_networks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("| skipped: no CUDA device |") == 3
    assert page.read_bytes() == before


def test_every_kernel_takes_its_arguments():
    for case in cases(operands(2, 4, 3, 5), "cpu"):
        case.call()


def test_torch_computes_what_the_kernels_do():
    pytest.importorskip("torch")
    given = operands(2, 4, 3, 5)
    calls = cuda_networks.torch_calls(given, "cpu")
    for case, theirs in zip(cases(given, "cpu")[:1], calls, strict=False):
        ours = np.asarray(case.call()).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(theirs().numpy(), ours, rtol=1e-4, atol=1e-5)
    for call in calls:
        call()


def test_work_of_a_layer():
    by_name = {case.name: case for case in cases(operands(2, 4, 3, 5), "cpu")}
    # Each of the outputs, 2 x 4 x 4 x 5, is a sum of 3 x 3 x 3 products.
    assert by_name["convolve"].flops == 2 * 160 * 27
    assert by_name["convolve"].bytes == 4 * (2 * 16 * 3 + 27 * 5 + 160)
    assert by_name["max_pool"].bytes == 4 * (160 + 40) + 40


def test_operations_of_a_network():
    model = cuda_networks.network("cpu")
    first, second, third, last = 24**2 * 16 * 25, 8**2 * 32 * 25 * 16, 512 * 128, 1280
    whole = first + second + third + last
    assert cuda_networks.operations(model, 7) == 2 * 7 * (3 * whole - first)


def test_a_step_computes_a_loss():
    assert 0 < cuda_networks.gradient(cuda_networks.network("cpu"), 3)() < 100


def test_torch_computes_a_step():
    pytest.importorskip("torch")
    assert 0 < cuda_networks.torch_step(cuda_networks.network("cpu"), 3, "cpu")() < 100
