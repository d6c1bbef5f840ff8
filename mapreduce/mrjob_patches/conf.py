"""Reads ``mrjob.conf`` for our runners, and says what is wrong with their sections.

mrjob passes over an option that it does not know with a line in its log.
"""

from typing import Any

import mrjob.options
from mrjob.conf import ClearedValue, combine_dicts, combine_envs, combine_jobconfs

from mapreduce.errors import MissingInputError, UsageError
from mapreduce.support.suggest import did_you_mean

#: How mrjob combines the values of options that are mappings.
_MAPPINGS = (combine_dicts, combine_envs, combine_jobconfs)


def load(theirs: Any, runner: Any, conf_paths: list[str] | None) -> list[tuple[Any, Any]]:
    """The runner's options in each of the files.

    Parameters
    ----------
    theirs : callable
        mrjob's function, which finds and reads the files.
    runner : type
    conf_paths : list of str or None
        None: where mrjob looks by itself.

    Raises
    ------
    MissingInputError
        A file does not exist or cannot be read.
    UsageError
        A file is not an mrjob.conf, or has an unknown option.
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
        if name not in known:
            hint = did_you_mean(str(name), known, "'{}'") or f" It has {', '.join(sorted(known))}"
            raise UsageError(f"{where}: {name}: the runner has no such option.{hint}")
        combiner = mrjob.options._RUNNER_OPTS.get(name, {}).get("combiner")
        if combiner in _MAPPINGS and not isinstance(value, dict | ClearedValue | None):
            raise UsageError(f"{where}: {name}: expected a mapping, found {value!r}")
