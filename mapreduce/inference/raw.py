"""Files of tables for a trained model: made into features by the recipe of its training data."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hdfs_utils.paths import AnyPath
from mapreduce.data import copying, importer
from mapreduce.data.readers import opening
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.errors import UsageError
from mapreduce.inference.base import scratch
from mapreduce.runs.directory import RunDir
from mapreduce.support import unfinished


@contextlib.contextmanager
def imported(
    run: RunDir,
    data: AnyPath,
    warn: Callable[[str], None],
    *,
    labelled: bool,
    runner: str,
    **given: Any,
) -> Iterator[AnyPath]:
    """The dataset that a file of a table is, in a temporary folder; a dataset's folder as it is.

    ``warn`` receives what a user should know about the file. Only a ``labelled`` file must have
    labels; else they are not read. ``given`` is ``id``, ``drop``, ``na`` and how to read text
    files, as ``gradreduce data import`` takes them.
    """
    if not data.is_file():
        refuse(data, given)
        yield data
        return
    with scratch(run.path / "data", runner) as out:
        make(run, data, out, warn, labelled, given)
        yield out


def refuse(data: AnyPath, given: Mapping[str, Any]) -> None:
    """Raise a UsageError for options that are for files only."""
    for name, value in given.items():
        if value not in (None, (), ""):
            raise UsageError(f"--{name} is for files of tables; {data} is not one")


def recipe_of(run: RunDir, data: AnyPath) -> FittedRecipe:
    """The recipe by which a file is read."""
    unfinished.files_of([data])
    if run.recipe is None:
        raise UsageError(
            f"{data} is a file, and {run.path} was not trained on a table that was imported from "
            f"one: name the folder of a dataset"
        )
    return run.recipe


def make(
    run: RunDir,
    data: AnyPath,
    out: AnyPath,
    warn: Callable[[str], None],
    labelled: bool,
    given: Mapping[str, Any],
) -> None:
    """Import a file of a table by the recipe of a run; see :func:`imported`."""
    recipe = recipe_of(run, data)
    kind = opening.format_of([data])
    wanted = opening.recipe_of({**given, "labelled": None if labelled else False}, [data], recipe)
    source = opening.table([data], kind, wanted, recipe)
    with copying.made_here(out) as made:
        importer.import_rows(source, made, 0, run.config.classes or None)
    for message in source.remarks:
        warn(f"{data}: {message}")
