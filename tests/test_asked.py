"""Nobody compares the name of an executor or a runner: what the member can do is asked."""

import ast
import re
from pathlib import Path

import pytest

from mapreduce.engine.registry import EXECUTORS
from mapreduce.support.traits import RUNNERS

ROOT = Path(__file__).parent.parent
NAMES = {*EXECUTORS, *RUNNERS}

#: Who may: the executors, and what users test their own with.
FREE = ("mapreduce/executors/", "mapreduce/testing.py")

#: Where a name can stand in a module.
QUOTED = re.compile(rf"""["'](?:{"|".join(sorted(NAMES))})["']""")


def texts(node: ast.AST, constants: dict[str, set[str]]) -> set[str]:
    """The texts in an expression, those of constants too."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
        elif isinstance(each, ast.Name | ast.Attribute):
            found |= constants.get(each.id if isinstance(each, ast.Name) else each.attr, set())
    return found


def constants_of(trees) -> dict[str, set[str]]:
    """The texts of names that any module or class binds to a text, or to several."""
    found: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
                node.value, ast.Constant | ast.Tuple | ast.List | ast.Set
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and target.id.isupper():
                        found.setdefault(target.id, set()).update(texts(node.value, {}))
    return found


def compared(tree: ast.AST, constants: dict[str, set[str]]) -> list[int]:
    """The lines on which a name is compared: by an operator, a case, or the key of a table."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            # What a call takes or gives is not compared by its text.
            plain = [each for each in sides if not isinstance(each, ast.Call)]
            if any(NAMES & texts(each, constants) for each in plain):
                lines.append(node.lineno)
        elif isinstance(node, ast.MatchValue) and NAMES & texts(node.value, constants):
            lines.append(node.lineno)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
            lines += [node.lineno] * bool(NAMES & texts(node, constants))
    return lines


def sources() -> dict[str, str]:
    """The texts of all modules but those that may compare names."""
    return {
        name: path.read_text()
        for package in ("mapreduce", "kernels", "hdfs_utils", "jobs")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not (name := str(path.relative_to(ROOT))).startswith(FREE)
    }


def test_nobody_compares_the_name_of_an_executor_or_a_runner():
    """Only modules are parsed that hold a name, or a constant that is bound to one."""
    modules = sources()
    trees = {name: ast.parse(text) for name, text in modules.items() if QUOTED.search(text)}
    assert trees
    constants = constants_of(trees.values())
    bound = [name for name, values in constants.items() if NAMES & values]
    users = re.compile(rf"\b(?:{'|'.join(bound)})\b")
    for name in modules.keys() - trees.keys():
        if bound and users.search(modules[name]):
            trees[name] = ast.parse(modules[name])
    found = {f"{name}:{line}" for name, tree in trees.items() for line in compared(tree, constants)}
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        "how.executor == 'gang'",
        "'chain' != executor",
        "name in ('chain', 'own')",
        "'here' in (before, after)",
        "how.runner == USUAL",
        "how.runner == module.USUAL",
        "match name:\n case 'hadoop': pass",
        "name.startswith('gang')",
    ],
)
def test_a_comparison_is_seen(text):
    constants = constants_of([ast.parse("USUAL: str = 'parallel'\nOTHERS = ('a', 'b')")])
    assert compared(ast.parse(text), constants)
    assert not compared(ast.parse("name in OTHERS or kind == 'csv'"), constants)
