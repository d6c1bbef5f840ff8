"""Files of tables, by the names of the files and the options that a user gives."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.data.readers import READERS, SUFFIXES, TABLES, csv, parquet, suffix
from mapreduce.data.readers.table import Table
from mapreduce.data.recipes.recipe import Recipe, Rule, load
from mapreduce.errors import UsageError

if TYPE_CHECKING:
    from mapreduce.data.importer import Source
    from mapreduce.data.manifest import Manifest
    from mapreduce.data.recipes.fitted import FittedRecipe


def format_of(paths: Sequence[AnyPath]) -> str:
    """The format that the names of files show.

    Raises UsageError (they show none, or several).
    """
    found = {path: suffix(path.name) for path in paths}
    formats = {SUFFIXES.get(end) for end in found.values()}
    if len(formats) == 1 and None not in formats:
        return str(formats.pop())
    wrong = next((path for path, end in found.items() if end not in SUFFIXES), paths[0])
    raise UsageError(
        f"{wrong}: its name does not show its format. Say which: --format {READERS.known}"
    )


def is_table(path: object) -> bool:
    """Whether the name of a path shows a table's format."""
    return isinstance(path, Path | RemotePath) and SUFFIXES.get(suffix(path.name)) in TABLES


def recipe_of(
    given: Mapping[str, Any], paths: Sequence[AnyPath], like: "FittedRecipe | None" = None
) -> Recipe:
    """The recipe that options ask for.

    ``given``: Fields of :class:`mapreduce.data.recipes.recipe.Recipe`, None where nothing is given;
    ``recipe``, the path of a TOML file; ``number``, ``category`` and ``text``, names of columns of
    that kind; and ``date_format``, strings ``NAME=FORMAT``. ``like``: The recipe of the training
    data, from which comes what is not given.

    Raises UsageError, DataError, MissingInputError (the options or the file make no sense, or
    contradict each other).
    """
    base = like.recipe if like else Recipe()
    if said := given.get("recipe"):
        base = Recipe.parse(said) if isinstance(said, Mapping) else load(said)
    names = {field.name for field in fields(Recipe)} - {"columns"}
    changes = {n: v for n, v in given.items() if n in names and v is not None and v != ()}
    if changes.get("labelled") is False:
        changes |= {"label": None, "task": None}
    if not base.labelled and ("label" in changes or "task" in changes):
        changes["labelled"] = True
    if changes.get("delimiter") == r"\t":
        changes["delimiter"] = "\t"
    if "delimiter" not in changes and all(suffix(path.name) == ".tsv" for path in paths):
        changes["delimiter"] = "\t"
    rules = dict(base.columns)
    for kind in ("number", "category", "text"):
        for name in given.get(kind) or ():
            rules[name] = replace(rules.get(name, Rule()), kind=kind)
    for spec in given.get("date_format") or ():
        name, _, form = spec.rpartition("=")
        if not name:
            raise UsageError(f"--date-format {spec}: expected NAME=FORMAT")
        rules[name] = replace(rules.get(name, Rule()), kind="date", format=form)
    return replace(base, **changes, columns=rules)


def fitted_of(folder: AnyPath, manifest: "Manifest") -> "FittedRecipe | None":
    """The recipe of a dataset; None if it was not made of a table.

    Raises DataError, MissingInputError (it is damaged or gone).
    """
    from mapreduce.data.manifest import read_listed
    from mapreduce.data.recipes import fitted

    if manifest.recipe is None:
        return None
    path = folder / manifest.recipe.file
    content = read_listed(path, manifest.recipe.sha256, "Import the data again")
    return fitted.load(content, str(path))


def open_table(
    paths: Sequence[AnyPath], kind: str, recipe: Recipe, like: "FittedRecipe | None" = None
) -> Table:
    """Open files of a table; see :func:`mapreduce.data.readers.csv.source`."""
    return csv.table(paths, recipe, like) if kind == "csv" else parquet.ParquetTable(paths)


def table(
    paths: Sequence[AnyPath], kind: str, recipe: Recipe, like: "FittedRecipe | None" = None
) -> "Source":
    """The rows of files of a table; see :func:`mapreduce.data.readers.csv.source`."""
    source: Source = READERS.load(kind)(paths, recipe=recipe, like=like)
    return source
