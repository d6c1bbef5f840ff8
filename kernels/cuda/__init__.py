"""Kernels for NVIDIA GPUs: the loops of :mod:`kernels.cpu`, spread over threads.

A file here has the functions of its twin in ``kernels/cpu``, with the same arguments. They take
arrays of the host, which are copied to the device and back, and arrays of the device, which stay
there. Scalar functions come from :mod:`kernels.scalar`.

Sums are taken in an order that depends on the shapes alone: there are no atomic additions of
floating-point numbers. The compiler fuses multiplications with additions, though, and sums run
in many threads, so that results agree with the CPU's within roundings and not to the bit.

With ``NUMBA_ENABLE_CUDASIM=1`` in the environment, Numba's simulator runs the kernels without a
GPU, one Python thread for each of the device's: for values in tests.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

# Sets where compiled kernels are kept, before Numba reads it.
from kernels import cpu as cpu  # isort: skip
from numba import cuda

from kernels.cuda.device_array import SIMULATED as SIMULATED
from kernels.cuda.errors import ToolkitError, explained
from kernels.cuda.launch import Kernel

#: Threads of a block. The simulator's are few, so that small arrays take several blocks and turns.
THREADS = 8 if SIMULATED else 256

#: Blocks of a grid; its threads take what is beyond in turns. 132 multiprocessors hold 8 each.
MOST_BLOCKS = 3 if SIMULATED else 2048

jit = Kernel
"""Decorate a kernel of this package."""

inline: Any = cuda.jit(device=True)
"""Decorate a function that a kernel calls, for example one of :mod:`kernels.scalar`."""


def blocks(work: int) -> int:
    """The number of blocks of :data:`THREADS` threads to start for ``work`` independent results."""
    return max(1, min(-(-work // THREADS), MOST_BLOCKS))


def require() -> None:
    """Start CUDA in this process; an error says why it cannot be used."""
    try:
        cuda.current_context()
        # Compiles for the device with the toolkit, or would not say what is missing before a call.
        available = cuda.is_available()
    except Exception as error:
        known = explained(error, "starting CUDA")
        if known is None:
            raise
        raise known from error
    if not available:
        raise ToolkitError(
            "starting CUDA: expected libNVVM and libdevice of a CUDA toolkit beside the driver, "
            "found none. Next: pip install 'gradreduce[cuda]'"
        )
    if not SIMULATED:
        _load_functions()


def _load_functions() -> None:
    """Import what starting a kernel takes, so that what it lacks is told before a task."""
    try:
        import_module("cuda.bindings.driver")
        import_module("numba.cuda.np.arrayobj")
    except ModuleNotFoundError as error:
        raise ToolkitError(
            f"starting CUDA: expected numba-cuda, found Numba alone. Next: pip install "
            f"'gradreduce[cuda]'. Found: {error}"
        ) from error
    except AttributeError as error:
        raise ToolkitError(
            f"starting CUDA: expected a NumPy that numba-cuda {version('numba-cuda')} knows, found "
            f"NumPy {np.__version__}. Next: pip install 'gradreduce[cuda]', which asks for one. "
            f"Found: {error}"
        ) from error
