"""What the simulator of CUDA needs."""

import sys
import threading

import numpy as np

from devices import SIMULATED

_lock = threading.Lock()


def _shared_array(self, shape, dtype):
    """As the simulator's own, of which two threads that come at once may get two arrays."""
    frame = sys._getframe(1)
    place = frame.f_code.co_filename, frame.f_lineno
    with _lock:
        return self._allocations.setdefault(place, np.empty(shape, dtype))


def pytest_configure(config):
    if SIMULATED:
        from numba.cuda.simulator import kernelapi

        kernelapi.FakeCUDAShared.array = _shared_array
        # NumPy's numbers stand for the device's, which do not warn of infinities.
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")
        # Threads wait for each other in loops: many short turns.
        sys.setswitchinterval(1e-6)
