"""What the simulator of CUDA needs."""

import sys

from devices import SIMULATED


def pytest_configure(config):
    if SIMULATED:
        # NumPy's numbers stand for the device's, which do not warn of infinities.
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")
        # Threads wait for each other in loops: many short turns.
        sys.setswitchinterval(1e-6)
