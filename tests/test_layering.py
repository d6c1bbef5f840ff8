"""Arrows point one way: jobs, mapreduce, then kernels and hdfs_utils, which do not meet."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "kernels": {"kernels"},
    "hdfs_utils": {"hdfs_utils"},
    "mapreduce": {"mapreduce", "kernels", "hdfs_utils"},
    "jobs": {"jobs", "mapreduce", "hdfs_utils"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = (imported(path) & PACKAGES.keys()) - PACKAGES[package]
        assert not wrong, f"{path} imports {wrong}"


def test_kernels_need_numpy_and_numba_only():
    # llvmlite is what Numba compiles with; an intrinsic is written in its terms.
    allowed = {"kernels", "numpy", "numba", "llvmlite"} | sys.stdlib_module_names
    for path in (ROOT / "kernels").rglob("*.py"):
        assert imported(path) <= allowed, path


def test_job_names_do_not_shadow_the_standard_library():
    names = {path.stem for path in (ROOT / "jobs").glob("*.py")}
    assert not names & sys.stdlib_module_names


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("mapreduce.cli.main", ["numpy", "numba", "pyarrow", "mrjob", "rich"]),
        ("mapreduce.options", ["numpy", "numba", "pyarrow", "mrjob"]),
        ("mapreduce.job", ["numpy", "numba", "pyarrow"]),
    ],
)
def test_nothing_slow_is_imported_before_it_is_needed(module, heavy):
    code = f"import sys, {module}; print([n for n in {heavy!r} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
