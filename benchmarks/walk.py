"""How far a parameter travels: ``python -m benchmarks.walk [MODULE:FUNCTION:PARAMETER]``.

Reads syntax trees, and runs nothing. From a function on it follows a parameter, and what is
computed from it, into the functions and classes that calls name: of the same module, of one that
is imported, or of the same object. Errors end a walk, and are not entered. A *stay* is a module
that is entered from another one, and a *return* a stay in a module that was entered before.
``--root`` is the folder of another checkout.
"""

import argparse
import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

#: What the values of all options of a training go through.
TRAIN = "mapreduce.cli.train:train:values"
PACKAGES = ("mapreduce", "kernels", "hdfs_utils")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A function, or a class, by its module and its name there."""

    module: str
    name: str


class House:
    """The modules of a folder, by their names: their trees, and what names mean there."""

    def __init__(self, root: Path) -> None:
        self.trees = {}
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.trees[name] = ast.parse(path.read_text())
        self.nodes = {
            Place(module, name): node
            for module, tree in self.trees.items()
            for name, node in _definitions(tree)
        }
        self.imports = cache(self._imports)

    def _imports(self, module: str) -> dict[str, Place]:
        found = {}
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.ImportFrom):
                for each in node.names:
                    inner = f"{node.module}.{each.name}"
                    is_module = inner in self.trees
                    place = Place(inner, "") if is_module else Place(node.module or "", each.name)
                    found[each.asname or each.name] = place
        return found

    def called(self, call: ast.Call, here: Place) -> Place | None:
        """The function or class that a call names, as far as the text says it."""
        function, found = call.func, None
        if isinstance(function, ast.Name):
            own = Place(here.module, function.id)
            found = own if own in self.nodes else self.imports(here.module).get(function.id)
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            owner = function.value.id
            if owner in ("self", "cls"):
                found = Place(here.module, f"{here.name.partition('.')[0]}.{function.attr}")
            elif (known := self.imports(here.module).get(owner)) is not None:
                inner = f"{known.name}.{function.attr}" if known.name else function.attr
                found = Place(known.module, inner)
        is_error = found is not None and found.name.endswith("Error")
        return found if found in self.nodes and not is_error else None


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function):
                    yield f"{node.name}.{inner.name}", inner


class Walk:
    """The modules that a parameter enters, in the order of the text; ``stays`` has them."""

    def __init__(self, house: House, start: Place, parameter: str) -> None:
        self._house = house
        self._passed: set[tuple[Place, frozenset[str]]] = set()
        self.stays = [start.module]
        self._enter(start, frozenset([parameter]))

    @property
    def returns(self) -> int:
        return len(self.stays) - len({*self.stays})

    def _enter(self, place: Place, carried: frozenset[str]) -> None:
        if place.module != self.stays[-1]:
            self.stays.append(place.module)
        if (place, carried) in self._passed:
            return
        self._passed.add((place, carried))
        node = self._house.nodes[place]
        if isinstance(node, ast.ClassDef):
            place = Place(place.module, f"{place.name}.__init__")
            node = self._house.nodes.get(place, node)
        names = {*carried}
        for each in _in_order(node):
            if isinstance(each, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
                if each.value is not None and _names(each.value) & names:
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    names |= set().union(*map(_bound, targets))
            elif isinstance(each, ast.For | ast.comprehension) and _names(each.iter) & names:
                names |= _bound(each.target)
            elif isinstance(each, ast.Call):
                self._follow(each, place, names)

    def _follow(self, call: ast.Call, here: Place, names: set[str]) -> None:
        found = self._house.called(call, here)
        if found is None:
            return
        node = self._house.nodes[found]
        inner = self._house.nodes.get(Place(found.module, f"{found.name}.__init__"))
        function = inner if isinstance(node, ast.ClassDef) else node
        carried = set()
        if isinstance(function, Function):
            taken = [*function.args.posonlyargs, *function.args.args]
            parameters = [one.arg for one in taken if one.arg not in ("self", "cls")]
            variadic = function.args.vararg, function.args.kwarg
            more = [one.arg for one in variadic if one is not None]
            for at, argument in enumerate(call.args):
                if _names(argument) & names:
                    carried |= {*parameters[at : at + 1]} or {*more}
            for keyword in call.keywords:
                if _names(keyword.value) & names:
                    carried |= {keyword.arg} if keyword.arg else {*parameters, *more}
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if carried or any(_names(each) & names for each in given):
            self._enter(found, frozenset(carried))


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A tree's nodes as they are computed: the parts of a call before the call."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    yield node


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _bound(target: ast.AST) -> set[str]:
    """The names that an assignment binds; what it stores elsewhere is not followed."""
    found = {each for each in ast.walk(target) if isinstance(each, ast.Name)}
    return {each.id for each in found if isinstance(each.ctx, ast.Store)}


def walk(root: Path, start: str = TRAIN) -> Walk:
    """Follow ``MODULE:FUNCTION:PARAMETER`` through the packages in a folder."""
    module, function, parameter = start.split(":")
    return Walk(House(root), Place(module, function), parameter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("start", nargs="?", default=TRAIN)
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--all", action="store_true", help="print each stay")
    given = parser.parse_args()
    found = walk(given.root, given.start)
    for number, module in enumerate(found.stays if given.all else (), 1):
        print(f"{number:4} {module}")
    rooms = len({*found.stays})
    print(f"{len(found.stays)} stays in {rooms} modules, {found.returns} returns")


if __name__ == "__main__":
    main()
