"""``mapreduce.compare``: the comparison of several models for Python."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.comparing import driver
from mapreduce.comparing.models import split
from mapreduce.comparing.results import Comparison
from mapreduce.data.readers import memory
from mapreduce.errors import UsageError
from mapreduce.runs import flags
from mapreduce.support import options, unfinished
from mapreduce.support.printable import echo
from mapreduce.support.spelling import in_python, in_words_of_python
from mapreduce.training.api.calls import (
    COLUMNS,
    KEYWORDS,
    PATHS,
    absolute_path,
    checked_options,
    quiet_mrjob,
    take_recipe,
)
from mapreduce.training.api.data import as_file
from mapreduce.training.api.run import new_folder

_TABLES = (
    tuple(row for row in flags.EXECUTION if row.name not in ("keep", "trace")),
    flags.RUNNER,
    (flags.PROFILE,),
)
_KEYWORDS = KEYWORDS | {"models", "folds", "group"}


@in_words_of_python(_KEYWORDS)
def compare(
    data: Any,
    *,
    label: str | None = None,
    models: str | Iterable[str] = (),
    folds: int = 5,
    seed: int = 0,
    group: str | None = None,
    run: str | os.PathLike[str] | RemotePath | None = None,
    id: str | None = None,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    progress: bool = True,
    **options_: Any,
) -> Comparison:
    """Compare models on a table by cross-validation, as ``gradreduce compare`` does.

    Parameters
    ----------
    data : table, or path or paths of files of one, or of folders of files
        A ``pyarrow.Table``, or a data frame that Arrow reads, such as one of pandas or Polars.
    label : str, optional
        The column of labels. Default: ``label``.
    models : str or iterable of str, optional
        Models, named as for :func:`mapreduce.train`. Default: some models that suit the labels.
    folds : int
        Number of folds, from 2 to 1,000. The content of a row, or its ``id``, decides its fold.
    seed : int
        Seed of the folds, and of models with random numbers.
    group : str, optional
        A column; rows with the same value are in the same fold.
    run : path, optional
        Folder of the comparison. If the folder exists, the comparison continues. Default: a new
        folder in ``runs``, whose path is printed.
    id : str, optional
        A column that identifies each row, and decides the row's fold.
    recipe : path or mapping, optional
        What the columns become, as for :func:`mapreduce.train`.
    progress : bool
        False shows warnings only.
    options
        Options of a recipe, such as ``drop`` and ``missing``, and of the execution, such as
        ``workers``.

    Returns
    -------
    Comparison
        ``table`` has a row for each model, ``best`` is the name of the best model.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = pa.table({"x": [*range(40)], "y": [*("no", "yes") * 20]})
    >>> found = compare(
    ...     rows, label="y", models=["softmax", "boosting:2"], folds=2, run=folder / "c",
    ...     progress=False,
    ... )
    >>> sorted(found.table["model"].to_pylist())
    ['boosting:2', 'softmax']
    """
    given = dict(options_)
    reading: dict[str, Any] = {"label": label, "id": id}
    if (content := take_recipe(recipe, given, COLUMNS)) is not None:
        reading["recipe"] = content
    execution = checked_options(given, *_TABLES)
    for name, value, least in (("folds", folds, 2), ("seed", seed, 0)):
        is_right = type(value) is int and least <= value < 2**63
        options.expect(is_right, f"--{name}", f"a whole number from {least} on", repr(value))
    path = new_folder("compare") if run is None else absolute_path(run)

    def say(text: str) -> None:
        if progress:
            echo(in_python(text, _KEYWORDS), err=True)

    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet_mrjob(execution.get("numeric_profile", flags.PROFILE.default)))
        if memory.is_table(data):
            files: list[AnyPath] = [stack.enter_context(as_file(memory.table(data), "the table"))]
        elif isinstance(data, PATHS) or (isinstance(data, list | tuple) and data):
            many = [data] if isinstance(data, PATHS) else data
            files = unfinished.files_of(absolute_path(each) for each in many)
        else:
            raise UsageError(
                f"data: expected a table, or the file of one, found {type(data).__name__}. Arrays "
                f"become one by pyarrow.table(columns)"
            )
        if run is None:
            say(f"comparison {path}")
        return driver.compare(
            files,
            path,
            models=split([models] if isinstance(models, str) and models else models),
            folds=folds,
            seed=seed,
            group=group,
            reading=reading,
            execution=execution,
            say=say,
            warn=lambda text: echo(f"warning: {in_python(text, _KEYWORDS)}", err=True),
        )
