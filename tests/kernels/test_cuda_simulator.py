"""The values of CUDA kernels, and of networks that use them, without a GPU.

Numba reads whether to simulate when it is imported: so suites run in processes of their own.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

import programs
from devices import SIMULATED

TESTS = Path(__file__).parents[1]
#: Suites, and how many tests of each there are at least. Images in float64 are left to test-long.
LEAST = {
    "kernels/test_kernels.py": 200,
    "kernels/test_images.py": 55,
    "kernels/test_activations.py": 80,
    "kernels/test_cuda.py": 90,
    "kernels/test_linear.py": 50,
    "kernels/test_random.py": 85,
    "kernels/test_refused.py": 60,
    "kernels/test_sparse.py": 6,
    "mapreduce/models/test_networks_on_cuda.py": 6,
}
#: What a process runs: as few as make them of about one length.
PROCESSES = [
    "kernels/test_kernels.py kernels/test_cuda.py",
    "kernels/test_images.py -k 'not float64'",
    "kernels/test_random.py kernels/test_activations.py",
    "kernels/test_linear.py kernels/test_refused.py kernels/test_sparse.py "
    "mapreduce/models/test_networks_on_cuda.py",
]


@pytest.mark.slow
@pytest.mark.skipif(SIMULATED, reason="this is the simulator")
@pytest.mark.parametrize(
    "suites",
    [*PROCESSES, pytest.param("kernels/test_images.py -k float64", marks=pytest.mark.long)],
)
def test_suites_pass_in_the_simulator(tmp_path, suites):
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = programs.ran(
        *command,
        f"--basetemp={tmp_path / 'base'}",
        *shlex.split(suites),
        cwd=TESTS,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for suite in LEAST.keys() & {*shlex.split(suites)}:
        passed = re.findall(rf"^(?:tests/)?{suite}::.* PASSED", done.stdout, re.M)
        assert len(passed) >= LEAST[suite], suite


def test_every_suite_is_in_a_process():
    assert {name for suites in PROCESSES for name in shlex.split(suites)} >= {*LEAST}
