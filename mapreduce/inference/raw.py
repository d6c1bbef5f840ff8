"""Files of tables for a trained model: made into features by the recipe of its training data."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.data import copying, importer
from mapreduce.data.batch import Array, Batch
from mapreduce.data.readers import opening
from mapreduce.data.readers.reading import Reading
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.errors import UsageError
from mapreduce.inference.base import in_batches
from mapreduce.inference.request import Request
from mapreduce.support import unfinished
from mapreduce.support.threads import ordered_map
from mapreduce.tables import shuffle


@contextlib.contextmanager
def imported(request: Request, *, labelled: bool, scores: bool = False) -> Iterator[Request]:
    """The same request of a dataset, which a file becomes in a temporary folder.

    Only a ``labelled`` file must have labels; else they are not read. For ``scores`` alone the
    dataset may have logits for features, which take less space: its model is one of logits then.

    Raises what :meth:`Request.of_dataset` raises.
    """
    if not request.data.is_file():
        refuse(request.data, request.reading)
        yield request.of_dataset(request.data, labelled=labelled)
        return
    with request.scratch() as folder:
        of_logits = scores and not is_read_there(request) and request.device == "cpu"
        of_logits = of_logits and request.fitted.about.of_logits() is not None
        make(request, folder, labelled=labelled, of_logits=of_logits)
        yield request.of_dataset(folder, labelled=labelled, of_logits=of_logits)


def refuse(data: AnyPath, given: Mapping[str, Any], what: str = "files of tables") -> None:
    """Raise a UsageError for options that are for files only."""
    for name, value in given.items():
        if value not in (None, (), ""):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is for {what}; {data} is not one")


def is_read_there(request: Request) -> bool:
    """Whether tasks on other machines are to read the data, and not this process."""
    return isinstance(request.data, RemotePath) and not request.execution.traits.is_here


def recipe_of(request: Request, *, come_here: bool = True) -> FittedRecipe:
    """The recipe by which a file is read; see :func:`mapreduce.support.unfinished.files_of`."""
    data, fitted = request.data, request.fitted
    unfinished.files_of([data], come_here=come_here)
    if fitted.recipe is None:
        raise UsageError(
            f"{data} is a file, and {fitted.path} was not trained on a table that was imported "
            f"from one: name the folder of a dataset"
        )
    return fitted.recipe


def make(request: Request, out: AnyPath, *, labelled: bool, of_logits: bool = False) -> None:
    """Import a file of a table by the recipe of a model; see :func:`imported`."""
    data = request.data
    is_there = is_read_there(request) and isinstance(out, RemotePath)
    recipe = recipe_of(request, come_here=not is_there)
    asked = {**request.reading, "labelled": None if labelled else False}
    kind, wanted = opening.request([data], asked, recipe)
    classes = request.fitted.data.classes or None
    if is_there:
        reading = Reading(opening.open_table([data], kind, wanted, recipe), wanted, recipe)
        shuffle.import_table(reading, out, 0, request.execution, classes)
        remarks = reading.remarks
    else:
        source = opening.table([data], kind, wanted, recipe)
        if of_logits:
            source = _scored(request, source)
        with copying.made_here(out) as made:
            importer.import_rows(source, made, 0, classes)
        remarks = source.remarks
    for message in remarks:
        request.warn(message)


def _scored(request: Request, source: importer.Source) -> importer.Source:
    """The rows of a file, with a model's logits in the place of features."""
    fitted, own = request.fitted, threading.local()
    finish = source.finish
    assert finish is not None, "it has a recipe"
    finished = finish()

    def logits(batch: Batch) -> dict[str, Array]:
        if not hasattr(own, "estimator"):
            own.estimator = fitted.estimator(request.device)
        return {"logits": own.estimator.logits(batch).copy()}

    def scored(rows: importer.Rows) -> importer.Rows:
        found = in_batches(logits, rows, finished, request.data.name)
        return replace(rows, features=found["logits"])

    def chunks() -> Iterator[importer.Rows]:
        blocks = (rows for rows in source.chunks if rows.numbers is not None and len(rows.numbers))
        yield from ordered_map(scored, blocks)
        # What a user should know is known now.
        finish()

    shape = (len(fitted.data.classes) or 1,)
    return replace(source, chunks=chunks(), shape=shape, finish=None)
