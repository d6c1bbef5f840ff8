"""The benchmark of tables, on files that are too small to time."""

import csv
import sys

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.tables import Cost
from mapreduce.cli.data import import_


def test_files_have_their_size_and_are_a_function_of_the_seed(tmp_path):
    rows = tables.write(tmp_path / "a.csv", 1)
    again, other = tables.write(tmp_path / "b.csv", 1), tables.write(tmp_path / "c.csv", 1, seed=1)
    assert rows == again == other == tables.STEP
    contents = [(tmp_path / f"{name}.csv").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
    names, *found = csv.reader(contents[0].decode().splitlines())
    assert len(found) == rows and len(names) == tables.NUMBERS + len(tables.WORDS) + 1
    columns = dict(zip(names, np.array(found).T, strict=True))
    missing = {name: np.mean(column == "") for name, column in columns.items()}
    expected = dict.fromkeys(names, 0) | {f"x{i}": 0.05 for i in range(tables.MISSING)}
    assert missing == pytest.approx(expected, abs=0.01)
    assert {name: len({*columns[name]}) for name in tables.WORDS} == tables.WORDS
    assert 0.4 < np.mean(columns[tables.LABEL] == "1") < 0.6


def test_costs_are_those_of_the_program_and_its_children():
    child = (
        "import time; x = bytearray(80 << 20); t = time.process_time()\n"
        "while time.process_time() < t + 0.3: pass"
    )
    start = f"subprocess.run([sys.executable, '-c', {child!r}])"
    program = f"import subprocess, sys; {start}; print('end')"
    found, printed = tables.cost([sys.executable, "-c", program])
    assert printed == "end\n"
    assert found.cpu >= 0.3 and found.wall >= 0.3
    assert 80 < found.mib < 160


def test_a_program_that_fails_is_named():
    with pytest.raises(RuntimeError, match="ended with 3: no"):
        tables.cost([sys.executable, "-c", "import sys; print('no'); sys.exit(3)"])


def test_ratios_and_their_limit():
    ours, theirs = {"a": Cost(1, 3, 50), "b": Cost(2, 3, 30)}, {"peer": Cost(4, 4, 100)}
    result = tables.compared(ours, theirs, 0.8)
    assert result.rows[-1] == ["ours / theirs", "0.75", "1.50", "0.50"]
    assert result.verdict() == "holds"
    assert tables.compared(ours, theirs, 0.7).verdict() == "MISSED: 0.75, at most 0.7"
    assert len(tables.compared(ours, {}, 0.7).rows) == 3


@pytest.mark.slow
@pytest.mark.skipif(
    "recipe" not in {option.name for option in import_.params},
    reason="data import does not take words and missing values here",
)
def test_quick_run():
    result = tables.benchmark(quick=True, size=4_000_000)
    assert all(float(cell) > 0 for _, *cells in result.rows for cell in cells)
    assert "this toolkit 0.6" in result.note
