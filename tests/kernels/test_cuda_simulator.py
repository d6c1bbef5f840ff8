"""The values of CUDA kernels, and of networks that use them, without a GPU.

Numba reads whether to simulate when it is imported: so each suite runs in a process of its own.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

import programs
from devices import SIMULATED
from quick import cases

TESTS = Path(__file__).parents[1]
#: Suites, and how many tests of each there are at least. Images in float64 are left to test-long.
SUITES = {
    "kernels/test_kernels.py": 200,
    "kernels/test_images.py -k 'not float64'": 110,
    "kernels/test_activations.py": 80,
    "kernels/test_cuda.py": 90,
    "kernels/test_linear.py": 50,
    "kernels/test_random.py": 250,
    "kernels/test_refused.py": 60,
    "kernels/test_sparse.py": 6,
    "mapreduce/models/test_networks_on_cuda.py": 6,
}


@pytest.mark.slow
@pytest.mark.skipif(SIMULATED, reason="this is the simulator")
@cases(
    "suite, least",
    *SUITES.items(),
    pytest.param("kernels/test_images.py -k float64", 110, marks=pytest.mark.long),
)
def test_the_suite_passes_in_the_simulator(tmp_path, suite, least):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = programs.ran(
        *command,
        f"--basetemp={tmp_path / 'base'}",
        *shlex.split(suite),
        cwd=TESTS,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= least
