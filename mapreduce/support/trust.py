"""Which code of the user's own may be imported, here and in tasks, and its source files.

A plan may be a stranger's: what it names as ``MODULE:NAME`` is only imported if the user has named
it too. Tasks find in their environment the members that their driver trusts, and their folders.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

from mapreduce.errors import UsageError

#: Variables of the environment: members that may be imported, and folders to import them from.
VARIABLES = _TRUSTED, _FOLDERS = "GRADREDUCE_TRUSTED", "GRADREDUCE_TRUSTED_FOLDERS"

#: ``MODULE:NAME``, and arguments after another colon.
OWN = re.compile(r"((?:[^\W\d]\w*\.)*[^\W\d]\w*:[^\W\d]\w*)(?::(.*))?", re.DOTALL)


def trust(*specs: str) -> None:
    """Let members, ``MODULE:NAME``, be imported by this process and the tasks that it starts.

    They may be in the current directory, as if it were that of a script.
    """
    for spec in specs:
        own = OWN.fullmatch(spec)
        if own is None:
            raise UsageError(f"--trust: expected MODULE:NAME, found {spec!r}")
        _add(_TRUSTED, own[1], ",")
        _look_in(str(Path.cwd()))


def trusted() -> tuple[str, ...]:
    """The members that :func:`trust` was called with, here or by the driver of this task."""
    return tuple(filter(None, os.environ.get(_TRUSTED, "").split(",")))


def environment() -> dict[str, str]:
    """The environment of tasks on other machines."""
    return {_TRUSTED: ",".join(trusted())} if trusted() else {}


def files(module: str) -> list[tuple[str, bytes]]:
    """The Python files of a module, or of the whole package that it is in; nothing is imported.

    Paths are those within the folder that it is imported from.
    """
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        path = Path(spec.origin or "") if spec else Path()
        return [(f"{top}.py", path.read_bytes())] if path.suffix == ".py" else []
    return [
        (f"{top}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        for folder in map(Path, spec.submodule_search_locations)
        for path in sorted(folder.rglob("*.py"))
    ]


def look_in_folders() -> None:
    """Let Python find the driver's modules, which may have been in its current directory."""
    _look_in(*os.environ.get(_FOLDERS, "").split(os.pathsep))


def note_folder(module: ModuleType) -> None:
    """Let tasks find a module where it was found here: they work in folders of their own."""
    # A notebook's own module has none.
    if (file := getattr(module, "__file__", None)) is not None:
        path = Path(file).absolute()
        depth = module.__name__.count(".") + (path.stem == "__init__")
        _add(_FOLDERS, str(path.parents[depth]), os.pathsep)


def _look_in(*folders: str) -> None:
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]


def _add(variable: str, value: str, separator: str) -> None:
    known = list(filter(None, os.environ.get(variable, "").split(separator)))
    if value not in known:
        os.environ[variable] = separator.join([*known, value])
