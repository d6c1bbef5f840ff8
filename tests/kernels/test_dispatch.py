"""Names of kernels and devices."""

import subprocess
import sys

import pytest

from kernels import dispatch


@pytest.mark.parametrize("device", dispatch.DEVICES)
@pytest.mark.parametrize(("kernel", "module"), dispatch.KERNELS.items())
def test_every_kernel_exists_on_every_device(kernel, module, device):
    function = dispatch.get(kernel, device)
    assert function.__name__ == kernel
    assert function.__module__ == f"kernels.{device}.{module}"


@pytest.mark.parametrize("kernel", dispatch.KERNELS)
def test_the_default_is_the_cpu(kernel):
    assert dispatch.get(kernel) is dispatch.get(kernel, "cpu")


def test_unknown_kernel():
    with pytest.raises(ValueError, match=r"unknown kernel 'afine': expected one of .*affine"):
        dispatch.get("afine")


def test_unknown_device():
    with pytest.raises(ValueError, match="unknown device 'abacus': expected one of cpu"):
        dispatch.get("affine", "abacus")


def test_a_device_is_imported_when_it_is_asked_for():
    code = (
        "import sys\n"
        "from kernels import dispatch\n"
        "assert not [name for name in sys.modules if name.startswith('numba')]\n"
        "assert 'kernels.cpu' not in sys.modules\n"
        "dispatch.get('add_into')\n"
        "assert 'kernels.cpu.reduce' in sys.modules\n"
        "assert 'kernels.cpu.softmax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
