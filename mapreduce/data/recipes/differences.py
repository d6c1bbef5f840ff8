"""Where two recipes of features differ first, in words."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from mapreduce.data.recipes.fitted import Fitted, FittedRecipe

#: Characters of a value.
_LENGTH = 60


def first_difference(found: FittedRecipe, expected: FittedRecipe) -> str:
    """The first column that became something else, or the first setting that is not the same."""
    for pair in zip_longest(found.columns, expected.columns):
        if told := _of_columns(*pair):
            return told
    told = _of_values(found.recipe.to_json(), expected.recipe.to_json())
    others = [{"layout": one.layout, "left out": one.left_out} for one in (found, expected)]
    return told or _of_values(*others) or "their notes are not the same"


def _of_columns(found: Fitted | None, expected: Fitted | None) -> str | None:
    if found is None or expected is None or found.name != expected.name:
        names = [repr(one.name) if one else "none" for one in (found, expected)]
        return f"column {names[0]}, expected {names[1]}"
    told = _of_values(_column_values(found), _column_values(expected))
    return told and f"column {found.name!r} has {told}"


def _column_values(column: Fitted) -> dict[str, Any]:
    """What people know best first: the mean rather than what stands for a missing field."""
    values = asdict(column)
    del values["note"]
    fill = values.pop("fill")
    return {**values, "fill": fill}


def _of_values(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    for name in dict.fromkeys([*expected, *found]):
        if found.get(name) != expected.get(name):
            values = [f"{one.get(name)!r:.{_LENGTH}}" for one in (found, expected)]
            return f"{name.replace('_', ' ')} {values[0]}, expected {values[1]}"
    return None
