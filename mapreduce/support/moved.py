"""Imports of modules by the names that they had in the version before, with a warning."""

import re
import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Modules that are elsewhere now, and what takes the place of their names.
_MOVED = {
    r"mapreduce\.tracing\.(laws|notebook|outcomes|shrinking|verdicts)": r"mapreduce.checking.\1",
    r"mapreduce\.tracing\.checking": "mapreduce.checking.checker",
    r"mapreduce\.tracing(\..*)?": r"mapreduce.explaining\1",
    r"mapreduce\.algorithms(\..*)?": r"mapreduce.tables\1",
    r"mapreduce\.strategies\.leaf_ranges": "mapreduce.parts",
}


def new_name(name: str) -> str:
    """The name of a module that has moved; "" for any other."""
    found = ((re.fullmatch(old, name), new) for old, new in _MOVED.items())
    return next((match.expand(new) for match, new in found if match), "")


class _Finder:
    """The last of Python's finders: it sees only what no other has found."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        # As a package without a folder: what is in it comes here, too.
        return ModuleSpec(name, cls(), is_package=True) if new_name(name) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own."""

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, new_name(module.__name__)
        there = import_module(new)
        text = f"{old} is {new} now: import that. The next version does not know the old name"
        # Python shows a DeprecationWarning only of the script that it runs, and not of its modules.
        warnings.warn(text, FutureWarning, stacklevel=2)
        if not hasattr(there, "__path__"):
            sys.modules[old] = there


def install() -> None:
    """Have Python find what has moved."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
