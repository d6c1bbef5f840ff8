"""The benchmark of products on a GPU, where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cuda
from devices import DEVICES

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a CUDA device")
def test_without_a_device_there_are_no_figures():
    page = ROOT / "docs" / "benchmarks.md"
    before = page.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "cuda.products"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| skipped: no CUDA device |" in done.stdout
    assert page.read_bytes() == before


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ([9, 9, 1, 1], "from 4 rows on"),
        ([1, 9, 1, 1], "from 4 rows on"),
        ([1, 1, 1, 1], "from 1 rows on"),
        ([1, 1, 1, 9], "at no size measured"),
    ],
)
def test_where_the_gpu_beats_the_cpu(gpu, expected):
    assert cuda.crossing([1, 2, 4, 8], [2, 2, 2, 2], gpu) == expected
