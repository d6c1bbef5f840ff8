"""Where two recipes differ first."""

from dataclasses import replace

from mapreduce.data.recipes.differences import first_difference
from mapreduce.data.recipes.fitted import Fitted, FittedRecipe
from mapreduce.data.recipes.recipe import Recipe
from quick import cases

AGE = Fitted("age", "number", "indicator", fill=40.0, mean=41.5, scale=2.0, note="1 to 90")
TOWN = Fitted("town", "category", "indicator", levels=("Basel", "Bern"))
RECIPE = FittedRecipe(Recipe(label="y"), (AGE, TOWN), {"z": "dropped"}, "dense")


@cases(
    "changes, told",
    ({"columns": (replace(AGE, mean=7.0, fill=6.0), TOWN)}, "column 'age' has mean 7.0, expec"),
    ({"columns": (replace(AGE, fill=6.0), TOWN)}, "column 'age' has fill 6.0, expected 40.0"),
    (
        {"columns": (replace(AGE, note="1 to 5"), replace(TOWN, levels=("Bern",)))},
        "column 'town' has levels ('Bern',), expected ('Basel', 'Bern')",
    ),
    ({"columns": (AGE,)}, "column none, expected 'town'"),
    ({"columns": (replace(AGE, name="old"), TOWN)}, "column 'old', expected 'age'"),
    ({"recipe": Recipe(label="z")}, "label 'z', expected 'y'"),
    ({"layout": "sparse"}, "layout 'sparse', expected 'dense'"),
    ({"left_out": {}}, "left out {}, expected {'z': 'dropped'}"),
    ({"columns": (replace(AGE, note="1 to 5"), TOWN)}, "their notes are not the same"),
)
def test_the_first_difference_is_told(changes, told):
    assert first_difference(replace(RECIPE, **changes), RECIPE).startswith(told)
