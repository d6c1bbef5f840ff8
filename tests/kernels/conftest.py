"""What the simulator of CUDA needs."""

import simulator
from devices import SIMULATED


def pytest_configure(config):
    if SIMULATED:
        simulator.install()
        # NumPy's numbers stand for the device's, which do not warn of infinities.
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")
