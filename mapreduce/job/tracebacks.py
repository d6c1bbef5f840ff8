"""Exceptions of a user's own code, as messages show them."""

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

import mapreduce.job  # noqa: F401  (makes mrjob import, and teaches it our runners)

import mrjob  # isort: skip
from mrjob.step import StepFailedException  # isort: skip

from hdfs_utils.errors import RequirementError
from mapreduce.errors import GradreduceError, UsageError

_OWN = (str(Path(__file__).parents[1]) + os.sep, str(Path(mrjob.__file__).parent) + os.sep)
_EXAMPLES = _OWN[1] + "examples" + os.sep

#: What mrjob calls in a task, also when it makes the job's instance.
_TASKS = ("execute", "invoke_task")


@contextlib.contextmanager
def user_errors(place: str, what: str) -> Iterator[None]:
    """Report exceptions of the user's code, which the runner ``inline`` lets through."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, StepFailedException) or hasattr(error, "exit_code"):
            raise
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        in_mrjob = [code.co_name for code in frames if code.co_filename.startswith(_OWN[1])]
        if not set(in_mrjob).intersection(_TASKS):
            if isinstance(error, ValueError | NotImplementedError):
                raise UsageError(str(error)) from error
            if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
                raise RequirementError(
                    "the runner needs pyspark, which is not installed: pip install pyspark"
                ) from error
            raise
        raise user_error(f"{place}: {what}", error) from error


def user_error(what: str, error: BaseException) -> GradreduceError:
    """An error whose message ends with the user's part of a traceback."""
    message = f"{what}: {type(error).__name__}: {error}"
    return GradreduceError("\n".join(filter(None, [message, exception_text(error, told=True)])))


def user_frames(frames: Sequence[traceback.FrameSummary]) -> Sequence[traceback.FrameSummary]:
    """Frames from the first one in the user's code on."""
    return [*dropwhile(lambda frame: is_own(frame.filename), frames)]


def exception_text(
    error: BaseException,
    part: Callable[[Sequence[Any]], Sequence[traceback.FrameSummary]] = user_frames,
    told: bool = False,
) -> str:
    """An exception, what led to it, and the parts of a group, each with a part of its frames.

    If its message is told elsewhere, it is left out; notes and the parts of a group stay.
    """
    top = traceback.TracebackException.from_exception(error)
    found: list[Any] = [top]
    for one in found:
        one.stack = traceback.StackSummary.from_list(part(one.stack)) or None
        found += filter(None, [one.__cause__, one.__context__, *(one.exceptions or ())])
    text = "".join(top.format())
    if told and not top.exceptions:
        message = next(line for line in top.format_exception_only() if line[:1] != " ")
        text = "".join(text.rpartition(message)[::2])
    return text.rstrip()


def text_of(error: BaseException) -> str:
    """The message of an exception, also of one that cannot make it."""
    try:
        return str(error)
    except Exception as another:
        return f"(its message cannot be made: {type(another).__name__})"


def is_users(error: BaseException) -> bool:
    """Whether an exception has passed through the user's code."""
    return bool(user_frames(traceback.extract_tb(error.__traceback__)))


def is_own(name: str) -> bool:
    """Whether a file is the toolkit's, mrjob's or generated."""
    if name.startswith(("<frozen", "<string>")):
        return True
    return name.startswith(_OWN) and not name.startswith(_EXAMPLES)
