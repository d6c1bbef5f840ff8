"""Where the kernels are tested: on the CPU, and on a GPU if there is one.

With ``NUMBA_ENABLE_CUDASIM=1`` they are tested in Numba's simulator of CUDA alone. It starts a
Python thread for each of the device's, so that arrays have to be small.
"""

import os

from kernels import dispatch

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
DEVICES = ("cuda",) if SIMULATED else tuple(dict.fromkeys(("cpu", dispatch.choose("auto"))))
