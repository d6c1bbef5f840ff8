"""The benchmark of networks on a GPU: what it calls, on the CPU, and its arithmetic."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import cuda_networks
from benchmarks.cuda_networks import Case, cases, operands
from devices import DEVICES


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a CUDA device")
@pytest.mark.parametrize("measure", [cuda_networks.kernels, cuda_networks.step])
def test_without_a_device_there_are_no_figures(measure):
    found = measure(quick=True)
    assert not found.measured
    assert found.skipped == {"this toolkit": "no CUDA device"}


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


def test_what_a_device_can_do_at_best():
    assert Case("", 100, 10, print).least_seconds(peak=20, bandwidth=5) == 5
    assert Case("", 100, 30, print).least_seconds(peak=20, bandwidth=5) == 6
    # An H200: 6,144 lines at 3,201 MHz.
    device = SimpleNamespace(MEMORY_CLOCK_RATE=3_201_000, GLOBAL_MEMORY_BUS_WIDTH=6144)
    assert cuda_networks.peak_bandwidth(device) == pytest.approx(4.917e12, rel=1e-3)


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


def test_a_line_of_the_table():
    line = cuda_networks.row(
        (8, 4, 2, 3), Case("convolve", 10**12, 1, print), [2, 1, 4], [3], peak=1e12, bandwidth=1
    )
    assert line == "| 8 × 4², 2 → 3 | `convolve` | 2e+03 | 0.5 | 50% | 3e+03 |"


def test_a_step_computes_a_loss():
    loss = cuda_networks.gradient(cuda_networks.network("cpu"), 3)()
    assert 0 < loss < 100


def test_torch_computes_a_step():
    pytest.importorskip("torch")
    assert 0 < cuda_networks.torch_step(cuda_networks.network("cpu"), 3, "cpu")() < 100
