"""What a reducer keeps from one key to the next: in its instance, its class, or its module."""

import copy
import dis
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

import mapreduce.job  # noqa: F401  (makes mrjob import)

from mrjob.job import MRJob  # isort: skip

from mapreduce.support.places import code_of, place_of

Item = TypeVar("Item")

#: How a reducer works on keys that must not know of each other: each in an instance of its own, or
#: in the opposite order; or watched for what it keeps. Else the name of what is set anew.
FRESH, REVERSED, WATCHED = "fresh", "reversed", "watched"

#: The steps in which that is done, if it is not one of them.
EVERY_STEP = -1


def fresh_jobs(new_job: Callable[[str], Any]) -> Iterator[Any]:
    """Instances of a job that do not know of each other.

    To make one takes long: they are copies of the first, with attributes of their own.
    """
    first, plain = new_job("reducer"), vars(MRJob([]))
    while True:
        job = copy.copy(first)
        vars(job).update({name: _copy(it) for name, it in vars(first).items() if name not in plain})
        yield job


class Keeper:
    """Looks at what a reducer leaves to the next key; ``name`` is what is set anew before each."""

    def __init__(self, job: Any, method: Any, name: str) -> None:
        kinds = [kind for kind in type(job).__mro__ if kind.__module__.split(".")[0] != "mrjob"]
        spaces = [("self.", job), *((f"{kind.__name__}.", kind) for kind in kinds[:-1])]
        self._spaces: list[tuple[str, Any, Mapping[str, Any]]] = [
            (prefix, owner, vars(owner)) for prefix, owner in spaces
        ]
        self._globals = getattr(getattr(method, "__func__", method), "__globals__", {})
        self._method, self._name = method, name
        #: Names of what changed, with a line that may have done it.
        self.found: dict[str, str] = {}

    def watch(self, groups: Iterable[Item]) -> Iterator[Item]:
        """The groups of a reduce task."""
        first: dict[str, Any] = {}
        for number, group in enumerate(groups):
            before = self._values()
            if number == 0 and self._name != WATCHED:
                first = {self._name: _copy(before[self._name])} if self._name in before else {}
            elif number and self._name != WATCHED:
                self._reset(first)
            frozen = {name: _frozen(value) for name, value in before.items()}
            yield group
            for name, value in self._values().items():
                if name not in self.found and frozen.get(name) != _frozen(value):
                    self.found[name] = self._line(name.rpartition(".")[2])

    def _values(self) -> dict[str, Any]:
        """What may be kept, by its name, such as ``self.total``."""
        spaces = [*self._spaces, ("", None, self._globals)]
        return {
            prefix + name: value
            for prefix, _, space in spaces
            for name, value in space.items()
            if not name.startswith("__") and not _is_code(value)
        }

    def _reset(self, first: dict[str, Any]) -> None:
        """Give what is named the value that it had before the first key."""
        prefix, _, name = self._name.rpartition(".")
        owner = next((it for start, it, _ in self._spaces if start == f"{prefix}."), None)
        value = _copy(first.get(self._name))
        if owner is None:
            self._globals[name] = value
        elif first:
            setattr(owner, name, value)
        elif name in vars(owner):
            delattr(owner, name)

    def _line(self, name: str) -> str:
        """The line of the reducer that sets a name, or else uses it; or its first line."""
        code = code_of(self._method)
        if code is None:
            return ""
        used = [one for part in _codes(code) for one in dis.get_instructions(part)]
        used = [one for one in used if one.argval == name and one.positions]
        used.sort(key=lambda one: not one.opname.startswith("STORE"))
        lines = [one.positions.lineno for one in used if one.positions]
        file = Path(code.co_filename).name
        return f"{file}:{lines[0]}" if lines else place_of(self._method)


def _codes(code: CodeType) -> list[CodeType]:
    """A function's code, and that of the functions in it."""
    return [
        code,
        *(each for one in code.co_consts if isinstance(one, CodeType) for each in _codes(one)),
    ]


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, ModuleType | property | classmethod | staticmethod)


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        # A file, or a generator: it is shared.
        return value


def _frozen(value: Any) -> object:
    """What differs if a value has changed."""
    try:
        return pickle.dumps(value)
    except Exception:
        try:
            return repr(value)
        except Exception:
            return None
