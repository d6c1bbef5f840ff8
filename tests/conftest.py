"""Settings of all tests."""

import os

# Before NumPy is loaded: one BLAS thread, as in every process of a run.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

from mapreduce import compat

# Test files may import mrjob before they import what makes it import on Python 3.12 and later.
compat.install()

settings.register_profile("gradreduce", deadline=None, print_blob=True)
settings.load_profile("gradreduce")
