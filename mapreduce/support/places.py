"""Where in a user's program something was written or yielded, for messages."""

import contextlib
import traceback
from pathlib import Path
from types import GeneratorType
from typing import Any


def code_of(source: Any) -> Any:
    """The code of a generator, a function or a method; None of other objects."""
    return getattr(source, "gi_code", None) or getattr(source, "__code__", None)


def place_of(source: Any, error: BaseException | None = None) -> str:
    """Where a generator yielded, a method begins, or it raised an error, as ``my_job.py:12``."""
    code = code_of(source)
    if code is None:
        return getattr(source, "__name__", type(source).__name__)
    line = getattr(getattr(source, "gi_frame", None), "f_lineno", code.co_firstlineno)
    for frame, number in traceback.walk_tb(error.__traceback__ if error else None):
        line = number if frame.f_code is code else line
    if "ipykernel" in code.co_filename:
        # The file of a notebook's cell has a number for a name.
        return f"line {line} of the cell"
    return f"{Path(code.co_filename).name}:{line}"


def raised_in(source: Any, message: str) -> TypeError:
    """A TypeError, after it was raised in a generator where that has yielded, if that is one.

    Its traceback then ends with that line, which the message begins with.
    """
    error = TypeError(f"{place_of(source)}: {message}" if code_of(source) else message)
    if type(source) is GeneratorType:
        with contextlib.suppress(Exception):
            source.throw(error)
    return error
