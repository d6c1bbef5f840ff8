"""The plan of a job in words: which method does what, and how records are written and divided."""

import inspect
import textwrap
from pathlib import Path
from typing import Any

from mapreduce.explaining.model import Method
from mapreduce.job.tracebacks import is_own
from mapreduce.runners.parallel.partition import KeyField, Partitioning

#: Parts of a step in the order in which they run.
PARTS = [mrc + end for mrc in ("mapper", "combiner", "reducer") for end in ("_init", "", "_final")]


def text_of(item: Any) -> str:
    """The first paragraph of a docstring of its own, on one line."""
    text = inspect.cleandoc(getattr(item, "__doc__", None) or "")
    return " ".join(text.partition("\n\n")[0].split())


def methods_of(job: Any, number: int, description: dict[str, Any]) -> list[Method]:
    """The methods of a step, which runners describe so."""
    step = job._get_step(number, object)
    found = []
    for part in PARTS:
        mrc = part.partition("_")[0]
        if mrc in description and (function := step[part]):
            found.append(_method(part, function))
    return found


def _method(part: str, function: Any) -> Method:
    name = getattr(function, "__qualname__", type(function).__name__)
    if getattr(function, "__module__", "") == "mrjob.step":
        return Method(part, "(none)", "Passes records on as they are.")
    try:
        path = inspect.getsourcefile(function) or ""
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return Method(part, name, text_of(function))
    # A training's own code is no lesson on a job's.
    own = [] if is_own(path) else textwrap.dedent("".join(lines)).splitlines()
    return Method(part, name, text_of(function), f"{Path(path).name}:{first}", own, first)


def protocols_of(job: Any, number: int, description: dict[str, Any]) -> dict[str, str]:
    """How records are read and written: ``input``, ``internal`` and ``output``."""
    parts = [part for part in ("mapper", "reducer") if part in description]
    coded = [tuple(map(_name, job.pick_protocols(number, part))) for part in parts]
    # Without a mapper, the lines of the input are those between.
    internal = coded[0][1] if len(parts) == 2 else coded[0][0]
    return {"input": coded[0][0], "internal": internal, "output": coded[-1][1]}


def _name(function: Any) -> str:
    protocol = getattr(function, "__self__", None)
    name = function.__qualname__ if protocol is None else type(protocol).__name__
    return str(name).removeprefix("Standard")


def partitioner_name(how: Partitioning) -> str:
    """A partitioner in words, and a comparator."""
    if how.order:
        return f"{partitioner_name(how._replace(order=()))}, KeyFieldBasedComparator"
    if how.fields is None:
        return "HashPartitioner" + (f" of {how.key_fields} fields" if how.key_fields > 1 else "")
    # One of the whole key is what SORT_VALUES asks for.
    is_whole = how.key_fields == 1 and [*how.fields] == [KeyField(1, 1, 1, 0)]
    return "KeyFieldBasedPartitioner" + " of the key" * is_whole
