"""What all calls of Python have in common: options by keyword, and errors in their words."""

import contextlib
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from hdfs_utils.paths import AnyPath, RemotePath, path_of
from mapreduce.data.readers import CSV_OPTIONS
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, GradreduceError, Interrupted, UsageError
from mapreduce.inference.flags import Extras, ReportOptions
from mapreduce.plan import flags as plan_flags
from mapreduce.runs import flags
from mapreduce.runs.events import Events, Subscriber
from mapreduce.support import blas, numeric, options
from mapreduce.support.spelling import in_python, in_words_of_python
from mapreduce.training import console

# After what makes mrjob import on Python 3.12 and later.
from mrjob.step import StepFailedException  # isort: skip


#: What :func:`train` takes, beside the options of a plan and of executions: what the columns of a
#: table become, as ``gradreduce data import`` takes it.
COLUMNS = {field.name for field in fields(Recipe)} | {"number", "category", "text"}
TABLES = (plan_flags.PLAN, flags.EXECUTION, flags.RUNNER, (flags.PROFILE,))
PLANS = {option.name for table in TABLES for option in table}
#: What stands beside predictions, and in a report.
WANTED, REPORTED = options.names(Extras), options.names(ReportOptions)
#: The options that messages name by keywords of this module.
KEYWORDS = COLUMNS | PLANS
KEYWORDS |= {*WANTED, *REPORTED, flags.DEVICE.name, "data", "date_format", "evaluation", "path"}
KEYWORDS |= {"keep", "metric", "remote_data", "run", "sampler", "sampler_seed", "take_over"}
KEYWORDS |= {"folds", "rungs", "trials", "trust", "width"}
naming_keywords = in_words_of_python(KEYWORDS)
#: How the file of a table is read, where that of the training data was read otherwise.
READING = ("drop", "na", *CSV_OPTIONS)
PATHS = (str, os.PathLike, RemotePath)


@contextlib.contextmanager
def naming_parameter(parameter: str) -> Iterator[None]:
    """Begin the errors of data with the parameter that they were given by."""
    try:
        yield
    except (DataError, UsageError) as error:
        raise type(error)(f"{parameter}: {error}") from error


def take(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take out the values of some names, where there are any."""
    return {name: given.pop(name) for name in names if name in given}


def take_reading(given: dict[str, Any], *more: str) -> dict[str, Any]:
    """Take out how the file of a table is read."""
    found = take(given, (*READING, *more))
    found = {name: value for name, value in found.items() if value is not None}
    if not found:
        return {}
    checked = Recipe.parse(found)
    return {name: getattr(checked, name) for name in found}


def take_recipe(
    recipe: Any, given: dict[str, Any], names: Collection[str] = COLUMNS - PLANS
) -> Any:
    """The path or the content of a recipe, to which keywords for columns are moved.

    ``names``: The keywords that belong to a recipe. Raises UsageError (the recipe is a file, and
    there are such keywords).
    """
    columns = take(given, sorted(given.keys() & names))
    if recipe is None and not columns:
        return None
    if recipe is None or isinstance(recipe, Mapping):
        return {**(recipe or {}), **columns}
    if columns:
        raise UsageError(f"recipe and {', '.join(columns)}: expected all options in the file")
    return path_of(str(recipe))


def texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """One text or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def checked_options(
    given: Mapping[str, Any], *tables: tuple[options.Option, ...]
) -> dict[str, Any]:
    """Options given by keyword, and arguments for mrjob."""
    rest = {name: value for name, value in given.items() if name != "mrjob_arguments"}
    return {
        **options.checked(rest, *tables),
        "mrjob_arguments": given.get("mrjob_arguments", ()),
    }


def absolute_path(place: Any) -> AnyPath:
    if not isinstance(place, PATHS):
        raise UsageError(f"expected a path, found {place!r:.60}")
    found = place if isinstance(place, RemotePath) else path_of(os.fspath(place))
    return found.absolute()


def pinned(profile: str) -> contextlib.AbstractContextManager[None]:
    """Refuse another numeric profile; BLAS computes in one thread, and then as before."""
    if profile != "native" and not numeric.is_set(variables := numeric.environment(profile)):
        shown = " ".join(f"{name}={value}" for name, value in variables.items())
        raise UsageError(f"numeric_profile={profile!r}: start Python with {shown}")
    return blas.in_one_thread()


@contextlib.contextmanager
def quiet_mrjob(profile: str) -> Iterator[None]:
    """Silence mrjob's log, raise its errors as ours, and pin the numeric profile."""
    profile_pinned = pinned(profile)
    log = logging.getLogger("mrjob")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with profile_pinned:
            yield
    except StepFailedException as error:
        raise GradreduceError(str(error)) from error
    finally:
        # A thread that came meanwhile has found the level of this one.
        if level != logging.ERROR:
            log.setLevel(level)


@contextlib.contextmanager
def displaying(
    progress: bool, callbacks: Iterable[Subscriber], path: AnyPath
) -> Iterator[tuple[Events, console.Display]]:
    display = console.Display(not progress, lambda text: in_python(text, KEYWORDS))
    try:
        yield Events(display, *callbacks), display
    except Interrupted as error:
        again = f"mapreduce.open_run({str(path)!r}).resume()"
        error.add_note(f"The last round is saved. Continue with {again}")
        raise
    finally:
        display.close()
