"""Reads ``mrjob.conf``, and says what is wrong with the runner's section.

mrjob passes over an option that it does not know with a line in its log; so it does for its own
runners here. Values of other kinds than on the command line are refused for all.
"""

from typing import Any

import mrjob.options
from mrjob.conf import ClearedValue, combine_dicts, combine_envs, combine_jobconfs

from mapreduce.errors import MissingInputError, UsageError
from mapreduce.support import traits
from mapreduce.support.suggest import did_you_mean

#: How mrjob combines the values of options that are mappings.
_MAPPINGS = (combine_dicts, combine_envs, combine_jobconfs)


def load(theirs: Any, runner: Any, conf_paths: list[str] | None) -> list[tuple[Any, Any]]:
    """The runner's options in each of the files that mrjob's own function finds and reads."""
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
        # PyYAML's errors, and those of mrjob for a file without a mapping.
        raise UsageError(
            f"{named} is not a configuration of mrjob: {error}. Expected runners: {runner.alias}: "
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
        if name not in known and traits.of(runner.alias).runner:
            hint = did_you_mean(str(name), known, "'{}'") or f" It has {', '.join(sorted(known))}"
            raise UsageError(f"{where}: {name}: the runner has no such option.{hint}")
        if not isinstance(value, ClearedValue | None):
            _check_value(f"{where}: {name}", value, mrjob.options._RUNNER_OPTS.get(name, {}))


def _check_value(where: str, value: Any, option: dict[str, Any]) -> None:
    """Raise a UsageError for a value of a kind that the command line would not give."""
    ((_, switch), *_) = option.get("switches") or [((), {})]
    expected = ""
    if option.get("combiner") in _MAPPINGS and not isinstance(value, dict):
        expected = "a mapping"
    elif option.get("combiner") is combine_envs:
        for name, text in value.items():
            if not isinstance(text, str | ClearedValue | None):
                raise UsageError(
                    f"{where}: {name}: expected a text, found {text!r}. Put it in quotes"
                )
    elif switch.get("action") == "store_true" and not isinstance(value, bool):
        expected = "true or false"
    elif kind := switch.get("type"):
        fits = isinstance(value, int if kind is int else int | float)
        expected = "" if fits and not isinstance(value, bool) else "a number, without quotes"
    elif (choices := switch.get("choices")) and value not in choices:
        expected = " or ".join(choices)
    if expected:
        raise UsageError(f"{where}: expected {expected}, found {value!r}")
