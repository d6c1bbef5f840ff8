"""What the columns of a table are for: label, weights, id and features."""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mapreduce.data.columns import renamings
from mapreduce.data.readers.table import Table, preview
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, UsageError
from mapreduce.support.suggest import did_you_mean

if TYPE_CHECKING:
    from mapreduce.data.recipes.fitted import FittedRecipe

#: The name of a column of labels that need not be named.
DEFAULT_LABEL = "label"


class Roles(NamedTuple):
    """What the columns of a table are for, by their names."""

    label: str | None
    weights: str | None
    id: str | None
    features: tuple[str, ...]


def fit_names(table: Table, recipe: Recipe, like: "FittedRecipe | None" = None) -> Recipe:
    """Give columns the names that a model knows, and return the recipe with the table's names.

    See :func:`mapreduce.data.columns.renamings`.
    """
    if like is not None:
        features = [column.name for column in like.columns]
        wanted = {*features, *like.left_out, *_column_names(like.recipe)}
        if new := renamings({*table.names}, wanted):
            table.rename(new)
    new = {name: own for own, name in renamings({*table.names}, {*_column_names(recipe)}).items()}
    if not new:
        return recipe
    label, weights, id = (
        new.get(name or "", name) for name in (recipe.label, recipe.weights, recipe.id)
    )
    drop, only = (tuple(new.get(n, n) for n in names) for names in (recipe.drop, recipe.only))
    columns = {new.get(name, name): rule for name, rule in recipe.columns.items()}
    found = replace(recipe, label=label, weights=weights, id=id)
    return replace(found, drop=drop, only=only, columns=columns)


def _column_names(recipe: Recipe) -> list[str]:
    """The names of columns in a recipe."""
    names = (recipe.label, recipe.weights, recipe.id, *recipe.drop, *recipe.only, *recipe.columns)
    return [name for name in names if name]


def _advice(table: Table) -> str:
    """What to say, too, where a column is not found in a file without names."""
    has_names = table.names != [str(i + 1) for i in range(len(table.names))]
    return "" if has_names else " Say --header if its first line has the names"


def find(table: Table, option: str, name: str) -> str:
    """The name of a column, which an option has; a UsageError if the table has no such column."""
    names = table.names
    if name not in names:
        raise UsageError(
            f"{option} {name}: {table.paths[0]} has no such column; it has {preview(names)}."
            f"{did_you_mean(name, names)}{_advice(table)}"
        )
    return name


def roles(table: Table, recipe: Recipe) -> Roles:
    """The roles of the columns.

    Raises UsageError (a column does not exist or has two roles, or none is said to be the label).
    """
    names, advice = table.names, _advice(table)
    label = recipe.label
    if label is None and recipe.labelled:
        if DEFAULT_LABEL not in names:
            raise UsageError(
                f"{table.paths[0]}: no column is called {DEFAULT_LABEL}. Name the column to be "
                f"predicted, --label NAME, or say --unlabelled. The columns are "
                f"{preview(names, 100)}"
                f"{'.' * bool(advice)}{advice}"
            )
        label = DEFAULT_LABEL
    given = {"--label": label, "--weights": recipe.weights, "--id": recipe.id}
    taken: dict[str, str] = {}
    for option, name in given.items():
        if name is not None:
            if find(table, option, name) in taken:
                raise UsageError(f"{taken[name]} and {option} are both {name}: name two columns")
            taken[name] = option
    rules = {name: rule for name, rule in recipe.columns.items() if rule.kind != "drop"}
    dropped = {name for name, rule in recipe.columns.items() if rule.kind == "drop"}
    dropped |= set(recipe.drop)
    for option, some in (("--drop", dropped), ("columns", rules), ("--columns", recipe.only)):
        for name in some:
            if find(table, option, name) in taken:
                raise UsageError(f"{option} {name}: it is {taken[name]}, and so no feature")
    features = [
        name for name in (recipe.only or names) if name not in taken and name not in dropped
    ]
    if len(set(features)) != len(features):
        raise UsageError(f"--columns {','.join(features)}: expected columns that come once")
    if not features:
        raise DataError(f"{table.paths[0]} has no column that can be a feature: {preview(names)}")
    return Roles(label, recipe.weights, recipe.id, tuple(features))
