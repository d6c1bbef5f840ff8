"""Numba and NumPy kernels: the inner loops of the mappers and reducers.

A kernel is addressed by name and device through :mod:`kernels.dispatch`; ``kernels/cpu`` and
``kernels/cuda`` hold files of the same names. The package knows arrays only: no files, no jobs.
"""

#: The environment variable that, if it is set, silences the line about compiling.
QUIET = "GRADREDUCE_QUIET"
