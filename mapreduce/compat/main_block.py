"""What stands under ``if __name__ == "__main__"``, in a script that is imported under another name.

So its classes have a module of their own, by which they are pickled, and the program that imports
the script stays the main one.
"""

import ast
import contextlib
import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

#: What a script's calls of ``MRJob.run`` and of ``make_runner`` call instead, given class or job.
Calls = tuple[Callable[[Any], Any], Callable[[Any], Any]]

#: What a script compares in the place of ``__name__``.
NAME = "__main_name__"


class Ended(BaseException):
    """Ends a script where it runs a job, when what follows is not wanted."""


def end(one: Any) -> None:
    """End the script where it would run a job."""
    raise Ended


def code_of(source: bytes, path: str) -> CodeType:
    """The code of a script, which compares ``NAME``."""
    tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    for node in ast.walk(tree):
        for part in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if isinstance(part, ast.Name) and part.id == "__name__":
                part.id = NAME
    return compile(tree, path, "exec", dont_inherit=True)


def diverted(run: Callable[[Any], Any], make: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Have ``MRJob.run`` and ``make_runner`` call others, within which they are as ever."""
    base = importlib.import_module("mrjob.job").MRJob
    within = _with(base, {name: vars(base)[name] for name in ("run", "make_runner")})
    return _with(base, {"run": classmethod(within(run)), "make_runner": within(make)})


@contextlib.contextmanager
def _with(base: type, methods: dict[str, Any]) -> Iterator[None]:
    before = {name: vars(base)[name] for name in methods}
    try:
        for method in methods.items():
            setattr(base, *method)
        yield
    finally:
        for method in before.items():
            setattr(base, *method)
