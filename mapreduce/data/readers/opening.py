"""Files of tables, by the names of the files and the options that a user gives."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.data.readers import CSV_OPTIONS, READERS, SUFFIXES, TABLES, csv, parquet, suffix
from mapreduce.data.readers.files import check_sources, is_packed
from mapreduce.data.readers.table import Table, preview
from mapreduce.data.recipes.recipe import Recipe, Rule, load
from mapreduce.errors import DataError, UsageError

if TYPE_CHECKING:
    from mapreduce.data.importer import Source
    from mapreduce.data.manifest import Manifest
    from mapreduce.data.recipes.fitted import FittedRecipe


def format_of(paths: Sequence[AnyPath], has_option: bool = False) -> str:
    """The format that the names of files show.

    ``has_option``: Whether a user can say it by ``--format``.

    Raises UsageError (they show none, or several).
    """
    found = {path: suffix(path.name) for path in paths}
    formats = {SUFFIXES.get(end) for end in found.values()}
    if len(formats) == 1 and None not in formats:
        return str(formats.pop())
    wrong = next((path for path, end in found.items() if end not in SUFFIXES), paths[0])
    advice = f"Give it a name that ends in {' or '.join(SUFFIXES)}"
    if has_option:
        advice = f"Say which: --format {READERS.known}"
    raise UsageError(f"{wrong}: the name does not show the format. {advice}")


def is_table(path: AnyPath) -> bool:
    """Whether a path is the file of a table.

    Raises MissingInputError (the name is that of a table's file, which does not exist).
    """
    if SUFFIXES.get(suffix(path.name)) not in TABLES:
        return False
    with storage_errors("read", path):
        if path.is_dir():
            return False
        check_sources([path], "the file of a table")
        return path.is_file()


def is_sparse(path: object) -> bool:
    """Whether the name of a path shows libsvm's format."""
    return isinstance(path, Path | RemotePath) and SUFFIXES.get(suffix(path.name)) == "libsvm"


def is_cut(path: AnyPath) -> bool:
    """Whether a file can be read from any block on: CSV that is not gzipped."""
    return SUFFIXES.get(suffix(path.name)) == "csv" and not is_packed(path)


def recipe_of(
    given: Mapping[str, Any], paths: Sequence[AnyPath], like: "FittedRecipe | None" = None
) -> Recipe:
    """The recipe that options ask for.

    ``given``: Fields of :class:`mapreduce.data.recipes.recipe.Recipe`, None where nothing is given;
    ``recipe``, the path of a TOML file; ``number``, ``category`` and ``text``, names of columns of
    that kind; and ``date_format``, strings ``NAME=FORMAT``. An empty ``id`` is none. ``like``: The
    recipe of the training data, from which comes what is not given.

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
    if changes.get("id") == "":
        changes["id"] = None
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


def request(
    paths: Sequence[AnyPath],
    given: Mapping[str, Any],
    like: "FittedRecipe | None" = None,
    kind: str | None = None,
) -> tuple[str, Recipe]:
    """The format of a table's files, by their names if nobody says it, and what is asked of them.

    ``given`` and ``like`` are for :func:`recipe_of`. Raises UsageError (the format is no table's,
    or takes no such option), and what that raises.
    """
    kind = kind or format_of(paths, has_option=like is None)
    if kind not in TABLES:
        raise UsageError(
            f"{paths[0]}: expected a table, {' or '.join(TABLES)}, found {kind}. Data of other "
            f"formats become datasets: gradreduce data import"
        )
    for name in CSV_OPTIONS:
        if kind != "csv" and given.get(name) is not None:
            raise UsageError(f"--{name} is for csv, not for {kind}")
    return kind, recipe_of(given, paths, like)


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
    return fitted.load(content, path)


def open_table(
    paths: Sequence[AnyPath],
    kind: str,
    recipe: Recipe,
    like: "FittedRecipe | None" = None,
    known: Sequence[str] = (),
) -> Table:
    """Open files of a table; see :func:`rows_of`. ``known``: More columns that somebody names."""
    if kind == "parquet":
        return parquet.ParquetTable(paths)
    names = [column.name for column in like.columns] if like else []
    found = csv.CsvTable(paths, recipe, [*known, *names])
    if not found.has_rows:
        raise DataError(f"{paths[0]} has no rows after its header, {preview(found.names)}")
    return found


def rows_of(
    kind: str,
    paths: Sequence[AnyPath],
    *,
    recipe: Recipe | None = None,
    like: "FittedRecipe | None" = None,
) -> "Source":
    """Rows of one or more files of the same columns: of CSV, gzipped or not, or of Parquet.

    The first line of a CSV file is a header if none of its fields is a number. If some or all are,
    the columns that the recipe names, or a model's, decide: one of the fields says that it is a
    header, the number of a column that it is a row. If nothing is said, numbers alone are a row,
    but for those from 0 on, one after the other, or from 1 on in four columns or more, and years,
    which may be either. Without a header, columns are named by their numbers from 1 on.

    Features are columns of numbers, texts, dates and booleans, or one column of lists of numbers,
    which are taken as they are.

    ``recipe``: What is to become of the columns. ``like``: The recipe of a dataset that a model was
    trained on.

    Raises UsageError (no files, no such column, or a first line that may be a header or a row),
    DataError (a file is damaged, the files' columns differ, or two have one name. While the rows
    are read: a row has too few or too many fields, or a field cannot be used; the message names
    file, row and column).
    """
    # These need more than tables themselves do, which batches read, too.
    from mapreduce.data.readers import lists, reading
    from mapreduce.data.readers.roles import fit_names

    recipe = recipe or Recipe()
    found = open_table(paths, kind, recipe, like)
    recipe = fit_names(found, recipe, like)
    of_lists = lists.source(found, recipe) if like is None else None
    return of_lists or reading.Reading(found, recipe, like).source


csv_source, parquet_source = partial(rows_of, "csv"), partial(rows_of, "parquet")


def table(
    paths: Sequence[AnyPath], kind: str, recipe: Recipe, like: "FittedRecipe | None" = None
) -> "Source":
    """The rows of files of a table; see :func:`rows_of`."""
    return cast("Source", READERS.load(kind)(paths, recipe=recipe, like=like))
