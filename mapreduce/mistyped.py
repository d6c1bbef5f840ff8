"""Methods whose names are nearly those of a step, which mrjob passes over in silence."""

import difflib
import dis
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import CodeType

from mapreduce.job import Job

from mrjob.job import MRJob  # isort: skip
from mrjob.step import _JOB_STEP_FUNC_PARAMS  # isort: skip

_KNOWN = {*_JOB_STEP_FUNC_PARAMS, "mapper_batch", "reducer_batch", "steps"}

#: What others call them.
_WORDS = {
    **{"map": "mapper", "reduce": "reducer", "combine": "combiner"},
    **{"setup": "init", "start": "init", "begin": "init"},
    **{"finish": "final", "finalize": "final", "end": "final", "cleanup": "final"},
}

#: Likeness from which on a name is taken for a mistyped one.
_ALIKE = 0.85


def mistyped(job_class: type[MRJob]) -> list[str]:
    """Sentences about methods that nobody calls, and whose names are nearly those that mrjob does.

    A method whose name is mentioned by other code of the class or of its module is a helper.
    """
    kinds = [kind for kind in job_class.__mro__ if kind not in (*Job.__mro__, MRJob)]
    defined = {name: value for kind in reversed(kinds) for name, value in vars(kind).items()}
    methods = {name: value for name, value in defined.items() if inspect.isfunction(value)}
    found = {
        name: meant
        for name in sorted(methods.keys() - dir(Job))
        if (meant := _meant(name, _KNOWN - defined.keys(), "steps" in defined))
    }
    if not found:
        return []
    modules = [sys.modules.get(kind.__module__) for kind in kinds]
    holders = [*kinds, *(module for module in modules if module)]
    mentioned = {name for holder in holders for name in _mentioned(vars(holder).values())}
    aliases = [value for name, value in defined.items() if name not in found]
    return [
        f"{job_class.__name__}.{name} is never called: mrjob knows no method of this name. Did you "
        f"mean {meant}?"
        for name, meant in found.items()
        if name not in mentioned and methods[name] not in aliases
    ]


def _meant(name: str, known: set[str], has_steps: bool) -> str:
    words = [_WORDS.get(word, word) for word in name.lower().strip("_").split("_")]
    for meant in ("_".join(words), "_".join(reversed(words))):
        if meant in known:
            return meant
    # With steps() names are the user's own, such as mapper_2.
    close = [] if has_steps else difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return close[0] if close else ""


def _mentioned(values: Iterable[object]) -> Iterator[str]:
    """What functions take as attributes, and their texts: those of getattr are among them."""
    for value in values:
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        value = value.fget if isinstance(value, property) else value
        if inspect.isfunction(value):
            yield from _named_in(inspect.unwrap(value).__code__)


def _named_in(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        argument = instruction.argval
        if isinstance(argument, CodeType):
            yield from _named_in(argument)
        elif isinstance(argument, str) and "GLOBAL" not in instruction.opname:
            yield argument
