"""Numba and NumPy kernels: the inner loops of the mappers and reducers.

A kernel is addressed by name and device through :mod:`kernels.dispatch`; ``kernels/cpu`` and
``kernels/cuda`` hold files of the same names. The package knows arrays only: no files, no jobs.

A kernel overwrites its argument ``out`` and returns it. ``delta`` is the gradient of the loss by
what the forward pass gives. Shapes that do not fit together are a ValueError, since a compiled loop
would go beyond the end of an array.
"""

#: The environment variable that, if it is set, silences the line about compiling.
QUIET = "GRADREDUCE_QUIET"
