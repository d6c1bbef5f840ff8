"""What tests of kernels share, and what the simulator of CUDA needs."""

import numpy as np
import pytest
from hypothesis import settings

import simulator
from devices import DEVICES, SIMULATED
from kernels import dispatch


def pytest_configure(config):
    if SIMULATED:
        simulator.install()
        # NumPy's numbers stand for the device's, which do not warn of infinities.
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")
        parent = settings.get_profile("gradreduce")
        settings.register_profile("simulated", parent, max_examples=4)
        settings.load_profile("simulated")


@pytest.fixture(params=DEVICES)
def kernel(request):
    """Finds a kernel of the device by its name."""
    return lambda name: dispatch.get(name, request.param)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return np.dtype(request.param)
