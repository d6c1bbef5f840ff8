"""The levels of parallelism: one sum, the same bits on every level."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import ROOT

from benchmarks import levels


@pytest.mark.slow
def test_every_level_gives_the_same_bits():
    command = [sys.executable, "-m", "benchmarks", "--quick", "levels"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Limit: holds." in done.stdout
    rows = re.findall(r"^\| (.*?) \| (\d[\d.e-]*) \(", done.stdout, re.MULTILINE)
    measured = [name for name, _ in rows]
    lists = [f"{levels.ON_LISTS}, under the GIL", f"{levels.ON_LISTS}, without a GIL"]
    assert measured in ([*levels.LEVELS, lists[0]], [*levels.LEVELS, *lists])


@pytest.mark.parametrize("serial", [0.0, 0.25, 1.0])
def test_the_fraction_that_amdahls_law_was_given(serial):
    times = {n: 3.0 * (serial + (1 - serial) / n) for n in (1, 2, 4, 8)}
    assert levels.serial_fraction(times) == pytest.approx(serial)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_python_that_has_no_packages_gives_the_same_bits(workers):
    problem = levels.Problem.make(3_000)
    python = Path(sys.base_prefix) / "bin" / "python3"
    seconds, gradient = levels.on_lists(problem, workers, python)
    assert seconds > 0
    expected = levels.LEVELS["compiled loop in threads, without the GIL"](problem, 1)
    assert gradient.tobytes() == expected.tobytes()


def test_a_python_is_free_threaded_only_if_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert levels.free_threaded() is None
    for minor, answer in ((13, "True"), (14, "False")):
        path = tmp_path / f"python3.{minor}t"
        path.write_text(f"#!/bin/sh\necho {answer}\n")
        path.chmod(0o755)
    assert levels.free_threaded() == tmp_path / "python3.14t"
