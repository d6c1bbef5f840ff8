"""Methods whose names are nearly those of a step, which mrjob passes over in silence."""

import inspect
import re
from weakref import WeakSet

from mrjob.job import MRJob
from mrjob.step import _JOB_STEP_FUNC_PARAMS

from mapreduce.support.places import place_of
from mapreduce.support.printable import echo

_KNOWN = {*_JOB_STEP_FUNC_PARAMS, "mapper_batch", "reducer_batch", "steps"}

#: Names of these methods in other frameworks.
_WORDS = {
    **{"map": "mapper", "reduce": "reducer", "combine": "combiner"},
    **{"setup": "init", "start": "init", "finish": "final", "end": "final", "cleanup": "final"},
}

#: Classes of which the warnings were printed.
_warned: "WeakSet[type[MRJob]]" = WeakSet()

#: Similarity from which on a name counts as mistyped.
_ALIKE = 0.85


def mistyped(job_class: type[MRJob]) -> list[str]:
    """Sentences about methods that nobody calls, and whose names are nearly those that mrjob does.

    A method whose name the source of the class mentions once more is a helper.
    """
    kinds = [kind for kind in job_class.__mro__ if not _is_base(kind)]
    base = next(filter(_is_base, job_class.__mro__))
    defined = {name: value for kind in reversed(kinds) for name, value in vars(kind).items()}
    known = _KNOWN - defined.keys()
    return [
        f"{place_of(value)}: {job_class.__name__}.{name} is never called: mrjob knows no method of "
        f"this name. Did you mean {meant}?"
        for name, value in sorted(defined.items())
        if inspect.isfunction(value) and not hasattr(base, name)
        if (meant := _meant(name, known, "steps" in defined)) and not _is_mentioned(name, kinds)
    ]


def warn_of_names(job_class: type[MRJob]) -> None:
    """Print a warning for each such method on standard error, once for a class."""
    if job_class not in _warned:
        _warned.add(job_class)
        for sentence in mistyped(job_class):
            echo(f"warning: {sentence}", err=True)


def _is_base(kind: type) -> bool:
    """Whether a class is MRJob, one that it extends, or this toolkit's Job."""
    return kind in MRJob.__mro__ or kind.__module__ == "mapreduce.job"


def _meant(name: str, known: set[str], has_steps: bool) -> str:
    words = [_WORDS.get(word, word) for word in name.lower().strip("_").split("_")]
    for meant in ("_".join(words), "_".join(reversed(words))):
        if meant in known:
            return meant
    if has_steps:
        # Names are the user's own, such as mapper_2.
        return ""
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)), "")


def _is_mentioned(name: str, kinds: list[type]) -> bool:
    for kind in kinds:
        try:
            source = inspect.getsource(kind)
        except (OSError, TypeError):
            # The class was made without one.
            continue
        if re.search(rf"(?<!def )\b{name}\b", source):
            return True
    return False
