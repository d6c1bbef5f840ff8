"""Arrows point one way: jobs, mapreduce, then kernels and hdfs_utils, which do not meet."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

import mapreduce
from mapreduce import parts

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "kernels": {"kernels"},
    "hdfs_utils": {"hdfs_utils"},
    "mapreduce": {"mapreduce", "kernels", "hdfs_utils"},
    "jobs": {"jobs", "mapreduce", "hdfs_utils"},
}


#: Modules beside the folders, for users.
DOORS = {"__init__", "parts", "testing"}

#: The folders of ``mapreduce/`` from the ground up, and what stands beside them: imports of a
#: folder are of those in front of it.
FOLDERS = [
    *("errors", "support", "report", "compat", "reduction"),
    *("data", "data.recipes", "data.readers", "data.splitting"),
    *("mrjob_patches", "batches", "job"),
    *("runners", "runners.parallel", "runners.yarn", "runners.hadoop", "runners.emr"),
    "runners.spark",
    *("engine", "models", "models.layers", "optim", "plan", "runs"),
    *("executors", "executors.gang", "tables", "algorithms", "inference", "inference.swarm"),
    *("strategies", "strategies.sync", "strategies.averaging"),
    *(
        "strategies.tournament",
        "strategies.downpour",
        "training.onnx",
        "training",
        "training.api",
        "estimators",
        "searching",
        "comparing",
        "timing",
        "launch",
        "serving",
    ),
    *("explaining", "explaining.training", "checking", "exercises"),
    *("__init__", "parts", "testing", "cli"),
]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements within a node, at any depth: a tenth of what :func:`ast.walk` gives."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(node, field, ())
        # The body of a lambda is an expression.
        for inner in block if isinstance(block, list) else ():
            yield inner
            yield from statements(inner)


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    found = statements(ast.parse(path.read_text()))
    return [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    names = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").partition(".")[0])
    return names


@cache
def modules() -> dict[str, Path]:
    """The modules of ``mapreduce``, without that name in front."""
    found = {}
    for path in (ROOT / "mapreduce").rglob("*.py"):
        parts = path.relative_to(ROOT / "mapreduce").with_suffix("").parts
        found[".".join(parts if parts[-1] != "__init__" else parts[:-1]) or "__init__"] = path
    return found


def folder(path: Path) -> str:
    parts = path.relative_to(ROOT / "mapreduce").parts
    return ".".join(parts[:-1]) or path.stem


@cache
def arrows() -> dict[str, set[str]]:
    """What each module imports of ``mapreduce``, within functions and for types alone, too."""
    known = modules()
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in imports(path):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [(alias.name, alias.name) for alias in node.names]
            for member, module in names:
                member, module = (part.removeprefix("mapreduce.") for part in (member, module))
                target = member if member in known else module
                target = "__init__" if target == "mapreduce" else target
                if target in known and target != name:
                    found[name].add(target)
    return found


def test_imports_are_found_at_any_depth(tmp_path):
    source = """
import a
def f():
    try:
        with x:
            import b
    except E:
        import c
    else:
        from d import e
    finally:
        import f
    match x:
        case 1:
            import g
    while x:
        pass
    else:
        class A:
            async def h(self):
                import h
"""
    (path := tmp_path / "module.py").write_text(source)
    assert imported(path) == {*"abcdfgh"}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes that are on a circle or on a way between two; none if there is no circle."""
    left = {node: set(others) for node, others in graph.items()}
    while free := [node for node in left if not left[node] & left.keys()]:
        for node in free:
            del left[node]
    return sorted(left)


def test_no_module_imports_itself_by_way_of_others():
    assert not circle(arrows())


def test_folders_import_those_below_them():
    known, below = modules(), {name: place for place, name in enumerate(FOLDERS)}
    assert {folder(path) for path in known.values()} == below.keys()
    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in targets
        if below[folder(known[target])] > below[folder(known[name])]
    ]
    assert not wrong


def test_top_folders_make_no_circle():
    """Nor an arrow up: folders within one stand together in ``FOLDERS``."""
    known = modules()
    tops = {name: folder(path).partition(".")[0] for name, path in known.items()}
    graph: dict[str, set[str]] = {top: set() for top in tops.values()}
    for name, targets in arrows().items():
        graph[tops[name]] |= {tops[target] for target in targets} - {tops[name]}
    assert not circle(graph)
    assert [top for top, _ in groupby(name.partition(".")[0] for name in FOLDERS)] == [
        *dict.fromkeys(name.partition(".")[0] for name in FOLDERS)
    ]


def test_the_drawing_of_the_house_is_true():
    """In docs/architecture.md: each folder once, and what it imports on lower lines."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = re.search(r"^```text\n(cli .*?)```", page, re.M | re.S)[1].splitlines()
    tops = {folder(path).partition(".")[0] for path in modules().values()}
    drawn = [(room, floor) for floor, line in enumerate(lines) for room in line[:32].split()]
    assert sorted(room for room, _ in drawn) == sorted(tops - DOORS)
    floors = dict(drawn)
    known = {name: folder(path).partition(".")[0] for name, path in modules().items()}
    pairs = [(known[name], known[target]) for name, to in arrows().items() for target in to]
    between = [pair for pair in pairs if floors.keys() >= {*pair} and pair[0] != pair[1]]
    assert between
    assert not [(one, other) for one, other in between if floors[one] >= floors[other]]


def test_runners_do_not_know_each_other():
    """What those of Hadoop and of EMR share is in ``yarn``; that of Spark extends ``parallel``."""
    pairs = [(folder(modules()[name]), target) for name, to in arrows().items() for target in to]
    known = {
        (room, folder(modules()[target]))
        for room, target in pairs
        if room.startswith("runners.") and target.startswith("runners.") and room != "runners.spark"
    }
    shared = {"runners", "runners.yarn"}
    assert {other for room, other in known if room != other} == shared


def test_circles_are_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_modules_are_in_folders():
    beside = {path.name for path in (ROOT / "mapreduce").iterdir() if path.is_file()}
    assert beside <= {f"{name}.py" for name in DOORS} | {"errors.py", "py.typed"}


#: Names that folders of ``mapreduce/`` are to have one day: none may lie there in another sense.
FREE = {"experiments", "launching"}


def test_names_of_folders_to_come_are_free():
    names = {name.partition(".")[0] for name in modules()} | {*mapreduce._LAZY, *parts.__all__}
    assert not names & FREE


def hidden(source: str, package: str, within: set[str]) -> set[str]:
    """The functions and classes of a package that a module within it hides once it is imported."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module != package:
            names |= {alias.asname or alias.name for alias in node.names}
    return names & within


def test_no_module_hides_a_function_of_its_name():
    known = modules()
    for name, path in known.items():
        if path.name == "__init__.py":
            package = "mapreduce" if name == "__init__" else f"mapreduce.{name}"
            at = "" if name == "__init__" else f"{name}."
            within = {
                other.removeprefix(at).partition(".")[0] for other in known if other.startswith(at)
            }
            assert not hidden(path.read_text(), package, within), package


def test_a_hidden_function_is_seen():
    source = "from mapreduce.explain.notebook import explain\nfrom mapreduce import errors\n"
    source += "def run(): pass"
    assert hidden(source, "mapreduce", {"explain", "errors", "run", "job"}) == {"explain", "run"}


def named(source: str) -> list[str]:
    """Modules of ours that a source names as text where it imports one by its name."""
    found: list[str] = []
    if "import_module" not in source and "__import__" not in source:
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            text = node.args[0]
            first = text.values[0] if isinstance(text, ast.JoinedStr) else text
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                found.append(str(first.value))
    return [name for name in found if name.partition(".")[0] in PACKAGES]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_imported_by_its_name_past_the_arrows(package):
    """A table of members is for that; a package may name its own modules."""
    for path in (ROOT / package).rglob("*.py"):
        own = ".".join(path.relative_to(ROOT).parts[:-1])
        wrong = [name for name in named(path.read_text()) if not name.startswith(f"{own}.")]
        assert not wrong, f"{path} imports {wrong}"


def test_names_of_modules_are_found():
    source = """
import importlib
importlib.import_module("mapreduce.job.calls").install()
import_module(f"kernels.{device}")
__import__("hdfs_utils")
import_module("mrjob.job")
import_module(name)
"""
    assert sorted(named(source)) == ["hdfs_utils", "kernels.", "mapreduce.job.calls"]


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
