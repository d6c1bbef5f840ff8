"""The CUDA kernels' values without a GPU.

Numba reads whether to simulate when it is imported: so the suite runs in a process of its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devices import SIMULATED

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(SIMULATED, reason="this is the simulator")
def test_the_suite_passes_in_the_simulator(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    suites = [str(HERE / name) for name in ("test_kernels.py", "test_cuda.py")]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'base'}", *suites],
        cwd=HERE.parents[1],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed", done.stdout)
    assert found
    assert int(found[1]) > 300
