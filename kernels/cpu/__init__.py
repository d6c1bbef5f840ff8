"""Kernels for the CPU: Numba loops around NumPy's BLAS.

Every compiled loop releases the GIL, so that threads of one worker run over slices at once. None
uses ``fastmath`` or a parallel reduction: sums are taken in the order in which they are written.
"""

from typing import Any

import numba

# error_model: a division by zero gives an infinity as IEEE 754 has it, instead of a branch.
jit: Any = numba.njit(nogil=True, cache=True, error_model="numpy")
"""Decorator of every compiled loop of this package."""

inline: Any = numba.njit(nogil=True, error_model="numpy", inline="always")
"""Decorator for the functions of :mod:`kernels.scalar` that a loop calls."""
