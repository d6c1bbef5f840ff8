"""Names of kernels and devices."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from devices import DEVICES
from kernels import dispatch
from kernels.cuda.errors import NoDeviceError
from quick import cases

pytestmark = pytest.mark.every_case

TWINS = {
    name: module for name, module in dispatch.KERNELS.items() if module not in dispatch.HOST_ONLY
}


@pytest.mark.parametrize(("kernel", "module"), dispatch.KERNELS.items())
def test_every_kernel_exists(kernel, module):
    function = dispatch.get(kernel)
    assert function is dispatch.get(kernel, "cpu")
    assert function.__name__ == kernel
    assert function.__module__ == f"kernels.cpu.{module}"


@pytest.mark.parametrize(("kernel", "module"), TWINS.items())
def test_twins_take_the_same_arguments(kernel, module):
    twin = getattr(import_module(f"kernels.cuda.{module}"), kernel)
    expected = inspect.signature(dispatch.get(kernel)).parameters.values()
    found = inspect.signature(twin).parameters.values()
    assert [(p.name, p.default) for p in found] == [(p.name, p.default) for p in expected]


@cases(
    "kernel, device, message",
    ("WordCounter", "cuda", "WordCounter runs on the host: expected the device 'cpu'"),
    ("mask_blocks", "cuda", "mask_blocks runs on the host: expected the device 'cpu'"),
    ("afine", "cpu", "unknown kernel 'afine': expected one of affine$"),
    ("zzz", "cpu", "unknown kernel 'zzz': expected one of scale, .*row_chances"),
    ("affine", "abacus", "unknown device 'abacus': expected one of cpu"),
)
def test_what_there_is_not(kernel, device, message):
    with pytest.raises(ValueError, match=message):
        dispatch.get(kernel, device)


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a CUDA device")
def test_without_a_device():
    with pytest.raises(NoDeviceError, match="starting CUDA: expected an NVIDIA GPU and its driver"):
        dispatch.get("affine", "cuda")


def test_choice_of_a_device():
    assert dispatch.choose("auto") == DEVICES[-1]
    assert [dispatch.choose(device) for device in dispatch.DEVICES] == list(dispatch.DEVICES)
    with pytest.raises(ValueError, match="unknown device 'abacus': expected auto, cpu, cuda"):
        dispatch.choose("abacus")


def test_a_device_is_imported_when_it_is_asked_for():
    code = (
        "import sys\n"
        "from kernels import dispatch\n"
        "assert not [name for name in sys.modules if name.startswith('numba')]\n"
        "assert 'kernels.cpu' not in sys.modules\n"
        "dispatch.get('add_into')\n"
        "assert 'kernels.cpu.reduce' in sys.modules\n"
        "assert 'kernels.cpu.softmax' not in sys.modules\n"
        "assert not [n for n in sys.modules if n.startswith(('kernels.cuda', 'numba.cuda'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
