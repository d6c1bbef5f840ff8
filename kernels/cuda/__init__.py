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

from typing import Any

# Sets where compiled kernels are kept, before Numba reads it.
from kernels import cpu as cpu  # isort: skip
from numba import cuda
from numba.core import config as _config

from kernels.cuda.errors import ToolkitError, explained

_settings: Any = _config
SIMULATED = bool(_settings.ENABLE_CUDASIM)

#: Threads of a block. The simulator's are few, so that small arrays take several blocks and turns.
THREADS = 8 if SIMULATED else 256

#: Blocks of a grid; its threads take what is beyond in turns. 132 multiprocessors hold 8 each.
MOST_BLOCKS = 3 if SIMULATED else 2048

# Small grids are meant to be small: no warnings that they leave a large device idle.
getattr(cuda, "config", _settings).CUDA_LOW_OCCUPANCY_WARNINGS = 0

jit: Any = cuda.jit(cache=True)
"""Decorate a kernel of this package."""

inline: Any = cuda.jit(device=True)
"""Decorate a function that a kernel calls, for example one of :mod:`kernels.scalar`."""


def blocks(work: int) -> int:
    """The number of blocks of :data:`THREADS` threads to start for ``work`` independent results."""
    return max(1, min(-(-work // THREADS), MOST_BLOCKS))


def require() -> None:
    """Start CUDA in this process.

    Raises NoDeviceError, ToolkitError, ForkedError (CUDA cannot be used; the message says why).
    """
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
