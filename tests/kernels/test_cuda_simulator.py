"""The values of CUDA kernels, and of networks that use them, without a GPU.

Numba reads whether to simulate when it is imported: so the suite runs in a process of its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devices import SIMULATED

TESTS = Path(__file__).parents[1]
SUITES = [f"kernels/test_{name}.py" for name in ("kernels", "activations", "random", "images")]
SUITES += ["kernels/test_cuda.py", "mapreduce/models/test_networks_on_cuda.py"]


@pytest.mark.slow
@pytest.mark.skipif(SIMULATED, reason="this is the simulator")
def test_the_suite_passes_in_the_simulator(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    suites = [str(TESTS / name) for name in SUITES]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'base'}", *suites],
        cwd=TESTS.parent,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed", done.stdout)
    assert found
    assert int(found[1]) > 800
