"""Files of tables for a trained model: made into features by the recipe of its training data."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.data import copying, importer
from mapreduce.data.readers import opening
from mapreduce.data.readers.reading import Reading
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.errors import UsageError
from mapreduce.inference.base import scratch
from mapreduce.models.fitted import FittedModel
from mapreduce.runs.execution import Execution
from mapreduce.support import unfinished
from mapreduce.tables import shuffle


@contextlib.contextmanager
def imported(
    fitted: FittedModel,
    data: AnyPath,
    warn: Callable[[str], None],
    execution: Execution,
    *,
    labelled: bool,
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
    with scratch(fitted.folder / "data", execution.runner) as out:
        make(fitted, data, out, warn, execution, labelled, given)
        yield out


def refuse(data: AnyPath, given: Mapping[str, Any], what: str = "files of tables") -> None:
    """Raise a UsageError for options that are for files only."""
    for name, value in given.items():
        if value not in (None, (), ""):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is for {what}; {data} is not one")


def is_read_there(data: AnyPath, execution: Execution) -> bool:
    """Whether tasks on other machines are to read a file, and not this process."""
    return isinstance(data, RemotePath) and not execution.traits.is_here


def recipe_of(fitted: FittedModel, data: AnyPath, *, come_here: bool = True) -> FittedRecipe:
    """The recipe by which a file is read; see :func:`mapreduce.support.unfinished.files_of`."""
    unfinished.files_of([data], come_here=come_here)
    if fitted.recipe is None:
        raise UsageError(
            f"{data} is a file, and {fitted.path} was not trained on a table that was imported "
            f"from one: name the folder of a dataset"
        )
    return fitted.recipe


def make(
    fitted: FittedModel,
    data: AnyPath,
    out: AnyPath,
    warn: Callable[[str], None],
    execution: Execution,
    labelled: bool,
    given: Mapping[str, Any],
) -> None:
    """Import a file of a table by the recipe of a model; see :func:`imported`."""
    is_there = is_read_there(data, execution) and isinstance(out, RemotePath)
    recipe = recipe_of(fitted, data, come_here=not is_there)
    asked = {**given, "labelled": None if labelled else False}
    kind, wanted = opening.request([data], asked, recipe)
    classes = fitted.data.classes or None
    if is_there:
        reading = Reading(opening.open_table([data], kind, wanted, recipe), wanted, recipe)
        shuffle.import_table(reading, out, 0, execution, classes)
        remarks = reading.remarks
    else:
        source = opening.table([data], kind, wanted, recipe)
        with copying.made_here(out) as made:
            importer.import_rows(source, made, 0, classes)
        remarks = source.remarks
    for message in remarks:
        warn(f"{data}: {message}")
