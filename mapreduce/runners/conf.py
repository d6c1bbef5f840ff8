"""Reads ``mrjob.conf`` for our runners, and says what is wrong with their sections.

mrjob passes over an option that it does not know with a line in its log, and lets a value of a
wrong type fail wherever it is used.
"""

from typing import Any

import mrjob.options
from mrjob.conf import ClearedValue

from mapreduce.errors import MissingInputError, UsageError
from mapreduce.hints import did_you_mean
from mapreduce.runners import registry

_COMBINED_AS_MAPPING = {"combine_dicts", "combine_envs", "combine_jobconfs"}


def load(theirs: Any, runner: Any, conf_paths: list[str] | None) -> list[tuple[Any, Any]]:
    """The runner's options in each of the files.

    Parameters
    ----------
    theirs : callable
        mrjob's function, which finds and reads the files.
    runner : type
        The class of the runner.
    conf_paths : list of str or None
        None: where mrjob looks by itself.

    Returns
    -------
    list of (str or None, dict)

    Raises
    ------
    MissingInputError
        A file does not exist or cannot be read.
    UsageError
        A file is no mrjob.conf, or has an unknown option or a wrong value.
    """
    named = ", ".join(conf_paths or ()) or "mrjob.conf"
    try:
        found: list[tuple[Any, Any]] = theirs(runner.alias, conf_paths)
    except OSError as error:
        path = error.filename or named
        raise MissingInputError(
            f"cannot read the configuration {path}: {error.strerror or error}. --no-conf runs "
            f"without one"
        ) from error
    except Exception as error:
        # PyYAML's errors, and what mrjob does with a file that holds no mapping.
        raise UsageError(
            f"{named} is no configuration of mrjob: {error}. Expected runners: {runner.alias}: "
            f"option: value"
        ) from error
    for path, options in found:
        _check(runner, path, options)
    return found


def _check(runner: Any, path: str, options: Any) -> None:
    where = f"{path}: runners: {runner.alias}"
    if not isinstance(options, dict):
        raise UsageError(f"{where}: expected options and their values, found {options!r}")
    known = runner.OPT_NAMES | mrjob.options._deprecated_aliases(runner.OPT_NAMES).keys()
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(str(name), known, "'{}'") or f" It has {', '.join(sorted(known))}"
            raise UsageError(f"{where}: {name}: the runner has no such option.{hint}")
        if isinstance(value, ClearedValue):
            value = value.value
        expected = _expected(name)
        if value is not None and expected and not _is(value, expected):
            raise UsageError(f"{where}: {name}: expected {expected}, found {value!r}")


def _expected(name: str) -> str:
    """What the value of an option must be; empty for names of other times."""
    option = mrjob.options._RUNNER_OPTS.get(name, {})
    switches = [settings for _, settings in option.get("switches") or ()]
    combiner = getattr(option.get("combiner"), "__name__", "")
    if combiner in _COMBINED_AS_MAPPING:
        return "a mapping"
    if combiner and combiner != "combine_paths":
        return "text or a list"
    if name.startswith("cleanup") or name == "subnet":
        return "text or a list"
    if name.endswith("_bid_price"):
        return "text or a number"
    for settings in switches:
        if settings.get("choices"):
            return f"one of {', '.join(settings['choices'])}"
        if str(settings.get("action")).startswith("store_"):
            return "true or false"
        if settings.get("type") is int:
            # Ours say how much of something; of mrjob's, some may be none.
            return "a positive number" if name in registry.OPTIONS else "a whole number"
        if settings.get("type") is float:
            return "a number"
        if isinstance(settings.get("action"), type):
            # mrjob reads it in a way of its own.
            return ""
    return "text" if switches else ""


def _is(value: Any, expected: str) -> bool:
    if expected.startswith("one of "):
        return value in expected.removeprefix("one of ").split(", ")
    if expected == "a positive number":
        return type(value) is int and value > 0
    if isinstance(value, bool):
        return expected == "true or false"
    types = {
        "a mapping": dict,
        "a number": int | float,
        "a whole number": int,
        "text": str,
        "text or a list": str | list,
        "text or a number": str | int | float,
        "true or false": bool,
    }
    return isinstance(value, types[expected])
