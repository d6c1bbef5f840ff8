"""Imports of modules by the names that they had in the version before, with a warning."""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Modules that are elsewhere now. What else a folder had is in the folder that took its place.
_MOVED = {
    "mapreduce.algorithms": "mapreduce.tables",
    "mapreduce.strategies.leaf_ranges": "mapreduce.parts",
    "mapreduce.tracing": "mapreduce.explaining",
    "mapreduce.tracing.checking": "mapreduce.checking.checker",
    "mapreduce.tracing.laws": "mapreduce.checking.laws",
    "mapreduce.tracing.notebook": "mapreduce.checking.notebook",
    "mapreduce.tracing.outcomes": "mapreduce.checking.outcomes",
    "mapreduce.tracing.shrinking": "mapreduce.checking.shrinking",
    "mapreduce.tracing.verdicts": "mapreduce.checking.verdicts",
}


def new_name(name: str) -> str:
    """The name of a module that has moved; "" for any other."""
    folder, _, rest = name.rpartition(".")
    place = _MOVED.get(name) or (folder and new_name(folder))
    return place if name in _MOVED or not place else f"{place}.{rest}"


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
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        if not hasattr(there, "__path__"):
            sys.modules[old] = there


def install() -> None:
    """Have Python find what has moved."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
