"""Settings of all tests."""

import sys
from pathlib import Path

from hypothesis import settings

# ``tests`` is on the path, and its folders bear the packages' names: without the root of the
# repository on it too, ``import kernels`` would find the folder of the tests.
sys.path.insert(0, str(Path(__file__).parents[1]))

settings.register_profile("gradreduce", deadline=None, print_blob=True)
settings.load_profile("gradreduce")
