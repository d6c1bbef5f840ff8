"""Methods whose names are nearly those of a step, which mrjob passes over in silence."""

import difflib
import dis
import inspect
import re
import sys
from collections.abc import Iterator
from types import CodeType

from mapreduce.job import Job

from mrjob.job import MRJob  # isort: skip
from mrjob.step import _JOB_STEP_FUNC_PARAMS  # isort: skip

_KNOWN = {*_JOB_STEP_FUNC_PARAMS, "mapper_batch", "reducer_batch", "steps"}

#: What others call them.
_WORDS = {
    **{"map": "mapper", "reduce": "reducer", "combine": "combiner"},
    **{"setup": "init", "start": "init", "finish": "final", "end": "final", "cleanup": "final"},
}

#: Likeness from which on a name is taken for a mistyped one.
_ALIKE = 0.85


def mistyped(job_class: type[MRJob]) -> list[str]:
    """Sentences about methods that nobody calls, and whose names are nearly those that mrjob does.

    A method whose name is mentioned by other code of the class or of its module is a helper.
    """
    kinds = [kind for kind in job_class.__mro__ if kind not in Job.__mro__]
    defined = {name: value for kind in reversed(kinds) for name, value in vars(kind).items()}
    known = _KNOWN - defined.keys()
    found = {
        name: meant
        for name, value in sorted(defined.items())
        if inspect.isfunction(value)
        and not hasattr(Job, name)
        and (meant := _meant(name, known, "steps" in defined))
        and sum(other is value for other in defined.values()) == 1
    }
    if not found:
        return []
    modules = [sys.modules[kind.__module__] for kind in kinds if kind.__module__ in sys.modules]
    mentioned = {
        name
        for holder in (*kinds, *modules)
        for value in vars(holder).values()
        for name in _named_in(_code(value))
    }
    # Tables of names, for getattr.
    tables = (value for value in defined.values() if isinstance(value, list | tuple | dict))
    mentioned.update(name for table in tables for name in re.findall(r"'(\w+)'", repr(table)))
    return [
        f"{job_class.__name__}.{name} is never called: mrjob knows no method of this name. Did you "
        f"mean {meant}?"
        for name, meant in found.items()
        if name not in mentioned
    ]


def _meant(name: str, known: set[str], has_steps: bool) -> str:
    words = [_WORDS.get(word, word) for word in name.lower().strip("_").split("_")]
    for meant in ("_".join(words), "_".join(reversed(words))):
        if meant in known:
            return meant
    # With steps() names are the user's own, such as mapper_2.
    close = [] if has_steps else difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return close[0] if close else ""


def _code(value: object) -> object:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    value = value.fget if isinstance(value, property) else value
    return inspect.unwrap(value).__code__ if inspect.isfunction(value) else None


def _named_in(code: object) -> Iterator[str]:
    """Attributes that code takes, and its texts: those for getattr are among them."""
    for instruction in dis.get_instructions(code) if isinstance(code, CodeType) else ():
        yield from _named_in(instruction.argval)
        if isinstance(instruction.argval, str) and "GLOBAL" not in instruction.opname:
            yield instruction.argval
