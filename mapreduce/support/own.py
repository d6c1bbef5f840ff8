"""The toolkit finds its own packages, and all other code the ones it means, of whatever name.

Somebody may have a package ``kernels`` or ``jobs``, or a file ``mapreduce.py``, beside a script, on
``PYTHONPATH`` or installed. The toolkit's modules have their names in ``sys.modules`` alone. Others
are loaded under a name that says where they lie, ``kernels@/home/me``, so that any process that has
imported the toolkit can import them, and unpickle what is theirs.
"""

import builtins
import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

#: The packages of the toolkit.
NAMES = ("mapreduce", "kernels", "jobs", "hdfs_utils")

#: The folder of the toolkit's packages, and that of Python's library.
HOME = str(Path(__file__).resolve().parents[2])
_LIBRARY = str(Path(os.__file__).resolve().parent)


def _here() -> str:
    """The working folder; the toolkit's, where nobody else's is, if it was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return HOME


#: The working folder of the program, which "" stands for. Tasks have others.
BEGINNING = _here()

#: Folders of scripts: what lies there is for the code in them.
_folders: set[str] = set()


class _Finder:
    """Finds the toolkit's packages, and those of others by the names that :func:`theirs` gives."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        top, at, place = name.partition("@")
        if top not in NAMES or path is not None:
            return None
        spec = PathFinder.find_spec(top, [place.replace("%2E", ".") if at else HOME])
        if spec is not None:
            spec.name = name
            loader: Any = spec.loader
            if hasattr(loader, "name"):
                loader.name = name
            if spec.submodule_search_locations is not None:
                spec.submodule_search_locations = list(spec.submodule_search_locations)
        return spec


def settle() -> None:
    """Have the toolkit find its packages, whoever has imported others of their names before."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    for name in NAMES:
        found = sys.modules.get(name)
        place = next(iter(getattr(found, "__path__", ())), getattr(found, "__file__", None))
        if place and not _is_own(os.path.realpath(place) + os.sep):
            folder = str(Path(place).absolute().parent)
            for known in [one for one in sys.modules if f"{one}.".startswith(f"{name}.")]:
                other = _name_in(folder, name) + known.removeprefix(name)
                sys.modules[other] = sys.modules.pop(known)
    _look()


def prefer(script: Path) -> None:
    """Have the code in a script's folder find what lies there."""
    _folders.add(str(script.parent))
    _look(str(script.parent))


def import_theirs(name: str) -> ModuleType:
    """Import a module that a user has named."""
    _look()
    return importlib.import_module(theirs(name, {}))


def _look(*more: str) -> None:
    """Look whether a name of the toolkit's may mean something else to others."""
    if any(_place(name, [*more, *sys.path]) is not None for name in NAMES):
        _tell_apart()


def theirs(name: str, importer: Mapping[str, Any], wanted: Iterable[str] = ()) -> str:
    """The name of a module that an importer, given by its globals, means by one.

    ``wanted``: What it imports from the module.
    """
    top, _, rest = name.partition(".")
    file = importer.get("__file__") or ""
    file = file and os.path.realpath(file)
    if top not in NAMES or _is_own(file):
        return name
    path = [one for one in sys.path if one not in _folders or file.startswith(one + os.sep)]
    part, *_ = rest.split(".")
    place = _place(top, path, [part]) if rest else _place(top, path, wanted, file)
    return name if place is None else name.replace(top, _name_in(place, top), 1)


def _name_in(place: str, name: str) -> str:
    return f"{name}@{place.replace('.', '%2E')}"


def _is_own(file: str) -> bool:
    """Whether a file is the toolkit's or Python's, which imports what it is told to."""
    is_library = file.startswith(_LIBRARY) and "-packages" not in file.removeprefix(_LIBRARY)
    return is_library or file.startswith(tuple(f"{HOME}{os.sep}{name}{os.sep}" for name in NAMES))


def _place(
    name: str, path: Iterable[str], wanted: Iterable[str] | None = None, file: str | None = None
) -> str | None:
    """The first folder of a path where others have a module of a name, with what is wanted of it.

    Without an importing ``file`` that is a submodule. A folder without ``__init__.py`` gives way to
    what the toolkit has, as Python would have it.
    """
    is_behind = False
    for folder in (at for one in path for at in ([one] if one else [_here(), BEGINNING])):
        # Another copy of the toolkit is nobody's own.
        if Path(folder, "mapreduce/compat/__main__.py").is_file():
            is_behind = True
            continue
        spec = PathFinder.find_spec(name, [folder])
        if spec is None or (spec.origin is None and is_behind):
            continue
        if wanted is None or (spec.origin and file is not None and spec.origin != file):
            return folder
        places = list(spec.submodule_search_locations or ())
        parts = [part for part in wanted if spec.origin or not _has(name, part, [f"{HOME}/{name}"])]
        if any(_has(name, part, places) for part in parts):
            return folder
    return None


def _has(name: str, part: str, places: list[str]) -> bool:
    return PathFinder.find_spec(f"{name}.{part}", places) is not None


def _tell_apart() -> None:
    """Have importers that are not the toolkit's find what they mean."""
    imports, imports_module = builtins.__import__, importlib.import_module
    if getattr(imports, "__module__", "") == __name__:
        return

    def import_by_name(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        if not level and name.partition(".")[0] in NAMES:
            importer = sys._getframe(1).f_globals if globals is None else globals
            name = theirs(name, importer, fromlist or ())
        return imports(name, globals, locals, fromlist, level)

    def import_module(name: str, package: str | None = None) -> ModuleType:
        return imports_module(theirs(name, sys._getframe(1).f_globals), package)

    builtins.__import__, importlib.import_module = import_by_name, import_module
