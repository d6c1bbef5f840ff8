"""Makes mrjob 0.7.4 import on Python 3.12 and later.

mrjob imports ``distutils`` (gone from 3.12) and ``pipes`` (gone from 3.13) for three functions.
:func:`install` puts a finder at the end of ``sys.meta_path`` that supplies them, so that a standard
library or a setuptools that still has those modules is never shadowed, and mrjob is not changed.

As a program, ``python -m mapreduce.compat SCRIPT [ARGUMENT...]`` runs an unmodified script with the
finder in place. A task of one of its classes is run by :mod:`mapreduce.job.__main__`.
"""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import sys
import urllib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import count
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from mapreduce.compat import main_block
from mapreduce.errors import GradreduceError
from mapreduce.support import own


class LooseVersion(list[int | str]):
    """The numbers and words of a version, to be compared: what mrjob needs of ``distutils``."""

    def __init__(self, vstring: str) -> None:
        parts = re.split(r"(\d+|[a-z]+|\.)", vstring)
        kept = (part for part in parts if part and part != ".")
        super().__init__(int(part) if part.isdecimal() else part for part in kept)


_MODULES: dict[str, dict[str, object]] = {
    "pipes": {"quote": shlex.quote},
    "distutils": {"__path__": []},
    "distutils.spawn": {"find_executable": shutil.which},
    "distutils.version": {"LooseVersion": LooseVersion},
}

#: Modules that mrjob imports and few jobs need, which together take longer to load than mrjob; and
#: the functions that it takes from them at once.
_RARE = {
    "hashlib": (),
    "urllib.request": ("pathname2url", "urlopen"),
    "yaml": (),
}


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in _scripts:
            # In a process that a job has started.
            own.prefer(Path(_scripts[fullname]).resolve())
            found: importlib.machinery.ModuleSpec = _spec_of(fullname)
            return found
        if fullname not in _MODULES:
            return None
        loader: Any = self
        return importlib.util.spec_from_loader(fullname, loader)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_MODULES[module.__name__])


def install() -> None:
    """Supply the missing modules and import mrjob; calling it again changes nothing.

    An installed setuptools puts its own ``distutils`` in that place, which takes longer to load
    than all of mrjob. Ours replace it while mrjob is imported; later imports find the usual ones.
    """
    supply()
    if "mrjob.compat" in sys.modules:
        return
    given = {name: found for name, found in _MODULES.items() if name.startswith("distutils")}
    given |= {name: _later(name, *called) for name, called in _RARE.items()}
    names = [name for name in given if name not in sys.modules]
    for name in names:
        if name in _RARE and not find_spec(name):
            continue
        module = sys.modules[name] = ModuleType(name)
        vars(module).update(given[name])
    try:
        for name in ("mrjob.util", "mrjob.compat", "mrjob.job"):
            importlib.import_module(name)
    finally:
        for name in names:
            sys.modules.pop(name, None)
    # Scripts have got by with "import urllib", since mrjob imports the rest.
    vars(urllib).setdefault("__getattr__", _part_of_urllib)


def _later(name: str, *called: str) -> dict[str, Any]:
    """What a module has that imports another one when it is first asked for a name of it.

    ``called``: Functions that are taken from it at once.
    """

    def found(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(name), attribute)

    def caller(function: str) -> Callable[..., Any]:
        return lambda *given, **options: found(function)(*given, **options)

    return {"__getattr__": found, **{function: caller(function) for function in called}}


def _part_of_urllib(name: str) -> ModuleType:
    if name not in ("request", "response", "error"):
        raise AttributeError(f"module 'urllib' has no attribute {name!r}")
    return importlib.import_module(f"urllib.{name}")


def supply() -> None:
    """Supply the missing modules alone, which loads nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def run_script(arguments: Sequence[str]) -> None:
    """Run a script as ``python SCRIPT [ARGUMENT...]`` would, with the modules supplied."""
    install()
    script = arguments[0]
    sys.argv[:] = arguments
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


#: Prefix of the names of modules that :func:`import_script` makes.
SCRIPT_PREFIX = "__job__"


class _ScriptLoader(importlib.machinery.SourceFileLoader):
    """A loader that uses no ``__pycache__`` beside a script, as running it uses none."""

    #: Those of the main program; another one ends if it runs a job nevertheless.
    calls: main_block.Calls | None = None

    def get_code(self, fullname: str) -> CodeType:
        return main_block.code_of(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[main_block.NAME] = "__main__" if self.calls else module.__name__
        calls = self.calls or (main_block.end, main_block.end)
        with main_block.diverted(*calls), contextlib.suppress(main_block.Ended):
            super().exec_module(module)


#: By which call of ``run()`` a script has run a class of its own: ``@2`` for the second.
_runs: "WeakKeyDictionary[type, str]" = WeakKeyDictionary()


def import_script(script: Path, calls: main_block.Calls | None = None) -> ModuleType:
    """Import a script as a module, under a name that no other module has.

    The script's folder comes first on ``sys.path``, as if the script had been started. Code for
    ``__name__ == "__main__"`` is run only with ``calls``.
    """
    script = script.absolute()
    name = SCRIPT_PREFIX + re.sub(r"\W", "_", script.stem)
    know({name: str(script)})
    _tell_children()
    own.prefer(script.resolve())
    folder = str(script.resolve().parent)
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    number = count(1)

    def run(job_class: type) -> None:
        if calls:
            _runs[job_class] = f"@{next(number)}" if job_class.__module__ == name else ""
            calls[0](job_class)

    spec = _spec_of(name)
    spec.loader.calls = calls and (run, calls[1])
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def task_name(job_class: type) -> str:
    """How a task is told of its class, for :func:`run_task`."""
    return job_class.__qualname__ + _runs.get(job_class, "")


def run_task(name: str, script: Path, work: Callable[[Any], object]) -> None:
    """Do a task's work, given its class: where the script calls ``run()``, if the driver did so.

    What the script prints before goes to standard error, and what follows the call is left out.
    Raises what the work or the script raises, and GradreduceError (the script ended earlier).
    """
    if "@" not in name:
        work(attrgetter(name)(import_script(script)))
        return
    stdout, left = sys.stdout, None
    outcome: list[BaseException | None] = []

    def run(job_class: type) -> None:
        if task_name(job_class) == name:
            # Forks would write it, too.
            sys.stdout.flush()
            try:
                with contextlib.redirect_stdout(stdout):
                    work(job_class)
                outcome.append(None)
            except BaseException as error:
                # It is not for the script, which might pass over it.
                outcome.append(error)
            raise main_block.Ended

    try:
        # A script may wrap it, and close it so.
        with os.fdopen(2, "w", closefd=False) as aside, contextlib.redirect_stdout(aside):
            import_script(script, (run, main_block.end))
    except BaseException as error:
        if not outcome and not isinstance(error, SystemExit):
            raise
        left = error
    if not outcome:
        raise GradreduceError(
            f"{script.name} ended in a task before it called {name.partition('@')[0]}.run(). What "
            f"stands before this call runs in each task, too, whose arguments are {sys.argv[1:]}"
        ) from left
    if outcome[0] is not None:
        raise outcome[0]


def _spec_of(name: str) -> Any:
    loader = _ScriptLoader(name, _scripts[name])
    return importlib.util.spec_from_file_location(name, _scripts[name], loader=loader)


#: Where the modules are that :func:`import_script` has made, by their names.
_scripts: dict[str, str] = {}


def know(scripts: dict[str, str]) -> None:
    """Let modules of scripts be imported by their names."""
    supply()
    _scripts.update(scripts)


class _Scripts:
    """Tells the process that unpickles it of the scripts of this one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return know, (_scripts,)


def _tell_children() -> None:
    """Have processes that a job starts anew, by *spawn*, import what it pickles by name."""
    from multiprocessing import spawn

    theirs = spawn.get_preparation_data
    if theirs.__module__ == __name__:
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"scripts": _Scripts(), **theirs(name)}

    spawn.get_preparation_data = get_preparation_data
