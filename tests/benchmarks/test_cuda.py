"""The benchmark of products on a GPU, where there is none."""

import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import cuda
from devices import DEVICES


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a CUDA device")
def test_without_a_device_there_are_no_figures(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmarks, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "cuda.products"])
    assert benchmarks.main() == 0
    assert "skipped: no CUDA device" in capsys.readouterr().out
    assert not (tmp_path / "benchmarks.md").exists()


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
