"""Modules beside a script that are called as one of this toolkit's packages.

The script and the modules beside it import theirs, as they would without the toolkit, which still
imports its own.
"""

import builtins
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_NAMES = ("hdfs_utils", "kernels", "mapreduce")

#: Folders of scripts whose modules import what is beside them.
_folders: set[str] = set()


def prefer(script: Path) -> None:
    """Have modules in the script's folder import what is beside them."""
    folder = script.parent
    places = [(name, _module(folder, name)) for name in _NAMES]
    found = {name: path for name, path in places if path and path != script}
    is_toolkit = (folder / "mapreduce" / "compat" / Path(__file__).name).exists()
    if not found or is_toolkit or str(folder) in _folders:
        return
    _folders.add(str(folder))
    for name in found:
        # Ours, before the script's folder is where Python looks first.
        importlib.import_module(name)
    theirs = builtins.__import__

    def ours(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        top, _, rest = name.partition(".")
        path = None if level else found.get(top)
        # Whoever imports mapreduce.job does not mean a file mapreduce.py.
        if path and (not rest or path.name == "__init__.py"):
            importer = Path((globals or {}).get("__file__") or "")
            if folder in importer.parents or folder in importer.resolve().parents:
                name = ".".join([_loaded(path), *filter(None, [rest])])
        return theirs(name, globals, locals, fromlist, level)

    builtins.__import__ = ours


def _module(folder: Path, name: str) -> Path | None:
    places = (folder / name / "__init__.py", folder / f"{name}.py")
    return next((path for path in places if path.is_file()), None)


def _loaded(path: Path) -> str:
    """The name of a module that is loaded from a file, which no other module has."""
    name = re.sub(r"\W", "_", f"__beside__{path}")
    if name not in sys.modules:
        is_package = [str(path.parent)] if path.name == "__init__.py" else None
        spec = importlib.util.spec_from_file_location(
            name, path, submodule_search_locations=is_package
        )
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return name
