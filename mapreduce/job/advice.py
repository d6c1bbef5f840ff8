"""Beginners' mistakes: errors that follow from them name the line, and what to write instead."""

import atexit
import json
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mrjob.parse import is_uri
from mrjob.setup import parse_legacy_hash_path

from mapreduce.errors import MissingInputError, UsageError
from mapreduce.support import own
from mapreduce.support.commands import command
from mapreduce.support.places import code_of, place_of
from mapreduce.support.printable import echo
from mapreduce.support.suggest import missing, names_in

#: What mrjob calls a method of a step with, by the last word of its kind.
ARGUMENTS = {"mapper": ("self", "key", "value"), "init": ("self",), "final": ("self",)}
_VALUES = ("self", "key", "values")

_NO_JSON = re.compile(
    r"Object of type (\w+) is not JSON serializable|keys must be .* not (?P<key>\w+)"
)
_NO_TEXT = re.compile(r"'(\w+)' object has no attribute 'encode'")
_NO_LIST = re.compile(
    r"object of type '([\w.]+)' has no len|'([\w.]+)' object is not subscriptable"
)

#: What to write for an object that JSON has not, by its type.
_INSTEAD = {
    r"(frozen)?set": "sorted(it), a list",
    r"u?int\d+|float\d+|bool_?": "it.item(), a number of Python's",
    r"ndarray": "it.tolist()",
    r"bytes|bytearray": "it.decode(), a string",
    r"date|time|datetime": "it.isoformat(), a string",
    r"Decimal|Fraction|Path|PosixPath": "str(it)",
    r"map|filter|zip|range|generator|deque|dict_\w+|\w*[vV]alues": "list(it)",
}

#: Why a task does not find a file.
ELSEWHERE = "A task works in a folder of its own"

#: Classes of the main program of which none has been used yet.
unused: list[type] = []


def note_unused(job_class: type) -> None:
    """Have the program say at its end that a job of its own was never run, if that is so."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    # Notebooks and consoles have none.
    if script and not sys.flags.interactive:
        if not unused:
            atexit.register(_warn_of_unused, script)
        unused.append(job_class)


def _warn_of_unused(script: str) -> None:
    # A program that has failed has said so.
    if unused and not hasattr(sys, "last_value"):
        name = unused[-1].__name__
        echo(
            f"warning: {Path(script).name} defines the job {name}, and ends without running it. "
            f"Write at the end of the file:\n\nif __name__ == '__main__':\n    {name}.run()\n\n"
            f"Or run it by: {command('gradreduce', 'run', Path(script))} INPUT",
            err=True,
        )


def missing_files(job: Any) -> None:
    """Raise a MissingInputError if a file that an option of the job names does not exist."""
    for action in job.arg_parser._actions:
        if action.dest not in job._file_arg_dests:
            continue
        given = getattr(job.options, action.dest)
        for path in given if isinstance(given, list) else [given] if given else []:
            local = parse_legacy_hash_path("file", path)["path"].removeprefix("file://")
            if not is_uri(local) and not Path(local).exists():
                flag = action.option_strings[-1]
                raise MissingInputError(f"{flag}: the file {path} {missing(local, names_in)}")


def check_steps(job: Any) -> None:
    """Raise a UsageError if a job's ``steps()`` gives no list of steps, or an empty one."""
    steps = getattr(job, "_cached_steps", None) or job.steps()
    is_list = isinstance(steps, list | tuple)
    odd = [step for step in steps if not hasattr(step, "description")] if is_list else [steps]
    if steps and not odd:
        return
    if not odd and job.steps.__module__.startswith(("mrjob.", "mapreduce.")):
        name = type(job).__name__
        raise UsageError(f"the class {name} has no mapper, combiner or reducer")
    kind = type(odd[0]).__name__ if odd else "empty list"
    found = "None" if steps is None else f"{'an' if kind[0] in 'aeiouM' else 'a'} {kind}"
    raise UsageError(
        f"{place_of(job.steps).partition(':')[0]}: steps() returned "
        f"{'a list with ' * (is_list and bool(odd))}{found}; expected a list of steps: return "
        f"[MRStep(...)]"
    )


def arguments_error(error: TypeError, method: Callable[..., Any], kind: str) -> None:
    """Explain, in the place of Python's message, that a method cannot take what mrjob gives it.

    ``kind`` is ``mapper``, ``combiner`` or ``reducer``, or one of them with ``_init`` or
    ``_final``. An error that was raised within the method stays as it is.
    """
    here, code = error.__traceback__, code_of(method)
    if here is None or here.tb_next is not None or code is None:
        return
    given = code.co_varnames[: code.co_argcount]
    wanted = ARGUMENTS.get(kind.rpartition("_")[2], _VALUES)
    # The method's own names, as far as they go: a mapper's key is called _ by many.
    own = [name for name in given if name != "self"]
    names = ("self", *own) if len(own) == len(wanted) - 1 else wanted
    error.args = (
        f"{place_of(method)}: {code.co_name} takes ({', '.join(given)}), but mrjob calls a {kind} "
        f"with ({', '.join(wanted)}). Write: def {code.co_name}({', '.join(names)}):",
    )


def explain(error: BaseException, given: Any) -> None:
    """Replace Python's message for a well-known mistake by one that says what to write.

    ``given`` is the generator, or the method, whose pairs were being taken.
    """
    if isinstance(error, FileNotFoundError):
        _explain_folder(error)
    if not isinstance(error, TypeError | AttributeError) or given is None:
        return
    name = getattr(given, "__name__", "a method")
    no_text = _NO_TEXT.fullmatch(str(error))
    if found := no_text or _NO_JSON.fullmatch(str(error)):
        # That of a protocol, or of what does its work.
        frame = _frame(error, lambda code: code.co_name.startswith("write"))
        if frame is not None and {"key", "value"} <= {*frame.f_locals}:
            key, value = frame.f_locals["key"], frame.f_locals["value"]
            if no_text:
                which, item = ("value", value) if type(value).__name__ == found[1] else ("key", key)
                protocol = type(frame.f_locals.get("self")).__name__
                message = f"the {which} {item!r:.80}, and {protocol} writes texts. Write str(it)"
            else:
                message = _not_json(found, key, value)
            error.args = (f"{place_of(given)}: {name} yielded {message}",)
            # How the protocol came to it says nothing more.
            error.__traceback__ = error.__context__ = error.__cause__ = None
        return
    frame = _frame(error, lambda code: code is code_of(given))
    if frame is None or frame.f_code.co_argcount != 3:
        return
    values, place = frame.f_code.co_varnames[2], place_of(given, error)
    found = _NO_LIST.match(str(error))
    # A mapper has one value, which may be None.
    if found and hasattr(frame.f_locals.get(values), "__next__"):
        line = linecache.getline(frame.f_code.co_filename, int(re.findall(r"\d+", place)[-1]))
        if re.search(rf"\blen\(\s*{values}\s*\)|\b{values}\s*\[", line):
            error.args = (
                f"{place}: {name} asks for {'the length' if found[1] else 'one'} of its values, "
                f"{values}, which is no list: values come one after another, and may be more than "
                f"fit into memory. Read them in a loop; or, if they are few, write first: "
                f"{values} = list({values})",
            )
    elif "unhashable type: 'list'" in str(error):
        error.args = (
            f"{place}: {name} uses a list as a key, which must not change: unhashable type. A "
            f"tuple that was yielded comes back as a list, since JSON has no tuples. Write: "
            f"tuple(it)",
        )


def _explain_folder(error: FileNotFoundError) -> None:
    """Say how a file comes into a task's folder, if it lies where its author looked for it."""
    path = Path(error.filename) if isinstance(error.filename, str) else Path("/")
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    scripts = [Path(frame.f_code.co_filename).resolve().parent for frame in frames]
    folders = [Path(own.BEGINNING), Path(os.environ.get("PWD", "")), *scripts]
    place = next((folder for folder in folders if (folder / path).exists()), None)
    # A node does not know the folder where the job was started.
    if path.is_absolute() or (place is None and "CONTAINER_ID" not in os.environ):
        return
    name = Path(path.parts[0]) if len(path.parts) > 1 and ".." not in path.parts else path
    is_folder = name != path or (place is not None and (place / name).is_dir())
    option, attribute = ("--dir", "DIRS") if is_folder else ("--file", "FILES")
    is_there = place is None or place in folders[:2]
    brings = command(option, name if is_there else f"{place}/{name}")
    text = (
        f"{error}. {ELSEWHERE}{f', and {name} lies in {place}' * (place is not None)}. "
        f"{brings} brings it there{f', as {path.name}' * ('..' in path.parts)}"
        f"{f'; so does {attribute} = [{str(name)!r}] in the class of the job' * (place in scripts)}"
    )
    del error.filename, error.strerror
    error.args = (text,)


def _not_json(found: re.Match[str], key: Any, value: Any) -> str:
    kind = found[1] or found["key"]
    try:
        json.dumps(key)
        which, item = "value", value
    except (TypeError, ValueError):
        which, item = "key", key
    how = "a list of pairs: list(it.items())"
    if found[1]:
        fits = (how for types, how in _INSTEAD.items() if re.fullmatch(types, kind))
        how = next(fits, "a list or dict of its parts")
    what = f"has no {kind}" if found[1] else f"has no dict with a {kind} for a key"
    # Equal sets have several pickles, and so would be several keys.
    is_lasting = which == "value" or not re.fullmatch(r"(frozen)?set|\w*dict\w*", kind)
    advice = "; or, for pairs between steps, set INTERNAL_PROTOCOL = PickleProtocol" * is_lasting
    return (
        f"the {which} {item!r:.80}, and JSON, which pairs are written in, {what}. Expected "
        f"strings, numbers, booleans, None, lists, and dicts with strings for keys. Write {how}"
        f"{advice}"
    )


def _frame(error: BaseException, is_meant: Callable[[CodeType], bool]) -> FrameType | None:
    """The innermost frame of a traceback whose code is meant."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((frame for frame in reversed(frames) if is_meant(frame.f_code)), None)
